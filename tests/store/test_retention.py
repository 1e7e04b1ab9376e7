"""What is deleted when, and that the watchdog does it beside its own work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.records import Point, Step
from trainvitals.schema import SCHEMA
from trainvitals.settings import RetentionSettings, parse
from trainvitals.store.encode import step_point
from trainvitals.store.retention import DAY_NS, Retention, cutoffs, days_of
from trainvitals.store.rollup_driver import DirtyNotes, RollupDriver
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.maintenance import Maintenance

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


def node(day: float, name: str = "n1") -> Point:
    return Point("node", {"node": name}, T0 + round(day * DAY_NS), {"state": "ok", "gpus": 8})


def train(day: float, step: int) -> Point:
    time_ns = T0 + round(day * DAY_NS)
    return step_point("r", Step(step, 1, time_ns, {"loss": 1.0}), time_ns)


def test_hardware_is_kept_fourteen_days_and_all_else_for_ever_unless_the_settings_say_otherwise() -> None:
    assert days_of(RetentionSettings()) == {"gpu": 14, "node": 14, "heartbeat": 14, "control": 14}
    settings = parse({"retention": {"hardware_days": 7, "train_days": 90, "node_10m_days": 365, "event_days": 0}}).retention
    assert days_of(settings) == {"gpu": 7, "node": 7, "heartbeat": 7, "control": 7, "node_10m": 365, "train": 90}
    # Every measurement has its setting, but for the one that this program may not delete in: `store setup` sets its retention.
    assert set(days_of(RetentionSettings(1, 1, 1, 1, 1))) == set(SCHEMA) - {"requests"}


def test_nodes_that_are_not_summarised_stay() -> None:
    days = RetentionSettings()
    assert cutoffs(days, T0, {})["node"] == T0 - 14 * DAY_NS
    assert "node" not in cutoffs(days, T0, {"node": None}) and "gpu" in cutoffs(days, T0, {"node": None})
    assert cutoffs(days, T0, {"node": T0 - 20 * DAY_NS})["node"] == T0 - 20 * DAY_NS
    assert cutoffs(days, 5 * DAY_NS, {}) == {}


def test_old_rows_go_and_deleting_again_deletes_nothing(store: SqliteStore) -> None:
    store.write([node(day) for day in range(20)] + [train(day, day) for day in range(20)])
    clock = ManualClock(T0 + 20 * DAY_NS)
    retention = Retention(store, RetentionSettings(), clock)
    assert retention.step().rows == {"gpu": 0, "node": 6, "heartbeat": 0, "control": 0}
    assert retention.step().rows == {"gpu": 0, "node": 0, "heartbeat": 0, "control": 0}
    assert len(store.raw("node", [], {}, *EVER)) == 14 and len(store.raw("train", [], {}, *EVER)) == 20


def test_steps_that_are_not_rolled_up_yet_stay_and_others_go_by_whole_hours(store: SqliteStore) -> None:
    days = RetentionSettings(train_days=5)
    clock = ManualClock(T0 + 20 * DAY_NS + 1_800 * SECOND)
    assert cutoffs(days, clock.time_ns(), {})["train"] == T0 + 15 * DAY_NS
    assert "train" not in cutoffs(days, clock.time_ns(), {"train": None})
    store.write([train(0, 1), train(1, 2), train(18, 4)])
    sink = DirtyNotes(store, clock)
    driver = RollupDriver("r", store, sink, clock, lambda: 0.0)
    retention = Retention(store, days, clock, lambda: {"train": driver.settled_ns()})
    assert "train" not in retention.step().rows
    while driver.step().is_behind:
        pass
    sink.write([train(2, 3)])  # a step that is read late
    assert retention.step().rows["train"] == 2
    while driver.step().is_behind or driver.settled_ns() == T0 + 2 * DAY_NS:
        clock.advance(21)
    assert retention.step().rows["train"] == 1
    assert len(store.raw("train_1h", ["n"], {}, *EVER)) == 4 and len(store.raw("train", [], {}, *EVER)) == 1


def test_a_store_that_cannot_delete_is_told_once_a_measurement_and_one_that_is_away_is_tried_later() -> None:
    class Refuses:
        error: StoreError = StoreError("InfluxDB 3 cannot delete")

        def delete_before(self, measurement: str, time_ns: int) -> int:
            raise self.error

    store = Refuses()
    retention = Retention(store, RetentionSettings(), ManualClock(T0))
    assert len(retention.step().faults) == 4 and "gpu" in retention.step().faults[0]
    store.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        retention.step()


class Bench:
    def __init__(self, store: SqliteStore, at_day: float, in_thread: bool = False) -> None:
        self.clock = ManualClock(T0 + round(at_day * DAY_NS))
        self.said: list[str] = []
        self.sink = DirtyNotes(store, self.clock)
        self.maintenance = Maintenance(
            "r", store, self.sink, RetentionSettings(), self.clock, self.said.append, in_thread=in_thread
        )

    def polls(self, seconds: float, every: float = 1.0) -> None:
        for _ in range(round(seconds / every)):
            self.maintenance.poll()
            self.clock.advance(every)


def test_maintenance_rolls_up_then_deletes_and_keeps_the_summary_of_what_it_deleted(store: SqliteStore) -> None:
    store.write([node(day / 10) for day in range(200)] + [train(day / 10, day) for day in range(200)])
    bench = Bench(store, 20)
    bench.polls(200)
    assert bench.said == [] and bench.maintenance.failures == 0
    assert store.raw("node", ["gpus"], {}, *EVER)["time_ns"].min() >= T0 + 6 * DAY_NS
    assert len(store.raw("node_10m", ["n"], {}, *EVER)) == 200
    assert len(store.raw("train_1h", ["n"], {}, *EVER)) == 200 == len(store.raw("train", [], {}, *EVER))


def test_maintenance_that_fails_is_counted_said_once_and_works_again(store: SqliteStore) -> None:
    store.write([train(0, 1)])
    bench = Bench(store, 1)
    written = store.commit

    def away(points: object, state: object) -> None:
        raise StoreUnavailable("the disk is full")

    store.commit = away  # type: ignore[assignment, method-assign]
    bench.polls(100, every=10)
    assert bench.maintenance.failures >= 3
    assert bench.said == ["roll-ups and retention wait for the store: the disk is full"]
    store.commit = written  # type: ignore[method-assign]
    bench.polls(60)
    assert len(store.raw("train_1h", ["n"], {}, *EVER)) == 1


def test_maintenance_works_in_a_thread_and_is_waited_for(store: SqliteStore) -> None:
    store.write([train(day / 100, day) for day in range(100)])
    bench = Bench(store, 2, in_thread=True)
    for _ in range(20):
        bench.maintenance.poll()
        bench.maintenance.close()
        bench.clock.advance(21)
    assert len(store.raw("train_10m", ["n"], {}, *EVER)) == 100
