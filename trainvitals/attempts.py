"""``attempts.jsonl`` in the run directory: which start of the trainer has which number, and who may write it.

A known key keeps its number, numbers are never reused. Key: host, pid and start time for the hook; for a log the sha256 of
its first 4 KiB and the number of the rewind inside it. One writer at a time: whoever holds ``watch.lock``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeGuard

from trainvitals.errors import InputError, TrainvitalsError

ATTEMPTS_FILE = "attempts.jsonl"
LOCK_FILE = "watch.lock"
#: What ``flock`` says of a lock that another process holds; anything else is about the file system.
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """One start of the trainer. started_ns: UTC ns, None when the source has no time. first_step: None when not known yet."""

    attempt: int
    key: str
    started_ns: int | None
    first_step: int | None
    source: str


class AttemptBook:
    """Reads and extends ``attempts.jsonl``. Raises ``InputError`` when the file cannot be read or written.

    What was read is remembered until the file changes: a trainer that starts every second must not cost more and more.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self._path = Path(run_dir) / ATTEMPTS_FILE
        #: Lines that are no attempt (torn by a crash, or edited by hand): skipped, but a person can see how many.
        self.unreadable_lines = 0
        #: Numbers given out while the disk took nothing; ``keep_promises`` writes them.
        self.promised: dict[str, AttemptEntry] = {}
        #: Never give out this number or a lower one, whatever the file says (it may have been deleted).
        self.floor = 0
        self._numbers: dict[str, int] = {}
        self._highest = 0
        self._seen: tuple[int, int, int] | None = None

    def all(self) -> list[AttemptEntry]:
        """All attempts in the order they were written; a key or number that comes again is ignored."""
        raw = self._read()
        entries: list[AttemptEntry] = []
        keys: set[str] = set()
        numbers: set[int] = set()
        self.unreadable_lines = 0
        for line in raw.split(b"\n"):
            if not line.strip():
                continue
            entry = _parsed(line)
            if entry is None:
                self.unreadable_lines += 1
            elif entry.key not in keys and entry.attempt not in numbers:
                entries.append(entry)
                keys.add(entry.key)
                numbers.add(entry.attempt)
        return entries

    def number(self, key: str, started_ns: int | None, first_step: int | None, source: str) -> int:
        """The number of this key; a new key gets the next one, on disk before this returns."""
        if key in self.promised:
            return self.promised[key].attempt
        self._look()
        known = self._numbers.get(key)
        if known is not None:
            return known
        new = AttemptEntry(self._next(), key, started_ns, first_step, source)
        self._write(new)
        return new.attempt

    def promise(self, key: str, started_ns: int | None, first_step: int | None, source: str) -> int:
        """A number although the disk takes nothing now. The caller keeps ``promised`` and calls ``keep_promises``."""
        if key not in self.promised:
            self.promised[key] = AttemptEntry(self._next(), key, started_ns, first_step, source)
        return self.promised[key].attempt

    def keep_promises(self) -> None:
        """Write what was promised, oldest first."""
        for key, entry in list(self.promised.items()):
            self._look()
            if key not in self._numbers:
                self._write(entry)
            del self.promised[key]

    def _next(self) -> int:
        return max(self._highest, self.floor, *(entry.attempt for entry in self.promised.values())) + 1

    def _look(self) -> None:
        seen = self._signature()
        if seen is not None and seen == self._seen:
            return
        entries = self.all()
        self._numbers = {entry.key: entry.attempt for entry in entries}
        self._highest = max(self._numbers.values(), default=0)
        self._seen = seen

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> bytes:
        try:
            # A pipe or a device in this place must neither block nor fill the memory.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise InputError(f"Cannot read {self._path}: {error.strerror or error}.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(f"Cannot read {self._path}: it is no regular file; move it away.")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        except OSError as error:
            raise InputError(f"Cannot read {self._path}: {error.strerror or error}.") from error
        finally:
            os.close(descriptor)

    def _write(self, entry: AttemptEntry) -> None:
        try:
            self._append(entry)
        except OSError as error:
            raise InputError(f"Cannot write {self._path}: {_why(error)}.") from error
        self._numbers[entry.key] = entry.attempt
        self._highest = max(self._highest, entry.attempt)
        self._seen = self._signature()

    def _append(self, entry: AttemptEntry) -> None:
        line = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        is_new = not self._path.exists()
        # Whoever may write into a shared run directory must not choose by a link which of our files gets our lines.
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a torn last line must not swallow this one
            written = os.write(descriptor, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes could be written; is the disk full?")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            _sync_directory(self._path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parsed(line: bytes) -> AttemptEntry | None:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    attempt, key, source = raw.get("attempt"), raw.get("key"), raw.get("source", "")
    started_ns, first_step = raw.get("started_ns"), raw.get("first_step")
    if not _is_whole(attempt) or attempt < 1 or not isinstance(key, str) or not isinstance(source, str):
        return None
    if (started_ns is not None and not _is_whole(started_ns)) or (first_step is not None and not _is_whole(first_step)):
        return None
    return AttemptEntry(attempt, key, started_ns, first_step, source)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _why(error: OSError) -> str:
    return "it is a symbolic link; remove it" if error.errno == errno.ELOOP else error.strerror or str(error)


@contextmanager
def hold_watch_lock(run_dir: str | Path) -> Iterator[None]:
    """Be the only writer of a run directory while inside. The lock goes with the process, however that ends.

    Raises ``TrainvitalsError`` naming the process that holds it, ``InputError`` where no lock can be had.
    """
    path = Path(run_dir) / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise InputError(f"Cannot open {path}: {_why(error)}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                raise InputError(
                    f"The file system of {run_dir} locks no files ({error.strerror or error}), so two watches could write there at "
                    "once; mount it with locks (Lustre: -o flock), or put dir on another one."
                ) from error
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise TrainvitalsError(
                f"The run directory {run_dir} is in use by {who} already (a watch or an import); stop that one first, "
                "or leave it to its work."
            ) from error
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # for people only: the lock holds on a full disk, too, and that is to be found out
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            # Emptied before it is released: a later reader must not be told of a process that is gone.
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
