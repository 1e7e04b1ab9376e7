"""Store rows and happenings → curve records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.build import curve_data, fields_drawn
from trainvitals.charts.happenings import row_of_rule
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Severity, VerificationLevel

BASE_NS = 1_767_323_045_000_000_000


@dataclass(frozen=True)
class Start:
    number: int
    started_ns: int
    first_step: int | None


def buckets(steps: range, attempt: int = 1, **metrics: object) -> pd.DataFrame:
    """Rows as ``Store.buckets`` gives them; a metric is a mean, or (low, high, mean)."""
    count = len(steps)
    columns: dict[str, object] = {
        "bucket": list(steps), "run": "r", "attempt": str(attempt), "time_ns": [BASE_NS + step * 10**9 for step in steps],
        "step": pd.array(list(steps), dtype="Int64"), "n": [1] * count, "nonfinite": [0] * count,
    }  # fmt: skip
    for name, given in metrics.items():
        low, high, mean = given if isinstance(given, tuple) else (given, given, given)
        for kind, values in (("min", low), ("max", high), ("mean", mean), ("last", mean)):
            columns[f"{name}_{kind}"] = np.broadcast_to(np.asarray(values, dtype=np.float64), count)
    return pd.DataFrame(columns)


def finding(rule: str, step: int, severity: Severity = Severity.CRITICAL, **more: object) -> Finding:
    given = {"last_step": step + 10, "is_open": False, "id": f"{rule}/{step}"} | more
    return Finding(rule=rule, family="f", severity=severity, first_step=step, detected_step=step, attempt=1,
                   time_ns=BASE_NS + step * 10**9, value=None, expected=None, message="it rose", **given)  # type: ignore[arg-type]  # fmt: skip


def test_steps_that_a_newer_attempt_ran_again_are_superseded_from_the_first_of_them() -> None:
    frame = pd.concat([buckets(range(0, 100), 1, loss=2.0), buckets(range(60, 140), 2, loss=1.9)])
    data = curve_data(frame, [], [], [], [], ["loss"], "step")
    kept, superseded, newer = sorted(data.series, key=lambda one: (one.attempt, one.is_superseded))
    assert (kept.attempt, kept.is_superseded, kept.x[-1]) == (1, False, 59)
    assert (superseded.attempt, superseded.is_superseded, superseded.x[-1]) == (1, True, 99)
    assert superseded.x[0] == 59, "the faint part begins on the curve it left"
    assert (newer.attempt, newer.is_superseded, newer.x[0]) == (2, False, 60)


def test_an_attempt_that_continues_where_the_last_one_ended_supersedes_nothing() -> None:
    frame = pd.concat([buckets(range(0, 50), 1, loss=2.0), buckets(range(50, 90), 2, loss=2.0)])
    assert not any(one.is_superseded for one in curve_data(frame, [], [], [], [], ["loss"], "step").series)


def test_the_attempt_before_the_last_is_cut_by_whichever_newer_attempt_went_back_furthest() -> None:
    frame = pd.concat(
        [buckets(range(0, 100), 1, loss=2.0), buckets(range(90, 120), 2, loss=2.0), buckets(range(40, 130), 3, loss=2.0)]
    )
    kept = [one for one in curve_data(frame, [], [], [], [], ["loss"], "step").series if not one.is_superseded]
    assert [(one.attempt, one.x[-1]) for one in kept] == [(1, 39), (3, 129)]


def test_a_one_step_spike_inside_a_bucket_stays_in_the_high_of_its_bucket() -> None:
    high = np.full(10, 2.1)
    high[4] = 9.0
    data = curve_data(
        buckets(range(0, 100, 10), loss=(np.full(10, 1.9), high, np.full(10, 2.0))), [], [], [], [], ["loss"], "step"
    )
    assert data.series[0].high.max() == 9.0
    assert data.series[0].mean.max() == 2.0


def test_a_step_with_a_nan_is_a_gap_and_a_marker_on_the_top_edge() -> None:
    loss = np.full(10, 2.0)
    loss[6] = np.nan
    frame = buckets(range(10), loss=loss, grad_norm=0.2)
    frame.loc[6, "nonfinite"] = 2
    data = curve_data(frame, [], [], [], [], ["loss", "grad_norm"], "step")
    (marker,) = data.markers
    assert (marker.metric, marker.x, marker.y, marker.rule, marker.severity) == (
        "loss",
        6.0,
        None,
        "nonfinite",
        Severity.CRITICAL,
    )
    drawn = next(one for one in data.series if one.metric == "loss")
    assert np.isnan(drawn.mean[6])


def test_a_nan_hidden_in_a_bucket_of_finite_values_is_still_marked() -> None:
    frame = buckets(range(10), loss=2.0, grad_norm=0.2)
    frame.loc[3, "nonfinite"] = 1
    (marker,) = curve_data(frame, [], [], [], [], ["loss", "grad_norm"], "step").markers
    assert (marker.x, marker.y) == (3.0, None)


def test_a_metric_logged_less_often_is_joined_and_not_broken_at_every_step() -> None:
    norm = np.full(20, np.nan)
    norm[::5] = 0.3
    data = curve_data(buckets(range(20), loss=2.0, grad_norm=norm), [], [], [], [], ["loss", "grad_norm"], "step")
    drawn = next(one for one in data.series if one.metric == "grad_norm")
    assert drawn.x.tolist() == [0, 5, 10, 15]
    assert data.markers == ()


def test_the_throughput_row_takes_the_first_metric_that_has_values() -> None:
    frame = buckets(range(5), loss=2.0, tokens_per_s=np.nan, samples_per_s=12.0, step_time_s=0.5)
    assert fields_drawn(frame, ["loss", "throughput"]) == ["loss", "samples_per_s"]
    assert fields_drawn(frame, ["tokens_per_s", "step_time_s"]) == ["samples_per_s"]


def test_step_time_is_drawn_as_steps_per_second_with_low_and_high_swapped() -> None:
    data = curve_data(buckets(range(5), step_time_s=(0.25, 2.0, 0.5)), [], [], [], [], ["throughput"], "step")
    (one,) = data.series
    assert (one.metric, one.low[0], one.high[0], one.mean[0]) == ("steps_per_s", 0.5, 4.0, 2.0)


def test_a_finding_stands_on_its_curve_and_comes_once_however_often_it_changed() -> None:
    frame = buckets(range(100), loss=(1.9, 2.5, 2.0))
    found = [
        finding("loss_divergence", 40),
        finding("loss_divergence", 40, is_open=True, last_step=None),
        finding("loss_spike", 60),
    ]
    data = curve_data(frame, found, [], [], [], ["loss"], "step")
    assert [(m.finding_id, m.x, m.y) for m in data.markers] == [("loss_divergence/40", 40.0, 2.0), ("loss_spike/60", 60.0, 2.5)]


def test_a_finding_about_no_curve_stands_on_the_top_edge_of_the_first_row() -> None:
    (marker,) = curve_data(buckets(range(100), loss=2.0), [finding("nccl_timeout", 30)], [], [], [], ["loss"], "step").markers
    assert (marker.metric, marker.y) == ("loss", None)


def test_overlapping_incidents_become_one_span_that_is_as_grave_as_they_were_so_far() -> None:
    found = [
        finding("grad_norm_spike", 20, Severity.WARNING, last_step=50),
        finding("loss_divergence", 30, is_open=True, last_step=None),
    ]
    data = curve_data(buckets(range(100), loss=2.0, grad_norm=1.0), found, [], [], [], ["loss", "grad_norm"], "step")
    before, span = data.spans
    assert (before.x0, before.x1, before.severity) == (20.0, 30.0, Severity.WARNING), "the worse colour begins at its own onset"
    assert (span.x0, span.x1, span.severity, span.kind) == (30.0, None, Severity.CRITICAL, "incident")
    assert [line.label for line in data.lines if line.kind == "onset"] == ["onset 30"]


def test_a_pause_is_shaded_until_training_runs_again() -> None:
    def control(state: str, second: int) -> Event:
        return Event("control", BASE_NS + second * 10**9, 50, 1, id=state, data={"state": state, "source": "breaker"})

    data = curve_data(
        buckets(range(100), loss=2.0), [], [control("paused", 50), control("running", 70)], [], [], ["loss"], "time"
    )
    (span,) = data.spans
    assert (span.kind, span.label) == ("paused", "paused by breaker, step 50")
    assert span.x1 is not None and span.x1 - span.x0 == 20_000


def test_a_pause_carries_the_name_of_the_person_and_not_the_way_it_was_asked() -> None:
    at = BASE_NS + 50 * 10**9
    begin = Event("phase", at - 1, 50, 1, id="p", data={"phase": "paused", "state": "begin"})
    told = Event("control", at, 50, 1, id="c", data={"state": "paused", "by": "nina", "source": "ui"})
    nameless = Event("control", at, 50, 1, id="c", data={"state": "paused", "by": "", "source": "cli"})
    for events, label in (
        ([begin, told], "paused by nina, step 50"),
        ([nameless], "paused by cli, step 50"),
        ([begin], "paused, step 50"),
    ):
        (span,) = curve_data(buckets(range(60), loss=2.0), [], events, [], [], ["loss"], "time").spans
        assert span.label == label


def test_checkpoints_restarts_and_their_states_become_lines() -> None:
    made = [
        CheckpointReport("/c/50", 50, "hf", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 1, 1),
        CheckpointReport("/c/70", 70, "hf", CheckpointState.CORRUPT, None, True, 1, 1),
        CheckpointReport("/c/80", 80, "hf", CheckpointState.DELETED, None, True, 0, 0),
    ]
    starts = [Start(1, BASE_NS, 0), Start(2, BASE_NS + 60 * 10**9, 60)]
    events = [Event("resume", BASE_NS + 60 * 10**9, 59, 2)]
    lines = curve_data(buckets(range(100), loss=2.0), [], events, made, starts, ["loss"], "step").lines
    assert [(line.x, line.kind, line.label, line.state) for line in lines] == [
        (60.0, "restart", "attempt 2 from 59", ""),
        (50.0, "checkpoint", "50", "verified"),
        (70.0, "checkpoint", "ckpt 70", "corrupt"),
    ]


def test_a_suspect_checkpoint_is_no_good_line() -> None:
    made = [CheckpointReport(f"/c/{n}", n, "hf", CheckpointState.VERIFIED, None, True, 1, 1) for n in (50, 70)]
    lines = curve_data(buckets(range(100), loss=2.0), [], [], made, [], ["loss"], "step", suspects={"/c/70": 60}).lines
    assert [(line.label, line.state) for line in lines] == [("50", "verified"), ("70", "suspect")]


def test_what_happened_outside_the_window_does_not_stretch_it() -> None:
    made = [CheckpointReport("/c/1", 1, "hf", CheckpointState.VERIFIED, None, True, 1, 1)]
    data = curve_data(buckets(range(1000, 1100), loss=2.0), [finding("loss_spike", 3)], [], made, [], ["loss"], "step")
    assert (data.markers, data.lines) == ((), ())


def test_an_empty_frame_gives_an_empty_chart() -> None:
    data = curve_data(pd.DataFrame(), [], [], [], [], ["loss", "throughput"], "time")
    assert (data.series, data.markers, data.spans, data.lines, data.by) == ((), (), (), (), "time")


def test_positions_between_known_steps_are_interpolated_both_ways() -> None:
    times = StepTimes.of(buckets(range(0, 100, 10), loss=1.0))
    assert times.x("time", 15, None, 1) == (BASE_NS + 15 * 10**9) / 1e6
    assert times.x("step", None, BASE_NS + 42 * 10**9) == 42.0
    assert StepTimes.of(pd.DataFrame()).x("time", 5, None) is None


def test_every_rule_about_a_curve_has_its_row() -> None:
    pairs = {
        "loss_drift": "loss",
        "grad_norm_nonfinite": "grad_norm",
        "stall": "throughput",
        "resume_lr_mismatch": "lr",
        "run_dead": None,
    }
    assert {rule: row_of_rule(rule) for rule in pairs} == pairs
