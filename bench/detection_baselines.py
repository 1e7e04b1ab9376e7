"""What people would use instead, as plain functions: losses in, indices of alarmed points out. NaN never alarms.

They are written anew from their descriptions, so that nothing has to be installed to compare with them.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from trainvitals.detect.statistics import MAD_TO_SIGMA, SortedWindow, median

Baseline = Callable[[Sequence[float]], list[int]]


def rolling_z(losses: Sequence[float], window: int = 100, limit: float = 3.0) -> list[int]:
    """More than ``limit`` standard deviations above the mean of the last ``window`` points."""
    seen: deque[float] = deque()
    total = squares = 0.0
    alarms = []
    for at, value in enumerate(losses):
        if math.isnan(value):
            continue
        if len(seen) == window:
            mean = total / window
            deviation = math.sqrt(max(0.0, squares / window - mean * mean))
            if value > mean + limit * deviation:
                alarms.append(at)
            old = seen.popleft()
            total -= old
            squares -= old * old
        seen.append(value)
        total += value
        squares += value * value
    return alarms


def seven_sigma(losses: Sequence[float]) -> list[int]:
    """The spike score of OLMo 2 (arXiv 2501.00656): seven standard deviations over the last 1,000 points."""
    return rolling_z(losses, 1000, 7.0)


def in_a_row(losses: Sequence[float], count: int = 10) -> list[int]:
    """``count`` points in a row above three standard deviations of the last 100."""
    alarms, run, last = [], 0, -2
    for at in rolling_z(losses):
        run = run + 1 if at == last + 1 else 1
        last = at
        if run >= count:
            alarms.append(at)
    return alarms


def hampel_three_of_five(losses: Sequence[float], window: int = 128, limit: float = 4.5) -> list[int]:
    """Three of five points more than ``limit`` robust deviations (MAD) above the median of the last ``window``."""
    seen = SortedWindow(window)
    recent: deque[bool] = deque(maxlen=5)
    alarms = []
    for at, value in enumerate(losses):
        if math.isnan(value):
            continue
        if len(seen) >= window // 2:
            level = seen.median()
            recent.append(False)
            if value > level:  # the spread is costly and only high points need it
                recent[-1] = value - level > limit * MAD_TO_SIGMA * max(1e-12, median([abs(v - level) for v in seen.values]))
            if recent[-1] and sum(recent) >= 3:
                alarms.append(at)
        seen.push(value)
    return alarms


def trainpulse(losses: Sequence[float]) -> list[int]:
    """The loss rules of the package trainpulse 0.4.0: five times the mean of 50, or 100 steps without a new best."""
    seen: deque[float] = deque(maxlen=50)
    total, best, since = 0.0, math.inf, 0
    alarms = []
    for at, value in enumerate(losses):
        if math.isnan(value):
            continue
        since = 0 if value < best else since + 1
        best = min(best, value)
        if (len(seen) == 50 and value > 5 * total / 50) or since == 100:
            alarms.append(at)
            since %= 100
        if len(seen) == 50:
            total -= seen[0]
        seen.append(value)
        total += value
    return alarms


def adwin(losses: Sequence[float], delta: float = 0.002) -> list[int]:
    """ADWIN (Bifet and Gavaldà 2007) over buckets of doubling size, looked at every 32 points; only rises alarm."""
    per_size, every = 5, 32
    rows: list[list[tuple[float, float]]] = [[]]  # per power of two, oldest first: (sum, variance times count)
    alarms = []
    for at, value in enumerate(losses):
        if math.isnan(value):
            continue
        rows[0].append((value, 0.0))
        size = 1
        for row_at, row in enumerate(rows):
            if len(row) <= per_size:
                break
            (sum_a, var_a), (sum_b, var_b) = row.pop(0), row.pop(0)
            if row_at + 1 == len(rows):
                rows.append([])
            rows[row_at + 1].append((sum_a + sum_b, var_a + var_b + (sum_a - sum_b) ** 2 / (2 * size)))
            size *= 2
        if at % every == every - 1 and _has_risen(rows, delta):
            alarms.append(at)
    return alarms


def _has_risen(rows: list[list[tuple[float, float]]], delta: float) -> bool:
    """Drop old buckets while the window splits into two different means; True when the newer mean is the higher one."""
    has_risen = False
    while True:
        buckets = [(1 << power, total, var) for power in reversed(range(len(rows))) for total, var in rows[power]]
        count = sum(size for size, _, _ in buckets)
        if count < 10:
            return has_risen
        total = sum(part for _, part, _ in buckets)
        mean = total / count
        variance = sum(var + size * (part / size - mean) ** 2 for size, part, var in buckets) / count
        confidence = math.log(2 * math.log(count) / delta)
        old_count, old_total, is_split = 0, 0.0, False
        for size, part, _ in buckets[:-1]:
            old_count += size
            old_total += part
            new_count = count - old_count
            if old_count < 5 or new_count < 5:
                continue
            inverse = 1 / (old_count - 4) + 1 / (new_count - 4)
            gap = (total - old_total) / new_count - old_total / old_count
            if abs(gap) > math.sqrt(2 * inverse * variance * confidence) + 2 / 3 * inverse * confidence:
                has_risen, is_split = has_risen or gap > 0, True
                break
        if not is_split:
            return has_risen
        oldest = next(row for row in reversed(rows) if row)
        oldest.pop(0)
        while len(rows) > 1 and not rows[-1]:
            rows.pop()


def coin(losses: Sequence[float], per_point: float = 1e-3) -> list[int]:
    """Alarms at random, a hundred per 100,000 points: what chance alone finds."""
    rng = random.Random(len(losses))
    return [at for at in range(len(losses)) if rng.random() < per_point]


BASELINES: Mapping[str, Baseline] = {
    "rolling z > 3 (100 points)": rolling_z,
    "OLMo 2: 7 sigma (1,000 points)": seven_sigma,
    "10 in a row at z > 3": in_a_row,
    "Hampel 4.5, 3 of 5": hampel_three_of_five,
    "ADWIN, rises": adwin,
    "trainpulse 0.4.0": trainpulse,
    "chance (100 per 100,000)": coin,
}
