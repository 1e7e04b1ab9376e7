"""Findings, events, attempts and checkpoints → markers, spans and lines of the curve chart. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from trainvitals.charts.axis import NANOSECONDS_PER_MS, StepTimes
from trainvitals.charts.curves import By, CurveLine, CurveMarker, CurveSeries, CurveSpan
from trainvitals.charts.rows import row_of
from trainvitals.charts.text import plain
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Severity

#: Rules that mark the peak of a bucket; all others stand on its mean.
_PEAK_RULES = ("loss_outlier", "loss_spike", "grad_norm_spike")
#: These say something about the watchdog's decision or about a chart mark, and shade nothing.
_UNSHADED = ("breaker_trip", "breaker_alert", "loss_outlier")
DEATH = "run_dead"
#: State of a line whose checkpoint verifies and may hold damaged weights.
SUSPECT = "suspect"
#: Of a name in a label: the step after it must still fit.
LONGEST_NAME = 24
_ROW_OF_RULE: Mapping[str, str] = {
    "resume_rebound": "loss",
    "resume_drop": "loss",
    "rank_loss_mismatch": "loss",
    "breaker_trip": "loss",
    "breaker_alert": "loss",
    "resume_lr_mismatch": "lr",
    "lr_schedule_mismatch": "lr",
    "throughput_drop": "throughput",
    "straggler": "throughput",
    "stall": "throughput",
}


class _Attempt(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def row_of_rule(rule: str) -> str | None:
    """Row of the chart a rule speaks about; None for what is about no curve (a dead rank, a checkpoint)."""
    if rule in _ROW_OF_RULE:
        return _ROW_OF_RULE[rule]
    for prefix, row in (("loss_", "loss"), ("grad_norm_", "grad_norm"), ("gpu_", "gpu_utilization")):
        if rule.startswith(prefix):
            return row
    return None


def newest_of_each(findings: Sequence[Finding]) -> list[Finding]:
    """The same finding comes again when it grows or closes: the last version counts."""
    return list({finding.id: finding for finding in findings}.values())


def finding_markers(findings: Sequence[Finding], series: Sequence[CurveSeries], axis: By, times: StepTimes) -> list[CurveMarker]:
    """A marker at the onset of each finding, on its curve; without a curve for it on the top edge of the first row."""
    drawn = list(dict.fromkeys(one.metric for one in series))
    markers = []
    for finding in newest_of_each(findings):
        time_ns = finding.time_ns if finding.first_step == finding.detected_step else None
        x = times.x(axis, finding.first_step, time_ns, finding.attempt)
        x = times.x(axis, finding.first_step, finding.time_ns, finding.attempt) if x is None else x
        if x is None:
            continue
        row = row_of_rule(finding.rule)
        metric = next((name for name in drawn if row_of(name) == row), None)
        y = _value_at(series, metric, x, finding) if metric is not None else None
        markers.append(
            CurveMarker(
                metric=metric or (drawn[0] if drawn else "loss"),
                x=x,
                y=y,
                rule=finding.rule,
                severity=finding.severity,
                title=finding.rule.replace("_", " "),
                text=finding.message,
                finding_id=finding.id,
                step=finding.first_step,
            )
        )
    return markers


def curve_spans(findings: Sequence[Finding], events: Sequence[Event], axis: By, times: StepTimes) -> list[CurveSpan]:
    """Stretches that were not well (overlapping ones together, at the worst severity so far), stalls and pauses."""
    sick: list[CurveSpan] = []
    stalls: list[CurveSpan] = []
    for finding in newest_of_each(findings):
        if finding.severity is Severity.INFO or finding.rule in _UNSHADED or row_of_rule(finding.rule) is None:
            continue
        x0 = times.x(axis, finding.first_step, None, finding.attempt)
        x1 = None if finding.is_open else times.x(axis, finding.last_step, None, finding.attempt)
        if x0 is None or (not finding.is_open and (x1 is None or x1 <= x0)):
            continue
        if finding.rule == "stall":
            stalls.append(CurveSpan(x0, x1, "stall", finding.severity, "stalled"))
        else:
            sick.append(CurveSpan(x0, x1, "incident", finding.severity, ""))
    if axis == "time":
        sick += _down(findings, events, times)
    return [*_merged(sick), *stalls, *_pauses(events, axis, times)]


def _down(findings: Sequence[Finding], events: Sequence[Event], times: StepTimes) -> Iterator[CurveSpan]:
    """From the last step of a trainer that died until the next start; without one until now."""
    for finding in newest_of_each(findings):
        x0 = times.x("time", finding.first_step, None, finding.attempt)
        if finding.rule != DEATH or finding.severity is Severity.INFO or x0 is None:
            continue
        starts = [event.time_ns / NANOSECONDS_PER_MS for event in events if event.kind == "attempt_start" and event.time_ns]
        yield CurveSpan(x0, min((x for x in starts if x > x0), default=None), "incident", finding.severity, "")


def curve_lines(
    events: Sequence[Event],
    checkpoints: Sequence[CheckpointReport],
    findings: Sequence[Finding],
    attempts: Sequence[_Attempt],
    axis: By,
    times: StepTimes,
    suspects: Collection[str] = (),
) -> list[CurveLine]:
    """Onsets of critical findings, starts of attempts, pauses, resumes and checkpoints; those at ``suspects`` (paths) as such."""
    lines: list[CurveLine] = []
    for span in _merged(
        [
            CurveSpan(x, None if finding.is_open else end, "incident", finding.severity, f"onset {finding.first_step:,}")
            for finding in newest_of_each(findings)
            if finding.severity is Severity.CRITICAL and finding.rule not in _UNSHADED and row_of_rule(finding.rule)
            and (x := times.x(axis, finding.first_step, None, finding.attempt)) is not None
            and ((end := times.x(axis, finding.last_step, None, finding.attempt)) is not None or True)
        ]
    ):  # fmt: skip
        lines.append(CurveLine(span.x0, "onset", span.label))
    for finding in newest_of_each(findings):
        if finding.rule == DEATH and finding.severity is Severity.CRITICAL:
            x = times.x(axis, finding.first_step, None, finding.attempt)
            if x is not None:
                lines.append(CurveLine(x, "onset", f"died {finding.first_step:,}"))
    resumed = {event.attempt: event.step for event in events if event.kind == "resume" and event.step is not None}
    for attempt in attempts:
        x = times.x(axis, attempt.first_step, attempt.started_ns if axis == "time" else None, attempt.number)
        if attempt.number > 1 and x is not None:
            step = resumed.get(attempt.number)
            lines.append(CurveLine(x, "restart", f"attempt {attempt.number}" + (f" from {step:,}" if step is not None else "")))
    for pause in _pauses(events, axis, times):
        lines.append(CurveLine(pause.x0, "pause", "" if pause.x1 != pause.x0 else pause.label))
        if pause.x1 is not None:
            lines.append(CurveLine(pause.x1, "resume", ""))
    for checkpoint in checkpoints:
        x = times.x(axis, checkpoint.step, checkpoint.modified_at_ns)
        if x is None or checkpoint.state is CheckpointState.DELETED:
            continue
        name = f"{checkpoint.step:,}" if checkpoint.step is not None else "checkpoint"
        is_verified = checkpoint.state is CheckpointState.VERIFIED
        state = SUSPECT if is_verified and checkpoint.path in suspects else checkpoint.state.value
        lines.append(CurveLine(x, "checkpoint", name if is_verified else f"ckpt {name}", state))
    return lines


def _value_at(series: Sequence[CurveSeries], metric: str, x: float, finding: Finding) -> float | None:
    """Height of the curve at the bucket that holds x, in the finding's own attempt if it is drawn."""
    candidates = [one for one in series if one.metric == metric and len(one.x) and one.x[0] <= x]
    own = [one for one in candidates if one.attempt == finding.attempt]
    for one in sorted(own or candidates, key=lambda one: -float(one.x[0])):
        values = one.high if finding.rule in _PEAK_RULES else one.mean
        value = float(values[int(np.searchsorted(one.x, x, side="right")) - 1])
        return value if np.isfinite(value) else None
    return None


def _merged(spans: Sequence[CurveSpan]) -> list[CurveSpan]:
    """Overlapping spans as one: first label, open if one of them is; from where it gets worse a span of its own."""
    merged: list[CurveSpan] = []
    for span in sorted(spans, key=lambda one: one.x0):
        last = merged[-1] if merged else None
        if last is not None and (last.x1 is None or span.x0 <= last.x1):
            end = None if last.x1 is None or span.x1 is None else max(last.x1, span.x1)
            severity = max(last.severity, span.severity, key=lambda one: one.rank)
            if severity is not last.severity and span.x0 > last.x0:
                # What was only a warning until then is not shaded as worse than it was, from before the line of the onset.
                merged[-1] = CurveSpan(last.x0, span.x0, last.kind, last.severity, last.label)
                merged.append(CurveSpan(span.x0, end, span.kind, severity, span.label))
                continue
            merged[-1] = CurveSpan(last.x0, end, last.kind, severity, last.label)
        else:
            merged.append(span)
    return merged


def _pauses(events: Sequence[Event], axis: By, times: StepTimes) -> list[CurveSpan]:
    """From phase events (data.phase = paused) and from the control state; both tell of the same pause once. A park ends by a start."""
    spans: list[CurveSpan] = []
    open_x: float | None = None
    label, is_told = "", False
    for event, is_paused in _pause_changes(events):
        x = times.x(axis, event.step, event.time_ns, event.attempt)
        if x is None:
            continue
        if is_paused and open_x is None:
            open_x, label, is_told = x, _pause_label(event), _pauser(event) != ""
        elif is_paused and not is_told:
            label, is_told = _pause_label(event), _pauser(event) != ""
        elif not is_paused and open_x is not None:
            spans.append(CurveSpan(open_x, max(x, open_x), "paused", Severity.INFO, label))
            open_x = None
    if open_x is not None:
        spans.append(CurveSpan(open_x, None, "paused", Severity.INFO, label))
    return spans


def _pause_changes(events: Sequence[Event]) -> Iterator[tuple[Event, bool]]:
    for event in sorted(events, key=lambda one: (one.time_ns or 0, one.step or 0)):
        if event.kind == "phase" and event.data.get("phase") == "paused":
            yield event, event.data.get("state") == "begin"
        elif event.kind == "control" and event.data.get("state") in (
            "paused",
            "parked",
            "running",
            "stopped",
            "refused_to_start",
        ):
            yield event, event.data.get("state") == "paused" or _is_parked(event)
        elif event.kind == "attempt_start":
            yield event, False


def _is_parked(event: Event) -> bool:
    """It saved and ended because of a pause: its client calls that stopped, and its watchdog parked."""
    return event.data.get("state") == "parked" or (
        event.data.get("state") in ("stopped", "refused_to_start") and event.data.get("desired") == "paused"
    )


def _pauser(event: Event) -> str:
    """The person's name, "breaker", or whatever else is told of who paused; the way it was asked (ui, cli) comes last."""
    source = str(event.data.get("source") or "")
    return source if source == "breaker" else plain(str(event.data.get("by") or source), LONGEST_NAME)


def _pause_label(event: Event) -> str:
    by = _pauser(event)
    who = f" by {by}" if by else ""
    word = "parked" if event.kind == "control" and _is_parked(event) else "paused"
    return f"{word}{who}" + (f", step {event.step:,}" if event.step is not None else "")
