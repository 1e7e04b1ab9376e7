"""The append-only file of one process: opens, notices when it vanished, writes whole lines, counts what got lost.

No lock is held during I/O: each record is one ``write`` to a descriptor opened with O_APPEND, which the kernel serialises.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

REOPEN_AFTER_NS = 1_000_000_000
LOOK_EVERY_NS = 1_000_000_000
OPENING_S = 1.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Appender:
    """``path``: absolute. ``header``: gives the line written at each opening. Counters: ``lost`` records, ``errors``.

    Nothing raises but ``BaseException``s that are no ``Exception`` (KeyboardInterrupt passes through).
    """

    def __init__(self, path: str, header: Callable[[], str]) -> None:
        self._header = header
        self._reset(path)

    def _reset(self, path: str) -> None:
        self.path = path
        self.lost = 0
        self.errors = 0
        self.last_error = ""
        self._counting = threading.Lock()  # guards two additions, never I/O
        self._opening = threading.Lock()  # between threads of the trainer; the queued mode's log() never takes it
        self._descriptor = -1
        self._identity = (0, 0)
        self._needs_newline = False
        self._told = (0, 0)
        self._next_open_ns = 0
        self._next_look_ns = 0

    def count(self, lost: int = 0, errors: int = 0, reason: str = "") -> None:
        """Add to the counters, exactly, from any thread."""
        with self._counting:
            self.lost += lost
            self.errors += errors
            if reason:
                self.last_error = reason

    def after_fork(self, path: str) -> None:
        """In a forked child: forget the parent's descriptor and counters; the child's file is opened with its first record."""
        descriptor, identity = self._descriptor, self._identity
        self._reset(path)  # first: another thread of the parent may have held its lock
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor) if descriptor >= 0 else None
            if found is not None and (found.st_dev, found.st_ino) == identity:  # else the number is another file's by now
                os.close(descriptor)

    def open(self, now_ns: int) -> bool:
        """Open and write the header; False (and counted) when that is impossible now."""
        if not self._opening.acquire(timeout=OPENING_S):
            return False
        try:
            if self._is_ours(now_ns):
                return True  # another thread opened it meanwhile
            self._close_quietly()
            Path(self.path).parent.mkdir(mode=0o770, parents=True, exist_ok=True)
            place = _followed(self.path)
            descriptor = os.open(place, _FLAGS | os.O_NOFOLLOW, 0o640)
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                self._let_group_read(descriptor, found, Path(place).parent)
                torn = found.st_size > 0 and os.pread(descriptor, 1, found.st_size - 1) != b"\n"
                line = (("\n" if torn else "") + self._header()).encode()
                if os.write(descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, "no space for the header")
            except BaseException:
                os.close(descriptor)
                raise
            self._identity = (found.st_dev, found.st_ino)
            self._needs_newline = False
            self._next_look_ns = now_ns + LOOK_EVERY_NS
            self._descriptor = descriptor
            return True
        except Exception as error:  # noqa: BLE001 - the trainer must go on; counted and written with the next record
            self._next_open_ns = now_ns + REOPEN_AFTER_NS
            self.count(errors=1, reason=_reason(error))
            return False
        finally:
            self._opening.release()

    def _let_group_read(self, descriptor: int, found: os.stat_result, directory: Path) -> None:
        """A umask of 077 would hide it from those whom the directory was given to (``control init --group``: setgid)."""
        if found.st_mode & stat.S_IRGRP or found.st_uid != os.geteuid():
            return
        try:
            there = directory.stat()
            if there.st_mode & stat.S_ISGID and there.st_mode & stat.S_IXGRP and there.st_gid == found.st_gid:
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | stat.S_IRGRP)
        except OSError as error:
            self.count(errors=1, reason=_reason(error))  # what is written counts more than who may read it

    def write(self, line: str, now_ns: int, records: int = 1) -> int:
        """Append ``line`` (one or more records, each ending with a newline); returns how many got through.

        The others are counted as lost. Counters that changed since they were last told are put into the last record.
        """
        try:
            return self._write(line, now_ns, records)
        except Exception as error:  # noqa: BLE001 - the trainer must go on; counted and written with the next record
            self.count(lost=records, errors=1, reason=_reason(error))
            return 0

    def _write(self, line: str, now_ns: int, records: int) -> int:
        if not self._is_ours(now_ns) and not self._reopened(now_ns):
            self.count(lost=records)
            return 0
        told = (self.lost, self.errors)
        if told != self._told:
            line = f'{line[:-2]},"lost":{told[0]},"errors":{told[1]}}}\n'
        if self._needs_newline:
            line = "\n" + line
        block = line.encode("utf-8", "backslashreplace")
        try:
            written = os.write(self._descriptor, block)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN):
                self._close_quietly()  # stale handle, I/O error: try a fresh one with the next record
                self._next_open_ns = now_ns + REOPEN_AFTER_NS
            raise
        if written == len(block):
            self._told = told
            self._needs_newline = False
            return records
        complete = max(0, block[:written].count(b"\n") - self._needs_newline)
        self._needs_newline = not block[:written].endswith(b"\n")
        self.count(lost=records - complete, errors=1, reason="the disk took only a part of a record")
        return complete

    def _is_ours(self, now_ns: int) -> bool:
        """The descriptor still means our file (a trainer may close all descriptors and open a checkpoint under the same
        number), the file was not deleted, and about once a second: the path still leads to it."""
        if self._descriptor < 0:
            return False
        try:
            found = os.fstat(self._descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                self._descriptor = -1  # somebody else's file: not ours to close
                return False
            if found.st_nlink == 0:
                return False
            if now_ns >= self._next_look_ns or now_ns < self._next_look_ns - 2 * LOOK_EVERY_NS:
                self._next_look_ns = 0  # looked at again by whoever re-opens it
                there = Path(self.path).stat()
                if (there.st_dev, there.st_ino) != self._identity:
                    return False
                self._next_look_ns = now_ns + LOOK_EVERY_NS
        except OSError:
            return False
        return True

    def _reopened(self, now_ns: int) -> bool:
        waits = self._descriptor < 0 and self._next_open_ns - REOPEN_AFTER_NS <= now_ns < self._next_open_ns
        return not waits and self.open(now_ns)

    @property
    def is_open(self) -> bool:
        """A descriptor is held; the file behind it may be gone all the same."""
        return self._descriptor >= 0

    def close(self) -> None:
        """Give the descriptor back."""
        self._close_quietly()

    def _close_quietly(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) == self._identity:
                os.close(descriptor)
        except OSError as error:
            self.count(errors=1, reason=_reason(error))


def _followed(path: str) -> str:
    """Where to write. Only our own link is followed: whoever may write into a shared run directory could otherwise choose which
    of our files gets our lines. Raises ``OSError``."""
    try:
        found = os.lstat(path)
    except OSError:
        return path  # opening it tells why
    if not stat.S_ISLNK(found.st_mode):
        return path
    if found.st_uid != os.geteuid():
        raise OSError(errno.ELOOP, "it is a symbolic link of another user; remove it", path)
    target = os.path.realpath(path)
    again = os.lstat(path)
    if (again.st_dev, again.st_ino) != (found.st_dev, found.st_ino):
        raise OSError(errno.ELOOP, "it is a symbolic link that was changed meanwhile", path)
    return target


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return f"{type(error).__name__}: {error}"
