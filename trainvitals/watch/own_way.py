"""Ways of trainers that know no control client: a file whose existence makes them save and end, and a signal that does.

Only what is certain is touched: the kill switch file that we wrote ourselves, and the one process that is proven to be the trainer.
Each way answers with a sentence: "" when it did what was asked, else why it did not.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainvitals.control.records import ControlRequest
from trainvitals.control.sharing import name_of_user
from trainvitals.errors import StoreError, TrainvitalsError
from trainvitals.store.sqlite_connection import refuse_network_file_system

#: First word of a kill switch file of ours; one without it belongs to somebody else and stays.
MARK = b"trainvitals "
MAX_MARK_BYTES = 4096
MAX_PID_BYTES = 300
#: The coarse clock of a process's begin, and that of a file system beside ours.
CLOCK_SLACK_NS = 2_000_000_000
_PID = re.compile(rb"([0-9]{1,10})(?:[ \t]{1,8}([A-Za-z][A-Za-z0-9._-]{0,252}))?", re.ASCII)
_CAUGHT = re.compile(r"^SigCgt:[ \t]{0,8}([0-9a-f]{1,32})$", re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Trainer:
    """The process of an attempt, as its hook wrote it: where, and that it began no later than ``started_ns`` (UTC)."""

    pid: int
    host: str
    started_ns: int
    pid_namespace: str = ""


class OwnWay(Protocol):
    """name: as in the settings. can_take_back: whether a park that is not carried out yet can be undone."""

    name: str
    can_take_back: bool

    def park(self, request: ControlRequest, trainer: Trainer | None) -> str:
        """Make the trainer save and end."""
        ...

    def release(self, request: ControlRequest) -> str:
        """Let it start again."""
        ...

    def is_gone(self, trainer: Trainer | None) -> bool:
        """True only when it is certain that the process has ended."""
        ...


class KillSwitch:
    """BigScience Megatron-DeepSpeed ``--kill-switch-path`` and its descendants: each rank looks for the file at each iteration, saves and
    ends when it is there, and refuses to start while it is."""

    name, can_take_back = "kill_switch", True

    def __init__(self, path: str, run: str) -> None:
        self._path, self._run = Path(path), run

    def park(self, request: ControlRequest, trainer: Trainer | None) -> str:
        who = f"{request.by or 'somebody'}: {request.reason}".encode("utf-8", "replace").replace(b"\n", b" ")[:2000]
        text = MARK + f"run {self._run} seq {request.seq}, asked for by ".encode() + who + b"\n"
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if os.path.exists(self._path):  # noqa: PTH110 - as the trainers look: a link to nowhere is not there
                return ""  # whoever made it: the trainer saves and ends
            return f"the kill switch {self._path} is a link to nowhere, which no trainer sees; remove it"
        except OSError as error:
            return f"the kill switch {self._path} cannot be written: {error.strerror or error}"
        try:
            os.write(handle, text)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            return f"the kill switch {self._path} cannot be written: {error.strerror or error}"
        finally:
            os.close(handle)
        return ""

    def release(self, request: ControlRequest) -> str:
        try:
            if not self._is_ours():
                return f"the kill switch {self._path} was not made from here; the trainer starts when it is removed by hand"
            self._path.unlink()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"the kill switch {self._path} cannot be removed: {error.strerror or error}"
        return ""

    def is_gone(self, trainer: Trainer | None) -> bool:
        return False  # its log says so

    def _is_ours(self) -> bool:
        """Raises ``OSError``."""
        if not stat.S_ISREG(self._path.lstat().st_mode):
            return False
        handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(handle, MAX_MARK_BYTES).startswith(MARK + f"run {self._run} ".encode())
        finally:
            os.close(handle)


class TrainerSignal:
    """SIGTERM or SIGUSR1 to the trainer's process, when it catches that signal (Megatron-LM ``--exit-signal-handler`` and the like)."""

    name, can_take_back = "signal", False

    def __init__(
        self,
        signal_name: str,
        pid_file: str,
        host: str,
        read: Callable[[int], tuple[bool, int | None]],
        pid_namespace: str = "",
        proc: str = "/proc",
        is_shared: Callable[[Path], bool] | None = None,
    ) -> None:
        """read: is the process there, and when did it begin (UTC ns). is_shared: whether other hosts may have written a file.

        Raises ``TrainvitalsError`` for another signal."""
        if signal_name not in ("TERM", "USR1"):
            raise TrainvitalsError(f"signal must be TERM or USR1, not {signal_name[:40]!r}.")
        self._number = signal.Signals[f"SIG{signal_name}"]
        self._pid_file = Path(pid_file) if pid_file else None
        self._host, self._read, self._pid_namespace, self._proc = host, read, pid_namespace, Path(proc)
        self._is_shared = is_shared or _is_shared

    def park(self, request: ControlRequest, trainer: Trainer | None) -> str:
        chosen, why_not = self._chosen(trainer)
        if chosen is None:
            return why_not
        try:
            handle = os.pidfd_open(chosen.pid)  # from here on the number cannot become another process's
        except OSError as error:
            return f"process {chosen.pid} on {self._host} is gone: {error.strerror or error}"
        try:
            why_not = self._objection(chosen)
            if not why_not:
                signal.pidfd_send_signal(handle, self._number)
        except OSError as error:
            return f"process {chosen.pid} on {self._host} took no {self._number.name}: {error.strerror or error}"
        finally:
            os.close(handle)
        return why_not

    def release(self, request: ControlRequest) -> str:
        return ""

    def is_gone(self, trainer: Trainer | None) -> bool:
        chosen, _ = self._chosen(trainer)
        if chosen is None:
            return False
        is_there, began_ns = self._read(chosen.pid)
        return not is_there or (began_ns is not None and began_ns > chosen.started_ns + CLOCK_SLACK_NS)

    def _chosen(self, trainer: Trainer | None) -> tuple[Trainer | None, str]:
        if self._pid_file is not None:
            return self._of_file(self._pid_file, trainer)
        if trainer is None:
            return None, "no process of this attempt is known: the hook's file names it, or signal_pid_file in the settings"
        if trainer.host != self._host:
            return None, f"the trainer runs on {trainer.host}, this is {self._host}: a signal reaches only this host"
        if trainer.pid_namespace and self._pid_namespace and trainer.pid_namespace != self._pid_namespace:
            return None, "the trainer runs in another container, where process numbers mean something else; give signal_pid_file"
        return trainer, ""

    def _of_file(self, path: Path, trainer: Trainer | None) -> tuple[Trainer | None, str]:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return None, f"the process id file {path} cannot be read: {error.strerror or error}"
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_mode & stat.S_IWOTH or found.st_uid not in (0, os.geteuid()):
                mine = name_of_user(os.geteuid())
                return None, f"{path} must be a file of {mine} or root that not everyone may write to; nothing was signalled"
            text = os.read(handle, MAX_PID_BYTES + 1).strip()
        except OSError as error:
            return None, f"the process id file {path} cannot be read: {error.strerror or error}"
        finally:
            os.close(handle)
        told = _PID.fullmatch(text)
        if told is None:
            return None, f"{path} holds no process id"
        why_not = self._of_another_host(path, (told[2] or b"").decode(), trainer)
        return (None, why_not) if why_not else (Trainer(int(told[1]), self._host, found.st_mtime_ns), "")

    def _of_another_host(self, path: Path, host: str, trainer: Trainer | None) -> str:
        """Why the number may mean another host's process, where it would be a stranger's here; "" when it does not."""
        if host:
            return (
                ""
                if host == self._host
                else f"{path} names a process of {host}, this is {self._host}: a signal reaches only this host"
            )
        advice = 'let whoever writes it name the host, too: echo "$PID $(uname -n)"'
        if trainer is not None and trainer.host != self._host:
            return f"the trainer runs on {trainer.host}, this is {self._host}, and {path} says of neither that its process is there; {advice}"
        if trainer is None and self._is_shared(path):
            return f"{path} lies where other hosts write, too, and does not say on which one its process is; {advice}"
        return ""

    def _objection(self, trainer: Trainer) -> str:
        """Why this process is not certainly the trainer, or would be killed by the signal; "" when it is and would not."""
        where = f"process {trainer.pid} on {self._host}"
        if trainer.pid <= 1 or trainer.pid in (os.getpid(), os.getppid()):
            return f"{where} is no trainer; nothing was signalled"
        is_there, began_ns = self._read(trainer.pid)
        if not is_there:
            return f"{where} is gone"
        if began_ns is None or began_ns > trainer.started_ns + CLOCK_SLACK_NS:
            return f"{where} is younger than the trainer that had this number; nothing was signalled"
        place = self._proc / str(trainer.pid)
        owner = place.stat().st_uid
        if owner != os.geteuid():
            return f"{where} belongs to {name_of_user(owner)}; only processes of {name_of_user(os.geteuid())} are signalled"
        caught = _CAUGHT.search((place / "status").read_text(encoding="ascii", errors="replace"))
        if caught is None or not int(caught[1], 16) >> (self._number - 1) & 1:
            return f"{where} does not catch {self._number.name}: it would be killed without a checkpoint; nothing was signalled"
        return ""


def _is_shared(path: Path) -> bool:
    try:
        refuse_network_file_system(path)
    except StoreError:
        return True
    return False
