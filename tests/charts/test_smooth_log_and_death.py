"""The median through the noise, the logarithmic loss, and a death as it stands on the time axis."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.curves import CurveData, CurvePoints, CurveSeries, figure_json
from trainvitals.charts.happenings import curve_lines, curve_spans
from trainvitals.charts.smooth import running_median
from trainvitals.records import Event, Finding, Severity


def series(metric: str, values: list[float], **more: Any) -> CurveSeries:
    y = np.array(values, dtype=np.float32)
    return CurveSeries(
        metric, 1, more.get("is_superseded", False), np.arange(len(y), dtype=np.float64), y, y, y, np.ones(len(y), np.int64)
    )


def figure(data: CurveData) -> dict[str, Any]:
    return json.loads(figure_json(data, "light"))


def test_a_jump_stays_where_it_was_and_as_high_as_it_was() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 1000)
    values = np.where(np.arange(1000) < 600, 2.0, 3.0) + noise
    smooth = running_median(values)
    assert smooth[:580].max() < 2.2 and smooth[620:].min() > 2.8
    assert 595 <= int(np.argmax(smooth > 2.5)) <= 605
    assert smooth[:580].std() < noise.std() / 2


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=80))
def test_a_median_is_within_the_values_around_it_and_a_gap_stays_a_gap(values: list[float]) -> None:
    known = np.array(values)
    smooth = running_median(known)
    assert np.array_equal(np.isfinite(smooth), np.isfinite(known))
    if np.isfinite(known).any():
        assert np.nanmin(smooth) >= np.float32(np.nanmin(known)) and np.nanmax(smooth) <= np.float32(np.nanmax(known))


def test_the_smooth_line_leaves_the_line_itself_there_and_answers_no_hover() -> None:
    one, again = series("loss", list(range(40))), series("loss", list(range(40)), is_superseded=True)
    kinds = [trace["meta"]["kind"] for trace in figure(CurveData("r", "step", (one, again), is_smooth=True))["data"]]
    assert kinds.count("series") == 2 and kinds.count("smooth") == 1
    plain = figure(CurveData("r", "step", (one, again)))["data"]
    assert [trace["meta"]["kind"] for trace in plain] == ["series", "series"]
    made = figure(CurveData("r", "step", (one,), is_smooth=True))["data"]
    assert next(trace for trace in made if trace["meta"]["kind"] == "smooth")["hoverinfo"] == "skip"
    raw = next(trace for trace in made if trace["meta"]["kind"] == "series")
    assert len(np.frombuffer(base64.b64decode(raw["y"]["bdata"]), "<f4")) == 40


def test_a_few_points_are_their_own_trend() -> None:
    made = figure(CurveData("r", "step", (series("loss", [3, 2, 1]),), is_smooth=True))["data"]
    assert [trace["meta"]["kind"] for trace in made] == ["series"]


def test_the_loss_is_logarithmic_when_asked_and_never_where_that_would_hide_something() -> None:
    rows = frozenset({"loss", "grad_norm"})

    def kind(one: CurveSeries, *points: CurvePoints) -> str:
        return figure(CurveData("r", "step", (one,), points=points, log_rows=rows))["layout"]["yaxis"].get("type", "linear")

    assert kind(series("loss", [8, 2, 1.9])) == "log"
    assert kind(series("loss", [8, 0.0, 1.9])) == "linear"
    assert kind(series("loss", [8, -1, 1.9])) == "linear"
    below = CurvePoints("loss", "validation loss", 1, False, np.array([1.0]), np.array([-1.0], np.float32), (1,))
    assert kind(series("loss", [8, 2, 1.9]), below) == "linear"
    assert figure(CurveData("r", "step", (series("loss", [8, 2]),)))["layout"]["yaxis"].get("type", "linear") == "linear"


S = 10**9


def died(severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding("f", "run_dead", "liveness", severity, 500, 500, None, 1, 1_000 * S, None, None, "gone", True)


TIMES = StepTimes(
    {1: (np.array([1.0, 500.0]), np.array([100_000.0, 900_000.0])), 0: (np.array([1.0, 500.0]), np.array([100_000.0, 900_000.0]))}
)


def test_the_time_from_a_death_to_the_next_start_is_shaded_by_time_and_has_no_width_by_step() -> None:
    spans = curve_spans([died()], [], "time", TIMES)
    assert [(one.x0, one.x1, one.severity) for one in spans] == [(900_000.0, None, Severity.CRITICAL)]
    start = Event("attempt_start", 1_200 * S, step=400, attempt=2, id="s")
    before = Event("attempt_start", 50 * S, step=1, attempt=1, id="t")
    assert [(one.x0, one.x1) for one in curve_spans([died()], [before, start], "time", TIMES)] == [(900_000.0, 1_200_000.0)]
    assert curve_spans([died()], [start], "step", TIMES) == []


@pytest.mark.parametrize(("axis", "x"), [("time", 900_000.0), ("step", 500.0)])
def test_a_death_is_a_line_at_the_last_step_on_either_axis(axis: str, x: float) -> None:
    lines = curve_lines([], [], [died()], [], axis, TIMES)  # type: ignore[arg-type]
    assert [(one.x, one.kind, one.label) for one in lines] == [(x, "onset", "died 500")]
    assert curve_lines([], [], [died(Severity.WARNING)], [], axis, TIMES) == []  # type: ignore[arg-type]
