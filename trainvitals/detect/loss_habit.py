"""Rises of the loss that healed by themselves, and what they say of the next one.

A target network that is renewed every few hundred steps, hard chapters in data that is not shuffled, a learning rate at the edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from trainvitals.detect.state import Stateful

KEPT = 5
WINDOW_POINTS = 4000
MARGIN = 1.25  # the highest of five is not the highest of all


class SpikeHabit(Stateful):
    """Learns how high and how long the first five spikes within 4,000 points were, and holds all later ones to that.

    An incident is a mapping with ``point`` (where it opened), ``level`` and ``peak_median``. The first five are the measure for as long as
    the habit lasts: spikes that grow from one to the next would carry a measure of the newest ones along. It says only whether a spike's
    warning may be left out; whether it is critical, a divergence or to be paused for is none of its business.
    """

    STATE = ("_healed", "_highest", "_longest")

    def __init__(self) -> None:
        self._healed: deque[list[float]] = deque(maxlen=KEPT)  # [point at the end, height above the level, points it took]
        self._highest = 0.0  # after the five that made the habit, 0 while there is none
        self._longest = 0.0

    def healed(self, at_point: int, incident: Mapping[str, Any]) -> None:
        """The incident is over by itself, and nobody was paged for it as a divergence."""
        if not self._is_alive(at_point):
            self._highest = self._longest = 0.0
        self._healed.append([at_point, incident["peak_median"] - incident["level"], at_point - incident["point"]])
        if self._highest == 0.0 and self._is_alive(at_point):
            self._highest = MARGIN * max(item[1] for item in self._healed)
            self._longest = MARGIN * max(item[2] for item in self._healed)

    def is_usual(self, at_point: int, incident: Mapping[str, Any]) -> bool:
        """Whether five have healed in 4,000 points and this one is hardly higher or older than the first five were: one more is a mark."""
        height, points = incident["peak_median"] - incident["level"], at_point - incident["point"]
        return self._is_alive(at_point) and height <= self._highest and points <= self._longest

    def _is_alive(self, at_point: int) -> bool:
        return len(self._healed) == KEPT and self._healed[0][0] >= at_point - WINDOW_POINTS
