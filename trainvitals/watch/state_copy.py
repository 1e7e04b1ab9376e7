"""A copy of the watchdog's committed state in the run directory: where it goes on from while its store cannot be opened.

The copy is never newer than what the store has, so whoever goes on from it reads some of the run's files again: the same rows, the same
ids. It is read only then; what the store has kept comes first whenever the store answers.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from trainvitals.clock import Clock

FILE = "watch.state"
#: A copy is made so often at most: what was read since is read again.
EVERY_S = 10.0
MAX_BYTES = 64 << 20
_SCHEMA = 1


class StateCopy:
    """Of one run. ``trouble``: why there is no copy or an older one only, "" when all is well."""

    def __init__(self, run_dir: str, run: str, clock: Clock) -> None:
        self._path, self._run, self._clock = Path(run_dir) / FILE, run, clock
        self._due_s = float("-inf")
        self.trouble = ""

    def keep(self, state: bytes) -> None:
        """Copy what was just committed, when that is due. A disk that is full or read-only costs the copy, nothing else."""
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        header = json.dumps({"schema": _SCHEMA, "run": self._run}).encode() + b"\n"
        temporary = self._path.with_name(f".{FILE}.{os.getpid()}")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                left = memoryview(header + state)
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

    def read(self) -> bytes | None:
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

    def _checked(self, told: bytes) -> bytes | None:
        header, _, state = told.partition(b"\n")
        try:
            about = json.loads(header)
            is_ours = about["schema"] == _SCHEMA and about["run"] == self._run
        except (ValueError, KeyError, TypeError):
            is_ours = False
        if not is_ours or not state:
            self.trouble = f"{self._path} is not used: it is no copy of this run's state that this version can read"
            return None
        return state
