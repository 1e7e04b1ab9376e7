"""What a change of this run's loss is worth: how much there was to lose at the start, and whether lower is better at all."""

from __future__ import annotations

from trainvitals.detect.state import Stateful

TWO_SIDED = 2.0
SETTLED_POINTS = 500
SETTLED_SHARE = 0.05  # of all progress
SETTLED_SIGMA = 10.0
AGAIN_SHARE = 0.5
SMALLEST = 1e-6  # what a mean of 32-bit numbers of the usual size cannot tell from zero


class LossScale(Stateful):
    """The loss at the start of the run (``start``, None before there is a usual level) and the lowest usual level since."""

    STATE = ("start", "_lowest", "_points_at_lowest", "_is_settled")

    def __init__(self, negligible_share: float) -> None:
        self._share = negligible_share
        self.start: float | None = None
        self._lowest: float | None = None
        self._points_at_lowest = 0
        self._is_settled = False

    def follow(self, level: float, sigma: float) -> None:
        """The usual level is ``level`` now, the noise of single points ``sigma``; the first level is the start."""
        if self.start is None or abs(self.start) < SMALLEST:
            self.start = level
        if self._lowest is None or level < self._lowest:
            self._lowest = level
        progress = self.start - self._lowest
        is_there = level < 0.0 and level - self._lowest <= SETTLED_SHARE * progress and progress >= SETTLED_SIGMA * sigma
        self._points_at_lowest = self._points_at_lowest + 1 if is_there else 0
        self._is_settled = self._is_settled or self._points_at_lowest >= SETTLED_POINTS

    def is_negligible(self, value: float) -> bool:
        """Whether a loss is as good as zero for this run: what is memorised or solved jumps by factors and has nothing to lose."""
        return self._is_below(value, self._share)

    def is_negligible_again(self, value: float) -> bool:
        """Whether it is so far below that it does not come and go with the noise: one that was not may end by it."""
        return self._is_below(value, AGAIN_SHARE * self._share)

    def _is_below(self, value: float, share: float) -> bool:
        return self.is_unknown or abs(value) < SMALLEST or (self.start is not None and abs(value) < share * self.start)

    def is_news(self, best: float) -> bool:
        """Whether a lasting rise over ``best`` can mean anything: lower must be better, and zero is no level to come back to."""
        return self.has_best and abs(best) >= SMALLEST

    @property
    def is_unknown(self) -> bool:
        """Whether the usual loss has been as good as zero ever since the start: there is nothing yet that a rise could lose."""
        return self.start is not None and abs(self.start) < SMALLEST

    @property
    def has_best(self) -> bool:
        """False for a loss that began around zero and went below it: critics and policies settle there, lower is not better.

        Their level moves for as long as the other side learns, which no slow rule may call a fault. A negative log-likelihood goes below
        zero too, but it falls far out of its noise and stays near its lowest level for 500 points: from then on it has a best for good.
        """
        if self._is_settled or self.start is None or self._lowest is None or self._lowest >= 0.0:
            return True
        return self.start >= TWO_SIDED * -self._lowest

    def reset(self) -> None:
        """The run went back to its start."""
        self.start = self._lowest = None
        self._points_at_lowest, self._is_settled = 0, False
