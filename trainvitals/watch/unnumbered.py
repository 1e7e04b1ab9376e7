"""Metadata that is told before the first step of an attempt has no number yet: when the attempt begins, its rows get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainvitals.records import Event, Point
from trainvitals.store.encode import event_point

#: Parts of one start; what is beyond stays without a number, and belongs by its time to the start behind it.
MAX_WAITING = 512


class Unnumbered:
    """Give it every event that is stored, in order, with its time and id."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._waiting: list[tuple[str, int]] = []  # source and time: what a row is found by

    def take(self, event: Event) -> list[Point]:
        """Remember a part without a number. At the start of an attempt: its number, for the rows of the parts before it, whose
        other fields a store keeps."""
        if event.kind == "metadata" and event.attempt is None and len(self._waiting) < MAX_WAITING:
            point = event_point(self._run, event)
            if (place := (point.tags["source"], point.time_ns)) not in self._waiting:
                self._waiting.append(place)
        if event.kind != "attempt_start" or event.attempt is None:
            return []
        waiting, self._waiting = self._waiting, []
        return [
            Point("event", {"run": self._run, "kind": "metadata", "source": source}, time_ns, {"attempt": event.attempt})
            for source, time_ns in waiting
        ]

    def to_state(self) -> list[list[Any]]:
        """JSON values only."""
        return [list(place) for place in self._waiting]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Continue where ``to_state`` was taken."""
        self._waiting = [(str(source), int(time_ns)) for source, time_ns in state]
