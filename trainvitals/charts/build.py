"""Store rows, findings, events and checkpoints → ``CurveData``. Pure: the same input gives the same chart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from trainvitals.charts.annotations import curve_annotations
from trainvitals.charts.axis import NANOSECONDS_PER_MS, StepTimes, attempt_numbers, numbers
from trainvitals.charts.curves import By, CurveData, CurveMarker, CurveSeries, CurveSpan
from trainvitals.charts.happenings import curve_lines, curve_spans, finding_markers
from trainvitals.charts.points import Validation, validation_points
from trainvitals.charts.rows import GPU_UTILIZATION, STEPS_PER_S
from trainvitals.charts.typed import single
from trainvitals.incidents.current_attempt import in_order
from trainvitals.records import CheckpointReport, Event, Finding, Severity
from trainvitals.schema import THROUGHPUT_METRICS


class Attempt(Protocol):
    """What is needed of an attempt (``AttemptView`` has it)."""

    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def curve_data(
    frame: pd.DataFrame,
    findings: Sequence[Finding],
    events: Sequence[Event],
    checkpoints: Sequence[CheckpointReport],
    attempts: Sequence[Attempt],
    metrics: Sequence[str],
    by: Literal["step", "time", "time_ns"],
    *,
    run: str = "",
    x_range: tuple[float, float] | None = None,
    uirevision: str = "",
    suspects: Collection[str] = (),
    validations: Sequence[Validation] = (),
) -> CurveData:
    """Everything a curve chart shows.

    frame: rows of ``Store.buckets`` (columns bucket, run, attempt, time_ns, step, n, nonfinite, and f_min, f_max, f_mean,
    f_last for each field asked); may be empty. metrics: names of fields, "throughput" or any throughput metric for that
    row, "gpu_utilization". x_range: steps, or UTC milliseconds when ``by`` is time. suspects: paths of checkpoints that may
    hold damaged weights. validations: drawn where the loss is asked for.
    """
    axis: By = "step" if by == "step" else "time"
    of_attempt = attempt_numbers(frame)
    fields = fields_drawn(frame, metrics)
    restarts = superseding_steps(frame, of_attempt, attempts)
    series: list[CurveSeries] = []
    markers: list[CurveMarker] = []
    for number in sorted(set(of_attempt.tolist())):
        part = frame[of_attempt == number].sort_values("bucket", kind="stable")
        steps = numbers(part, "step")
        x = _positions(part, axis)
        cut = int(np.searchsorted(steps, restarts.get(number, np.inf), side="left")) if _ascends(steps) else len(part)
        for field in fields:
            for piece, is_superseded in ((slice(0, cut), False), (slice(max(cut - 1, 0), None), True)):
                if is_superseded and cut >= len(part):
                    continue
                one = _series(part.iloc[piece], x[piece], field, number, is_superseded)
                if one is not None:
                    series.append(one)
        markers += _nonfinite_markers(part, x, number, fields)
    times = StepTimes.of(frame, attempts)
    markers += finding_markers(findings, series, axis, times)
    window = x_range or _extent(series)
    shown = [one for one in validations if _is_in(_or_outside(times.x(axis, one.step, one.time_ns, one.attempt)), window)]
    points, of_points = validation_points(shown if "loss" in metrics else (), restarts, axis, times)
    markers += of_points
    return CurveData(
        run=run or _run_name(frame),
        by=axis,
        series=tuple(series),
        points=tuple(points),
        markers=tuple(marker for marker in markers if _is_in(marker.x, window)),
        spans=tuple(_inside(curve_spans(findings, events, axis, times), window)),
        lines=tuple(
            line for line in curve_lines(events, checkpoints, findings, attempts, axis, times, suspects) if _is_in(line.x, window)
        ),
        annotations=tuple(note for note in curve_annotations(events, attempts, axis, times) if _is_in(note.x, window)),
        x_range=x_range,
        uirevision=uirevision,
    )


def fields_drawn(frame: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """Stored fields to draw: of all throughput metrics asked only the first (in the schema's order) that has values."""
    drawn: list[str] = []
    throughput_done = False
    for metric in metrics:
        if metric == "throughput" or metric == STEPS_PER_S or metric in THROUGHPUT_METRICS:
            if not throughput_done:
                throughput_done = True
                drawn += [name for name in THROUGHPUT_METRICS if _has_values(frame, name)][:1]
        elif f"{metric}_mean" in frame.columns and metric not in drawn:
            drawn.append(metric)
    return drawn


def superseding_steps(
    frame: pd.DataFrame, of_attempt: npt.NDArray[np.int64], attempts: Sequence[Attempt] = ()
) -> dict[int, float]:
    """Attempt -> first step of any that ran after it: its steps from there on were run again and are drawn faint. One that is not among
    ``attempts`` ran before them."""
    if frame.empty:
        return {}
    steps = numbers(frame, "step")
    firsts = {int(number): float(np.fmin.reduce(steps[of_attempt == number], initial=np.inf)) for number in np.unique(of_attempt)}
    places = {attempt.number: place for place, attempt in enumerate(in_order(attempts))}
    known = sorted(firsts, key=lambda number: (places.get(number, -1), number))
    return {number: min(firsts[newer] for newer in known[place:]) for place, number in enumerate(known[:-1], 1)}


def _positions(part: pd.DataFrame, axis: By) -> npt.NDArray[np.float64]:
    """By step the first step of the bucket, by time its first moment, so that a spike's marker and line meet."""
    return numbers(part, "step") if axis == "step" else numbers(part, "time_ns") / NANOSECONDS_PER_MS


def _series(part: pd.DataFrame, x: npt.NDArray[np.float64], field: str, attempt: int, is_superseded: bool) -> CurveSeries | None:
    low, high, mean = (numbers(part, f"{field}_{kind}") for kind in ("min", "max", "mean"))
    nonfinite = numbers(part, "nonfinite", 0.0)
    # A bucket without this metric is no gap (it is logged less often than the loss); one with a NaN in it is.
    # Utilization was put beside the points by time: where it is missing nobody reported it, and that is a gap.
    keep = np.ones(len(mean), dtype=bool) if field == GPU_UTILIZATION else np.isfinite(mean) | (nonfinite > 0)
    if not np.isfinite(mean).any():
        return None
    if field == "step_time_s":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            low, high, mean = 1.0 / high, 1.0 / low, 1.0 / mean
    low, high, mean = (np.where(np.isfinite(values), values, np.nan)[keep] for values in (low, high, mean))
    n = numbers(part, "n", 1.0)[keep].astype(np.int64)
    return CurveSeries(
        metric=_name(field),
        attempt=attempt,
        is_superseded=is_superseded,
        x=x[keep],
        low=single(low),
        high=single(high),
        mean=single(mean),
        n=n,
    )


def _nonfinite_markers(
    part: pd.DataFrame, x: npt.NDArray[np.float64], attempt: int, fields: Sequence[str]
) -> Iterator[CurveMarker]:
    """A mark for each bucket with non-finite values: in the rows whose value is missing there, else in the first row."""
    nonfinite = numbers(part, "nonfinite", 0.0)
    steps = numbers(part, "step")
    for index in np.flatnonzero(nonfinite > 0):
        missing = [f for f in ("loss", "grad_norm") if f in fields and not np.isfinite(float(part[f"{f}_mean"].iloc[index]))]
        count, step = int(nonfinite[index]), int(steps[index])
        for field in missing or list(fields)[:1]:
            yield CurveMarker(
                _name(field), float(x[index]), None, "nonfinite", Severity.CRITICAL, "NaN or infinite",
                f"{count} non-finite value{'s' if count > 1 else ''} from step {step:,}, attempt {attempt}", "", step,
            )  # fmt: skip


def _has_values(frame: pd.DataFrame, name: str) -> bool:
    return bool(np.isfinite(numbers(frame, f"{name}_mean")).any())


def _name(field: str) -> str:
    return STEPS_PER_S if field == "step_time_s" else field


def _run_name(frame: pd.DataFrame) -> str:
    return str(frame["run"].iloc[0]) if "run" in frame.columns and len(frame) else ""


def _ascends(steps: npt.NDArray[Any]) -> bool:
    return bool(np.all(np.diff(steps) >= 0))


def _extent(series: Sequence[CurveSeries]) -> tuple[float, float] | None:
    """What the curves cover, with some air: older happenings would only push the curves aside."""
    if not series:
        return None
    first, last = min(float(one.x[0]) for one in series), max(float(one.x[-1]) for one in series)
    air = max((last - first) * 0.02, 1.0)
    return (first - air, last + air)


def _is_in(x: float, window: tuple[float, float] | None) -> bool:
    return window is None or window[0] <= x <= window[1]


def _or_outside(x: float | None) -> float:
    return np.inf if x is None else x


def _inside(spans: Sequence[CurveSpan], window: tuple[float, float] | None) -> Iterator[CurveSpan]:
    for span in spans:
        if window is None or (span.x0 <= window[1] and (span.x1 is None or span.x1 >= window[0])):
            yield span
