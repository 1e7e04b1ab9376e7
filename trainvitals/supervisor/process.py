"""The one door to the trainer's processes: start one in a session of its own, find it again, signal it, end all of it.

Every process of a start carries a mark in its environment, which launchers pass on to their workers even where they put them into
sessions of their own. So a supervisor that was started anew finds what runs, and nothing of an earlier start survives beside a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from trainvitals.errors import InputError

MARK = "TRAINVITALS_SUPERVISED"
_KEEPER = str(Path(__file__).with_name("keeper.py"))
_MAX_EXIT_FILE_BYTES = 4096
_NO_CODE = None


@dataclass(frozen=True, slots=True)
class Process:
    """pid: of the keeper, which leads the session. began: its start in clock ticks since boot, which tells it from a later one
    with the same number."""

    pid: int
    began: int


def mark_of(run_dir: str) -> str:
    """What all starts of this run directory have in common; the number of the start follows it. The path alone would not do: in
    containers that share the host's process ids, everybody's run may be ``/workspace/run``. Raises ``InputError``."""
    real = os.path.realpath(run_dir)
    try:
        seen = Path(real).stat()
    except OSError as error:
        raise InputError(f"Cannot look at the run directory {run_dir}: {error.strerror or error}.") from error
    return hashlib.sha256(os.fsencode(f"{seen.st_dev}:{seen.st_ino}:{real}")).hexdigest()[:16]


def start(command: Sequence[str], log: Path, exit_file: Path, mark: str, environment: Mapping[str, str]) -> Process:
    """Start ``command`` with stdout and stderr at the end of ``log``, written by the trainer itself. Raises ``InputError``."""
    argv = [sys.executable, "-I", "-S", _KEEPER, str(exit_file), *command]
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        exit_file.parent.mkdir(parents=True, exist_ok=True)
        exit_file.unlink(missing_ok=True)
        with _regular(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as output:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**environment, MARK: mark},
            )  # fmt: skip
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot start the trainer with its log at {log}: {error}.") from error
    began = _began(child.pid)
    # Popen would wait for it in its destructor; it is reaped by ``is_alive``, as one that was adopted is by init.
    child.returncode = 0
    return Process(child.pid, began if began is not None else 0)


def _regular(path: Path, flags: int) -> IO[bytes]:
    """A regular file; whoever may write the directory could have put a pipe or a link there. Raises ``OSError``."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    os.set_blocking(descriptor, True)  # the trainer inherits it
    return os.fdopen(descriptor, "ab" if flags & os.O_APPEND else "rb")


@dataclass
class Exits:
    """Exit codes of keepers that were children of this process."""

    codes: dict[int, int]


_exits = Exits({})


def is_alive(process: Process) -> bool:
    """Whether it is there and no zombie; reaps it when it is a child that ended."""
    with contextlib.suppress(ChildProcessError):
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid == process.pid:
            _exits.codes[pid] = os.waitstatus_to_exitcode(status)
            return False
    began = _began(process.pid)
    return began is not None and (process.began == 0 or began == process.began)


def exit_code(process: Process, exit_file: Path) -> int | None:
    """The trainer's own (negative: the signal that ended it); None when nothing tells it."""
    with contextlib.suppress(OSError, ValueError), _regular(exit_file, os.O_RDONLY) as file:
        raw = json.loads(file.read(_MAX_EXIT_FILE_BYTES))
        code = raw.get("code") if isinstance(raw, dict) else None
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    own = _exits.codes.get(process.pid)
    if own is None or own < 0:
        return _NO_CODE  # the keeper itself was killed
    return 128 - own if own > 128 else own


def members(mark: str) -> Mapping[int, str]:
    """Process id -> the whole mark, of every process of this user that a start with this beginning of a mark left or has."""
    found: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid() and (own := mark_in(int(entry.name))).startswith(mark):
            found[int(entry.name)] = own
    return MappingProxyType({pid: own for pid, own in found.items() if own})


def mark_in(pid: int) -> str:
    """The whole mark that a process of this user was started with; "" = none, or it is not there."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""  # ended meanwhile, or somebody else's
    own = next((one for one in environment.split(b"\0") if one.startswith(MARK.encode() + b"=")), b"")
    return own.partition(b"=")[2].decode("ascii", "replace")


def is_strange(pid: int, name: str, mark: str) -> bool:
    """Whether a program of this name runs there that no start with this beginning of a mark began."""
    try:
        is_it = Path(f"/proc/{pid}/comm").read_bytes().strip() == name.encode()
    except OSError:
        return False
    return is_it and _began(pid) is not None and not mark_in(pid).startswith(mark)


def session_leader(pids: Sequence[int]) -> Process | None:
    """The keeper among ``pids``; when it is gone, the one that is oldest."""
    known = [
        (Process(pid, began), os.getsid(pid) == pid) for pid in pids if (began := _began(pid)) is not None and _is_there(pid)
    ]
    leaders = [process for process, is_leader in known if is_leader]
    return min(leaders or [process for process, _ in known], key=lambda one: one.began, default=None)


def ask_to_end(process: Process, number: int = signal.SIGTERM) -> None:
    """Signal the trainer and what shares its process group; the keeper ignores it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill_all(process: Process | None, mark: str) -> int:
    """SIGKILL everything with this mark, the keeper excepted: it writes down how the trainer ended. Returns how many there were."""
    pids = [pid for pid in members(mark) if process is None or pid != process.pid]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def kill_keeper(process: Process) -> None:
    """The last resort: nothing of the trainer is left and its keeper does not end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)


def _is_there(pid: int) -> bool:
    try:
        os.getsid(pid)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _began(pid: int) -> int | None:
    """Start in clock ticks since boot; None when there is no such process or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command's name is in brackets and may hold anything; the fields after its last bracket are fixed (proc(5)).
    state, *rest = stat.rsplit(")", 1)[-1].split()
    return None if state in ("Z", "X") else int(rest[18])
