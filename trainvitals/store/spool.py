"""A spool in front of a store: what was appended is on this machine's disk, and is delivered whenever the store takes it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trainvitals.records import Point
from trainvitals.store.spool_file import SpoolFile, SpoolStats
from trainvitals.store.spool_shipper import Outcome, Shipper, ShipperThread, Writer

#: How long ``close`` goes on delivering while the store takes what it is given; the rest waits for the next start.
CLOSE_WAIT_S = 5.0


class ClosableWriter(Writer, Protocol):
    """A store as the spool needs it."""

    def close(self) -> None: ...


class Spool:
    """A ``Sink``. ``write`` and ``commit`` return when the points are on disk; a thread delivers them.

    The same (measurement, tags, time) may arrive at the store twice, which changes nothing there. In a forked child the
    spool only appends: the parent delivers.
    """

    def __init__(
        self, file: SpoolFile, store: ClosableWriter, say: Callable[[str], None] | None = None, *, start: bool = True
    ) -> None:
        self._file, self._store = file, store
        self._say = say or _stderr
        self._shipper = Shipper(file, store)
        self._thread = ShipperThread(self._shipper, self._say)
        self._pid = os.getpid()
        self._damaged_told = len(file.damaged_files())
        if start:
            self._thread.start()

    def write(self, points: Sequence[Point]) -> None:
        self.commit(points, {})

    def commit(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        """Points and state on this machine's disk, both or neither. Raises ``StoreUnavailable`` when the disk is full or
        the file is locked (keep the points), ``StoreError`` for a point that does not fit the schema."""
        if not points and not state:
            return
        self._file.append(points, state)
        if os.getpid() == self._pid:  # a forked child has no such thread, and may have its lock as it was held
            self._thread.wake()

    def load_state(self, prefix: str) -> dict[str, bytes]:
        return self._file.load_state(prefix)

    @property
    def replaced(self) -> tuple[int, str]:
        """As the file says."""
        return self._file.replaced

    def stats(self) -> SpoolStats:
        """Counts now. Raises ``StoreUnavailable`` when the file cannot be read."""
        stats = self._file.stats(self._shipper.fault)
        if stats.damaged_files > self._damaged_told:
            self._say(
                f"the spool {self._file.path} was damaged and set aside as {self._file.damaged_files()[-1].name}; "
                "points that waited in it are lost unless a person takes them from there."
            )
        self._damaged_told = stats.damaged_files
        return stats

    def ship_until_empty(self, requests: int) -> bool:
        """Deliver in this thread, at most so many requests; returns whether nothing waits any more."""
        for _ in range(requests):
            outcome = self._shipper.ship_once()
            if outcome is Outcome.IDLE:
                return True
            if outcome is not Outcome.DELIVERED:
                return False
        return False

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Stop delivering and close. What still waits is delivered after the next start."""
        if os.getpid() != self._pid:
            return
        if not self._thread.stop(wait_s):
            return  # a request hangs in the store's client: its thread ends with the process, its points stay on disk
        self._file.close()
        self._store.close()


def _stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the delivery
        print(f"spool: {text}", file=sys.stderr, flush=True)  # noqa: T201
