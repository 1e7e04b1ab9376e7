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
FACTOR = 1.5


class SpikeHabit(Stateful):
    """Keeps the last five incidents that were over by themselves, with height and length.

    An incident is a mapping with ``point`` (where it opened), ``level`` and ``peak_median``. A new one is like them while it is at most
    1.5 times as high and as long as the highest and longest.
    """

    STATE = ("_healed",)

    def __init__(self) -> None:
        self._healed: deque[list[float]] = deque(maxlen=KEPT)  # [point at the end, height above the level, points it took]

    def healed(self, at_point: int, incident: Mapping[str, Any]) -> None:
        """The incident is over by itself."""
        self._healed.append([at_point, incident["peak_median"] - incident["level"], at_point - incident["point"]])

    def is_usual(self, at_point: int, incident: Mapping[str, Any]) -> bool:
        """Whether five like it have healed in 4,000 points: one more is a mark."""
        return len(self._healed) == KEPT and self._healed[0][0] >= at_point - WINDOW_POINTS and self._is_like(at_point, incident)

    def has_healed(self, at_point: int, incident: Mapping[str, Any]) -> bool:
        """Whether the run has come back by itself from one like it: nothing to page for, until it is worse."""
        return self._is_like(at_point, incident)

    def _is_like(self, at_point: int, incident: Mapping[str, Any]) -> bool:
        known = [item for item in self._healed if item[0] >= at_point - WINDOW_POINTS]
        if not known:
            return False
        height, points = incident["peak_median"] - incident["level"], at_point - incident["point"]
        return bool(height <= FACTOR * max(item[1] for item in known) and points <= FACTOR * max(item[2] for item in known))
