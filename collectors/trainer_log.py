"""Thin: drives ``trainvitals.logs`` and turns its records into points. ``watch`` does the same with attempts that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainvitals.clock import Clock
from trainvitals.identity import step_time_ns
from trainvitals.logs.tail import LogSource
from trainvitals.records import Point, Step
from trainvitals.store.encode import event_point, step_point


class TrainerLogCollector:
    """Reads what is new in the logs; a record without a time of its own takes the time it was read."""

    name = "trainer_log"

    def __init__(self, run: str, patterns: Sequence[str], clock: Clock, format: str = "auto", timezone: str = "UTC") -> None:
        self._run = run
        self._clock = clock
        self._source = LogSource(patterns, format, timezone, clock)

    def collect(self) -> Iterable[Point]:
        """One portion of the logs, a few MiB."""
        points: list[Point] = []
        for _, record in self._source.poll():
            time_ns = record.time_ns if record.time_ns is not None else self._clock.time_ns()
            if isinstance(record, Step):
                points.append(step_point(self._run, record, step_time_ns(time_ns, record.step)))
            else:
                points.append(event_point(self._run, replace(record, time_ns=time_ns)))
        return points

    def close(self) -> None:
        self._source.close()
