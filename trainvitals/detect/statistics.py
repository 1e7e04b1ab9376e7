"""Robust statistics over a sliding window, with the standard library only (start-up speed; windows are at most a few hundred)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence

IQR_TO_SIGMA = 0.7413  # standard deviation of a normal distribution per interquartile range
MAD_TO_SIGMA = 1.4826


class SortedWindow:
    """The last ``size`` values kept sorted: quantiles are O(1) reads, a push is a bisect and a memmove.

    Values must be finite (a NaN would break the order).
    """

    __slots__ = ("arrival", "size", "values")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.size = max(1, size)
        self.arrival: deque[float] = deque()
        self.values: list[float] = []
        for value in values:
            self.push(value)

    def __len__(self) -> int:
        return len(self.values)

    def push(self, value: float) -> None:
        """Add a value; the oldest goes when the window is full."""
        values = self.values
        if len(values) == self.size:
            del values[bisect_left(values, self.arrival.popleft())]
        self.arrival.append(value)
        insort(values, value)

    def reset(self, values: Iterable[float] = ()) -> None:
        """Forget everything, then take ``values`` in order."""
        self.arrival.clear()
        self.values.clear()
        for value in values:
            self.push(value)

    def median(self) -> float:
        """Median; the window must not be empty."""
        values = self.values
        count = len(values)
        half = count >> 1
        return values[half] if count & 1 else 0.5 * (values[half - 1] + values[half])

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of the window lies (no interpolation)."""
        return self.values[min(len(self.values) - 1, int(share * len(self.values)))]

    def sigma(self) -> float:
        """Robust standard deviation from the interquartile range."""
        values = self.values
        count = len(values)
        return (values[(3 * count) >> 2] - values[count >> 2]) * IQR_TO_SIGMA


def median(values: Sequence[float]) -> float:
    """Median of a non-empty sequence."""
    ordered = sorted(values)
    count = len(ordered)
    half = count >> 1
    return ordered[half] if count & 1 else 0.5 * (ordered[half - 1] + ordered[half])


def quartile_sigma(values: Sequence[float]) -> float:
    """Robust standard deviation of a non-empty sequence from its interquartile range."""
    ordered = sorted(values)
    count = len(ordered)
    return (ordered[(3 * count) >> 2] - ordered[count >> 2]) * IQR_TO_SIGMA
