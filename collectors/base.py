"""What a collector is, and the loop that runs one: period, back-off, a bounded buffer in front of the store, its own health."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainvitals.clock import Clock
from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.identity import event_id
from trainvitals.records import Event, Point, Severity
from trainvitals.store.encode import event_point

MAX_WAITING_POINTS = 5_000
MAX_BACK_OFF_S = 300.0
WRITE_CHUNK = 1_000


class Collector(Protocol):
    """One outside source."""

    name: str

    def collect(self) -> Iterable[Point]:
        """What the source says now. A source that is missing or broken is a point that says so, not an exception."""
        ...

    def close(self) -> None:
        """Let go of processes and files."""
        ...


class Writer(Protocol):
    """The one method of a ``Sink`` that collectors need."""

    def write(self, points: Sequence[Point]) -> None:
        """Raises ``StoreUnavailable`` (keep the points) or ``StoreError`` (they will never be taken)."""
        ...


@dataclass
class Health:
    """A collector's own life, in counts since it started. ``trouble``: the newest sentence, "" when all is well."""

    polls: int = 0
    failed_polls: int = 0
    failures_in_a_row: int = 0
    overruns: int = 0
    dropped: int = 0
    rejected: int = 0
    trouble: str = ""


class PointBuffer:
    """The newest points, kept in memory while the store cannot be reached. Drops beyond the bound are counted in ``health``."""

    def __init__(self, writer: Writer, health: Health, limit: int = MAX_WAITING_POINTS) -> None:
        self._writer = writer
        self._health = health
        self._limit = limit
        self._waiting: deque[Point] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, points: Iterable[Point]) -> None:
        """Take points; the oldest go when there are too many."""
        for point in points:
            if len(self._waiting) >= self._limit:
                self._waiting.popleft()
                self._health.dropped += 1
            self._waiting.append(point)

    def flush(self) -> str:
        """Write all; returns "" or why some still wait. Points that the store will never take are dropped and counted."""
        while self._waiting:
            chunk = [self._waiting[index] for index in range(min(WRITE_CHUNK, len(self._waiting)))]
            try:
                self._write(chunk)
            except StoreUnavailable as error:
                return str(error)
            for _ in chunk:
                self._waiting.popleft()
        return ""

    def _write(self, chunk: Sequence[Point]) -> None:
        try:
            self._writer.write(chunk)
        except StoreUnavailable:
            raise
        except StoreError as error:
            if len(chunk) == 1:
                self._health.rejected += 1
                self._health.trouble = f"The store refused a point of {chunk[0].measurement}: {error}"
                return
            # One bad point refuses the whole batch: the others must still arrive.
            for point in chunk:
                self._write([point])


def run(
    collector: Collector,
    buffer: PointBuffer,
    health: Health,
    clock: Clock,
    period_s: float,
    wait: Callable[[float], bool],
    node: str = "",
    say: Callable[[str], None] | None = None,
    also: Callable[[], Iterable[Point]] = tuple,
) -> None:
    """Poll until ``wait`` (which waits so many seconds) returns True. After failures the pause doubles up to five minutes.

    A poll that takes longer than the period is counted as an overrun. Each change of trouble is said once on stderr and
    stored as an event of kind ``watch``, so that silence of a collector is never mistaken for a quiet machine.
    also: points of the collector's own life that go with each poll.
    """
    tell = say or _stderr
    told: str | None = None
    while True:
        started_s = clock.monotonic_s()
        health.polls += 1
        trouble = ""
        try:
            buffer.add(collector.collect())
            buffer.add(also())
            health.failures_in_a_row = 0
        except Exception as error:  # noqa: BLE001 - a collector outlives any fault of its source; counted, said and stored
            health.failed_polls += 1
            health.failures_in_a_row += 1
            trouble = f"{type(error).__name__}: {error}"
        health.trouble = ""
        trouble = trouble or buffer.flush() or health.trouble
        if health.failures_in_a_row:
            buffer.flush()
        health.trouble = trouble
        if trouble != told and (trouble or told):
            tell(f"collector {collector.name}: {trouble or 'all is well again'}")
            buffer.add([_health_point(collector.name, node, health, clock)])
        told = trouble
        took_s = clock.monotonic_s() - started_s
        if took_s > period_s:
            health.overruns += 1
        pause_s = period_s
        if health.failures_in_a_row:
            pause_s = min(MAX_BACK_OFF_S, period_s * 2 ** min(health.failures_in_a_row, 10))
        if wait(max(0.0, pause_s - took_s)):
            buffer.flush()
            return


def _health_point(name: str, node: str, health: Health, clock: Clock) -> Point:
    now_ns = clock.time_ns()
    event = Event(
        kind="watch",
        time_ns=now_ns,
        id=event_id("collector", name, node, now_ns),
        severity=Severity.WARNING if health.trouble else Severity.INFO,
        source=f"collector/{name}/{node}",
        text=health.trouble or "all is well again",
        data={
            "polls": health.polls,
            "failed_polls": health.failed_polls,
            "overruns": health.overruns,
            "dropped": health.dropped,
            "rejected": health.rejected,
        },
    )
    return event_point("", event)


def _stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the collector; all is stored too
        print(text, file=sys.stderr, flush=True)  # noqa: T201
