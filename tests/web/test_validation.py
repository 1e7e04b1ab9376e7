"""Losses on held-out data: read once, kept, and drawn as points of their own; and what could not be read, in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dead_run
import pytest

from trainvitals.charts.palette import palette
from trainvitals.records import Event
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import event_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web.assemble import run_view
from trainvitals.web.draw import draw
from trainvitals.web.lost import reading_health
from trainvitals.web.process import read_control
from trainvitals.web.validation import ValidationReader, validation_of
from trainvitals.web.view import CurveQuery, RunView

NOW = 1_795_000_000 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "t.db")
    yield opened
    opened.close()


def look(store: SqliteStore, tmp_path: Path) -> RunView:
    run = RunSettings(name=dead_run.RUN, dir=str(tmp_path / "run"))
    return run_view(Settings(store="", runs=(run,)), store, run, read_control(run, NOW), NOW)


def message(value: Any, time_ns: int = NOW, step: int | None = 10, **data: Any) -> Event:
    return Event(
        "message", time_ns, step=step, attempt=1, id=f"v/{time_ns}/{step}", source="log", data={"validation_loss": value, **data}
    )


def figure(store: SqliteStore, run: RunView, by: str = "step", metrics: Sequence[str] = ("loss", "grad_norm")) -> dict[str, Any]:
    return json.loads(draw(store, run, CurveQuery(run.name, tuple(metrics), by=by), NOW))


@pytest.mark.parametrize("by", ["step", "time"])
def test_validation_losses_are_points_in_the_loss_row_with_a_colour_and_a_legend(
    store: SqliteStore, tmp_path: Path, by: str
) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    run = look(store, tmp_path)
    assert len(run.validations) == 900 // 50 + 14
    drawn = figure(store, run, by)
    traces = [trace for trace in drawn["data"] if trace.get("meta", {}).get("kind") == "validation"]
    assert {trace["yaxis"] for trace in traces} == {"y"} and {trace["mode"] for trace in traces} == {"markers"}
    now = [trace for trace in traces if trace["name"] == "validation loss"]
    assert [trace["marker"]["color"] for trace in now] == [palette("light")["validation"]] * 2
    assert [trace["name"] for trace in traces if trace not in now] == ["validation loss · attempt 1, run again later"]
    titles = [note["text"] for note in drawn["layout"]["annotations"] if note.get("name") == "title"]
    assert "validation loss" in titles[0] and all("validation" not in title for title in titles[1:])


def test_they_are_left_out_where_the_loss_is_not_asked_for(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    drawn = figure(store, look(store, tmp_path), metrics=("grad_norm",))
    assert not any(trace.get("meta", {}).get("kind") == "validation" for trace in drawn["data"])


def test_one_that_is_not_a_number_is_marked_and_names_from_outside_are_escaped(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    last = NOW - 300 * 10**9
    store.write(
        [
            event_point(dead_run.RUN, message("nan", last, 1_420)),
            event_point(dead_run.RUN, message(2.2, last, 1_440, validation_set="<b>x</b>")),
        ]
    )
    drawn = figure(store, look(store, tmp_path))
    texts = [text for trace in drawn["data"] for text in trace.get("text", [])]
    assert any("validation loss is not a finite number" in text and "1,420" in text for text in texts)
    assert any(str(trace.get("name")).startswith("validation loss (&lt;b&gt;x&lt;/b&gt;)") for trace in drawn["data"])


def test_what_a_message_says_becomes_a_value_or_nothing() -> None:
    assert validation_of(message(2)).value == 2.0
    assert math.isinf(validation_of(message("inf")).value) and math.isnan(validation_of(message([1])).value)
    assert validation_of(message(None)) is None and validation_of(message(True)) is None
    assert validation_of(Event("fault", NOW, data={"validation_loss": 1.0})) is None


class Counting:
    """A store that keeps from when on it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.starts = store, []

    def events(self, run: str, kinds: Sequence[str], start_ns: int, *rest: Any, **named: Any) -> Sequence[Event]:
        self.starts.append(start_ns)
        return self.store.events(run, kinds, start_ns, *rest, **named)


def test_later_looks_read_only_what_came_since_and_lose_nothing(store: SqliteStore, tmp_path: Path) -> None:
    counting, reader = Counting(store), ValidationReader()
    store.write([event_point("r", message(3 - n / 10, NOW + n * 3600 * 10**9, n)) for n in range(5)])
    now_ns = NOW + 5 * 3600 * 10**9
    assert [one.step for one in reader.of(counting, "r", now_ns)] == [0, 1, 2, 3, 4]
    store.write([event_point("r", message(1.0, now_ns, 5))])
    assert [one.step for one in reader.of(counting, "r", now_ns + 10**9)] == [0, 1, 2, 3, 4, 5]
    assert counting.starts[0] == 0 and counting.starts[1] > NOW + 3 * 3600 * 10**9
    store.write([event_point("r", message(9.0, NOW - 10**9, 99))])  # history that was imported
    assert len(reader.of(counting, "r", now_ns + 600 * 10**9)) == 7 and counting.starts[-1] == 0


def test_what_was_not_read_is_one_sentence_with_kinds_and_where_to_look(store: SqliteStore, tmp_path: Path) -> None:
    dead_run.write_run(store, tmp_path / "run", NOW)
    run = look(store, tmp_path)
    assert run.reading.startswith(
        "Reading: 20 not read or kept (dropped inside the trainer's hook: 14, torn lines: 5, since then: 1)"
    )
    assert "the hook met 2 errors" in run.reading and "stderr" in run.reading
    assert reading_health(0, ()) == ""


def test_counts_of_any_shape_are_told_without_an_error() -> None:
    odd = [
        Event("watch", NOW, data={"lost_by_kind": value})
        for value in (None, [], {"a": "x", "b": -1, "c": 10**30}, {f"k{n}": n for n in range(9)})
    ]
    for one in odd:
        assert reading_health(3, [one]).startswith("Reading: 3 not read or kept")
    assert "more kinds" in reading_health(36, odd[-1:])
