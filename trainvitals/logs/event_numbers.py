"""Tells the events of a log apart by where they belong, so that an event that is read again is the same one.

A count of all events would not do: while a log is followed, what a logger wrote in two goes (two evaluations of one step) is two
events, and read again later it may be one. Everything behind it must keep its name all the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from trainvitals.records import Event


class EventNumbers:
    """State: per kind the place of its last event, and how many events that place has had."""

    def __init__(self) -> None:
        self._last: dict[str, list[Any]] = {}

    def name(self, event: Event, origin: str, start: int) -> str:
        """What names ``event`` among those of its kind and ``origin`` (a file). ``start``: number of the trainer's start in it.

        An event with a step counts among those of the same text at that step which follow each other, one without a step among
        all of its start.
        """
        # Events of a step may stand between those without one.
        series = event.kind if event.step is None else f"{event.kind} of a step"
        text = "" if event.step is None else f"/{event.step}/{zlib.crc32(event.text.encode('utf-8', 'replace')):08x}"
        place = [origin, f"{start}{text}"]
        known = self._last.get(series)
        number = known[2] + 1 if known is not None and known[:2] == place else 0
        self._last[series] = [*place, number]
        return f"{place[1]}/{number}"

    def to_state(self) -> dict[str, list[Any]]:
        """JSON values only."""
        return self._last

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._last = {str(kind): list(place) for kind, place in state.items()}
