"""From what a viewer looks at to a finished figure: bounded reads of the store, then the pure functions of ``trainvitals.charts``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from trainvitals.charts.axis import attempt_numbers
from trainvitals.charts.build import curve_data
from trainvitals.charts.curves import figure_json
from trainvitals.incidents.current_attempt import later_numbers
from trainvitals.incidents.verdict import span
from trainvitals.schema import NODE_ROLLUP, SCHEMA, THROUGHPUT_METRICS
from trainvitals.store.drawing import buckets_for_drawing
from trainvitals.store.protocol import Store
from trainvitals.store.rollup import node_table_for
from trainvitals.web.view import CurveQuery, RunView

DAY_NS = 86_400 * 10**9
MS_NS = 1_000_000
#: Buckets across the chart: about one a pixel, each with its lowest and highest value.
BUCKETS = 1000
COMPACT_BUCKETS = 500
GPU_UTILIZATION = "gpu_utilization"
#: Sampling periods that a curve of utilization bridges; with fewer than three samples their period is not known.
GAP_PERIODS = 3.0
FEW_SAMPLES_NS = 60 * 10**9
PAUSED = frozenset({"paused", "pausing"})
#: A pause longer than this is shown as the run's last stretch, not as an empty day.
PAUSE_SHOWN_NS = DAY_NS
#: No step for this long may still be a checkpoint or a restart.
QUIET_NS = 15 * 60 * 10**9


def draw(store: Store, run: RunView, query: CurveQuery, now_ns: int) -> str:
    """Figure JSON of ``query``. Raises what the store raises."""
    frame, start_ns, end_ns = read_frame(store, run, query, now_ns)
    if query.until_attempt is not None:
        frame, run = _until(query.until_attempt, frame, run)
    data = curve_data(
        frame, run.findings, [*run.events, *run.control_history], run.checkpoints, run.attempts, query.metrics,
        "step" if query.by == "step" else "time", run=query.run, x_range=_x_range(run, query, frame, start_ns, end_ns, now_ns),
        uirevision=f"{query.run}/{query.by}/{query.last_s:g}", suspects=run.suspects,
        validations=run.validations,
    )  # fmt: skip
    if GPU_UTILIZATION in query.metrics and _is_simulated(store, start_ns, now_ns):
        data = replace(data, notes={GPU_UTILIZATION: "simulated"})
    rows = frozenset({"grad_norm", "loss"} if query.log_loss else {"grad_norm"})
    data = replace(data, log_rows=rows, is_smooth=query.smooth)
    return figure_json(data, query.theme, compact=query.compact)


def read_frame(store: Store, run: RunView, query: CurveQuery, now_ns: int) -> tuple[pd.DataFrame, int, int]:
    """(rows of ``Store.buckets``, start, end in UTC ns) for what is asked, at about one bucket a pixel."""
    fields = stored_fields(query.metrics)
    count = COMPACT_BUCKETS if query.compact else BUCKETS
    by = "step" if query.by == "step" else "time_ns"
    if query.by == "step" and query.last_s <= 0 and (query.start is not None or query.end is not None):
        frame, start_ns, end_ns = _frame_of_steps(store, run, query, fields, count, now_ns)
    else:
        start_ns, end_ns = window_ns(run, query, now_ns)
        frame = buckets_for_drawing(store, fields, {"run": query.run}, start_ns, end_ns, count, by=by)
    if GPU_UTILIZATION in query.metrics:
        frame = _with_gpu(store, frame, start_ns, end_ns, count)
    return frame, start_ns, end_ns


def _until(attempt: int, frame: pd.DataFrame, run: RunView) -> tuple[pd.DataFrame, RunView]:
    """Without what later starts made: of steps that were made again this shows what was seen then."""
    later = later_numbers(run.attempts, attempt)
    return frame[~np.isin(attempt_numbers(frame), list(later))].reset_index(drop=True), replace(
        run,
        attempts=tuple(one for one in run.attempts if one.number not in later),
        findings=tuple(one for one in run.findings if one.attempt not in later),
        events=tuple(one for one in run.events if one.attempt not in later),
        validations=tuple(one for one in run.validations if one.attempt not in later),
    )


def stored_fields(metrics: Sequence[str]) -> list[str]:
    """Names of ``train`` fields behind the metrics asked; "throughput" stands for all that may show it."""
    names: list[str] = []
    for metric in metrics:
        names.extend(THROUGHPUT_METRICS if metric == "throughput" else [] if metric == GPU_UTILIZATION else [metric])
    return list(dict.fromkeys(names))


def window_ns(run: RunView, query: CurveQuery, now_ns: int) -> tuple[int, int]:
    """(start, end) in UTC ns, end exclusive, of a query that names times or nothing."""
    if query.last_s > 0:
        start_ns, end_ns = last_window_ns(run, query.last_s, now_ns)
        return start_ns, end_ns + 1
    if query.by == "time":
        return query.start or 0, (now_ns + DAY_NS if query.end is None else query.end + 1)
    return 0, now_ns + DAY_NS


def last_window_ns(run: RunView, last_s: float, now_ns: int) -> tuple[int, int]:
    """(start, end) in UTC ns of "the last so many seconds": as it is worth looking at.

    A paused run's window goes on to now and reaches back before the pause; a run that ended shows its own last stretch; a run
    younger than the window begins a little before its first step.
    """
    width_ns = round(last_s * 1e9)
    last_ns = run.last_step_time_ns
    rests = last_ns is not None and now_ns - last_ns >= width_ns
    start_ns, end_ns = now_ns - width_ns, now_ns
    if last_ns is not None and run.control.state in PAUSED and now_ns - last_ns <= PAUSE_SHOWN_NS:
        start_ns = min(start_ns, last_ns - width_ns // 2)
    elif last_ns is not None and rests:
        end_ns = last_ns + width_ns // 50
        start_ns = end_ns - width_ns
    first_ns = run.first_step_time_ns
    if first_ns is not None and first_ns > start_ns:
        start_ns = max(start_ns, first_ns - max((end_ns - first_ns) // 50, MS_NS))
    return start_ns, max(end_ns, start_ns + MS_NS)


def window_title(run: RunView, last_s: float, now_ns: int) -> str:
    """What ``last_window_ns`` shows, in words."""
    start_ns, end_ns = last_window_ns(run, last_s, now_ns)
    first_ns, last_ns = run.first_step_time_ns, run.last_step_time_ns
    if end_ns < now_ns and last_ns is not None:
        return f"The last {span(last_s)} of training, up to {span((now_ns - last_ns) / 1e9)} ago"
    if first_ns is not None and first_ns >= start_ns:
        return f"Since the start, {span((end_ns - first_ns) / 1e9)}"
    if (end_ns - start_ns) / 1e9 > 1.01 * last_s and last_ns is not None:
        return f"Last {span((end_ns - start_ns) / 1e9)}, no step for {span((now_ns - last_ns) / 1e9)}"
    minutes = last_s / 60
    return f"Last {minutes:.0f} minutes" if minutes < 120 else f"Last {span(last_s)}"


def _frame_of_steps(
    store: Store, run: RunView, query: CurveQuery, fields: Sequence[str], count: int, now_ns: int
) -> tuple[pd.DataFrame, int, int]:
    """The steps asked, of each attempt by itself: a coarse look at the run says when they were, and only that is read finely."""
    index = buckets_for_drawing(store, ["loss"], {"run": query.run}, 0, now_ns + DAY_NS, count, by="step")
    parts: list[pd.DataFrame] = []
    starts, ends = [], []
    newest = str(run.attempt.number) if run.attempt else index["attempt"].iloc[-1] if len(index) else ""
    for attempt, part in index.groupby("attempt"):
        steps, times = part["step"].to_numpy(dtype=np.int64), part["time_ns"].to_numpy(dtype=np.int64)
        first = int(steps.min()) if query.start is None else query.start
        if query.end is not None and steps.min() > query.end:
            continue
        before, after = times[steps <= first], times[steps > query.end] if query.end is not None else times[:0]
        start_ns = int(before.max()) if len(before) else int(times.min())
        # The last coarse bucket of an attempt that is over reaches a little beyond its first moment.
        tail_ns = int(times.max()) + 2 * (int(times.max() - times.min()) // max(1, len(times) - 1)) + 1
        end_ns = int(after.min()) + 1 if len(after) else now_ns + DAY_NS if attempt == newest else tail_ns
        where = {"run": query.run, "attempt": str(attempt)}
        frame = buckets_for_drawing(store, fields, where, start_ns, end_ns, count, by="step")
        last = query.end if query.end is not None else np.iinfo(np.int64).max
        parts.append(frame[(frame["step"] >= first) & (frame["step"] <= last)])
        starts.append(start_ns)
        ends.append(end_ns)
    parts = [part for part in parts if len(part)]
    if not parts:
        return store.buckets("train", fields, {"run": query.run}, 0, 1, count, by="step"), 0, now_ns + DAY_NS
    return pd.concat(parts, ignore_index=True).sort_values("time_ns", kind="stable", ignore_index=True), min(starts), max(ends)


def _live_end_ns(run: RunView, frame: pd.DataFrame, first_ns: int, now_ns: int) -> int:
    """Now; but a run that is over does not push its curve aside with the days since then."""
    if frame.empty or run.control.state in PAUSED:
        return now_ns
    last_ns = int(frame["time_ns"].max())
    length_ns = max(last_ns - first_ns, 1)
    return now_ns if now_ns - last_ns <= max(length_ns // 10, QUIET_NS) else last_ns + length_ns // 50


def _x_range(
    run: RunView, query: CurveQuery, frame: pd.DataFrame, start_ns: int, end_ns: int, now_ns: int
) -> tuple[float, float] | None:
    if query.by == "time":
        first_ns, last_ns = (query.start, query.end) if query.last_s <= 0 else (start_ns, end_ns)
        if first_ns is None:
            first_ns = int(frame["time_ns"].min()) if len(frame) else None
        if first_ns is None:
            return None
        return first_ns / MS_NS, (_live_end_ns(run, frame, first_ns, now_ns) if last_ns is None else min(last_ns, now_ns)) / MS_NS
    if frame.empty:
        return None
    first = query.start if query.start is not None else int(frame["step"].min())
    last = query.end if query.end is not None else _last_step(run, query, frame)
    return (float(first), float(max(last, first + 1)))


def _last_step(run: RunView, query: CurveQuery, frame: pd.DataFrame) -> int:
    """Where the axis ends. A row stands for many steps and names the first of them: what happened at the run's end, a hang or a death,
    would lie beyond the axis."""
    seen = int(frame["step"].max())
    if query.until_attempt is None:
        return max(seen, run.last_step if run.last_step is not None else seen)
    ends = (one.first_step for one in run.findings if one.attempt == query.until_attempt and one.first_step is not None)
    return max([seen, *ends])


def _is_simulated(store: Store, start_ns: int, now_ns: int) -> bool:
    """Whether every node that tells a utilization is a simulated one."""
    told = ["utilization_mean_percent", "is_simulated"]
    nodes = store.latest("node", told, {}, now_ns + DAY_NS - start_ns, now_ns + DAY_NS).dropna(subset=told[:1])
    return not nodes.empty and bool(nodes["is_simulated"].fillna(False).astype(bool).all())


def _with_gpu(store: Store, frame: pd.DataFrame, start_ns: int, end_ns: int, count: int) -> pd.DataFrame:
    """Mean utilization over all nodes, put beside the training point that is nearest in time."""
    field = "utilization_mean_percent"
    assert field in SCHEMA["node"].fields and field in SCHEMA[NODE_ROLLUP].fields
    if frame.empty:
        return frame
    table = node_table_for(int(frame["time_ns"].max()) - int(frame["time_ns"].min()))
    nodes = store.buckets(table, [field], {}, start_ns, end_ns, count)
    if nodes.empty and table == NODE_ROLLUP:  # a young store, or one that nothing rolled up
        nodes = store.buckets("node", [field], {}, start_ns, end_ns, count)
    if nodes.empty:
        return frame
    grouped = nodes.groupby("bucket")
    mean = pd.DataFrame(
        {
            "time_ns": grouped["time_ns"].min().astype("int64"),
            f"{GPU_UTILIZATION}_min": grouped[f"{field}_min"].min(),
            f"{GPU_UTILIZATION}_max": grouped[f"{field}_max"].max(),
            f"{GPU_UTILIZATION}_mean": grouped[f"{field}_mean"].mean(),
            f"{GPU_UTILIZATION}_last": grouped[f"{field}_last"].mean(),
        }
    )
    # A node without a GPU reports no utilization: its samples say nothing and must not blank those beside them.
    mean = mean.dropna(subset=[f"{GPU_UTILIZATION}_mean"]).sort_values("time_ns")
    if mean.empty:
        return frame
    left = frame.sort_values("time_ns", kind="stable").astype({"time_ns": "int64"})
    return pd.merge_asof(left, mean, on="time_ns", direction="nearest", tolerance=_tolerance_ns(mean["time_ns"].to_numpy()))


def _tolerance_ns(times: npt.NDArray[np.int64]) -> int:
    """How far a sample speaks for a point beside it: a hole of up to three usual distances is bridged from both its edges."""
    if len(times) < 3:
        return FEW_SAMPLES_NS
    return max(1, round(GAP_PERIODS / 2 * float(np.median(np.diff(times)))) + 1)
