"""Roll-ups: what a window holds, how they are kept complete, and that nothing is lost or doubled on the way."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.errors import StoreUnavailable
from trainvitals.records import Point, Step
from trainvitals.schema import NODE_ROLLUP_NS, TRAIN_ROLLUPS
from trainvitals.store.encode import check_point, step_point
from trainvitals.store.rollup import NODE_FIELDS, node_rollup, node_table_for, rollup, table_for, train_fields
from trainvitals.store.rollup_driver import HOUR_NS, DirtyNotes, NodeRollupDriver, RollupDriver
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND  # a whole hour
EVER = (0, 2**62)
assert T0 % HOUR_NS == 0


def train(step: int, at_s: float, attempt: int = 1, run: str = "r", **values: float) -> Point:
    good = {name: value for name, value in values.items() if math.isfinite(value)}
    bad = {name: str(value) for name, value in values.items() if not math.isfinite(value)}
    time_ns = T0 + round(at_s * SECOND)
    return step_point(run, Step(step, attempt, time_ns, good, bad), time_ns)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


class Run:
    """A store, a clock that the test moves, and the driver of one run."""

    def __init__(self, store: SqliteStore, at_s: float = 0.0) -> None:
        self.store = store
        self.clock = ManualClock(T0 + round(at_s * SECOND))
        self.waiting_s = 0.0
        self.sink = DirtyNotes(store, self.clock)
        self.start()

    def start(self) -> None:
        self.driver = RollupDriver("r", self.store, self.sink, self.clock, lambda: self.waiting_s)

    def at(self, at_s: float) -> None:
        self.clock.advance((T0 - self.clock.time_ns()) / 1e9 + at_s)

    def work(self) -> int:
        """Call until there is nothing more to do."""
        written = 0
        for _ in range(1000):
            progress = self.driver.step()
            written += progress.points
            if not progress.is_behind:
                return written
        raise AssertionError("the driver never caught up")

    def rows(self, measurement: str, *fields: str) -> list[dict[str, object]]:
        frame = self.store.raw(measurement, fields or ["step_min", "step_max", "n", "loss_max"], {}, *EVER)
        return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]

    def expected(self, measurement: str, until_s: float) -> list[Point]:
        frame = self.store.raw("train", train_fields(self.store.stored_fields("train")), {}, 0, T0 + round(until_s * SECOND))
        return rollup(frame, measurement)

    def check(self, until_s: float) -> None:
        """Every closed window of every table is what the rows say, and no other row is there."""
        for name, width in TRAIN_ROLLUPS.items():
            closed_s = (T0 + round(until_s * SECOND)) // width * width
            wanted = self.expected(name, (closed_s - T0) / SECOND)
            fields = self.store.stored_fields(name)
            frame = self.store.raw(name, fields, {}, *EVER)
            assert len(frame) == len(wanted), name
            found = {(row["run"], row["attempt"], row["time_ns"]): row for row in frame.to_dict("records")}
            for point in wanted:
                row = found[point.tags["run"], point.tags["attempt"], point.time_ns]
                for field in fields:
                    value = row[field]
                    if field in point.fields:
                        assert value == point.fields[field], (name, field)
                    else:
                        assert value is None or pd.isna(value)


def test_a_window_keeps_extremes_with_their_steps_mean_last_and_counts(store: SqliteStore) -> None:
    store.write([train(10, 1, loss=2.0), train(11, 2, loss=9.0), train(12, 3, loss=1.0), train(13, 4, loss=math.nan),
                 train(14, 5, grad_norm=0.5), train(15, 61, loss=3.0)])  # fmt: skip
    first, second = rollup(store.raw("train", train_fields([]), {}, *EVER), "train_1m")
    assert (first.time_ns, second.time_ns) == (T0, T0 + 60 * SECOND)
    assert first.tags == {"run": "r", "attempt": "1"}
    assert {name: value for name, value in first.fields.items() if not name.startswith("grad_norm")} == {
        "step_min": 10, "step_max": 14, "n": 5, "nonfinite": 1, "loss_min": 1.0, "loss_max": 9.0, "loss_mean": 4.0,
        "loss_last": 1.0, "loss_min_step": 12, "loss_max_step": 11,
    }  # fmt: skip
    assert first.fields["grad_norm_last"] == 0.5 and "grad_norm_last" not in second.fields


def test_the_step_of_an_extreme_that_is_reached_twice_is_the_first(store: SqliteStore) -> None:
    store.write([train(step, step, loss=float(step % 3)) for step in range(9)])
    (point,) = rollup(store.raw("train", train_fields([]), {}, *EVER), "train_1h")
    assert (point.fields["loss_min_step"], point.fields["loss_max_step"]) == (0, 2)


def test_extra_metrics_are_rolled_up_under_their_own_names_even_the_longest(store: SqliteStore) -> None:
    longest = "m" * 64
    store.write([train(step, step, loss=1.0, **{longest: float(step)}) for step in range(5)])
    (point,) = rollup(store.raw("train", train_fields(store.stored_fields("train")), {}, *EVER), "train_1m")
    check_point(point)
    store.write([point])
    assert store.raw("train_1m", [f"{longest}_max"], {}, *EVER)[f"{longest}_max"].to_list() == [4.0]


def test_a_hundred_extra_metrics_of_a_run_fit_and_are_not_counted_again(store: SqliteStore) -> None:
    extra = {f"x{number}": float(number) for number in range(100)}
    store.write([train(step, step, loss=1.0, **extra) for step in range(3)])
    points = rollup(store.raw("train", train_fields(store.stored_fields("train")), {}, *EVER), "train_10m")
    assert len(points[0].fields) + 3 <= 500  # with time and two tags: the columns a table that InfluxDB 3 Core allows
    store.write(points)
    assert store.health().dropped == 0
    assert store.raw("train_10m", ["x99_mean"], {}, *EVER)["x99_mean"].to_list() == [99.0]


def test_values_whose_sum_overflows_have_a_mean_between_their_extremes(store: SqliteStore) -> None:
    store.write([train(step, step, loss=1.7e308) for step in range(4)])
    (point,) = rollup(store.raw("train", train_fields([]), {}, *EVER), "train_1m")
    assert point.fields["loss_mean"] == 1.7e308


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_windows_equal_what_pandas_says_of_the_rows(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 60))
    value = st.one_of(st.just(math.nan), st.just(math.inf), st.just(-math.inf), st.floats(-1e6, 1e6))
    seconds = sorted(data.draw(st.lists(st.integers(0, 10_000), min_size=count, max_size=count)))
    frame = pd.DataFrame(
        {
            "time_ns": [T0 + s * SECOND for s in seconds],
            "run": "r",
            "attempt": [data.draw(st.sampled_from("12")) for _ in seconds],
            "step": pd.array(data.draw(st.lists(st.integers(-5, 10**9), min_size=count, max_size=count)), dtype="Int64"),
            "nonfinite": pd.array([0] * count, dtype="Int64"),
            "loss": np.array([data.draw(value) for _ in seconds], dtype=np.float64),
        }
    )
    name = data.draw(st.sampled_from(list(TRAIN_ROLLUPS)))
    points = {(point.tags["attempt"], point.time_ns): point.fields for point in rollup(frame, name)}
    groups = frame.groupby(["attempt", frame["time_ns"] // TRAIN_ROLLUPS[name] * TRAIN_ROLLUPS[name]])
    assert set(points) == set(groups.groups)
    for key, rows in groups:
        fields, good = points[key], rows[np.isfinite(rows["loss"])]
        assert (fields["n"], fields["step_min"], fields["step_max"]) == (len(rows), rows["step"].min(), rows["step"].max())
        if good.empty:
            assert "loss_min" not in fields
            continue
        assert (fields["loss_min"], fields["loss_max"], fields["loss_last"]) == (
            good["loss"].min(), good["loss"].max(), good["loss"].iloc[-1],
        )  # fmt: skip
        assert math.isclose(fields["loss_mean"], good["loss"].mean(), rel_tol=1e-9, abs_tol=1e-6)
        assert fields["loss_min_step"] == good["step"].iloc[int(good["loss"].to_numpy().argmin())]
        assert fields["loss_max_step"] == good["step"].iloc[int(good["loss"].to_numpy().argmax())]


def test_the_table_for_a_chart_is_the_coarsest_with_a_thousand_windows() -> None:
    minute = 60 * SECOND
    assert table_for(999 * minute) == "train" and table_for(1000 * minute) == "train_1m"
    assert table_for(9_999 * minute) == "train_1m" and table_for(10_000 * minute) == "train_10m"
    assert table_for(60_000 * minute) == "train_1h" and table_for(2**62) == "train_1h"
    assert node_table_for(10_000 * minute) == "node_10m" and node_table_for(1_000 * minute) == "node"


def test_windows_are_computed_when_they_close_and_the_open_one_waits(store: SqliteStore) -> None:
    run = Run(store)
    for second in range(0, 200):
        run.at(second)
        run.sink.write([train(second, second, loss=1.0)])
        if second % 20 == 0:
            run.driver.step()
    run.at(200)
    run.work()
    assert [(row["step_min"], row["n"]) for row in run.rows("train_1m")] == [(0, 60), (60, 60), (120, 60)]
    assert run.rows("train_10m") == []
    run.check(180)


def test_computing_again_changes_nothing(store: SqliteStore) -> None:
    run = Run(store, 4000)
    store.write([train(step, step, loss=random.Random(step).random()) for step in range(3900)])
    assert run.work() > 0
    before = [run.rows(name) for name in TRAIN_ROLLUPS]
    assert run.work() == 0  # nothing is due
    store.commit([], {"rollup/r/done": None})
    run.start()
    assert run.work() > 0
    assert [run.rows(name) for name in TRAIN_ROLLUPS] == before


def test_an_old_history_is_rolled_up_from_its_first_row_and_weeks_of_silence_are_skipped(store: SqliteStore) -> None:
    month = 30 * 86_400
    store.write([train(step, at, loss=float(step)) for step, at in enumerate([5, 3700, month, month + 7300])])
    run = Run(store, month + 8000)
    calls = 0
    while run.driver.step().is_behind:
        calls += 1
    assert calls <= 3
    run.check(month + 8000 - 10)
    assert [row["step_min"] for row in run.rows("train_1h")] == [0, 1, 2]  # the hour of the last row is still open


def test_rows_that_come_a_little_late_are_in_their_windows(store: SqliteStore) -> None:
    run = Run(store)
    run.sink.write([train(0, 0, loss=1.0)])
    run.at(75)
    run.work()
    run.at(100)
    run.sink.write([train(1, 59, loss=50.0)])
    run.at(135)
    run.work()
    run.check(120)
    assert run.rows("train_1m")[0]["loss_max"] == 50.0


def test_rows_imported_long_after_their_moment_are_rolled_up_too(store: SqliteStore) -> None:
    run = Run(store, 10 * 3600 + 30)
    run.sink.write([train(step, 9.5 * 3600 + step, loss=1.0) for step in range(1000)])
    run.work()
    imported = [train(step, 1800 + 60 * step, attempt=2, loss=2.0) for step in range(120)]
    run.sink.write(imported)
    run.clock.advance(61)
    run.work()
    run.check(10 * 3600 + 60)
    assert store.load_state("rollup/r/dirty/") == {}


def test_a_late_row_that_comes_while_its_hour_is_computed_is_not_forgotten(store: SqliteStore) -> None:
    run = Run(store, 20_000)
    run.sink.write([train(0, 0, loss=1.0), train(1, 19_990, loss=1.0)])
    run.work()
    run.sink.write([train(2, 100, loss=5.0)])
    written = store.commit

    def commit_and_more(points, state):  # another late row arrives just before the hour's result is stored
        store.commit = written  # type: ignore[method-assign]
        run.sink.write([train(3, 101, loss=7.0)])
        written(points, state)

    store.commit = commit_and_more  # type: ignore[method-assign]
    run.clock.advance(30)
    run.driver.step()
    assert len(store.load_state("rollup/r/dirty/")) == 1
    run.clock.advance(60)
    run.work()
    run.check(20_080)
    assert store.load_state("rollup/r/dirty/") == {}


def test_windows_stay_open_while_a_spool_still_holds_their_rows(store: SqliteStore) -> None:
    run = Run(store, 500)
    store.write([train(0, 0, loss=1.0)])
    run.waiting_s = 460.0  # rows of the last 460 s may be on their way
    run.work()
    assert run.rows("train_1m") == []
    run.waiting_s = 0.0
    store.write([train(step, step, loss=2.0) for step in range(1, 480)])
    run.work()
    run.check(490)


def test_a_row_that_came_a_little_late_and_then_waited_for_hours_is_in_its_window(store: SqliteStore) -> None:
    run = Run(store, 3_665)
    store.write([train(step, 10 * step, loss=1.0) for step in range(359)])
    run.waiting_s = 10.0  # the outage begins at 3,655
    run.work()
    assert run.rows("train_1m")[-1]["n"] == 5
    run.at(12_000)
    run.waiting_s = 0.0
    store.write([train(359, 3_599, loss=9.0)])  # spooled at 3,655, less than a minute late: no note
    run.work()
    run.check(11_990)


def test_a_kill_at_any_commit_costs_nothing(store: SqliteStore) -> None:
    run = Run(store, 50_000)
    run.sink.write([train(step, 50 * step, loss=float(step % 7)) for step in range(980)])
    written, calls = store.commit, 0

    def failing(points, state):
        nonlocal calls
        calls += 1
        if calls % 2:
            raise StoreUnavailable("away")
        written(points, state)

    store.commit = failing  # type: ignore[method-assign]
    for _ in range(200):
        run.start()  # a new process each time
        try:
            if not run.driver.step().is_behind:
                break
        except StoreUnavailable:
            continue
    store.commit = written  # type: ignore[method-assign]
    run.start()
    run.work()
    run.check(49_990)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_live_late_and_imported_rows_in_any_order_give_the_same_windows(tmp_path: Path, data: st.DataObject) -> None:
    seconds = data.draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=12, unique=True))
    points = [train(second, second, attempt=1 + second % 2, loss=float(second)) for second in seconds]
    arrivals = sorted((max(second, data.draw(st.integers(0, 12_000))), at) for at, second in enumerate(seconds))
    store = SqliteStore(tmp_path / f"{uuid.uuid4()}.db")
    try:
        run = Run(store)
        now = 0
        for arrival, at in arrivals:
            for moment in range(now, arrival, 1800):
                run.at(moment)
                run.work()
            now = arrival
            run.at(arrival)
            run.sink.write([points[at]])
            if data.draw(st.booleans()):
                run.start()
        run.at(16_000)
        run.work()
        run.check(15_990)
    finally:
        store.close()


def node(name: str, at_s: float, **fields: object) -> Point:
    return Point("node", {"node": name}, T0 + round(at_s * SECOND), {"state": "ok", **fields})  # type: ignore[dict-item]


def test_ten_minutes_of_a_node_keep_the_worst_of_each(store: SqliteStore) -> None:
    store.write([node("n1", 0, gpus=8, temperature_max_c=60.0, power_sum_w=100.0), node("n2", 1),
                 node("n1", 10, state="fail", gpus=7, temperature_max_c=90.0, run="r", xid_last=79),
                 node("n1", 20, state="warn", gpus=8, power_sum_w=300.0, is_simulated=True), node("n1", 600, gpus=8)])  # fmt: skip
    points = node_rollup(store.raw("node", NODE_FIELDS, {}, *EVER))
    assert [(point.tags["node"], point.time_ns) for point in points] == [("n1", T0), ("n1", T0 + NODE_ROLLUP_NS), ("n2", T0)]
    assert points[0].fields == {
        "n": 3, "worst_state": "fail", "state": "warn", "gpus": 7, "temperature_max_c": 90.0, "power_sum_w": 200.0,
        "run": "r", "xid_last": 79, "is_simulated": True,
    }  # fmt: skip
    for point in points:
        check_point(point)


def test_nodes_are_summarised_once_however_many_processes_do_it(store: SqliteStore) -> None:
    clock = ManualClock(T0 + 3_000 * SECOND)
    store.write([node("n1", s, gpus=8) for s in range(0, 3_000, 100)])
    drivers = [NodeRollupDriver(store, store, clock, lambda: 0.0) for _ in range(3)]
    assert [driver.step().points for driver in drivers] == [4, 0, 0]
    frame = store.raw("node_10m", ["n"], {}, *EVER)
    assert frame["n"].to_list() == [6, 6, 6, 6]
    clock.advance(600)
    drivers[1].step()
    assert store.raw("node_10m", ["n"], {}, *EVER)["n"].to_list() == [6] * 5


def test_a_store_made_before_roll_ups_gets_their_tables(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "old.db"
    with SqliteStoreClosing(path) as store:
        store.write([train(1, 1, loss=1.0)])
    connection = sqlite3.connect(path)
    for name in (*TRAIN_ROLLUPS, "node_10m"):
        connection.execute(f"DROP TABLE {name}")
    connection.commit()
    connection.close()
    with SqliteStoreClosing(path) as store:
        assert store.raw("train_1h", ["n"], {}, *EVER).empty
        assert store.raw("train", ["loss"], {}, *EVER)["loss"].to_list() == [1.0]
        store.write(rollup(store.raw("train", train_fields([]), {}, *EVER), "train_1h"))
        assert store.raw("train_1h", ["n"], {}, *EVER)["n"].to_list() == [1]


class SqliteStoreClosing(SqliteStore):
    def __enter__(self) -> SqliteStoreClosing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
