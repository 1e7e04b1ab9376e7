"""Reads the ends of thousands of logs within a time, whatever the file system does: each file in a thread that may hang alone.

The reader threads only list, open and read; what they find is judged in the caller's thread. Who does not answer in time is left
behind (a daemon thread in a system call cannot be ended) and its files count as not read.
"""

from __future__ import annotations

import glob
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.logs.tails import Tail, read_tail

READERS = 8
MAX_FILES = 50_000
#: Tails that were read and not judged yet: bounds the memory.
_WAITING = 32
#: When nothing more came for so long although all files are named, those that are left hang.
STUCK_S = 5.0
#: Files of other programs, or packed: nothing is to be read from their last bytes.
_SKIPPED_SUFFIXES = (".gz", ".zst", ".xz", ".bz2", ".zip", ".pt", ".bin", ".npy", ".safetensors")


@dataclass(frozen=True)
class ReadFile:
    """``tail`` None: it could not be read, for the reason in ``error``; "" = it was not wanted (too old, packed, empty, or
    read under another name)."""

    path: str
    tail: Tail | None
    error: str = ""


class TailReading:
    """One go through the files of some patterns. Iterate once."""

    def __init__(
        self,
        patterns: Sequence[str],
        tail_bytes: int,
        clock: Clock,
        deadline_s: float,
        changed_since_ns: int | None,
        excluded: str,
    ) -> None:
        self._tail_bytes, self._clock, self._deadline_s = tail_bytes, clock, deadline_s
        self._changed_since_ns, self._excluded = changed_since_ns, f"{excluded}/"
        self._paths: queue.Queue[str | None] = queue.Queue()
        self._results: queue.Queue[ReadFile | None] = queue.Queue(_WAITING)
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._identities: set[tuple[int, int]] = set()
        self._stop = threading.Event()
        self._lists_open = len(patterns)
        self._capped = 0
        for pattern in patterns:
            threading.Thread(target=self._list, args=(pattern,), name="tail-list", daemon=True).start()
        if not patterns:
            self._end_of_lists()
        for _ in range(READERS):
            threading.Thread(target=self._read, name="tail-read", daemon=True).start()

    @property
    def listed(self) -> int:
        """Files that the patterns named so far and that are read."""
        return len(self._known)

    @property
    def beyond(self) -> int:
        """Files that the patterns named beyond ``MAX_FILES``: nobody asks for them."""
        return self._capped

    @property
    def is_listed(self) -> bool:
        """Whether every pattern answered."""
        return self._lists_open == 0

    def __iter__(self) -> Iterator[ReadFile]:
        """What was read, until all is read or the time is over."""
        readers = READERS
        came_s = self._clock.monotonic_s()
        while readers:
            now_s = self._clock.monotonic_s()
            left_s = self._deadline_s - now_s
            if left_s <= 0 or (self.is_listed and now_s - came_s > STUCK_S):
                break
            try:
                result = self._results.get(timeout=min(left_s, 0.5))
            except queue.Empty:
                continue
            if result is None:
                readers -= 1
            else:
                yield result
            came_s = self._clock.monotonic_s()
        self._stop.set()

    def _list(self, pattern: str) -> None:
        try:
            for path in glob.iglob(pattern, recursive=True):  # noqa: PTH207 (absolute patterns)
                if self._stop.is_set():
                    return
                with self._lock:
                    is_new = path not in self._known and not path.startswith(self._excluded)
                    if is_new and len(self._known) >= MAX_FILES:
                        self._capped += 1
                        is_new = False
                    if is_new:
                        self._known.add(path)
                if is_new:
                    self._paths.put(path)
        finally:
            with self._lock:
                self._lists_open -= 1
                is_last = self._lists_open == 0
            if is_last:
                self._end_of_lists()

    def _end_of_lists(self) -> None:
        for _ in range(READERS):
            self._paths.put(None)

    def _read(self) -> None:
        while not self._stop.is_set():
            try:
                path = self._paths.get(timeout=1.0)
            except queue.Empty:
                continue
            if path is None:
                break
            self._give(self._one(path))
        self._give(None)

    def _one(self, path: str) -> ReadFile:
        if path.endswith(_SKIPPED_SUFFIXES):
            return ReadFile(path, None)
        try:
            status = Path(path).stat()
            is_old = self._changed_since_ns is not None and status.st_mtime_ns < self._changed_since_ns
            if is_old or (status.st_dev, status.st_ino) in self._identities:
                return ReadFile(path, None)
            tail = read_tail(path, self._tail_bytes)
        except OSError as error:
            return ReadFile(path, None, error.strerror or str(error))
        with self._lock:
            is_known = tail.identity in self._identities
            self._identities.add(tail.identity)
        return ReadFile(path, None if is_known else tail)

    def _give(self, result: ReadFile | None) -> None:
        while not self._stop.is_set():
            try:
                self._results.put(result, timeout=0.5)
            except queue.Full:
                continue
            return
