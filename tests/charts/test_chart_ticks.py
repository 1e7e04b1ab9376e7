"""Ticks of small rows: few, round, inside the range; and where a throughput row may be cut off."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.charts.curves import CurveSeries
from trainvitals.charts.figure import clip_top
from trainvitals.charts.layout import axis_base
from trainvitals.charts.palette import DARK
from trainvitals.charts.rows import RowStyle
from trainvitals.charts.ticks import around_constant, linear_ticks, log_ticks, tick_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.25, 2.6, [0.5, 1, 2]),
        (0.05, 30.0, [0.1, 1, 10]),
        (0.15, 12.0, [0.3, 1, 3, 10]),
        (0.55, 0.97, [0.6, 0.8]),
        (1e-3, 1e6, [1e-3, 1, 1e3, 1e6]),
    ],
)
def test_a_log_axis_has_few_round_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high, 4) == pytest.approx(ticks)


@given(st.floats(1e-9, 1e9), st.floats(1, 1e9), st.integers(3, 5))
def test_log_ticks_are_few_ascend_and_lie_in_the_range(low: float, ratio: float, most: int) -> None:
    high = low * ratio
    found = log_ticks(low, high, most)
    assert 1 <= len(found) <= most
    assert (found == sorted(found) and all(low * (1 - 1e-5) <= value <= high * (1 + 1e-5) for value in found)) or ratio < 1 + 1e-9


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(3, 5))
def test_linear_ticks_are_few_and_ascend(low: float, width: float, most: int) -> None:
    found = linear_ticks(low, low + width, most)
    assert 1 <= len(found) <= most and found == sorted(found)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2e-4, "2e-4"), (1.5e-5, "1.5e-5"), (0.5, "0.5"), (200, "200"), (1e6, "1e6")]
)
def test_a_tick_is_said_as_shortly_as_it_can(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_a_constant_is_shown_in_the_middle_and_never_between_zero_and_one() -> None:
    assert around_constant(2e-4, 2e-4) == pytest.approx((1e-4, 3e-4))
    assert around_constant(0.0, 0.0) == (-1.0, 1.0)
    assert around_constant(1.0, 1.1) is None


def row(means: np.ndarray, highs: np.ndarray | None = None) -> list[CurveSeries]:
    mean = means.astype(np.float32)
    high = mean if highs is None else highs.astype(np.float32)
    return [
        CurveSeries(
            "tokens_per_s", 1, False, np.arange(len(mean), dtype=np.float64), mean, high, mean, np.ones(len(mean), np.int64)
        )
    ]


def test_a_freak_peak_of_the_throughput_is_cut_off_and_counted() -> None:
    means, highs = np.full(200, 100.0), np.full(200, 101.0)
    highs[40] = 9_000.0
    top = clip_top(row(means, highs))
    assert top is not None and math.isclose(top.at, 125.0) and (top.count, top.highest) == (1, 9_000.0)


@pytest.mark.parametrize("fast", [np.s_[100:], np.s_[190:]])
def test_a_faster_stretch_is_no_freak_and_stays_whole(fast: slice) -> None:
    means = np.full(200, 100.0)
    means[fast] = 900.0
    assert clip_top(row(means)) is None


def test_a_zoomed_window_shows_the_peak_whole() -> None:
    means = np.full(30, 100.0)
    means[3] = 9_000.0
    assert clip_top(row(means)) is None
    assert clip_top([]) is None


@pytest.mark.parametrize("extent", [(1.0, 1.1), (1.02, 1.0201), (0.5, 0.55), (3.0, 3.0)])
def test_labels_of_a_log_axis_with_a_narrow_band_are_apart(extent: tuple[float, float]) -> None:
    axis = axis_base(DARK, RowStyle("grad norm", "ink", 1.0, "~g", ".4g"), (0.0, 0.2), is_log=True, extent=extent)
    low, high = axis["range"]
    places = [(math.log10(value) - low) / (high - low) for value in axis["tickvals"]]
    assert places and all(0 <= place <= 1 for place in places)
    assert all(later - one > 0.12 for one, later in pairwise(places))
