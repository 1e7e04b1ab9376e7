"""How far the level of a healthy loss strays by itself: data in an order, a mixture, an adversary that learns too.

Independent noise leaves hardly any trace in medians of blocks. What does has been seen to come back by itself, so a rise is news only
when it is larger. Once is no habit, and long ago is none any more: a single bump must not keep a rise quiet that comes later.
"""

from __future__ import annotations

from collections import deque

from trainvitals.detect.state import Stateful

KEPT_RISES = 32
KEPT_SWINGS = 16
SWING_BLOCKS = 32  # a swing older than this is forgotten
MIN_RISES = 5
RISE_QUANTILE = 0.9
RISE_FACTOR = 3.0
SWING_FACTOR = 1.5
TAKEN_BACK = 0.5  # share of a rise after which it counts as healed


class Wander(Stateful):
    """Fed with block medians; ``allowance``: a rise of the level up to this is what this run does by itself."""

    STATE = ("_rises", "_swings_at", "_blocks", "_previous", "_low", "_high", "allowance")

    def __init__(self) -> None:
        self._rises: deque[float] = deque(maxlen=KEPT_RISES)  # from one block to the next; 0 for a fall
        self._swings_at: deque[list[float]] = deque(maxlen=KEPT_SWINGS)  # [block, height] of rises that were taken back
        self._blocks = 0
        self._previous: float | None = None
        self._low: float | None = None
        self._high: float | None = None
        self.allowance = 0.0

    @property
    def usual_swing(self) -> float:
        """Height that a rise which was taken back reached twice within the last 32 blocks, 0 when there were no two."""
        heights = sorted(height for at, height in self._swings_at if at > self._blocks - SWING_BLOCKS)
        return heights[-2] if len(heights) > 1 else 0.0

    @property
    def is_known(self) -> bool:
        """Whether there were blocks enough to tell."""
        return len(self._rises) >= MIN_RISES

    def push(self, middle: float, *, is_warm: bool = True) -> None:
        """One block without an incident in it. Before the run is warm (not ``is_warm``) no rise counts as a swing."""
        self._blocks += 1
        if self._previous is not None:
            self._rises.append(max(0.0, middle - self._previous))
        self._previous = middle
        if self._low is None or self._high is None:
            self._low = self._high = middle
        self._high = max(self._high, middle)
        if middle <= self._high - TAKEN_BACK * (self._high - self._low):
            if self._high > self._low and is_warm:
                self._swings_at.append([self._blocks, self._high - self._low])
            self._low = self._high = middle
        rises = sorted(self._rises)
        usual = rises[int(RISE_QUANTILE * len(rises))] if rises else 0.0
        self.allowance = max(RISE_FACTOR * usual, SWING_FACTOR * self.usual_swing)

    def interrupt(self) -> None:
        """A block with an incident in it, or one that does not follow what came before."""
        self._blocks += 1
        self._previous = self._low = self._high = None
