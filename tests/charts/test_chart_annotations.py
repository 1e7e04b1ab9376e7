"""People's notes on the curves: a line, a mark, words that stay words, an entry in the legend."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_chart_figure import HOSTILE, figure, series, values

from trainvitals.charts.annotations import MAX_SHOWN, curve_annotations
from trainvitals.charts.axis import StepTimes
from trainvitals.charts.build import curve_data
from trainvitals.charts.curves import CurveAnnotation, CurveData
from trainvitals.charts.palette import DARK, LIGHT
from trainvitals.records import Event

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Attempt:
    number: int
    started_ns: int
    first_step: int | None


def note(x: float = 5.0, **more: Any) -> CurveAnnotation:
    given_: dict[str, Any] = {"title": "data mix", "text": "new mix", "by": "ana", "annotation_id": "r/request/1", "step": int(x)}
    return CurveAnnotation(x, **(given_ | more))


def event(step: int | None = 5, time_s: int = 10_000, **more: Any) -> Event:
    data = {"change": "data_mix", "by": "ana", "silenced": ["loss_spike"]} | more.pop("data", {})
    return Event(
        "annotation", time_s * SECOND, step=step, id="r/request/1", source="ui", text=more.pop("text", "new mix"), data=data
    )


def frame(first: int, last: int, attempt: int = 1, begun_s: int = 0) -> pd.DataFrame:
    steps = np.arange(first, last + 1)
    table = {"bucket": np.arange(len(steps)), "run": "r", "attempt": str(attempt), "step": steps, "n": 1, "nonfinite": 0}
    table |= {f"loss_{kind}": 2.0 for kind in ("min", "max", "mean", "last")}
    return pd.DataFrame(table | {"time_ns": (begun_s + steps - first) * SECOND})


def of_notes(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in made["data"] if trace.get("meta", {}).get("kind") == "annotation"]


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_a_note_is_a_line_through_all_rows_a_mark_a_label_and_a_word_in_the_legend(theme: str, colours: Any) -> None:
    rows = (series("loss", [2.0] * 10), series("grad_norm", [0.3] * 10), series("tokens_per_s", [1e6] * 10))
    made = figure(CurveData("r", "step", rows, annotations=(note(),)), theme)
    (trace,) = of_notes(made)
    assert list(values(trace["x"])) == [5.0] and trace["customdata"] == ["r/request/1"]
    assert trace["marker"]["color"] == colours["note"] and trace["yaxis"] == "y51" and "yaxis51" in made["layout"]
    (line,) = [shape for shape in made["layout"]["shapes"] if shape["x0"] == shape["x1"] == 5.0]
    assert (line["yref"], line["y0"], line["y1"], line["line"]["width"]) == ("paper", 0, 1, 1)
    texts = [one["text"] for one in made["layout"]["annotations"]]
    assert "✎ data mix" in texts
    assert [colours["note"] in text and "note" in text for text in texts if text.startswith("<b>")] == [True, False, False]


def test_the_mark_tells_who_what_where_and_what_is_silent_because_of_it() -> None:
    data = CurveData("r", "step", (series("loss", [2.0] * 10),), annotations=(note(silenced=tuple("abcdef")),))
    (trace,) = of_notes(figure(data))
    assert trace["text"] == ["<b>✎ data mix</b> · step 5 · ana<br>new mix<br>silences a, b, c, d and 2 more"]
    assert "new mix" not in trace["hovertemplate"]


def test_without_notes_nothing_of_them_is_drawn() -> None:
    made = figure(CurveData("r", "step", (series("loss", [2.0] * 10),)))
    assert of_notes(made) == [] and "note" not in json.dumps(made["layout"]["annotations"])


@given(st.text(max_size=300) | st.just(HOSTILE))
def test_any_text_of_a_note_stays_text(text: str) -> None:
    evil = event(text=text, data={"change": text, "by": text, "silenced": [text]})
    data = curve_data(frame(1, 10), [], [evil], [], [], ("loss",), "step", run="r")
    made = figure(data)
    (trace,) = of_notes(made)
    words = [*trace["text"], *(one["text"] for one in made["layout"]["annotations"] if one["name"].startswith("label|"))]
    for shown in words:
        for tag in ("<b>", "</b>", "<br>"):
            shown = shown.replace(tag, "")
        assert "<" not in shown and ">" not in shown
    assert "%{" not in trace["hovertemplate"].replace("%{text}", "")


def test_odd_data_of_a_hooks_note_breaks_nothing() -> None:
    for data in ({}, {"change": 7, "by": None, "silenced": "loss_spike"}, {"rules": [1, None]}, {"silenced": {"a": 1}}):
        odd = Event("annotation", 5 * SECOND, step=3, id="x", text="", data=data)
        assert of_notes(figure(curve_data(frame(1, 10), [], [odd], [], [], ("loss",), "step", run="r")))


def test_on_the_time_axis_a_note_stands_where_its_step_was_not_when_it_was_written() -> None:
    made = curve_data(frame(0, 100), [], [event(step=40, time_s=90)], [], [], ("loss",), "time", run="r")
    assert [one.x for one in made.annotations] == [40_000.0]
    assert curve_data(frame(0, 100), [], [event(step=500, time_s=90)], [], [], ("loss",), "time", run="r").annotations == ()


def test_of_two_attempts_the_newest_that_passed_the_step_is_meant() -> None:
    both = pd.concat([frame(0, 100), frame(50, 150, 2, 1000)], ignore_index=True)
    times = StepTimes.of(both)
    attempts = [Attempt(1, 0, 0), Attempt(2, 1000 * SECOND, 50)]
    found = [curve_annotations([event(step=step)], attempts, "time", times)[0].x for step in (40, 60)]
    assert found == [40_000.0, 1_010_000.0]


def test_a_note_without_a_step_stands_at_its_time_and_one_outside_the_window_is_not_drawn() -> None:
    made = curve_data(frame(0, 100), [], [event(step=None, time_s=30)], [], [], ("loss",), "step", run="r")
    assert [one.x for one in made.annotations] == [30.0]
    outside = curve_data(frame(0, 100), [], [event(step=30)], [], [], ("loss",), "step", run="r", x_range=(50.0, 60.0))
    assert outside.annotations == ()


def test_of_very_many_notes_the_newest_are_drawn() -> None:
    notes = tuple(note(float(x), annotation_id=str(x)) for x in range(200))
    made = figure(CurveData("r", "step", (series("loss", [2.0] * 200),), annotations=notes))
    assert len(of_notes(made)[0]["customdata"]) == MAX_SHOWN and of_notes(made)[0]["customdata"][-1] == "199"


def test_a_free_note_is_labelled_with_its_own_words() -> None:
    made = curve_data(
        frame(0, 100), [], [event(text="rack 4 looked at", data={"change": "note", "silenced": []})], [], [], ("loss",), "step"
    )
    assert made.annotations[0].title == "rack 4 looked at"
