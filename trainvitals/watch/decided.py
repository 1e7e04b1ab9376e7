"""What the circuit breaker decided, by its trips: it holds when the run's files are read again, and a new store is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainvitals.records import Event, Severity
from trainvitals.watch.kept_state import KEPT_ERRORS, unpacked

#: Beyond it the oldest is forgotten; then a trip that is read again is history.
MAX_DECIDED = 200


class Decided:
    """Of one run."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}

    def __contains__(self, trip: str) -> bool:
        return trip in self._events

    def add(self, trip: str, event: Event) -> None:
        """trip: id of its finding."""
        self._events[trip] = event
        while len(self._events) > MAX_DECIDED:
            del self._events[next(iter(self._events))]

    @property
    def events(self) -> tuple[Event, ...]:
        """As they were told, oldest first."""
        return tuple(self._events.values())

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {trip: asdict(event) for trip, event in self._events.items()}

    def salvage(self, kept: bytes) -> tuple[Event, ...]:
        """From a whole state, of which nothing else may be used: all decisions that are known then."""
        try:
            self.restore(unpacked(kept)["decided"])
        except KEPT_ERRORS:
            return self.events  # of a version that kept none
        return self.events

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        self._events = {
            str(trip): Event(**{**told, "severity": Severity(told["severity"])}) for trip, told in dict(state).items()
        }
