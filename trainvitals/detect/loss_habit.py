"""Spikes that a run has again and again and that do no harm: a target network renewed every few hundred steps, a hard document."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.state import Stateful

SPIKES = 5
WINDOW_POINTS = 4000
HEIGHT_FACTOR = 1.5


class SpikeHabit(Stateful):
    """After five spikes in 4,000 points that healed by themselves one more of their height is a mark, until it is higher or stays."""

    STATE = ("_healed",)

    def __init__(self) -> None:
        self._healed: deque[list[float]] = deque(maxlen=SPIKES)  # [point at the end, height above the level]

    def healed(self, at_point: int, height: float) -> None:
        """A spike was over by itself."""
        self._healed.append([at_point, height])

    def covers(self, at_point: int, height: float) -> bool:
        """Whether a spike of this height is nothing new."""
        healed = self._healed
        if len(healed) < SPIKES or healed[0][0] < at_point - WINDOW_POINTS:
            return False
        return height <= HEIGHT_FACTOR * max(known for _, known in healed)
