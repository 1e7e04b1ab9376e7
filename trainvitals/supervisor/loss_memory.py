"""The losses of one start: the newest in full, and a thin trace of all before them. Bounded, however long the start lasts.

A blow-up that lasted longer than the newest points reach would else leave nothing of the level that was healthy.
"""

from __future__ import annotations

from collections import deque

#: Points kept in full, and of the trace; of the trace, those that tell the level at a step.
NEWEST = 200
MAX_TRACE = 1_000
OF_TRACE = 20
#: Fewer than this tell no level.
LEAST = 5


class LossMemory:
    """Of one start, in the order in which the steps came."""

    def __init__(self) -> None:
        self.newest: deque[tuple[int, float]] = deque(maxlen=NEWEST)
        self._trace: list[tuple[int, float]] = []
        self._stride, self._count = 1, 0

    def add(self, step: int, loss: float) -> None:
        """A finite loss."""
        self.newest.append((step, loss))
        if self._count % self._stride == 0:
            self._trace.append((step, loss))
            if len(self._trace) > MAX_TRACE:
                self._trace, self._stride = self._trace[::2], 2 * self._stride
        self._count += 1

    def until(self, step: int | None) -> tuple[tuple[int, float], ...]:
        """The level at ``step``, as points at or before it (None: the newest there are); fewer than ``LEAST`` = it is not known."""
        if step is None:
            return tuple(self.newest)
        near = tuple(point for point in self.newest if point[0] <= step)
        return near if len(near) >= LEAST else tuple(point for point in self._trace if point[0] <= step)[-OF_TRACE:]
