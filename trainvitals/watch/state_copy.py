"""A copy of the watchdog's committed state in the run directory: where it goes on from while its store cannot be opened.

The copy is never newer than what the store has, so whoever goes on from it reads some of the run's files again: the same rows, the same
ids. While the store takes nothing, what the watchdog is ahead of it stands beside the copy: the state of now, and what waits.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainvitals.clock import Clock

FILE = "watch.state"
#: A copy is made so often at most: what was read since is read again.
EVERY_S = 10.0
MAX_BYTES = 64 << 20
#: Between two writes, whatever happens, so many times what the last one took: detection waits for it.
PAUSE_TIMES = 10.0
#: 1: a copy alone, which earlier versions read, too.
_COPY, _AHEAD = 1, 2


@dataclass(frozen=True, slots=True)
class Kept:
    """committed: the copy. ahead, waiting: the state of a watchdog that was ahead of its store, and what waited; None when it was not."""

    committed: bytes | None
    ahead: bytes | None = None
    waiting: bytes | None = None


class StateCopy:
    """Of one run. ``trouble``: why there is no copy or an older one only, "" when all is well."""

    def __init__(self, run_dir: str, run: str, clock: Clock) -> None:
        self._path, self._run, self._clock = Path(run_dir) / FILE, run, clock
        self._due_s = self._free_s = float("-inf")
        self._is_ahead = False
        self.trouble = ""

    def is_due(self, *, is_news: bool) -> bool:
        """Whether to write now. is_news: people hear of what happened since."""
        now_s = self._clock.monotonic_s()
        return now_s >= (self._free_s if is_news else self._due_s)

    def hurry(self) -> None:
        """The next write is due at once: there may be no other."""
        self._due_s = self._free_s = float("-inf")

    def keep(self, state: bytes, *, is_news: bool = False) -> bool:
        """Copy what was just committed, when that is due; whether it was tried. A disk that is full or read-only costs the copy, nothing
        else."""
        if not self.is_due(is_news=is_news or self._is_ahead):
            return False
        self._is_ahead = False
        self._write({"schema": _COPY, "run": self._run}, state)
        return True

    def keep_ahead(self, kept: Kept) -> None:
        """What the store does not take now, beside the copy of what it has."""
        self._is_ahead = True
        parts = (kept.committed or b"", kept.ahead or b"", kept.waiting or b"")
        self._write({"schema": _AHEAD, "run": self._run, "bytes": [len(part) for part in parts]}, b"".join(parts))

    def _write(self, about: dict[str, object], content: bytes) -> None:
        began_s = self._clock.monotonic_s()
        self._replace(json.dumps(about).encode() + b"\n" + content)
        ended_s = self._clock.monotonic_s()
        self._due_s = ended_s + EVERY_S
        self._free_s = ended_s + PAUSE_TIMES * (ended_s - began_s)

    def _replace(self, content: bytes) -> None:
        temporary = self._path.with_name(f".{FILE}.{os.getpid()}")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(handle, left) :]
            finally:
                os.close(handle)
            temporary.replace(self._path)
            self.trouble = ""
        except OSError as error:
            self.trouble = (
                f"{self._path} cannot be written ({error.strerror or error}): a watchdog that starts while its store is away "
                "reads the run's files again from where the last copy was made"
            )
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def read(self) -> Kept | None:
        """The newest copy; None when there is none, or none that only this user may have written."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.trouble = f"{self._path} cannot be read: {error.strerror or error}"
            return None
        try:
            found = os.fstat(handle)
            others = stat.S_IWGRP | stat.S_IWOTH
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & others:
                self.trouble = f"{self._path} is not used: others may have written it; remove it"
                return None
            if found.st_size > MAX_BYTES:
                self.trouble = f"{self._path} is not used: it is larger than {MAX_BYTES:,} bytes"
                return None
            parts = []
            while part := os.read(handle, 1 << 20):
                parts.append(part)
        except OSError as error:
            self.trouble = f"{self._path} cannot be read: {error.strerror or error}"
            return None
        finally:
            os.close(handle)
        return self._checked(b"".join(parts))

    def _checked(self, told: bytes) -> Kept | None:
        header, _, content = told.partition(b"\n")
        kept: Kept | None = None
        try:
            about = json.loads(header)
            if about["run"] == self._run and content:
                kept = _parted(about, content)
        except (ValueError, KeyError, TypeError):
            kept = None
        if kept is None:
            self.trouble = f"{self._path} is not used: it is no copy of this run's state that this version can read"
        return kept


def _parted(about: dict[str, Any], content: bytes) -> Kept | None:
    if about["schema"] == _COPY:
        return Kept(content)
    if about["schema"] != _AHEAD:
        return None
    committed, ahead, waiting = (int(size) for size in about["bytes"])
    if min(committed, ahead, waiting) < 0 or committed + ahead + waiting != len(content):
        raise ValueError("it was cut")
    return Kept(content[:committed] or None, content[committed : committed + ahead], content[committed + ahead :])
