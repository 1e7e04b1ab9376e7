"""Curves for drawing from roll-ups: the columns of ``Store.buckets``, every spike, the live edge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.records import Point, Step
from trainvitals.schema import TRAIN_ROLLUPS
from trainvitals.store.drawing import buckets_for_drawing
from trainvitals.store.encode import step_point
from trainvitals.store.rollup_driver import DirtyNotes, RollupDriver
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)
FIELDS = ["loss", "grad_norm"]


def train(step: int, at_s: float, attempt: int = 1, run: str = "r", **values: float) -> Point:
    time_ns = T0 + round(at_s * SECOND)
    return step_point(run, Step(step, attempt, time_ns, values), time_ns)


class Counting(SqliteStore):
    """A store that says which tables were read how."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[str] = []

    def raw(self, measurement, *args, **kwargs):  # type: ignore[no-untyped-def]
        frame = super().raw(measurement, *args, **kwargs)
        self.read.append(f"raw {measurement} {len(frame)}")
        return frame

    def buckets(self, measurement, *args, **kwargs):  # type: ignore[no-untyped-def]
        frame = super().buckets(measurement, *args, **kwargs)
        self.read.append(f"buckets {measurement} {int(frame['n'].sum())}")
        return frame


def rolled_up(store: SqliteStore, now_s: float) -> None:
    clock = ManualClock(T0 + round(now_s * SECOND))
    driver = RollupDriver("r", store, DirtyNotes(store, clock), clock, lambda: 0.0)
    while driver.step().is_behind:
        pass


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    """20,000 steps of 20 s (4.6 days), a spike of one step, a second attempt that repeats 1,000 steps."""
    store = Counting(tmp_path_factory.mktemp("drawing") / "store.db")
    first = [train(s, 20 * s, loss=99.0 if s == 7_777 else 2.0, grad_norm=0.1 * (s % 3)) for s in range(10_000)]
    second = [train(s - 1_000, 20 * s, attempt=2, loss=1.0) for s in range(10_000, 20_000)]
    second[-1] = train(18_999, 20 * 19_999, attempt=2, loss=55.0)
    store.write(first + second)
    rolled_up(store, 20 * 20_000 - 300)
    store.read.clear()
    yield store
    store.close()


@pytest.mark.parametrize("by", ["step", "time_ns"])
def test_a_long_curve_is_read_from_windows_and_has_the_columns_of_buckets(long_run: Counting, by: str) -> None:
    long_run.read.clear()
    frame = buckets_for_drawing(long_run, FIELDS, {"run": "r"}, *EVER, 500, by)
    assert any(read.startswith("raw train_1m") for read in long_run.read)
    tail = [read for read in long_run.read if read.startswith("buckets train ")]
    assert len(tail) == 1 and int(tail[0].split()[-1]) < 30  # the open window only
    exact = long_run.buckets("train", FIELDS, {"run": "r"}, *EVER, 500, by)
    assert list(frame.dtypes.items()) == list(exact.dtypes.items())
    assert frame["n"].sum() == exact["n"].sum() == 20_000
    assert frame["time_ns"].is_monotonic_increasing and abs(len(frame) - len(exact)) < 10
    assert frame["loss_max"].max() == 99.0 and frame["loss_min"].min() == 1.0
    assert set(frame["attempt"]) == {"1", "2"}
    spike = frame[frame["loss_max"] == 99.0].iloc[0]
    assert spike["attempt"] == "1" and 0 <= 7_777 - spike["step"] < 60
    assert frame["loss_last"].iloc[-1] == 55.0  # the newest step, whose window is still open
    assert np.isnan(frame[frame["attempt"] == "2"]["grad_norm_max"]).all()


def test_a_short_span_is_read_from_steps(long_run: Counting) -> None:
    long_run.read.clear()
    frame = buckets_for_drawing(long_run, ["loss"], {"run": "r"}, T0, T0 + 10_000 * SECOND, 500)
    assert not any("train_1" in read for read in long_run.read)
    assert frame["n"].sum() == 500


def test_a_span_that_cuts_windows_holds_its_own_steps_and_no_others(long_run: Counting) -> None:
    start, end = T0 + 130 * SECOND, T0 + 300_010 * SECOND
    frame = buckets_for_drawing(long_run, ["loss"], {"run": "r"}, start, end, 2_000)
    exact = long_run.buckets("train", ["loss"], {"run": "r"}, start, end, 2_000)
    assert frame["n"].sum() == exact["n"].sum()
    assert frame["step"].iloc[0] == exact["step"].iloc[0]


def test_a_curve_that_nothing_rolled_up_is_read_from_steps(tmp_path: Path) -> None:
    store = Counting(tmp_path / "store.db")
    store.write([train(step, 100 * step, loss=1.0) for step in range(5_000)])
    frame = buckets_for_drawing(store, ["loss"], {"run": "r"}, *EVER, 500)
    assert frame["n"].sum() == 5_000
    rolled_up(store, 200_000)  # half of it
    assert buckets_for_drawing(store, ["loss"], {"run": "r"}, *EVER, 500)["n"].sum() == 5_000
    empty = buckets_for_drawing(store, ["loss"], {"run": "other"}, *EVER, 500)
    assert list(empty.dtypes.items()) == list(frame.dtypes.items()) and empty.empty
    store.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_extremes_counts_and_last_values_are_those_of_the_steps(tmp_path_factory, data: st.DataObject) -> None:
    store = Counting(tmp_path_factory.mktemp("any") / "store.db")
    try:
        seconds = sorted(data.draw(st.lists(st.integers(0, 4_000), min_size=2, max_size=60, unique=True)))
        losses = st.one_of(st.none(), st.floats(-1e6, 1e6))
        points = []
        for step, second in enumerate(seconds):
            loss = data.draw(losses)
            points.append(train(step, second, attempt=1 + step // 30, **({} if loss is None else {"loss": loss})))
        store.write(points)
        rolled_up(store, data.draw(st.integers(0, 6_000)))
        start = T0 + data.draw(st.integers(0, 2_000)) * SECOND
        end = start + data.draw(st.integers(1, 4_000)) * SECOND
        by = data.draw(st.sampled_from(["step", "time_ns"]))
        frame = buckets_for_drawing(store, ["loss"], {"run": "r"}, start, end, data.draw(st.integers(1, 80)), by, min_points=2)
        raw = store.raw("train", ["step", "loss"], {"run": "r"}, start, end)
        assert frame["n"].sum() == len(raw)
        for attempt, mine in frame.groupby("attempt"):
            its = raw[raw["attempt"] == attempt]
            good = its["loss"].dropna()
            assert mine["step"].min() == its["step"].min()
            if len(good):
                assert (mine["loss_min"].min(), mine["loss_max"].max()) == (good.min(), good.max())
                assert mine["loss_last"].dropna().iloc[-1] == good.iloc[-1]
                mean = mine["loss_mean"].dropna()
                assert good.min() <= mean.min() and mean.max() <= good.max()
    finally:
        store.close()


def test_every_table_declared_for_curves_can_be_chosen(tmp_path: Path) -> None:
    store = Counting(tmp_path / "store.db")
    store.write([train(step, 600 * step, loss=1.0) for step in range(7_000)])
    rolled_up(store, 600 * 7_000)
    for points, name in ((1_000, "train_1h"), (5_000, "train_10m"), (20_000, "train_1m")):
        store.read.clear()
        assert buckets_for_drawing(store, ["loss"], {"run": "r"}, *EVER, 500, min_points=points)["n"].sum() == 7_000
        assert any(read.startswith(f"raw {name} ") for read in store.read)
        assert name in TRAIN_ROLLUPS
    store.close()
