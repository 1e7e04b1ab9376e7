"""Curves for drawing, from the coarsest table that is fine enough: the same columns as ``Store.buckets`` of ``train``.

Windows of a roll-up are put into the chart's buckets. What no whole window covers is read from single steps: the cut window
at the start, and everything after the last window (the one that is still open, and what was not rolled up yet). Where the single
steps were deleted (``train_days``), windows are all there is, however short the span.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd

from trainvitals.schema import ROLLUP_PARTS, TRAIN_ROLLUPS
from trainvitals.store.frames import bucket_width
from trainvitals.store.protocol import Store
from trainvitals.store.rollup import MIN_POINTS, table_for

Where = Mapping[str, str | Sequence[str]]
#: A run's first step, and its first window where that is older, stay what they are, and a chart is drawn again every few seconds.
#: They only serve to choose the table, so an older row that is imported later does no harm.
_FIRST_ROWS: WeakKeyDictionary[Store, dict[tuple[object, ...], tuple[int, int | None]]] = WeakKeyDictionary()
_MAX_FIRST_ROWS = 1_000
_FINEST = next(iter(TRAIN_ROLLUPS))


def buckets_for_drawing(
    store: Store,
    fields: Sequence[str],
    where: Where,
    start_ns: int,
    end_ns: int,
    count: int,
    by: str = "time_ns",
    min_points: int = MIN_POINTS,
) -> pd.DataFrame:
    """``store.buckets("train", fields, where, start_ns, end_ns, count, by)``, read from a roll-up when the span is long.

    Then a bucket may begin up to one window early or late (a chart's pixel), and means are weighted by the steps of each
    window. Extremes, last values and counts are those of all steps: a one-step spike is in the maximum of its bucket.
    """
    fields = tuple(dict.fromkeys(fields))
    extent = _extent(store, where, start_ns, end_ns)
    table = "train" if extent is None else table_for(extent.last_ns - extent.first_ns, min_points)
    if extent is not None and extent.has_only_windows and table == "train":
        table = _FINEST
    if extent is None or table == "train":
        return store.buckets("train", fields, where, start_ns, end_ns, count, by)
    width_ns = TRAIN_ROLLUPS[table]
    first_ns = -(-start_ns // width_ns) * width_ns
    last_ns = end_ns - width_ns + 1
    if extent.has_only_windows:  # those that the edges cut are drawn whole: no single step could take their place
        first_ns, last_ns = start_ns // width_ns * width_ns, last_ns if extent.ends_with_steps else end_ns
    wanted = ["step_min", "n", "nonfinite", *(f"{field}_{part}" for field in fields for part in ROLLUP_PARTS)]
    windows = store.raw(table, wanted, where, first_ns, max(first_ns, last_ns))
    if windows.empty:
        return store.buckets("train", fields, where, start_ns, end_ns, count, by)
    windows = windows.rename(columns={"step_min": "step"})
    tail_ns = int(windows["time_ns"].iloc[-1]) + width_ns
    parts = [windows]

    def of_steps(from_ns: int, to_ns: int) -> pd.DataFrame:
        span_ns = max(1, extent.last_ns - extent.first_ns)
        share = (min(to_ns, extent.last_ns) - max(from_ns, extent.first_ns)) / span_ns
        return store.buckets("train", fields, where, from_ns, to_ns, min(count, max(8, math.ceil(4 * count * share))), by)

    if start_ns < first_ns:
        parts.insert(0, of_steps(start_ns, min(first_ns, end_ns)))
    if extent.ends_with_steps and tail_ns <= extent.last_ns:
        parts.append(of_steps(tail_ns, end_ns))
    return _grouped(_Fine([part for part in parts if len(part)]), fields, count, by)


@dataclass(frozen=True)
class _Extent:
    """First and last time of what there is to draw. has_only_windows: before the first single step; ends_with_steps: at the end."""

    first_ns: int
    last_ns: int
    has_only_windows: bool = False
    ends_with_steps: bool = True


def _extent(store: Store, where: Where, start_ns: int, end_ns: int) -> _Extent | None:
    """Of single steps in the window, and of windows before them; None without either."""

    def time_ns(table: str, field: str, newest: bool, end_ns: int) -> int | None:
        frame = store.raw(table, [field], where, start_ns, end_ns, limit=1, newest_first=newest)
        return None if frame.empty else int(frame["time_ns"].iloc[0])

    last_ns = time_ns("train", "step", True, end_ns)
    key = (start_ns, *((tag, value if isinstance(value, str) else tuple(value)) for tag, value in sorted(where.items())))
    known = _FIRST_ROWS.setdefault(store, {})
    first = known.get(key) if last_ns is not None else None
    if first is None or last_ns is None or first[0] > last_ns:
        first_ns = end_ns if last_ns is None else time_ns("train", "step", False, end_ns) or last_ns
        rolled_ns = None
        if first_ns - start_ns >= TRAIN_ROLLUPS[_FINEST]:
            rolled_ns = time_ns(_FINEST, "n", False, first_ns - TRAIN_ROLLUPS[_FINEST] + 1)
        if last_ns is None:
            newest_ns = None if rolled_ns is None else time_ns(_FINEST, "n", True, end_ns)
            return None if rolled_ns is None or newest_ns is None else _Extent(rolled_ns, newest_ns, True, False)
        if len(known) >= _MAX_FIRST_ROWS:
            known.clear()
        first = known[key] = (first_ns, rolled_ns)
    return _Extent(first[0] if first[1] is None else first[1], last_ns, first[1] is not None)


class _Fine:
    """Columns of several frames, one after the other, as arrays: joining the frames would cost more than reading them."""

    def __init__(self, parts: Sequence[pd.DataFrame]) -> None:
        self._parts = parts

    def ints(self, name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([part[name].to_numpy(dtype=np.int64, na_value=0) for part in self._parts])

    def floats(self, name: str) -> npt.NDArray[np.float64]:
        return np.concatenate([part[name].to_numpy(dtype=np.float64) for part in self._parts])

    def codes(self, name: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
        """(number of each row's text, the texts)"""
        codes, texts = pd.factorize(np.concatenate([part[name].to_numpy(dtype=object) for part in self._parts]))
        return codes, np.asarray(texts)


def _grouped(fine: _Fine, fields: Sequence[str], count: int, by: str) -> pd.DataFrame:
    position, times = fine.ints(by), fine.ints("time_ns")
    width = bucket_width(int(position.max()) - int(position.min()) + 1, count)
    bucket = position // width * width
    (run, runs), (attempt, attempts) = fine.codes("run"), fine.codes("attempt")
    order = np.lexsort((times, bucket, attempt, run))
    keys = np.stack([run[order], attempt[order], bucket[order]])
    first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    n = fine.ints("n")[order]
    steps = np.minimum.reduceat(fine.ints("step")[order], first)
    starts = times[order][first]
    merged = {
        f"{field}_{part}": values
        for field in fields
        for part, values in _merged({part: fine.floats(f"{field}_{part}")[order] for part in ROLLUP_PARTS}, n, first).items()
    }
    rising = np.lexsort((attempts[keys[1, first]].astype(str), runs[keys[0, first]].astype(str), starts))
    columns: dict[str, Any] = {
        "bucket": keys[2, first][rising],
        "run": pd.array(runs[keys[0, first]][rising], dtype="str"),
        "attempt": pd.array(attempts[keys[1, first]][rising], dtype="str"),
        "time_ns": starts[rising],
        "step": pd.array(steps[rising], dtype="Int64"),
        "n": np.add.reduceat(n, first)[rising],
        "nonfinite": np.add.reduceat(fine.ints("nonfinite")[order], first)[rising],
    }
    return pd.DataFrame(columns | {name: values[rising] for name, values in merged.items()})


def _merged(
    parts: Mapping[str, npt.NDArray[np.float64]], n: npt.NDArray[np.int64], first: npt.NDArray[np.intp]
) -> dict[str, npt.NDArray[np.float64]]:
    """One metric of several windows as one bucket; NaN where no window has it."""
    low = np.fmin.reduceat(parts["min"], first)
    high = np.fmax.reduceat(parts["max"], first)
    there = np.isfinite(parts["mean"])
    weight = np.where(there, n, 0)
    total = np.add.reduceat(weight, first)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(there, parts["mean"], 0.0) * weight, first) / total
    # The newest window that has the metric: its place, or 0 where there is none before it in its bucket.
    place = np.maximum.reduceat(np.where(np.isfinite(parts["last"]), np.arange(len(n)), -1), first)
    last = np.where(place >= 0, parts["last"][np.maximum(place, 0)], np.nan)
    return {"min": low, "max": high, "mean": np.clip(mean, low, high), "last": last}
