"""Rows of InfluxDB: steps that keep their time, newest rows with a memory, pages, and buckets that the server makes."""

from __future__ import annotations

import math
import os
import threading
import uuid
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.services.fixtures import InfluxPlace
from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.identity import step_time_ns
from trainvitals.records import Point, Step
from trainvitals.store import influx_buckets
from trainvitals.store.encode import step_point
from trainvitals.store.influx import InfluxStore
from trainvitals.store.influx_query import Databases, Reader
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

SECOND = 10**9
T0 = 1_767_323_045 * SECOND
EVER = (0, 2**62)


def train(step: int, run: str = "r", attempt: int = 1, time_ns: int | None = None, **values: float) -> Point:
    chosen = step_time_ns(T0 + step * SECOND if time_ns is None else time_ns, step)
    return step_point(run, Step(step, attempt, chosen, values), chosen)


def node(name: str, at_s: float, **fields: object) -> Point:
    return Point("node", {"node": name}, T0 + round(at_s * SECOND), {"state": "ok", **fields})  # type: ignore[dict-item]


def reader_of(store: InfluxStore, place: InfluxPlace) -> Reader:
    return Reader(store.connection, Databases(*place.names))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_live_tail_replay_and_import_in_any_order_give_identical_rows_on_both_stores(
    influx_place: InfluxPlace, tmp_path: Path, data: st.DataObject
) -> None:
    """A log whose source times stand (live), a second look at later times (replay), an import: cut and mixed at will."""
    run = uuid.uuid4().hex
    steps = data.draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 2)), min_size=1, max_size=25, unique=True))
    live = [train(step, run, attempt, loss=float(step)) for step, attempt in steps]
    delay = data.draw(st.integers(0, 3000)) * SECOND
    again = [
        Point(p.measurement, p.tags, p.time_ns + delay, {"step": p.fields["step"], "grad_norm": 0.5, "nonfinite": 0})
        for p in live
    ]
    order = data.draw(st.permutations(range(3)))
    sources = [live, again, live[::-1]]
    clock = ManualClock()
    stores: list[Store] = [influx_place.open(clock), SqliteStore(tmp_path / f"{run}.db")]
    batches: list[list[Point]] = []
    for number in order:
        points = list(sources[number])
        while points:
            size = data.draw(st.integers(1, len(points)))
            batches.append(points[:size])
            points = points[size:]
    restarts = data.draw(st.sets(st.integers(0, len(batches))))
    waits = data.draw(st.sets(st.integers(0, len(batches))))
    for number, batch in enumerate(batches):
        if number in restarts:
            stores[0].close()
            stores[0] = influx_place.open(clock)
        if number in waits:
            clock.advance(61)
        for store in stores:
            store.write(batch)
    frames = [
        store.raw("train", ["step", "loss", "grad_norm", "nonfinite"], {"run": run}, *EVER).sort_values(
            ["attempt", "step"], ignore_index=True
        )
        for store in stores
    ]
    for store in stores:
        store.close()
    assert len(frames[0]) == len(steps)
    pd.testing.assert_frame_equal(frames[0], frames[1])


def test_many_steps_of_one_moment_each_keep_a_time_of_their_own_on_any_replay(influx_place: InfluxPlace) -> None:
    points = [Point("train", {"run": "r", "attempt": "1"}, T0, {"step": step, "nonfinite": 0}) for step in range(200)]
    store = influx_place.open()
    store.write(points[:50])
    store.write(points[25:])
    influx_place.open().write(points[::-1])
    frame = store.raw("train", ["step"], {}, *EVER)
    assert sorted(frame["step"]) == list(range(200)) and frame["time_ns"].is_unique


def test_threads_that_write_one_new_step_make_one_row(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    ready = threading.Barrier(6)

    def write(number: int) -> None:
        ready.wait(20)
        store.write([train(5, time_ns=T0 + number * SECOND, loss=1.0)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(store.raw("train", ["step"], {}, *EVER)) == 1


def test_after_a_failed_write_what_the_server_holds_is_looked_up_anew(
    influx_place: InfluxPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("away")

    store = influx_place.open()
    store.write([train(1, loss=1.0)])
    influx_place.open().write([train(2, loss=2.0)])  # another program, while this one believes that step 2 is new
    with pytest.raises(StoreError), monkeypatch.context() as patch:
        patch.setattr(store.connection, "write", refuse)
        store.write([train(2, time_ns=T0 + 500 * SECOND, grad_norm=1.0)])
    store.write([train(2, time_ns=T0 + 500 * SECOND, grad_norm=1.0)])
    assert store.raw("train", ["step"], {}, *EVER)["step"].to_list() == [1, 2]


def test_a_forked_child_goes_on_with_connections_of_its_own(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    store.write([node("parent", 0)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.write([node("child", 1)])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.write([node("parent", 2)])
    assert store.raw("node", [], {}, *EVER)["node"].to_list() == ["parent", "child", "parent"]


def test_newest_rows_are_remembered_and_followed_without_asking_for_the_silent_ones_again(influx_place: InfluxPlace) -> None:
    clock = ManualClock(T0 + 1000 * SECOND)
    store = influx_place.open(clock)
    store.write([node(f"n{k}", 900, gpus=k) for k in range(30)] + [node("old", 5, gpus=99), node("fresh", 995, gpus=1)])

    def newest() -> dict[str, int]:
        frame = store.latest("node", ["gpus"], {}, 5600 * SECOND, clock.time_ns() + 3600 * SECOND)
        return dict(zip(frame["node"], frame["gpus"], strict=True))

    assert newest() == {**{f"n{k}": k for k in range(30)}, "old": 99, "fresh": 1}
    asked: list[str] = []
    query = store.connection.query
    store.connection.query = lambda *a, **k: asked.append(a[1]) or query(*a, **k)  # type: ignore[method-assign]
    clock.advance(2)
    store.write([node("fresh", 1001, gpus=2), node("n3", 1001.5, gpus=33)])
    assert newest()["fresh"] == 2 and newest()["n3"] == 33 and newest()["old"] == 99
    assert asked and not any("last(" in statement for statement in asked)
    store.write([node("n4", 950, gpus=44)])  # came late: seen at the next whole look at the latest
    clock.advance(61)
    assert newest()["n4"] == 44 and newest()["old"] == 99 and any("last(" in statement for statement in asked)
    clock.advance(1000)
    assert set(newest()) == {"fresh", *(f"n{k}" for k in range(30))}
    clock.advance(920)
    assert set(newest()) == {"n3", "fresh"}
    store.delete_before("node", T0 + 5000 * SECOND)
    assert newest() == {}


def test_two_clients_with_a_memory_agree_with_one_without(influx_place: InfluxPlace) -> None:
    clock = ManualClock(T0)
    one, other = influx_place.open(clock), influx_place.open(clock)
    for turn in range(12):
        one.write(
            [
                node(f"n{(turn * 7 + k) % 10}", turn * 9 - k, gpus=turn, **({"power_sum_w": 1.0 * k} if k else {}))
                for k in range(3)
            ]
        )
        frames = [
            store.latest("node", ["gpus", "power_sum_w"], {}, 40 * SECOND, clock.time_ns())
            for store in (one, other, influx_place.open(clock))
        ]
        pd.testing.assert_frame_equal(frames[0], frames[2])
        pd.testing.assert_frame_equal(frames[1], frames[2])
        clock.advance(9)


def test_pages_give_every_row_once_however_many_share_a_moment(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    store.write(
        [node(f"n{k}", s // 3, gpus=s) for s in range(20) for k in range(7)] + [node(f"m{k}", 9, gpus=k) for k in range(40)]
    )
    reader = reader_of(store, influx_place)
    wanted = store.raw("node", ["gpus"], {}, *EVER)
    for size in (1, 2, 7, 50, 1000):
        for newest_first in (False, True):
            rows = [
                tuple(row)
                for page in reader.pages("node", ["gpus", "node"], ("", {}), *EVER, newest_first=newest_first, page_rows=size)
                for row in page.rows
            ]
            assert len(rows) == len(set(rows)) == len(wanted)
            times = [row[0] for row in rows]
            assert times == sorted(times, reverse=newest_first)


def test_a_list_of_more_names_than_fit_a_statement_finds_them_all(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    store.write([node(f"n{k:04d}", k % 5, gpus=k) for k in range(500)])
    names = [f"n{k:04d}" for k in range(450)]
    assert len(store.raw("node", ["gpus"], {"node": names}, *EVER)) == 450
    assert len(store.latest("node", ["gpus"], {"node": names}, 100 * SECOND, T0)) == 450
    assert store.buckets("node", ["gpus"], {"node": names}, *EVER, 3)["n"].sum() == 450
    assert len(store.raw("node", ["gpus"], {"node": names}, *EVER, limit=10)) == 10


@pytest.mark.parametrize("measurement", ["train", "node"])
def test_buckets_that_the_server_makes_equal_those_made_of_rows(influx_place: InfluxPlace, measurement: str) -> None:
    store = influx_place.open()
    if measurement == "train":
        points = [
            train(s, attempt=1 + s % 2, **({} if s % 9 == 0 else {"loss": math.sin(s) + (50 if s == 777 else 0)}))
            for s in range(2000)
        ]
        fields = ["loss"]
    else:
        points = [node(f"n{s % 3}", s, gpus=s % 8, **({} if s % 5 else {"power_sum_w": 100.0 + s})) for s in range(2000)]
        fields = ["gpus", "power_sum_w"]
    store.write(points)
    reader = reader_of(store, influx_place)
    rows = influx_buckets.buckets(reader, measurement, fields, {}, *EVER, 40)
    made = influx_buckets.buckets(reader, measurement, fields, {}, *EVER, 40, exact_rows=100)
    tags = ["attempt"] if measurement == "train" else ["node"]
    rows, made = (frame.sort_values(["bucket", *tags], ignore_index=True) for frame in (rows, made))
    assert ((made["time_ns"] - rows["time_ns"]).abs() < rows["bucket"].diff().max()).all()
    pd.testing.assert_frame_equal(made.drop(columns="time_ns"), rows.drop(columns="time_ns"))


def test_buckets_by_step_of_more_rows_than_are_held_at_once_are_exact(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    store.write([train(s, loss=99.0 if s == 1234 else 2.0) for s in range(3000)])
    reader = reader_of(store, influx_place)
    whole = influx_buckets.buckets(reader, "train", ["loss"], {}, *EVER, 30, "step")
    paged = influx_buckets.buckets(reader, "train", ["loss"], {}, *EVER, 30, "step", exact_rows=100)
    pd.testing.assert_frame_equal(paged, whole)
    assert whole["loss_max"].max() == 99.0


def test_rows_that_another_program_wrote_without_a_tag_are_read_with_an_empty_one(influx_place: InfluxPlace) -> None:
    store = influx_place.open()
    store.connection.write(influx_place.names[1], b'event,run=r,kind=note row=1i,severity=0i,id="x",text="hello" %d' % T0)
    (event,) = store.events("r", [], *EVER)
    assert (event.kind, event.source, event.text) == ("note", "", "hello")
