"""The usual level of a loss: median and spread of the last accepted points, and the history a resume goes back to."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import SortedWindow, median

HISTORY_POINTS = 2048
STEEP_RATIO = 0.7
SPREAD_QUANTILES = (0.05, 0.95)
NORMAL_SPAN = 3.29  # between those quantiles of a normal distribution, in sigma
WIDE_QUANTILES = (0.02, 0.98)
WIDE_NORMAL_SPAN = 4.11
COLLAPSED_SHARE = 0.5  # interquartile sigma below this share of the span's: no bell at all
TAIL_FACTOR = 2.0
RISE_POINTS = 16  # seven points in a hundred are an upper end of their own
SETTLED_NOISE = 0.05  # of the level
#: A rise is followed back through windows of so many points whose mean lies so far, in sigma, above the level.
RISE_WINDOW = 8
RISE_SIGMA = 0.5
MAX_RISE_POINTS = 512


class Baseline(Stateful):
    """Level and sigma from a long window; a short one takes over while the curve is steep, because the long one lags behind.

    Only accepted points enter, so a fault cannot become its own yardstick.
    """

    STATE = ("_long", "_short", "history")

    def __init__(self, window: int, short_window: int, min_points: int, spread_floor: float) -> None:
        self._long = SortedWindow(window)
        self._short = SortedWindow(short_window)
        self._min_points = max(1, min(min_points, window))
        self._floor = spread_floor
        self.history: deque[list[float]] = deque(maxlen=HISTORY_POINTS)  # [step, value as logged, 1 if accepted]

    @property
    def is_ready(self) -> bool:
        """Whether there is a usual level at all."""
        return len(self._long) >= self._min_points

    def median(self) -> float | None:
        """Median of the long window, None while it is empty."""
        return self._long.median() if len(self._long) else None

    def lowest(self) -> float:
        """The 5 % quantile of the long window, which must not be empty."""
        return self._long.quantile(SPREAD_QUANTILES[0])

    def highest(self) -> float:
        """The 95 % quantile of the long window, which must not be empty."""
        return self._long.quantile(SPREAD_QUANTILES[1])

    def is_beyond_tail(self, value: float, usual: float | None = None, factor: float = TAIL_FACTOR) -> bool:
        """Whether a value lies above what this loss reaches by itself now and then; heavy tails reach far.

        True where ``usual`` is not the long window's level: while the curve is steep its upper end is only older. How far it reaches is
        taken from a window that ends some points ago: a few points of a rise that began unseen would be its upper end.
        """
        if not len(self._long):
            return False
        level = self._long.median()
        if usual is not None and usual != level:
            return True
        size = self._long.size
        older = sorted(value for _, value, _ in list(self.history)[-size - RISE_POINTS : -RISE_POINTS])
        if len(older) < size:
            return value - level > factor * (self.highest() - level)
        return value - level > factor * (older[int(SPREAD_QUANTILES[1] * size)] - older[size // 2])

    def is_settled(self) -> bool:
        """Whether the long window falls no more and is quiet: there is a usual level although the run is young."""
        values = list(self._long.arrival)
        half = len(values) // 2
        if half == 0:
            return False
        before, after = median(values[:half]), median(values[half:])
        sigma = max(self._long.sigma(), self._floor * abs(after))
        return abs(before - after) < sigma < SETTLED_NOISE * abs(after)

    def accept(self, value: float) -> None:
        """Let a value into the usual level."""
        self._long.push(value)
        self._short.push(value)

    def remember(self, step: int, value: float, *, is_accepted: bool) -> None:
        """Keep a point as logged, for a later resume; ``is_accepted`` = it was usual."""
        self.history.append([step, value, 1 if is_accepted else 0])

    def level_and_sigma(self) -> tuple[float, float]:
        """Level and robust sigma, the latter never 0."""
        long, short = self._long, self._short
        level, sigma = long.median(), long.sigma()
        values = short.values
        if len(values) == short.size:
            short_sigma = short.sigma()
            if short_sigma < STEEP_RATIO * sigma:
                short_level = short.median()
                if level - short_level > 0.5 * sigma:
                    level, sigma = short_level, short_sigma
        # No effect on bell-shaped noise, but a loss that is mostly the same number (quantised, or 0.0 in reinforcement
        # learning) has no interquartile range to speak of: only the span of nearly all points tells how far it strays.
        ordered = long.values
        count = len(ordered)
        span = (ordered[int(SPREAD_QUANTILES[1] * count)] - ordered[int(SPREAD_QUANTILES[0] * count)]) / NORMAL_SPAN
        floor = self._floor * abs(level)
        if sigma < COLLAPSED_SHARE * span and long.sigma() < COLLAPSED_SHARE * span:
            sigma = max(span, (long.quantile(WIDE_QUANTILES[1]) - long.quantile(WIDE_QUANTILES[0])) / WIDE_NORMAL_SPAN)
        if sigma < floor:
            sigma = floor
        return level, sigma if sigma > 0.0 else 1e-12

    def values_up_to(self, step: int, count: int) -> list[float]:
        """The last ``count`` accepted values at or before ``step``."""
        return [value for at, value, is_accepted in self.history if at <= step and is_accepted][-count:]

    def accepted_after(self, step: int) -> dict[int, float]:
        """Step -> accepted value of what a resume at ``step`` supersedes."""
        return {int(at): value for at, value, is_accepted in self.history if at > step and is_accepted}

    def rise_from(self, first_step: int, level: float, sigma: float) -> int:
        """Step from which a rise that was first clear at ``first_step`` may have begun: a slow one hides in the noise before."""
        before = [(int(at), value) for at, value, _ in self.history if at < first_step][-MAX_RISE_POINTS:]
        end = len(before)
        while end >= RISE_WINDOW:
            mean = sum(value for _, value in before[end - RISE_WINDOW : end]) / RISE_WINDOW
            if mean <= level + RISE_SIGMA * sigma:
                break
            end -= 1
        return first_step if end == len(before) else before[max(0, end - RISE_WINDOW)][0]

    def rewind(self, step: int) -> None:
        """Forget everything after ``step``: the usual level is again what it was then."""
        kept = [item for item in self.history if item[0] <= step]
        self.history.clear()
        self.history.extend(kept)
        self._take([value for _, value, is_accepted in kept if is_accepted])

    def rebase(self) -> None:
        """Take the newest values as usual, whatever they are."""
        for item in list(self.history)[-self._long.size :]:
            item[2] = 1
        self._take([item[1] for item in self.history])

    def forget_between(self, from_step: int, first_step: int) -> None:
        """What lies between was not usual after all, and from ``first_step`` on everything is."""
        for item in self.history:
            if item[0] > from_step:
                item[2] = 1 if item[0] >= first_step else 0
        self._take([value for _, value, is_accepted in self.history if is_accepted])

    def _take(self, values: list[float]) -> None:
        self._long.reset(values[-self._long.size :])
        self._short.reset(values[-self._short.size :])
