"""How often a run fails, with what that number is worth, and the interval between saves that costs least. Pure.

J. W. Young, A first order approximation to the optimum checkpoint interval (1974); J. T. Daly, A higher order estimate of the
optimum checkpoint interval for restart dumps (2006). F. Garwood, Fiducial limits for the Poisson distribution (1936).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: With fewer the interval of confidence is so wide that no advice follows from it.
FEWEST_FAILURES = 3
TAIL = 0.025


@dataclass(frozen=True)
class FailureRate:
    """failures in observed_s seconds of training; mean time between failures with the limits of its 95 % interval, seconds;
    None = not enough is known."""

    failures: int
    observed_s: float
    mtbf_s: float | None = None
    least_s: float | None = None
    most_s: float | None = None


def failure_rate(failures: int, observed_s: float) -> FailureRate:
    """Exact limits for failures that come at random (Poisson), observed for a time that no failure ended."""
    if failures < FEWEST_FAILURES or observed_s < 1:
        return FailureRate(failures, max(0.0, observed_s))
    lowest, highest = _poisson_limits(failures)
    return FailureRate(failures, observed_s, observed_s / failures, observed_s / highest, observed_s / lowest)


def best_interval_s(blocked_s: float, mtbf_s: float) -> float:
    """Seconds of training between two saves that lose least, where each save blocks for ``blocked_s``."""
    return math.sqrt(2 * blocked_s * mtbf_s)


def lost_share(interval_s: float, blocked_s: float, mtbf_s: float) -> float:
    """Share of the time that goes into saving and into what failures make run again, half an interval each, on average."""
    return blocked_s / interval_s + interval_s / (2 * mtbf_s)


def _poisson_limits(count: int) -> tuple[float, float]:
    """Means for which ``count`` or more, and ``count`` or fewer, have a chance of 2.5 % each."""
    lowest = _root(lambda mean: 1 - _poisson_cdf(count - 1, mean), TAIL, 0.0, float(count))
    highest = _root(lambda mean: -_poisson_cdf(count, mean), -TAIL, float(count), 2.0 * count + 20)
    return lowest, highest


def _root(rising: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        if rising(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _poisson_cdf(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    logs = [k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(count + 1)]
    most = max(logs)
    return math.exp(most) * math.fsum(math.exp(one - most) for one in logs)
