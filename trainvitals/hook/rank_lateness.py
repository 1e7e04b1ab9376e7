"""Which ranks come late to the first all-reduce again and again: robust over the ranks, smoothed over the samples of rank 0.

A share is how much longer than the median of all ranks one rank takes before it waits for the others. Hiccups are cut (``CLIP``)
before they are smoothed: with thousands of ranks the slowest of one sample is nearly always a hiccup. The step time itself tells
nothing, it is equal on all ranks. Standard library only; 10,000 ranks take some milliseconds of the reading thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

CLIP = 0.3
SMOOTHING = 0.1  # weight of the newest sample
WORST = 10
#: The spread over so few ranks is no yardstick for one of them.
MANY_RANKS = 64
#: The ten worst ranks are told from this lateness on, when another rank has become the worst, else every so many samples.
TELL_SHARE = 0.05
TELL_EVERY = 20
MAD_TO_SIGMA = 1.4826

#: Ranks -> rank -> host, local_rank and gpu_uuid, of those that told them.
Places = Callable[[Sequence[int]], Mapping[int, Mapping[str, object]]]


@dataclass(frozen=True)
class Lateness:
    """Of one sample. ``statistics``: metrics of the step. ``told``: data of a ``ranks`` event, empty when there is nothing new."""

    statistics: Mapping[str, float]
    told: Mapping[str, object]
    text: str = ""


class RankLateness:
    """One training's; begins anew with the process, as nodes may be others then. Memory: two numbers a rank."""

    def __init__(self) -> None:
        self._smoothed: dict[int, float] = {}
        self._told_rank = -1
        self._untold = 0

    def take(self, times_s: Mapping[int, float], places: Places) -> Lateness:
        """``times_s``: rank -> seconds before the first all-reduce, finite; nothing is said of fewer than two ranks."""
        if len(times_s) < 2 or (middle_s := _median(sorted(times_s.values()))) <= 0:
            return Lateness({}, {})
        smoothed, shares = self._smoothed, {}
        for rank, time_s in times_s.items():
            late = time_s / middle_s - 1
            late = CLIP if late > CLIP else -CLIP if late < -CLIP else late
            before = smoothed.get(rank, 0.0)
            smoothed[rank] = shares[rank] = before + SMOOTHING * (late - before)
        worst = [rank for _, rank in heapq.nlargest(WORST, zip(shares.values(), shares, strict=True))]
        statistics = {
            "pre_all_reduce_rank_median_s": middle_s,
            "pre_all_reduce_rank_mad_s": _median(sorted(abs(time_s - middle_s) for time_s in times_s.values())),
        }
        if len(times_s) >= MANY_RANKS:
            usual, late_from = _median(sorted(shares.values())), max(TELL_SHARE, 0.5 * shares[worst[0]])
            spread = _median(sorted(abs(share - usual) for share in shares.values()))
            statistics |= {
                "late_rank": worst[0],
                "late_share": shares[worst[0]],
                "late_ranks": sum(1 for share in shares.values() if share >= late_from),
                "late_of_ranks": len(shares),
                "late_noise_share": MAD_TO_SIGMA * spread,
            }
        return Lateness(statistics, *self._tell(times_s, shares, worst, statistics, places))

    def _tell(
        self,
        times_s: Mapping[int, float],
        shares: Mapping[int, float],
        worst: Sequence[int],
        statistics: Mapping[str, float],
        places: Places,
    ) -> tuple[Mapping[str, object], str]:
        first = worst[0]
        self._untold += 1
        if shares[first] < TELL_SHARE or (first == self._told_rank and self._untold < TELL_EVERY):
            return {}, ""
        self._told_rank, self._untold = first, 0
        known = places(worst)
        rows = [
            {"rank": rank, "share": round(shares[rank], 4), "pre_all_reduce_s": round(times_s[rank], 6), **known.get(rank, {})}
            for rank in worst
        ]
        told = {"worst": rows, "ranks": len(times_s), **{name: round(value, 6) for name, value in statistics.items()}}
        host = known.get(first, {}).get("host")
        at = f" on {host}" if host else ""
        text = (
            f"rank {first}{at} comes {100 * shares[first]:.0f} % later to the all-reduce than the median of {len(times_s)} ranks"
        )
        return told, text


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) >> 1
    return ordered[half] if len(ordered) & 1 else 0.5 * (ordered[half - 1] + ordered[half])
