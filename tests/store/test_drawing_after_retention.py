"""Curves of steps that retention deleted: their roll-ups stay, and they are drawn from them, however short the span."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainvitals.clock import ManualClock
from trainvitals.records import Point, Step
from trainvitals.store.drawing import buckets_for_drawing
from trainvitals.store.encode import step_point
from trainvitals.store.rollup_driver import DirtyNotes, RollupDriver
from trainvitals.store.sqlite import SqliteStore

SECOND, HOUR = 1_000_000_000, 3_600 * 1_000_000_000
T0 = 1_767_326_400 * SECOND
SPIKE_STEP = 7_777


def train(step: int, attempt: int) -> Point:
    time_ns = T0 + 20 * step * SECOND
    number = step if attempt == 1 else step - 1_000
    return step_point("r", Step(number, attempt, time_ns, {"loss": 99.0 if step == SPIKE_STEP else 2.0}), time_ns)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """20,000 steps of 20 s in two attempts; those of the first 60 hours are gone (a spike at hour 43 among them)."""
    opened = SqliteStore(tmp_path_factory.mktemp("kept") / "store.db")
    opened.write([train(step, 1 if step < 10_000 else 2) for step in range(20_000)])
    clock = ManualClock(T0 + 112 * HOUR)
    driver = RollupDriver("r", opened, DirtyNotes(opened, clock), clock, lambda: 0.0)
    while driver.step().is_behind:
        pass
    opened.delete_before("train", T0 + 60 * HOUR)
    yield opened
    opened.close()


@pytest.mark.parametrize("by", ["time_ns", "step"])
@pytest.mark.parametrize(
    ("begin_h", "end_h"),
    [(0, 112), (0, 5), (42, 44), (43.1, 43.35), (59, 61), (30, 110), (59.99, 60.5), (60, 62), (-3, 1)],
)
def test_what_was_deleted_is_drawn_from_what_stays_of_it(store: SqliteStore, begin_h: float, end_h: float, by: str) -> None:
    begin, end = T0 + round(begin_h * HOUR), T0 + round(end_h * HOUR)
    frame = buckets_for_drawing(store, ["loss"], {"run": "r"}, begin, end, 400, by)
    wanted = sum(begin <= T0 + 20 * step * SECOND < end for step in range(20_000))
    assert abs(int(frame["n"].sum()) - wanted) <= 6  # windows of a minute that the edges cut are drawn whole
    has_spike = begin <= T0 + 20 * SPIKE_STEP * SECOND < end
    assert bool(frame["loss_max"].max() == 99.0) is has_spike


def test_a_run_whose_last_step_is_older_than_what_is_kept_is_drawn_all_the_same(store: SqliteStore, tmp_path: Path) -> None:
    old = SqliteStore(tmp_path / "old.db")
    old.write([train(step, 1) for step in range(500)])
    clock = ManualClock(T0 + 10 * HOUR)
    driver = RollupDriver("r", old, DirtyNotes(old, clock), clock, lambda: 0.0)
    while driver.step().is_behind:
        pass
    old.delete_before("train", T0 + 9 * HOUR)
    frame = buckets_for_drawing(old, ["loss"], {"run": "r"}, 0, T0 + 1_000 * HOUR, 300, "step")
    assert frame["n"].sum() == 500
    assert (frame["step"].iloc[0], frame["attempt"].iloc[0]) == (0, "1")
    assert buckets_for_drawing(old, ["loss"], {"run": "r"}, T0 + 4 * HOUR, T0 + 9 * HOUR, 300).empty
    old.close()
