"""Medians of blocks of points: the loss seen at one slower time scale."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import MAD_TO_SIGMA, median, quartile_sigma
from trainvitals.detect.wander import Wander

KEPT_BLOCKS = 64
REFERENCE_BLOCKS = 3
MIN_BLOCKS = 12
SQRT2 = 1.4142
NOISE_FLOOR = 0.0005  # share of the level; quantised losses have blocks without any noise


class BlockMedians(Stateful):
    """``push`` says when a block is full; then ``sigma`` (of block medians), ``point_sigma`` (of points) and ``wander`` are new."""

    STATE = ("_open_block", "_is_usual", "_blocks", "_jumps", "sigma", "point_sigma", "reference", "wander")

    def __init__(self, size: int) -> None:
        self.size = max(4, size)
        self._open_block: list[float] = []
        self._is_usual = True  # whether the open block holds no point of an incident
        self.wander = Wander()
        self._blocks: deque[list[float]] = deque(maxlen=KEPT_BLOCKS)  # [last step, median]
        self._jumps: deque[float] = deque(maxlen=32)
        self.sigma = 0.0
        self.point_sigma = 0.0
        self.reference: float | None = None  # best mean of three blocks in a row, of the last ten

    @property
    def medians(self) -> list[float]:
        """Block medians, oldest first."""
        return [value for _, value in self._blocks]

    @property
    def best(self) -> float | None:
        """Best mean of three blocks in a row, of all that are kept; None while there are not three."""
        medians = self.medians
        return min((sum(medians[i : i + 3]) / 3 for i in range(len(medians) - 2)), default=None)

    def push(self, step: int, value: float, *, is_usual: bool = True, is_warm: bool = True) -> bool:
        """Add a point; True when it filled a block and there are enough blocks to judge.

        ``is_usual``: no incident is open; ``is_warm``: what the level does is no longer that of a run that begins.
        """
        block = self._open_block
        block.append(value)
        self._is_usual = self._is_usual and is_usual
        if len(block) < self.size:
            return False
        middle = median(block)
        self.point_sigma = quartile_sigma(block)
        if self._is_usual:
            self.wander.push(middle, is_warm=is_warm)
        else:
            self.wander.interrupt()
        self._start_block()
        if self._blocks:
            self._jumps.append(abs(middle - self._blocks[-1][1]))
        self._blocks.append([step, middle])
        if self._jumps:
            self.sigma = max(median(self._jumps) * MAD_TO_SIGMA / SQRT2, NOISE_FLOOR * abs(middle))
        recent = self.medians[-10:]
        if len(recent) >= 3:
            self.reference = min(sum(recent[i : i + 3]) / 3 for i in range(len(recent) - 2))
        return len(self._blocks) >= MIN_BLOCKS

    def _start_block(self) -> None:
        self._open_block = []
        self._is_usual = True

    def rewind(self, step: int) -> None:
        """Forget blocks that hold steps after ``step``."""
        self._start_block()
        self.wander.interrupt()
        while self._blocks and self._blocks[-1][0] > step:
            self._blocks.pop()
        recent = self.medians[-10:]
        self.reference = min(sum(recent[i : i + 3]) / 3 for i in range(len(recent) - 2)) if len(recent) >= 3 else None

    def keep_newest(self) -> None:
        """Forget all but the newest blocks: what the level was before is of no use."""
        while len(self._blocks) > REFERENCE_BLOCKS:
            self._blocks.popleft()

    def reset(self) -> None:
        """Start anew, after a change that makes old levels meaningless."""
        self._start_block()
        self.wander.interrupt()
        self._blocks.clear()
        self._jumps.clear()
        self.reference = None
