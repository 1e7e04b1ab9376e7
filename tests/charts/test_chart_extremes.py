"""A run that diverges logs numbers of any size: its curves are drawn all the same, as valid JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.build import curve_data
from trainvitals.charts.curves import figure_json
from trainvitals.charts.points import validation_points
from trainvitals.charts.typed import single
from trainvitals.records import Step
from trainvitals.store.encode import step_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.view import Validation

T0 = 1_767_326_400_000_000_000
METRICS = ("loss", "grad_norm", "lr", "step_time_s", "perplexity")
LARGEST = float(np.finfo(np.float32).max)


def figures(directory: Path, rows: list[dict[str, float]]) -> None:
    """Draws every way there is; a constant that JSON has not fails."""
    store = SqliteStore(directory / "store.db")
    points = []
    for at, row in enumerate(rows):
        finite = {name: value for name, value in row.items() if math.isfinite(value)}
        others = {
            name: "nan" if value != value else "inf" if value > 0 else "-inf" for name, value in row.items() if name not in finite
        }
        time_ns = T0 + at * 10**9
        points.append(step_point("r", Step(at, 1, time_ns, finite, others), time_ns))  # type: ignore[arg-type]
    store.write(points)
    for by in ("step", "time_ns"):
        frame = store.buckets("train", METRICS, {"run": "r"}, 0, 2**62, 50, by)
        data = curve_data(frame, (), (), (), (), ["loss", "grad_norm", "throughput", "lr", "perplexity"], by)  # type: ignore[arg-type]
        for log_rows in (frozenset[str](), frozenset(METRICS)):
            for is_smooth in (False, True):
                text = figure_json(replace(data, log_rows=log_rows, is_smooth=is_smooth), "light")
                json.loads(text, parse_constant=pytest.fail)
    store.close()


def test_a_perplexity_beyond_what_a_chart_holds_leaves_the_other_curves(tmp_path: Path) -> None:
    figures(tmp_path, [{"loss": 2.0 + step, "perplexity": math.exp(2.0 + step)} for step in range(150)])


def test_what_is_finite_stays_finite_and_the_rest_what_it_is() -> None:
    assert single([1e39, -1e300, 0.5, math.nan, math.inf]).tolist()[:3] == [LARGEST, -LARGEST, 0.5]
    assert np.isnan(single([math.nan]))[0] and np.isinf(single([math.inf]))[0]
    ((points,), _) = validation_points([Validation(T0, 5, 1, 1e39, "")], {}, "step", StepTimes({}))
    assert points.y.tolist() == [LARGEST]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(METRICS), st.floats(width=64)), min_size=1, max_size=40))
def test_numbers_of_any_size_are_drawn(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]) -> None:
    figures(tmp_path_factory.mktemp("drawn"), rows)
