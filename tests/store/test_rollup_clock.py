"""Roll-ups of a host whose clock was ahead for a while: it is put right, and no window stays out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainvitals.clock import ManualClock
from trainvitals.records import NodeSample, Point, Step
from trainvitals.schema import NODE_ROLLUP, NODE_ROLLUP_NS, TRAIN_ROLLUPS
from trainvitals.store.encode import node_point, step_point
from trainvitals.store.rollup import rollup, train_fields
from trainvitals.store.rollup_driver import HOUR_NS, DirtyNotes, NodeRollupDriver, RollupDriver
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)
HOUR_S = 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


def train(step: int, time_ns: int) -> Point:
    return step_point("r", Step(step, 1, time_ns, {"loss": 2.0 + step % 7}), time_ns)


def worked(driver: RollupDriver | NodeRollupDriver) -> None:
    for _ in range(1000):
        if not driver.step().is_behind:
            return
    raise AssertionError("the driver never caught up")


@pytest.mark.parametrize(("ahead_s", "restarts"), [(20 * 60, False), (8 * HOUR_S, True), (400 * 24 * HOUR_S, False)])
def test_windows_of_steps_go_on_after_a_clock_that_was_ahead_was_put_right(
    store: SqliteStore, ahead_s: int, restarts: bool
) -> None:
    clock = ManualClock(T0)
    sink = DirtyNotes(store, clock)
    driver = RollupDriver("r", store, sink, clock, lambda: 0.0)
    for minute in range(10 * 60):
        store_at_ns = clock.time_ns()
        sink.write([train(2 * minute, store_at_ns), train(2 * minute + 1, store_at_ns + SECOND)])
        clock.advance(60)
        if minute == 130:
            clock.advance(ahead_s, wall_only=True)
            worked(driver)
            clock.advance(-ahead_s, wall_only=True)
            if restarts:
                driver = RollupDriver("r", store, sink, clock, lambda: 0.0)
        if minute % 15 == 0:
            worked(driver)
    clock.advance(2 * HOUR_S)
    worked(driver)
    steps = store.raw("train", train_fields(store.stored_fields("train")), {}, *EVER)
    for name in TRAIN_ROLLUPS:
        wanted = {point.time_ns: point.fields["n"] for point in rollup(steps, name)}
        found = store.raw(name, ["n"], {}, *EVER)
        assert dict(zip(found["time_ns"], found["n"], strict=True)) == wanted, name


def test_nothing_counts_as_summarised_that_a_clock_ahead_had_only_skipped(store: SqliteStore) -> None:
    clock = ManualClock(T0)
    sink = DirtyNotes(store, clock)
    driver = RollupDriver("r", store, sink, clock, lambda: 0.0)
    sink.write([train(0, T0)])
    clock.advance(30 * 24 * HOUR_S, wall_only=True)
    worked(driver)
    clock.advance(-30 * 24 * HOUR_S + 3 * HOUR_S, wall_only=True)
    worked(driver)
    settled_ns = driver.settled_ns()
    assert settled_ns is not None and settled_ns <= clock.time_ns()  # retention deletes steps before it
    assert settled_ns > T0 + HOUR_NS


def test_windows_of_nodes_go_on_after_a_clock_that_was_ahead_was_put_right(store: SqliteStore) -> None:
    clock = ManualClock(T0)
    driver = NodeRollupDriver(store, store, clock, lambda: 0.0)
    for minute in range(0, 6 * 60, 5):
        store.write([node_point(NodeSample("n1", clock.time_ns(), "ok", gpus=8))])
        clock.advance(300)
        if minute == 60:
            clock.advance(8 * HOUR_S, wall_only=True)
            worked(driver)
            clock.advance(-8 * HOUR_S, wall_only=True)
        worked(driver)
    clock.advance(HOUR_S)
    worked(driver)
    rows = store.raw("node", ["state"], {}, *EVER)
    wanted = sorted({int(time_ns) // NODE_ROLLUP_NS * NODE_ROLLUP_NS for time_ns in rows["time_ns"]})
    assert store.raw(NODE_ROLLUP, ["n"], {}, *EVER)["time_ns"].to_list() == wanted


def test_a_clock_that_begins_before_the_history_makes_nothing_anew(store: SqliteStore) -> None:
    clock = ManualClock(T0)
    sink = DirtyNotes(store, clock)
    sink.write([train(step, T0 + 60 * step * SECOND) for step in range(300)])
    store.write([node_point(NodeSample("n1", T0 + 60 * minute * SECOND, "ok", gpus=8)) for minute in range(300)])
    clock.advance(6 * HOUR_S)
    for driver in (RollupDriver("r", store, sink, clock, lambda: 0.0), NodeRollupDriver(store, store, clock, lambda: 0.0)):
        worked(driver)
    kept = store.load_state("rollup")
    clock.advance(-50 * 365 * 24 * HOUR_S, wall_only=True)  # a machine that starts without a battery, before it is told the time
    drivers = (RollupDriver("r", store, sink, clock, lambda: 0.0), NodeRollupDriver(store, store, clock, lambda: 0.0))
    for driver in drivers:
        worked(driver)
    assert store.load_state("rollup") == kept
    clock.advance(50 * 365 * 24 * HOUR_S, wall_only=True)
    assert sum(driver.step().points for driver in drivers) == 0


def test_steps_with_right_times_that_were_written_while_the_clock_was_ahead_are_in_their_windows(store: SqliteStore) -> None:
    clock = ManualClock(T0)
    sink = DirtyNotes(store, clock)
    driver = RollupDriver("r", store, sink, clock, lambda: 0.0)
    for minute in range(6 * 60):  # the times are the trainer's, on another host
        sink.write([train(minute, T0 + minute * 60 * SECOND)])
        clock.advance(60)
        if minute == 100:
            clock.advance(20 * HOUR_S, wall_only=True)
        if minute == 200:
            clock.advance(-20 * HOUR_S, wall_only=True)
        if minute % 10 == 0:
            worked(driver)
    worked(driver)
    steps = store.raw("train", train_fields(store.stored_fields("train")), {}, 0, T0 + 5 * HOUR_NS)
    for name in TRAIN_ROLLUPS:
        wanted = {point.time_ns: point.fields["n"] for point in rollup(steps, name)}
        found = store.raw(name, ["n"], {}, 0, T0 + 5 * HOUR_NS)
        assert dict(zip(found["time_ns"], found["n"], strict=True)) == wanted, name
    assert store.load_state("rollup/r/dirty/") == {}
