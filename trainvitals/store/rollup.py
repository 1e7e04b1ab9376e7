"""Rows to windows: what ``train_1m``, ``train_10m``, ``train_1h`` and ``node_10m`` hold. Pure; the driver is ``rollup_driver``.

A window [start, start + width) is one point with its start as timestamp, so that computing it again changes nothing.
Only finite values count in minimum, maximum, mean and last; what was not finite is counted in ``nonfinite``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from trainvitals.records import FieldValue, Point
from trainvitals.schema import NODE_ROLLUP, NODE_ROLLUP_NS, TRAIN_METRICS, TRAIN_ROLLUPS

#: From best to worst; a state that is not here is as bad as "lost".
NODE_STATES = ("no_gpu", "ok", "warm", "drained", "warn", "silent", "lost", "fail")
#: Fewer points than this across a chart would be seen as coarse (a chart is about 1,000 pixels wide).
MIN_POINTS = 1_000

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


def table_for(span_ns: int, min_points: int = MIN_POINTS) -> str:
    """The coarsest of ``train``'s tables that has at least ``min_points`` windows in ``span_ns``; ``train`` when none has."""
    fitting = [name for name, width_ns in TRAIN_ROLLUPS.items() if span_ns >= min_points * width_ns]
    return fitting[-1] if fitting else "train"


def node_table_for(span_ns: int, min_points: int = MIN_POINTS) -> str:
    """``node_10m`` when the span has at least ``min_points`` of its windows, else ``node``."""
    return NODE_ROLLUP if span_ns >= min_points * NODE_ROLLUP_NS else "node"


def train_fields(stored: Sequence[str]) -> list[str]:
    """Of the fields of `train` those that a roll-up reads: the step, the count of non-finite values, and every metric."""
    extra = [name for name in stored if name not in TRAIN_METRICS and name not in _NO_METRICS and not name.endswith("_nf")]
    return ["step", "nonfinite", *TRAIN_METRICS, *extra]


_NO_METRICS = frozenset({"step", "nonfinite", "worst_rank", "time_estimated"})


def rollup(frame: pd.DataFrame, measurement: str) -> list[Point]:
    """Windows of one roll-up of `train`.

    frame: rows of ``Store.raw("train", train_fields(…), …)``, whole windows, ascending by time; any runs and attempts.
    measurement: a name in ``TRAIN_ROLLUPS``. A window without a row gives no point.
    """
    points: list[Point] = []
    width_ns = TRAIN_ROLLUPS[measurement]
    metrics = [name for name in frame.columns if name not in _NO_METRICS and name not in ("time_ns", "run", "attempt")]
    for (run, attempt), rows in frame.groupby(["run", "attempt"], sort=True):
        points += _windows(measurement, width_ns, {"run": str(run), "attempt": str(attempt)}, rows, metrics)
    return points


def _windows(measurement: str, width_ns: int, tags: Mapping[str, str], rows: pd.DataFrame, metrics: Sequence[str]) -> list[Point]:
    times = rows["time_ns"].to_numpy(dtype=np.int64)
    starts, first, group = np.unique(times // width_ns * width_ns, return_index=True, return_inverse=True)
    steps = rows["step"].to_numpy(dtype=np.int64, na_value=0)
    nonfinite = np.add.reduceat(rows["nonfinite"].to_numpy(dtype=np.int64, na_value=0), first)
    counts = np.diff(np.append(first, len(times)))
    fields: list[dict[str, FieldValue]] = [
        {"step_min": low, "step_max": high, "n": n, "nonfinite": bad}
        for low, high, n, bad in zip(
            np.minimum.reduceat(steps, first).tolist(), np.maximum.reduceat(steps, first).tolist(), counts.tolist(),
            nonfinite.tolist(), strict=True,
        )
    ]  # fmt: skip
    for name in metrics:
        for window, values in _of_metric(name, rows[name].to_numpy(dtype=np.float64), steps, group, first):
            fields[window].update(values)
    return [Point(measurement, tags, start, of_window) for start, of_window in zip(starts.tolist(), fields, strict=True)]


def _of_metric(
    name: str, values: _Floats, steps: _Ints, group: npt.NDArray[np.intp], first: npt.NDArray[np.intp]
) -> Iterator[tuple[int, dict[str, FieldValue]]]:
    good = np.isfinite(values)
    if not good.any():
        return
    lows = np.minimum.reduceat(np.where(good, values, np.inf), first)
    highs = np.maximum.reduceat(np.where(good, values, -np.inf), first)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(np.where(good, values, 0.0), first)
    counts = np.add.reduceat(good.astype(np.int64), first)
    # A sum rounds, and may overflow: the mean is kept between the extremes that it lies between.
    means = np.clip(np.nan_to_num(sums / np.maximum(counts, 1), nan=0.0), lows, highs)
    at = np.flatnonzero(good)
    last_of = dict(zip(group[at].tolist(), values[at].tolist(), strict=True))  # the last of a window stays
    low_of, high_of = (_first_steps(good & (values == extremes[group]), steps, group) for extremes in (lows, highs))
    is_declared = name in TRAIN_METRICS
    for window in np.flatnonzero(counts).tolist():
        made: dict[str, FieldValue] = {
            f"{name}_min": float(lows[window]), f"{name}_max": float(highs[window]),
            f"{name}_mean": float(means[window]), f"{name}_last": last_of[window],
        }  # fmt: skip
        if is_declared:
            made[f"{name}_min_step"] = low_of[window]
            made[f"{name}_max_step"] = high_of[window]
        yield window, made


def _first_steps(hits: npt.NDArray[np.bool_], steps: _Ints, group: npt.NDArray[np.intp]) -> dict[int, int]:
    """Window -> step of its first hit: read backwards, so that the first of a window stays."""
    at = np.flatnonzero(hits)[::-1]
    return dict(zip(group[at].tolist(), steps[at].tolist(), strict=True))


#: Field of `node` -> how ten minutes of it become one value.
_NODE_AGGREGATES: Mapping[str, str] = {
    "gpus": "min", "utilization_mean_percent": "mean", "utilization_min_percent": "min", "temperature_max_c": "max",
    "power_sum_w": "mean", "memory_used_max_bytes": "max", "ecc_uncorrected": "max", "xid_last": "last",
    "infiniband_errors": "max", "run": "last", "job": "last", "state": "last", "is_simulated": "last",
}  # fmt: skip
NODE_FIELDS = tuple(_NODE_AGGREGATES)
_CASTS: Mapping[str, Any] = {
    "gpus": int, "memory_used_max_bytes": int, "ecc_uncorrected": int, "xid_last": int, "infiniband_errors": int,
    "run": str, "job": str, "state": str, "is_simulated": bool,
}  # fmt: skip


def node_rollup(frame: pd.DataFrame) -> list[Point]:
    """Ten-minute summaries of nodes from rows of ``Store.raw("node", NODE_FIELDS, …)``, whole windows, ascending by time.

    Of GPUs, and of what is good when high, the lowest value stays; of what is bad when high, the highest; ``worst_state`` is
    the worst that was seen, ``state`` the last.
    """
    if frame.empty:
        return []
    keyed = frame.assign(_window=frame["time_ns"] // NODE_ROLLUP_NS * NODE_ROLLUP_NS)
    rank = keyed["state"].map(lambda state: _state_rank(state) if isinstance(state, str) else -1)
    grouped = keyed.assign(_rank=rank).groupby(["node", "_window"], sort=True)
    columns = {name: grouped[name].agg(how) for name, how in _NODE_AGGREGATES.items()}
    counts, worst = grouped.size(), grouped["_rank"].idxmax()
    states, ranks = keyed["state"], rank
    points = []
    for at, (node, window) in enumerate(counts.index):
        fields: dict[str, FieldValue] = {"n": int(counts.iloc[at])}
        row = worst.iloc[at]
        if ranks.loc[row] >= 0:
            fields["worst_state"] = str(states.loc[row])
        for name, column in columns.items():
            value = column.iloc[at]
            if not (value is None or pd.isna(value)):
                fields[name] = _CASTS.get(name, float)(value)
        points.append(Point(NODE_ROLLUP, {"node": str(node)}, int(window), fields))
    return points


def _state_rank(state: str) -> int:
    return NODE_STATES.index(state) if state in NODE_STATES else NODE_STATES.index("lost")
