"""The door to the files of the audit: one writer at a time, appended and synchronised, links and strange files refused.

``audit.jsonl`` is being written; ``audit.NUMBER.jsonl`` are older ones, named by their first record.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from trainvitals.clock import SystemClock
from trainvitals.control.files import check_directory, control_dir
from trainvitals.errors import ControlError

AUDIT_FILE = "audit.jsonl"
LOCK_FILE = "audit.lock"
MODE = 0o660
#: A record is far shorter; room for two or three of them that are written at once.
MAX_LINE_BYTES = 65_536
#: No writer makes a file longer than this; what lies beyond is not read.
MAX_READ_BYTES = 4 << 20
#: Another writer takes milliseconds; one that hangs on a dead disk must not hang the dashboard.
LOCK_WAIT_S = 2.0
LOCK_LOOK_S = 0.01
_OLDER = re.compile(r"audit\.([0-9]{12})\.jsonl", re.ASCII)

RunDir = str | os.PathLike[str]


@dataclass(slots=True)
class AuditDirectory:
    """The open directory. older: names of files put aside, oldest first. size: bytes of ``audit.jsonl``."""

    where: str
    handle: int
    older: list[str] = field(default_factory=list)
    size: int = 0
    has_file: bool = False

    @classmethod
    def open_for_reading(cls, run_dir: RunDir) -> AuditDirectory | None:
        """None when there is no control directory. Raises ``ControlError`` for an unsafe one, ``OSError``."""
        path = control_dir(run_dir)
        try:
            check_directory(path)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        directory = cls(str(path), handle)
        try:
            directory.look()
        except BaseException:
            os.close(handle)
            raise
        return directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self.handle)

    @property
    def is_new_file(self) -> bool:
        """Nothing was written into ``audit.jsonl`` yet."""
        return self.size == 0

    @property
    def names(self) -> list[str]:
        """All files, in the order of their records."""
        return [*self.older, AUDIT_FILE] if self.has_file else list(self.older)

    def look(self) -> None:
        """See what lies there now."""
        with os.scandir(self.handle) as entries:
            self.older = sorted(entry.name for entry in entries if _OLDER.fullmatch(entry.name))
        try:
            found = os.stat(AUDIT_FILE, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            self.has_file, self.size = False, 0
            return
        self.has_file, self.size = True, found.st_size

    def lines(self, name: str) -> tuple[list[bytes], bytes]:
        """(complete lines without their newlines, what follows the last newline); nothing beyond ``MAX_READ_BYTES``."""
        return _split(self._read(name, 0, MAX_READ_BYTES))

    def tail(self, name: str) -> tuple[list[bytes], bytes]:
        """As ``lines``, of the last records only."""
        length = self._length(name)
        start = max(0, length - 4 * MAX_LINE_BYTES)
        lines, rest = _split(self._read(name, start, 4 * MAX_LINE_BYTES))
        return (lines[1:] if start else lines), rest

    def first_line(self) -> bytes:
        """Of ``audit.jsonl``."""
        return self._read(AUDIT_FILE, 0, MAX_LINE_BYTES).split(b"\n", 1)[0]

    def is_too_long(self, name: str) -> bool:
        """Longer than any writer makes it."""
        return self._length(name) > MAX_READ_BYTES

    def write(self, data: bytes) -> None:
        """Append and synchronise; a part that the disk did not take is taken back. Raises ``ControlError``."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            with _opened(self, AUDIT_FILE, flags) as handle:
                before = os.fstat(handle).st_size
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(handle, view) :]
                    os.fsync(handle)
                except OSError:
                    # What stays all the same is closed by the next writer, who says so.
                    with contextlib.suppress(OSError):
                        os.ftruncate(handle, before)
                    raise
            if not self.has_file:
                os.fsync(self.handle)
        except OSError as error:
            raise ControlError(f"Cannot write the audit {self.where}/{AUDIT_FILE}: {error.strerror or error}.") from error

    def put_aside(self, first: int, most: int) -> None:
        """Name the full file after its first record, and delete the oldest beyond ``most``. Raises ``ControlError``."""
        newest = int(self.older[-1].split(".")[1]) if self.older else -1
        name = f"audit.{max(first, newest + 1):012d}.jsonl"  # a first record that was tampered with must not hide a file
        try:
            os.rename(AUDIT_FILE, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
            self.look()
            for old in self.older[:-most]:
                os.unlink(old, dir_fd=self.handle)
            os.fsync(self.handle)
            self.look()
        except OSError as error:
            raise ControlError(f"Cannot begin a new audit file in {self.where}: {error.strerror or error}.") from error

    def _length(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0  # put aside by a writer since it was listed

    def _read(self, name: str, start: int, most: int) -> bytes:
        try:
            return self._read_there(name, start, most)
        except FileNotFoundError:
            return b""

    def _read_there(self, name: str, start: int, most: int) -> bytes:
        with _opened(self, name, os.O_RDONLY) as handle:
            os.lseek(handle, start, os.SEEK_SET)
            parts, left = [], most
            while left > 0 and (part := os.read(handle, left)):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)


@contextlib.contextmanager
def locked(run_dir: RunDir) -> Iterator[AuditDirectory]:
    """The directory, with nobody else writing. Raises ``ControlError`` when the place is unsafe or the lock is held too long."""
    where = control_dir(run_dir)
    try:
        directory = AuditDirectory.open_for_reading(run_dir)
        if directory is None:
            raise ControlError(f"{where} went away; nothing was audited.")
        with directory, _opened(directory, LOCK_FILE, os.O_RDWR | os.O_CREAT) as lock:
            _take(lock, f"{where}/{LOCK_FILE}")
            directory.look()
            yield directory
    except OSError as error:
        raise ControlError(f"The audit in {where} cannot be written: {error.strerror or error}.") from error


def _take(lock: int, where: str) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        if clock.monotonic_s() >= deadline_s:
            raise ControlError(
                f"Another program holds {where} for more than {LOCK_WAIT_S:.0f} s; nothing was audited. See: fuser {where}"
            )
        clock.sleep(LOCK_LOOK_S)


@contextlib.contextmanager
def _opened(directory: AuditDirectory, name: str, flags: int) -> Iterator[int]:
    path = f"{directory.where}/{name}"
    try:
        handle = os.open(
            name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, MODE, dir_fd=directory.handle
        )  # fmt: skip
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ControlError(f"{path} is a symbolic link; the audit is not read or written through links.") from error
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise ControlError(f"{path} is not a file; move it away.") from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ControlError(f"{path} is not a regular file; move it away.")
        if flags & os.O_CREAT and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != MODE:
            os.fchmod(handle, MODE)  # the umask of one operator must not lock the group out
        yield handle
    finally:
        os.close(handle)


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    *lines, rest = data.split(b"\n")
    return lines, rest
