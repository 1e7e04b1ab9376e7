"""Delivery from a spool to a store: oldest first with the newest in between, halving what is refused, waiting longer each time.

``ship_once`` is one request and its outcome, without threads or waiting; ``ShipperThread`` calls it again and again.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from trainvitals.errors import StoreError, StoreRejected
from trainvitals.records import Point
from trainvitals.store.encode import check_point
from trainvitals.store.spool_codec import decode_batch, encode_point
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.spool_tables import Batch, Refused

#: One request in so many takes the newest samples: after an outage what is live is seen at once.
NEWEST_EVERY = 4
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
IDLE_PAUSE_S = 1.0
LAST_REQUESTS = 20
MAX_REASON_CHARACTERS = 500
#: "partial write: points beyond retention policy dropped=12" (InfluxDB 1.x and 2.x, tsdb/store.go PartialWriteError).
_DROPPED = re.compile(r"\bdropped=(\d+)\b")


class Writer(Protocol):
    """The one method of a store that delivery needs."""

    def write(self, points: Sequence[Point]) -> None:
        """Raises ``StoreUnavailable`` (later) or ``StoreRejected`` (at least one point never)."""
        ...


class Outcome(Enum):
    """Of one request. ``BUSY``: another process ships from this file."""

    DELIVERED = auto()
    IDLE = auto()
    BUSY = auto()
    FAILED = auto()


@dataclass
class BackOff:
    """Pauses after failures in a row: doubling, bounded, and spread so that a thousand hosts do not return in one second."""

    chance: random.Random
    failures: int = 0

    def next_pause_s(self) -> float:
        """Count a failure; seconds to wait: between half and all of the doubled pause."""
        self.failures += 1
        longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 16))
        return longest_s * (0.5 + self.chance.random() / 2)


class Shipper:
    """Delivers from one file to one store. ``fault``: why the last request failed, "" when it did not."""

    def __init__(self, file: SpoolFile, store: Writer) -> None:
        self._file, self._store = file, store
        self._requests = 0
        self.fault = ""

    def ship_once(self) -> Outcome:
        """One request (more when something is refused). Never raises for a store or a file: see ``fault``."""
        try:
            if self._file.is_empty():
                # Nothing waits for the store, so nothing is known to be wrong with it.
                self.fault = ""
                return Outcome.IDLE
            with self._file.shipping() as is_mine:
                return self._request() if is_mine else Outcome.BUSY
        except StoreError as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001 (an error of the client library; said, counted as a failure, tried again)
            self._failed(f"{type(error).__name__}: {error}")
        return Outcome.FAILED

    def _failed(self, fault: str) -> None:
        self.fault = fault
        self._requests = 0  # the next request that gets through carries the newest

    def _request(self) -> Outcome:
        batches = self._file.take(newest_samples=self._requests % NEWEST_EVERY == 0)
        if not batches:
            return Outcome.IDLE
        self._requests += 1
        try:
            self._deliver(batches)
        except BaseException:
            self._file.release()
            raise
        self.fault = ""
        return Outcome.DELIVERED

    def _deliver(self, batches: Sequence[Batch]) -> None:
        decoded = [_decode(batch) for batch in batches]
        all_fit = not any(unfit for _, unfit in decoded)
        if all_fit and self._takes([point for points, _ in decoded for point in points]):
            self._file.settle(batches)
            return
        # Batch by batch, each settled at once: a fault in between repeats one batch, not the whole request.
        for batch, (points, unfit) in zip(batches, decoded, strict=True):
            found = [Refused(batch.lane, 1, reason, encode_point(point)) for point, reason in sift(self._store.write, points)]
            self._file.settle([batch], [*unfit, *found])

    def _takes(self, points: Sequence[Point]) -> bool:
        try:
            self._store.write(points)
        except StoreRejected:
            return False
        return True


def sift(write: Callable[[Sequence[Point]], None], points: Sequence[Point]) -> list[tuple[Point, str]]:
    """Write all that the store takes, halving what it refuses down to single points; returns those and why.
    A store may have kept the good part of a refused batch: writing it again changes nothing."""
    if not points:
        return []
    try:
        write(points)
    except StoreRejected as error:
        if len(points) == 1 or _refused_points(str(error)) == len(points):
            return [(point, _reason(error)) for point in points]
    else:
        return []
    middle = len(points) // 2
    return [*sift(write, points[:middle]), *sift(write, points[middle:])]


def _decode(batch: Batch) -> tuple[list[Point], list[Refused]]:
    """(points that fit the schema, what does not): an older version's file or damaged bytes must not stop the queue."""
    try:
        points = decode_batch(batch.body)
    except ValueError as error:
        return [], [Refused(batch.lane, batch.points, _reason(error), batch.body)]
    good, unfit = [], []
    for point in points:
        try:
            check_point(point)
        except StoreError as error:
            unfit.append(Refused(batch.lane, 1, _reason(error), encode_point(point)))
        else:
            good.append(point)
    return good, unfit


def _refused_points(reason: str) -> int | None:
    """How many points InfluxDB says it dropped. A backlog older than the retention is refused as a whole: looking for each
    bad point of it would take two requests a point."""
    found = _DROPPED.search(reason)
    return int(found[1]) if found else None


def _reason(error: Exception) -> str:
    return str(error)[:MAX_REASON_CHARACTERS]


class ShipperThread:
    """Ships until stopped. ``say`` hears once when delivery stops and once when it goes on."""

    def __init__(self, shipper: Shipper, say: Callable[[str], None], chance: random.Random | None = None) -> None:
        self._shipper, self._say = shipper, say
        self._back_off = BackOff(chance or random.Random())  # noqa: S311 (spreads retries, no secret)
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="spool shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something new."""
        self._wake.set()

    def stop(self, wait_s: float) -> bool:
        """Returns whether the thread ended in time; a request on its way is not broken off."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        outcome = Outcome.IDLE
        while not self._stopping.is_set():
            self._wake.clear()
            outcome = self._shipper.ship_once()
            if outcome is Outcome.FAILED:
                pause_s = self._back_off.next_pause_s()
                self._tell_trouble()
                self._stopping.wait(pause_s)
            elif outcome is Outcome.DELIVERED:
                self._back_off.failures = 0
                if self._told:
                    self._told = False
                    self._say("the store takes points again; what waited in the spool is being delivered.")
            elif outcome is Outcome.IDLE:
                self._wake.wait(IDLE_PAUSE_S)
            else:
                self._stopping.wait(IDLE_PAUSE_S)
        # The last words of a process ("was stopped") should not wait for its next start, unless the store is away.
        if outcome is not Outcome.FAILED:
            for _ in range(LAST_REQUESTS):
                if self._shipper.ship_once() is not Outcome.DELIVERED:
                    break

    def _tell_trouble(self) -> None:
        # One failure is a restart or a slow moment; the second in a row is worth a line.
        if not self._told and self._back_off.failures >= 2:
            self._told = True
            self._say(f"the store takes nothing; points wait in the spool: {self._shipper.fault}")
