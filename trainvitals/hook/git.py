"""What git says of the code that was started: commit, branch and what was changed since.

A repository's own configuration can name programs to run (fsmonitor, diff drivers, filters, lazy fetches): none of them is
started, nothing is fetched, nothing is locked or written.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from trainvitals.masking import mask_text

MAX_DIFFSTAT_BYTES = 8_192
MAX_OUTPUT_BYTES = 1 << 20
MAX_FILTERS = 50
_FIXED = (
    "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=keep", "-c", "core.hooksPath=/dev/null", "-c", "diff.external=",
    "-c", "diff.submodule=short", "-c", "submodule.recurse=false", "-c", "core.quotePath=true", "-c", "color.ui=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "log.showSignature=false",
)  # fmt: skip
_FILTER = re.compile(r"filter\.(.{1,200})\.(?:clean|smudge|process|required)", re.ASCII | re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


class GitError(Exception):
    """Why git told nothing."""


class Running:
    """The gits that are asked just now, so that the trainer's end can end them: alone they might hang for ever on a file system."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Raises ``GitError`` after ``stop``; the process is killed then."""
        with self._lock:
            self._processes.append(process)
            is_stopped = self._is_stopped
        if is_stopped:
            _kill(process)
            raise GitError("the trainer ended")

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """It has been waited for: its number may be another process's from now on."""
        with self._lock:
            self._processes.remove(process)

    def stop(self) -> None:
        """Kill them with their children; nothing is asked any more. Never waits."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes:
                if process.returncode is None:
                    _signal(process)


def describe_git(directory: str, timeout_s: float, running: Running | None = None) -> dict[str, str | bool]:
    """``commit``, ``branch``, ``dirty`` and ``diffstat`` of the repository around ``directory``; ``unavailable``: why not."""
    ask = _Git(directory, time.monotonic() + timeout_s, running or Running())
    try:
        commit, branch = _head(ask)
    except GitError as error:
        return {"unavailable": str(error)}
    values: dict[str, str | bool] = {"commit": commit, "branch": branch}
    try:
        stat = ask(
            [*_no_filters(ask), *_DIFF], "git cannot compare the files with the commit: an object may be missing or damaged"
        )
    except GitError as error:
        values["diffstat_unavailable"] = str(error)
        return values
    values["dirty"] = bool(stat.strip())
    if stat.strip():
        values["diffstat"] = mask_text(stat)[:MAX_DIFFSTAT_BYTES].rstrip()
    return values


_DIFF = (
    "diff", "HEAD", "--stat=120", "--stat-count=150", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
    "--ignore-submodules=all",
)  # fmt: skip


def _head(ask: _Git) -> tuple[str, str]:
    why = "the script lies in no git repository that this user may read, or it has no commit"
    found = ask(["rev-parse", "HEAD", "--abbrev-ref", "HEAD"], why).split("\n")
    if not _COMMIT.fullmatch(found[0]):
        raise GitError("the repository has no commit")
    branch = mask_text(found[1].strip()[:200]) if len(found) > 1 else ""
    return found[0], "(detached)" if branch == "HEAD" else branch


def _no_filters(ask: _Git) -> list[str]:
    """Switches every clean filter off: ``git diff`` would run it for each file whose time stamp changed."""
    try:
        listed = ask(
            ["config", "--name-only", "--get-regexp", r"^filter\."], "git cannot read its settings", nothing_is_fine=True
        )
    except GitError as error:
        raise GitError(f"its filters cannot be listed: {error}") from error
    options: list[str] = []
    names = {found[1] for line in listed.split("\n") if (found := _FILTER.fullmatch(line.strip()))}
    if len(names) > MAX_FILTERS or any("=" in name for name in names):
        raise GitError("the repository's filters cannot be switched off")
    for name in sorted(names):
        for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")):
            options += ["-c", f"filter.{name}.{key}={value}"]
    return options


class _Git:
    """Asks git in a directory until a moment (monotonic)."""

    def __init__(self, directory: str, deadline_s: float, running: Running) -> None:
        self._directory, self._deadline_s, self._running = directory, deadline_s, running

    def __call__(self, arguments: Sequence[str], why_not: str, *, nothing_is_fine: bool = False) -> str:
        """What it prints. Raises ``GitError``: with ``why_not`` when git itself says no."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise GitError("no time was left")
        process = self._started(arguments)
        try:
            self._running.begin(process)
            output = _read(process, self._deadline_s)
            if output is None:
                raise GitError(f"git says more than {MAX_OUTPUT_BYTES >> 20} MiB")
            process.wait(max(0.1, self._deadline_s - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise GitError(f"git did not answer within {left_s:.0f} s") from error
        finally:
            if process.returncode is None:
                _kill(process)
            self._running.end(process)
            if process.stdout is not None:
                process.stdout.close()
        if process.returncode == -signal.SIGKILL:
            raise GitError("git was killed")
        if process.returncode != 0 and not (nothing_is_fine and process.returncode == 1):
            raise GitError(why_not)
        return output.decode("utf-8", "replace")

    def _started(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                ["git", "--no-pager", *_FIXED, *arguments],
                cwd=self._directory, env=_environment(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True, close_fds=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise GitError("git or the script's directory is not there") from error
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror or error}") from error


def _read(process: subprocess.Popen[bytes], deadline_s: float) -> bytes | None:
    """All that it prints; None when that is beyond ``MAX_OUTPUT_BYTES``. Raises ``TimeoutError``."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    waiting = select.poll()  # a trainer may hold more descriptors than select() can
    waiting.register(descriptor, select.POLLIN | select.POLLHUP)
    output = bytearray()
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not waiting.poll(left_s * 1_000):
            raise TimeoutError
        chunk = os.read(descriptor, 65_536)
        if not chunk:
            return bytes(output)
        output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            return None


def _signal(process: subprocess.Popen[bytes]) -> None:
    """The whole group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """One that hangs in the kernel is not waited for: the kernel ends it when the file system answers."""
    _signal(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The trainer's own environment without what steers git, and without what a launcher preloads into its ranks."""
    kept = {name: value for name, value in outer.items() if not name.startswith("GIT_") and name != "LD_PRELOAD"}
    return kept | {
        "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": "0", "LC_ALL": "C",
    }  # fmt: skip
