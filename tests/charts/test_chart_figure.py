"""Curve records → Plotly figure JSON."""

from __future__ import annotations

import base64
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.charts.curves import CurveData, CurveLine, CurveMarker, CurveSeries, CurveSpan, figure_json, overview_figure_json
from trainvitals.charts.labels import CHARACTER_PX, Label, fitting
from trainvitals.charts.marks import MAX_LINES, thinned
from trainvitals.charts.palette import DARK, LIGHT
from trainvitals.charts.text import escape, number
from trainvitals.charts.typed import to_json, typed
from trainvitals.records import Severity

HOSTILE = '<a href="http://evil.example">x</a><b>&amp;%{y}'


def series(metric: str, values: Any, attempt: int = 1, *, high: Any = None, is_superseded: bool = False) -> CurveSeries:
    mean = np.asarray(values, dtype=np.float32)
    top = mean if high is None else np.asarray(high, dtype=np.float32)
    return CurveSeries(
        metric, attempt, is_superseded, np.arange(len(mean), dtype=np.float64), mean, top, mean, np.ones(len(mean), np.int64)
    )


def marker(**given: Any) -> CurveMarker:
    base: dict[str, Any] = {"metric": "loss", "x": 2.0, "y": 2.0, "rule": "loss_spike", "severity": Severity.CRITICAL,
                            "title": "loss spike", "text": "it rose", "finding_id": "f1", "step": 2}  # fmt: skip
    return CurveMarker(**(base | given))


def refuse(text: str) -> float:
    raise AssertionError(f"{text} is no JSON")


def figure(data: CurveData, theme: str = "light", **more: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(figure_json(data, theme, **more), parse_constant=refuse)
    return loaded


def values(encoded: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(encoded["bdata"]), dtype={"f4": "<f4", "f8": "<f8", "i4": "<i4"}[encoded["dtype"]])


def test_a_one_step_spike_reaches_the_drawn_line() -> None:
    high = np.full(50, 2.1)
    high[20] = 11.5
    drawn = figure(CurveData("r", "step", (series("loss", np.full(50, 2.0), high=high),)))["data"]
    assert max(float(np.nanmax(values(trace["y"]))) for trace in drawn) == 11.5
    assert all(trace["y"]["dtype"] == "f4" for trace in drawn)


def test_all_rows_hang_on_one_x_axis_with_one_hover_box() -> None:
    metrics = ("loss", "grad_norm", "tokens_per_s", "lr", "gpu_utilization", "moe_aux")
    made = figure(CurveData("r", "step", tuple(series(metric, [1, 2, 3]) for metric in metrics)))
    layout = made["layout"]
    assert {trace["xaxis"] for trace in made["data"]} == {"x"}
    assert not [name for name in layout if name.startswith("xaxis") and name != "xaxis"]
    assert (layout["hovermode"], layout["hoversubplots"], layout["template"]) == ("x unified", "axis", None)
    assert layout["xaxis"]["anchor"] == "y6"
    domains = [layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4", "yaxis5", "yaxis6")]
    assert all(upper[0] > lower[1] for upper, lower in itertools.pairwise(domains))
    assert domains[-1][0] == pytest.approx(0, abs=1e-9)


def test_only_rows_with_data_are_drawn_unless_asked_for() -> None:
    data = CurveData("r", "step", (series("loss", [1, 2]), series("lr", [1, 2])))
    titles = [one["text"] for one in figure(data)["layout"]["annotations"]]
    assert titles == ["<b>loss</b>", "<b>learning rate</b>", "step"]
    asked = [one["text"] for one in figure(data, rows=("loss", "throughput"))["layout"]["annotations"]]
    assert asked == ["<b>loss</b>", "<b>throughput</b> · not logged in this range", "step"]


def test_the_x_axis_says_what_it_counts() -> None:
    one = series("loss", [1, 2])
    assert "step" in [note["text"] for note in figure(CurveData("r", "step", (one,)))["layout"]["annotations"]]
    assert "UTC" in [note["text"] for note in figure(CurveData("r", "time", (one,)))["layout"]["annotations"]]


def test_the_overview_shows_loss_and_throughput_only() -> None:
    made = json.loads(
        overview_figure_json(
            CurveData("r", "time", (series("loss", [1, 2]), series("lr", [1, 2]), series("samples_per_s", [3, 4]))), "dark"
        )
    )
    assert {trace["meta"]["metric"] for trace in made["data"]} == {"loss", "samples_per_s"}


@pytest.mark.parametrize(("norms", "kind"), [([0.2, 3.0, 0.1], "log"), ([0.2, 0.0, 0.1], None), ([0.2, -1.0], None), ([np.nan], None), ([0.2, np.nan], "log")])  # fmt: skip
def test_grad_norm_is_logarithmic_only_when_nothing_is_dropped_by_it(norms: list[float], kind: str | None) -> None:
    layout = figure(CurveData("r", "step", (series("grad_norm", norms),)))["layout"]
    assert layout["yaxis"].get("type") == kind
    assert ("(log)" in layout["annotations"][0]["text"]) == (kind == "log")


def test_loss_is_never_logarithmic() -> None:
    assert "type" not in figure(CurveData("r", "step", (series("loss", [1, 1000]),)))["layout"]["yaxis"]


def test_a_marker_without_a_value_stands_on_the_top_edge_and_none_is_lost() -> None:
    marks = (marker(y=None, finding_id="a"), marker(y=float("nan"), finding_id="b"), marker(y=2.0, finding_id="c"),
             marker(metric="grad_norm", y=0.0, finding_id="d", severity=Severity.WARNING))  # fmt: skip
    made = figure(CurveData("r", "step", (series("loss", [2, 2, 2]), series("grad_norm", [1, 1, 1])), markers=marks))
    found = {id_: trace for trace in made["data"] if trace["meta"]["kind"] == "finding" for id_ in trace["customdata"]}
    assert set(found) == {"a", "b", "c", "d"}
    assert found["a"]["yaxis"] == found["b"]["yaxis"] == "y51"
    assert made["layout"]["yaxis51"]["range"] == [0, 1]
    assert found["a"]["marker"]["symbol"] == "triangle-down"
    assert found["c"]["yaxis"] == "y"
    assert found["d"]["yaxis"] == "y52", "zero has no place on a log axis"


def test_superseded_attempts_are_faint_and_drawn_first() -> None:
    made = figure(CurveData("r", "step", (series("loss", [1, 2], 2), series("loss", [1, 2], 1, is_superseded=True))))
    faint, full = made["data"]
    assert (faint["meta"]["attempt"], full["meta"]["attempt"]) == (1, 2)
    assert faint["line"]["color"].startswith("rgba(154,163,175")
    assert full["line"]["color"] == LIGHT["loss"]


def test_text_from_outside_is_escaped_wherever_plotly_reads_markup() -> None:
    data = CurveData("r", "step", (series("loss", [1, 2, 3]), series(HOSTILE, [1, 2, 3])), (marker(title=HOSTILE, text=HOSTILE),),
                     (CurveSpan(0, None, "paused", Severity.INFO, HOSTILE),), (CurveLine(1, "checkpoint", HOSTILE, "verified"),))  # fmt: skip
    made = figure(data)

    def texts(value: Any, name: str = "") -> list[str]:
        if isinstance(value, dict):
            return [text for key, item in value.items() if key not in ("meta", "customdata") for text in texts(item, key)]
        if isinstance(value, list):
            return [text for item in value for text in texts(item, name)]
        return [value] if isinstance(value, str) else []

    assert not [text for text in texts(made) if "<a" in text or "</a" in text]
    assert any("&lt;a href" in text for text in texts(made))
    templates = [trace["hovertemplate"] for trace in made["data"] if trace["meta"]["kind"] == "finding"]
    assert templates == ["%{text}<extra></extra>"], "a template would obey %{…} in a name"


def test_names_of_metrics_cannot_reach_into_the_hover_template() -> None:
    made = figure(CurveData("r", "step", (series("%{customdata[0]}", [1, 2, 3]),)))
    assert "%{customdata" not in made["data"][0]["hovertemplate"]


def test_gaps_stay_binary_and_the_json_never_holds_nan() -> None:
    made = figure(CurveData("r", "step", (series("loss", [1, np.nan, 3]),), x_range=(0.0, 2.0)))
    assert np.isnan(values(made["data"][0]["y"])[1])
    assert to_json({"a": [float("nan"), {"b": float("inf")}]}) == '{"a":[null,{"b":null}]}'


def test_a_long_silence_breaks_the_line_on_the_time_axis() -> None:
    x = np.concatenate((np.arange(50.0), np.arange(500.0, 550.0)))
    flat = np.ones(100, np.float32)
    one = CurveSeries("loss", 1, False, x, flat, flat, flat, np.ones(100, np.int64))
    drawn = values(figure(CurveData("r", "time", (one,)))["data"][0]["y"])
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [50]
    assert not np.isnan(values(figure(CurveData("r", "step", (one,)))["data"][0]["y"])).any()


def test_an_empty_chart_says_so_and_is_valid() -> None:
    made = figure(CurveData("r", "time", ()))
    assert made["data"] == []
    assert [one["text"] for one in made["layout"]["annotations"]] == ["UTC", "nothing logged in this range"]


def test_the_zoom_of_a_viewer_hangs_on_uirevision() -> None:
    layout = figure(CurveData("r", "step", (), uirevision="r/step"))["layout"]
    assert layout["uirevision"] == layout["xaxis"]["uirevision"] == "r/step"


def test_a_pause_ends_the_shade_of_an_open_incident() -> None:
    spans = (CurveSpan(10, None, "incident", Severity.CRITICAL, ""), CurveSpan(20, None, "paused", Severity.INFO, "paused"))
    shapes = figure(CurveData("r", "step", (series("loss", np.ones(40)),), spans=spans))["layout"]["shapes"]
    assert [(one["x0"], one["x1"]) for one in shapes] == [(10, 20), (20, 40)]


def test_a_thousand_checkpoints_are_thinned_but_a_bad_one_always_stays() -> None:
    lines = [CurveLine(float(x), "checkpoint", str(x), "corrupt" if x == 501 else "verified") for x in range(1000)]
    kept = thinned(lines)
    assert len(kept) <= MAX_LINES + 1
    assert 501.0 in [line.x for line in kept]
    assert kept[-1].x == 999.0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 30), st.integers(0, 6), st.sampled_from(["top", "bottom"]), st.sampled_from(["left", "right"])), max_size=40))  # fmt: skip
def test_labels_that_are_shown_never_touch(given_labels: list[tuple[float, int, int, str, str]]) -> None:
    labels = [Label(x, "m" * size, lane, priority, "#000000", anchor) for x, size, priority, lane, anchor in given_labels]
    shown = [label for label, is_shown in zip(labels, fitting(labels, (0, 100), 600), strict=True) if is_shown]
    for lane in ("top", "bottom"):
        boxes = []
        for label in shown:
            if label.lane == lane:
                at, size = label.x * 6, len(label.text) * CHARACTER_PX
                boxes.append((at - size, at) if label.anchor == "right" else (at, at + size))
        boxes.sort()
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(boxes))
        assert all(start >= 0 and end <= 600 for start, end in boxes)


@given(st.text())
def test_escaped_text_holds_no_markup_and_no_line_break(text: str) -> None:
    made = escape(text)
    assert "<" not in made and ">" not in made and "\n" not in made


@given(st.lists(st.floats(width=32), max_size=20))
def test_typed_arrays_hold_the_numbers_bit_for_bit(numbers: list[float]) -> None:
    array = np.array(numbers, dtype=np.float32)
    assert values(typed(array)).tobytes() == array.tobytes()


def test_whole_numbers_travel_as_int32_where_they_fit() -> None:
    assert typed(np.array([1, 2], dtype=np.int64))["dtype"] == "i4"
    assert typed(np.array([2**40], dtype=np.int64))["dtype"] == "f8"


def test_numbers_for_people_are_short() -> None:
    assert [number(value) for value in (2.3141, 2.61e6, 0.0003, 41234.0, 0.0, -15e9)] == [
        "2.314",
        "2.61 M",
        "0.0003",
        "41.2 k",
        "0",
        "-15 G",
    ]


def test_both_palettes_name_the_same_roles() -> None:
    assert set(LIGHT) == set(DARK)


def test_a_log_row_brings_its_own_few_ticks_and_a_constant_rate_its_own_range() -> None:
    made = figure(CurveData("r", "step", (series("grad_norm", [0.5, 0.7, 0.95]), series("lr", [2e-4, 2e-4, 2e-4]))))["layout"]
    assert made["yaxis"]["tickmode"] == "array" and len(made["yaxis"]["tickvals"]) <= 4
    assert made["yaxis"]["range"][0] < math.log10(0.5) < math.log10(0.95) < made["yaxis"]["range"][1]
    assert made["yaxis2"]["range"] == pytest.approx([1e-4, 3e-4], rel=1e-5)
    assert made["yaxis2"]["ticktext"] == ["1e-4", "2e-4", "3e-4"]


def test_a_spike_of_the_loss_is_never_cut_off_but_a_freak_throughput_is_said() -> None:
    values_, high = np.full(100, 2.0), np.full(100, 2.0)
    high[7] = 900.0
    made = figure(CurveData("r", "step", (series("loss", values_, high=high), series("tokens_per_s", values_, high=high))))[
        "layout"
    ]
    assert "range" not in made["yaxis"]
    assert made["yaxis2"]["range"] == [0, 2.5]
    assert made["annotations"][1]["text"] == "<b>tokens/s · 1 peak cut off, highest 900</b>"


def test_the_time_axis_names_its_zone() -> None:
    def texts(by: Any) -> list[str]:
        return [one["text"] for one in figure(CurveData("r", by, (series("loss", [1, 2]),)))["layout"]["annotations"]]

    assert "UTC" in texts("time") and "UTC" not in texts("step")


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    first, second = sorted((light(one), light(other)), reverse=True)
    return (first + 0.05) / (second + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_every_colour_for_text_can_be_read_and_every_mark_be_seen(colours: dict[str, str]) -> None:
    for ground in ("card", "bg"):
        for role in ("ink", "dim", *(name for name in colours if name.endswith("_text"))):
            assert _contrast(colours[role], colours[ground]) >= 4.5, (role, ground)
        for role in ("ok", "info", "warning", "critical", "paused", "loss", "grad_norm", "throughput", "lr", "gpu"):
            assert _contrast(colours[role], colours[ground]) >= 3.0, (role, ground)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999_499, "999 k"),
        (999_999, "1 M"),
        (9_999.4, "9999"),
        (9_999.7, "10 k"),
        (-999_999_999, "-1 G"),
        (3e15, "3,000 T"),
        (0, "0"),
    ],
)
def test_a_number_at_the_edge_of_a_suffix_is_written_without_an_exponent(value: float, text: str) -> None:
    assert number(value) == text
