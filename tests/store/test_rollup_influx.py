"""Roll-ups and the curves drawn from them on a real InfluxDB: what the embedded store gives, to the last digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from tests.services.fixtures import InfluxPlace
from trainvitals.clock import ManualClock
from trainvitals.records import Point, Step
from trainvitals.schema import TRAIN_ROLLUPS
from trainvitals.settings import RetentionSettings
from trainvitals.store.drawing import buckets_for_drawing
from trainvitals.store.encode import step_point
from trainvitals.store.protocol import Store
from trainvitals.store.retention import DAY_NS, Retention
from trainvitals.store.rollup_driver import DirtyNotes, NodeRollupDriver, RollupDriver
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)
STEPS = 3_000
NOW_S = 20 * STEPS + 15


def run() -> list[Point]:
    """3,000 steps of 20 s (16.7 h), a one-step spike, a NaN, an extra metric, a second attempt."""
    points = []
    for step in range(STEPS):
        values = {"loss": 99.0 if step == 1_234 else 2.0 + step / 7e3, "my_metric": float(step % 11)}
        kinds = {"grad_norm": "nan"} if step == 2_000 else {}
        attempt = 1 if step < 2_500 else 2
        points.append(step_point("r", Step(step, attempt, None, values, kinds), T0 + 20 * step * SECOND))  # type: ignore[arg-type]
    return points


class StateOf:
    """A store without state of its own, and a file that keeps it."""

    def __init__(self, store: Store, keeps: SqliteStore) -> None:
        self.write, self._keeps = store.write, keeps
        self.load_state = keeps.load_state

    def commit(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        self.write(points)
        self._keeps.commit([], state)


def roll_up(store: Store, keeps: SqliteStore) -> None:
    clock = ManualClock(T0 + NOW_S * SECOND)
    driver = RollupDriver("r", store, DirtyNotes(StateOf(store, keeps), clock), clock, lambda: 0.0)
    while driver.step().is_behind:
        pass


@pytest.mark.parametrize("by", ["step", "time_ns"])
def test_windows_and_curves_are_the_same_on_influxdb(tmp_path: Path, influx_place: InfluxPlace, by: str) -> None:
    embedded, server = SqliteStore(tmp_path / "store.db"), influx_place.open()
    for store in (embedded, server):
        store.write(run())
        with closing(SqliteStore(tmp_path / f"state-{type(store).__name__}.db")) as keeps:
            roll_up(store, keeps)
    for name in TRAIN_ROLLUPS:
        fields = embedded.stored_fields(name)
        assert "my_metric_mean" in fields and server.stored_fields(name) == fields
        frames = [store.raw(name, fields, {}, *EVER) for store in (embedded, server)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
        assert len(frames[0]) >= 16
    drawn = [buckets_for_drawing(store, ["loss", "my_metric"], {"run": "r"}, *EVER, 300, by) for store in (embedded, server)]
    pd.testing.assert_frame_equal(*drawn, rtol=1e-12)
    assert drawn[1]["n"].sum() == STEPS and drawn[1]["loss_max"].max() == 99.0 and drawn[1]["nonfinite"].sum() == 1
    assert drawn[1]["loss_last"].iloc[-1] == 2.0 + (STEPS - 1) / 7e3  # the live edge
    embedded.close()


def test_rows_in_a_spool_are_waited_for_and_their_windows_arrive_through_it(tmp_path: Path, influx_place: InfluxPlace) -> None:
    clock = ManualClock(T0)
    file = SpoolFile(tmp_path / "watch.spool", clock, owner="watch/r")
    spool = Spool(file, influx_place.open(), lambda _sentence: None, start=False)
    sink, server = DirtyNotes(spool, clock), influx_place.open()
    driver = RollupDriver("r", server, sink, clock, lambda: spool.stats().oldest_age_s)
    for second in range(0, 300, 5):
        sink.write([step_point("r", Step(second, 1, None, {"loss": float(second)}), T0 + second * SECOND)])
        clock.advance(5)
        driver.step()  # nothing was delivered yet: nothing may be rolled up
    assert spool.ship_until_empty(100)
    assert server.raw("train_1m", ["n"], {}, *EVER).empty
    clock.advance(30)
    driver.step()
    assert spool.ship_until_empty(100)
    assert server.raw("train_1m", ["n"], {}, *EVER)["n"].to_list() == [12, 12, 12, 12, 12]
    late = step_point("r", Step(1_000, 1, None, {"loss": -5.0}), T0 + 61 * SECOND)
    sink.write([late])
    clock.advance(10)
    driver.step()
    assert len(spool.load_state("rollup/r/dirty/")) == 1  # noted, and left while the row waits
    assert spool.ship_until_empty(100)
    clock.advance(20)
    driver.step()
    assert spool.ship_until_empty(100)
    frame = server.raw("train_1m", ["n", "loss_min", "loss_min_step"], {}, *EVER)
    assert frame["n"].to_list() == [12, 13, 12, 12, 12] and (frame["loss_min"][1], frame["loss_min_step"][1]) == (-5.0, 1_000)
    spool.close()


def test_nodes_are_summarised_and_old_rows_deleted_on_influxdb(tmp_path: Path, influx_place: InfluxPlace) -> None:
    server, keeps = influx_place.open(), SqliteStore(tmp_path / "state.db")
    points = [
        Point("node", {"node": f"n{number}"}, T0 + at * 300 * SECOND, {"state": "ok", "gpus": 8 - number, "is_simulated": True})
        for at in range(20) for number in range(3)
    ]  # fmt: skip
    server.write(points)
    clock = ManualClock(T0 + 6_000 * SECOND)
    first = NodeRollupDriver(server, StateOf(server, keeps), clock, lambda: 0.0)
    clock.advance(15)
    assert first.step().points == 30
    with closing(SqliteStore(tmp_path / "other.db")) as of_another_host:
        assert NodeRollupDriver(server, StateOf(server, of_another_host), clock, lambda: 0.0).step().points == 0
    frame = server.raw("node_10m", ["n", "gpus", "state", "is_simulated"], {"node": "n2"}, *EVER)
    assert frame["n"].to_list() == [2] * 10 and set(frame["gpus"]) == {6} and set(frame["is_simulated"]) == {True}
    clock.advance(14 * DAY_NS / 1e9 - 3_000)
    retention = Retention(server, RetentionSettings(), clock, lambda: {"node": first.done_ns()})
    assert retention.step().rows["node"] == 33
    assert retention.step().rows["node"] == 0
    assert len(server.raw("node", [], {}, *EVER)) == 27 and len(server.raw("node_10m", [], {}, *EVER)) == 30
    keeps.close()
