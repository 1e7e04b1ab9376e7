"""Seconds a step takes, from the moments a trainer's callbacks see: without evaluations and saving between the steps."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Mean over the steps since it was last taken. A step lasts from the end of the one before, so that waiting for data
    counts; after an interruption from its own begin."""

    def __init__(self, monotonic_s: Callable[[], float] = time.perf_counter) -> None:
        self._monotonic_s = monotonic_s
        self._mark_s: float | None = None
        self._seconds = 0.0
        self._steps = 0

    def begin(self) -> None:
        """A step begins (or the first part of it)."""
        if self._mark_s is None:
            self._mark_s = self._monotonic_s()

    def end(self) -> None:
        """A step ended."""
        now_s = self._monotonic_s()
        if self._mark_s is not None:
            self._seconds += now_s - self._mark_s
            self._steps += 1
        self._mark_s = now_s

    def interrupt(self) -> None:
        """Something else than training ran: what passed since the last step is no step's time."""
        self._mark_s = None

    def take(self) -> tuple[float, int]:
        """(seconds, steps) since the last call."""
        taken = self._seconds, self._steps
        self._seconds, self._steps = 0.0, 0
        return taken
