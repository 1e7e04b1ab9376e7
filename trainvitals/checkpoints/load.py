"""Level load: a child process with hard limits reads the checkpoint's tensors and samples their values.

Loading is the one thing that may be dangerous or endless, so it never happens in our process. A child that dies or runs out of its
limits says nothing about the checkpoint.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainvitals.checkpoints.files import Listing, printable
from trainvitals.checkpoints.findings import Findings

MAX_ANSWER_BYTES = 1024 * 1024
_ROOT = str(Path(__file__).resolve().parents[2])
# -I: neither the environment nor the current directory chooses what is imported.
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from trainvitals.checkpoints.load_child import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the child. memory_bytes: its own memory, without the pages of files that it maps. sample_bytes: read of all tensors."""

    seconds: int = 300
    memory_bytes: int = 4 * 1024**3
    sample_bytes: int = 2 * 1024**3
    tries_torch: bool = True


def check(listing: Listing, findings: Findings, limits: Limits | None = None, stop: Callable[[], bool] = lambda: False) -> bool:
    """Load a checkpoint in a child; returns whether all of it loads and its values are sound. Never raises for the checkpoint."""
    limits = limits or Limits()
    answer = _run(listing, limits, stop)
    if isinstance(answer, _Ended) and not answer.has_begun and limits.tries_torch and not stop():
        findings.notes.append(f"not loaded by torch, which was not imported within the limits of this check ({answer.why})")
        answer = _run(listing, replace(limits, tries_torch=False), stop)
    if isinstance(answer, _Ended):
        findings.notes.append(answer.why)
        return False
    findings.damaged += answer["damaged"]
    findings.notes += [*answer["unproven"], *answer["notes"]]
    return not answer["damaged"] and not answer["unproven"]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Without an answer. has_begun: to look at the checkpoint; before that the child imports what it needs."""

    why: str
    has_begun: bool


def _run(listing: Listing, limits: Limits, stop: Callable[[], bool]) -> dict[str, Any] | _Ended:
    # Files are mapped, not copied: their size counts as address space although it costs no memory.
    space = limits.memory_bytes + max((entry.size for entry in listing.entries), default=0)
    options = {
        "seconds": limits.seconds, "memory_bytes": space, "sample_bytes": limits.sample_bytes, "tries_torch": limits.tries_torch,
    }  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _START, _ROOT, os.path.abspath(listing.root), json.dumps(options)],  # noqa: PTH100
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
    )  # fmt: skip
    try:
        raw, why = _answer(child, limits, stop)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if why:
        return _Ended(f"could not be loaded within limits: {why}", bool(raw))
    parsed = _parsed(raw)
    if parsed is None:
        why = f"could not be loaded: the process that loads it ended without an answer ({_ending(child.returncode)})"
        return _Ended(why, bool(raw))
    return parsed


def _answer(child: subprocess.Popen[bytes], limits: Limits, stop: Callable[[], bool]) -> tuple[bytes, str]:
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    until_s = time.monotonic() + limits.seconds
    raw = b""
    while len(raw) < MAX_ANSWER_BYTES:
        if stop():
            return raw, "it was stopped"
        if time.monotonic() > until_s:
            return raw, f"it took longer than {limits.seconds} s"
        if _own_memory_bytes(child.pid) > limits.memory_bytes:
            return raw, f"it needed more than {limits.memory_bytes} bytes of memory"
        if select.select([descriptor], [], [], 0.2)[0]:
            part = os.read(descriptor, 65_536)
            if not part:
                _wait_without_reaping(child.pid, min(until_s, time.monotonic() + 2.0))
                return raw, ""
            raw += part
    return raw, f"it answered with more than {MAX_ANSWER_BYTES} bytes"


def _wait_without_reaping(pid: int, until_s: float) -> None:
    """Its own ending must not be taken for the kill that follows, and its number must not be free before that."""
    while time.monotonic() < until_s and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        time.sleep(0.02)


def _own_memory_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0  # it has just ended
    line = next((line for line in text.splitlines() if line.startswith("RssAnon:")), "")
    words = line.split()
    return int(words[1]) * 1024 if len(words) > 1 and words[1].isdigit() else 0


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    found: dict[str, Any] = {}
    for name in ("damaged", "unproven", "notes"):
        texts = answer.get(name)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return None
        found[name] = [printable(text, 500) for text in texts[:20]]
    return found


def _ending(code: int) -> str:
    return f"killed by signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
