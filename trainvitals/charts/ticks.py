"""Where the few labelled lines of a small row stand: decades or 1-2-5 on a log axis, round steps on a linear one. Pure."""

from __future__ import annotations

import math

#: Values closer together than this share of their size are one value for an axis.
SAME = 1e-6


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` values for a log axis from ``low`` to ``high`` (both above zero): the finest that fit of 1-2-5, 1-3,
    decades, every k-th decade; round linear steps where less than two of those lie in the range."""
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    decades = range(first, last + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [value for k in decades for digit in digits if low <= (value := digit * 10.0**k) <= high]
        if 2 <= len(found) <= most:
            return found
    whole = [k for k in decades if low <= 10.0**k <= high]
    if len(whole) > most:
        every = -(-len(whole) // most)
        return [10.0**k for k in whole if k % every == 0]
    return linear_ticks(low, high, min(most, 3))


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round values from ``low`` to ``high``, in steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50):
        step = factor * size
        first, last = math.ceil(low / step - SAME), math.floor(high / step + SAME)
        if last - first + 1 <= most:
            return [k * step for k in range(first, last + 1)]
    return [low]


def tick_text(value: float) -> str:
    """``0``, ``0.5``, ``200``, ``2e-4``, ``1.5e-5``: as short as it can be said."""
    if value == 0:
        return "0"
    if 1e-2 <= abs(value) < 1e5:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def around_constant(low: float, high: float) -> tuple[float, float] | None:
    """A sensible range for values that hardly differ: half the value to either side; None when they differ enough to see."""
    size = max(abs(low), abs(high))
    if high - low > SAME * size:
        return None
    return (low - size / 2, high + size / 2) if size else (-1.0, 1.0)
