"""``store copy``: all measurements, both ways, restartable, idempotent, counted."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from tests.services.fixtures import InfluxPlace
from trainvitals.cli import store_copy
from trainvitals.errors import InputError, StoreUnavailable
from trainvitals.records import Event, GpuSample, NodeSample, Point, Severity, Step
from trainvitals.schema import SCHEMA
from trainvitals.store.copy import all_fields, copy_store, count_rows, measurements, slices
from trainvitals.store.encode import event_point, gpu_point, node_point, step_point
from trainvitals.store.protocol import Store
from trainvitals.store.rollup import node_rollup, rollup, train_fields
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)


def history(nodes: int = 3, steps: int = 300) -> list[Point]:
    """Something of every measurement, with what is awkward: NaN, infinities, text of all kinds, absent fields."""
    points: list[Point] = []
    for attempt in (1, 2):
        for step in range(steps):
            time_ns = T0 + (attempt * steps + step) * SECOND
            values = {"loss": 2.0 + step / 7, "lr": 1e-4, "my_own_metric": -float(step)} if step % 3 else {"loss": 0.1 + 0.2}
            kinds = {"grad_norm": ("nan", "inf", "-inf")[step % 3]} if step % 50 == 0 else {}
            points.append(step_point("run, with = all \\ kinds", Step(step, attempt, None, values, kinds), time_ns))  # type: ignore[arg-type]
    for at in range(10):
        time_ns = T0 + at * 10 * SECOND
        for number in range(nodes):
            points.append(
                node_point(NodeSample(f"n{number}", time_ns, "ok", gpus=8, temperature_max_c=60.5 + at, text='it\'s 5 "°C"'))
            )
            points.append(
                gpu_point(GpuSample(f"n{number}", f"GPU-{number}", 0, time_ns, "ok", power_w=1.5, remapped_rows_failure=False))
            )
            points.append(Point("heartbeat", {"run": "r", "node": f"n{number}"}, time_ns, {"ranks": 8, "alive": at % 2}))
        points.append(Point("control", {"run": "r"}, time_ns, {"seq": at, "json": '{"state": "running"}'}))
    for at, text in enumerate(["plain", "line\nbreak", "emoji 🙂 \\n", ""]):
        event = Event(
            "finding", T0 + at * SECOND, step=at, id=f"f{at}", severity=Severity.WARNING, text=text, data={"a": [None, text]}
        )
        points.append(event_point("run, with = all \\ kinds", event))
    return points


def filled(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store.write(history())
    frame = store.raw("train", train_fields(store.stored_fields("train")), {}, *EVER)
    for name in ("train_1m", "train_10m", "train_1h"):
        store.write(rollup(frame, name))
    store.write(node_rollup(store.raw("node", store.stored_fields("node"), {}, *EVER)))
    return store


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[SqliteStore]:
    store = filled(tmp_path / "laptop.db")
    yield store
    store.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "empty.db")
    yield store
    store.close()


def assert_same(one: Store, other: Store) -> None:
    for name in measurements():
        fields = all_fields(one, name)
        order = ["time_ns", *SCHEMA[name].tags]
        frames = [store.raw(name, fields, {}, *EVER).sort_values(order, ignore_index=True) for store in (one, other)]
        pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)
        assert len(frames[0]), f"{name} holds nothing: the test proves nothing of it"


def quiet(_measurement: str, _rows: int, _reached_ns: int) -> None: ...


@pytest.mark.parametrize("slice_rows", [60, 20_000])
def test_every_row_is_copied_whatever_the_size_of_a_slice(laptop: SqliteStore, empty: SqliteStore, slice_rows: int) -> None:
    report = copy_store(laptop, empty, {}, {}, quiet, slice_rows)
    assert report.is_complete and report.source == report.target
    assert report.copied == report.source and set(report.source) == set(SCHEMA) - {"requests"}
    assert_same(laptop, empty)


def test_a_laptop_trial_moves_to_influxdb_and_back_with_nothing_changed(
    laptop: SqliteStore, empty: SqliteStore, influx_place: InfluxPlace
) -> None:
    server = influx_place.open()
    report = copy_store(laptop, server, {}, {}, quiet, 500)
    assert report.is_complete and report.source == report.target
    assert_same(laptop, server)
    back = copy_store(influx_place.open(), empty, {}, {}, quiet, 333)
    assert back.is_complete and back.target == report.source
    assert_same(laptop, empty)


def test_copying_again_and_a_copy_after_an_interruption_change_nothing(laptop: SqliteStore, empty: SqliteStore) -> None:
    reached: dict[str, int] = {}
    written, calls = empty.write, 0

    def failing(points):
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise StoreUnavailable("away")
        written(points)

    empty.write = failing  # type: ignore[method-assign]
    for _ in range(100):
        try:
            report = copy_store(laptop, empty, reached, {}, lambda name, _rows, at: reached.update({name: at}), 100)
            break
        except StoreUnavailable:
            continue
    assert report.is_complete and sum(report.copied.values()) < sum(report.source.values())
    assert_same(laptop, empty)
    empty.write = written  # type: ignore[method-assign]
    assert copy_store(laptop, empty, {}, {}, quiet).is_complete
    assert_same(laptop, empty)


def test_a_series_that_is_short_in_the_target_is_named(laptop: SqliteStore, empty: SqliteStore) -> None:
    written = empty.write
    empty.write = lambda points: written([p for p in points if p.tags.get("node") != "n1" or p.measurement != "gpu"])  # type: ignore[method-assign]
    report = copy_store(laptop, empty, {}, {}, quiet)
    (difference,) = report.differences
    assert (difference.measurement, difference.series, difference.source, difference.target) == ("gpu", ("n1", "GPU-1"), 10, 0)


def test_what_the_target_holds_beside_the_copy_is_no_difference(laptop: SqliteStore, empty: SqliteStore) -> None:
    empty.write([step_point("another run", Step(1, 1, None, {"loss": 1.0}), T0)])
    report = copy_store(laptop, empty, {}, {}, quiet)
    assert report.is_complete and report.target["train"] == report.source["train"] + 1


def test_rows_that_the_target_would_not_keep_are_neither_copied_nor_counted(laptop: SqliteStore, empty: SqliteStore) -> None:
    report = copy_store(laptop, empty, {}, {"gpu": T0 + 50 * SECOND}, quiet)
    assert report.is_complete and report.source["gpu"] == report.target["gpu"] == 15
    assert count_rows(empty, "gpu") == {(f"n{number}", f"GPU-{number}"): 5 for number in range(3)}


def test_many_rows_of_one_moment_are_all_given_and_once(empty: SqliteStore) -> None:
    empty.write([node_point(NodeSample(f"n{number}", T0 + at, "ok")) for number in range(50) for at in (0, 1, 2)])
    points = [point for part, _ in slices(empty, "node", 0, 20) for point in part]
    assert len(points) == len({(point.tags["node"], point.time_ns) for point in points}) == 150


def test_every_measurement_is_copied() -> None:
    assert sorted([*measurements(), "requests"]) == sorted(SCHEMA)


def command(*words: str) -> int:
    parser = ArgumentParser()
    store_copy.add_arguments(parser)
    return store_copy.run(parser.parse_args(words))


def test_the_command_prints_a_summary_for_programs_and_progress_for_people(
    tmp_path: Path, laptop: SqliteStore, influx_place: InfluxPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "trainvitals.toml"
    config.write_text(
        f'[influxdb]\ndatabase = "{influx_place.names[0]}"\ndatabase_long = "{influx_place.names[1]}"\n[retention]\nhardware_days = 0\n'
    )
    words = [f"sqlite://{tmp_path}/laptop.db", f"influxdb+{influx_place.server.url}", "--config", str(config),
             "--progress", str(tmp_path / "state" / "copy.json")]  # fmt: skip
    assert command(*words) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert result["complete"] and result["rows"]["train"] == {"copied": 600, "from": 600, "to": 600}
    assert "rows copied, up to 2026-01-02" in told.err
    laptop.write([step_point("run, with = all \\ kinds", Step(900, 2, None, {"loss": math.pi}), T0 + 90 * 3600 * SECOND)])
    assert command(*words) == 0
    assert 0 < json.loads(capsys.readouterr().out)["rows"]["train"]["copied"] <= 601
    assert_same(laptop, influx_place.open())
    influx_place.behind.query('DROP MEASUREMENT "event"', influx_place.names[1])
    laptop.close()
    progress = tmp_path / "state" / "copy.json"
    progress.write_text(json.dumps(json.loads(progress.read_text()) | {"event": T0 + 90 * 3600 * SECOND}))
    assert command(*words) == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["complete"] and result["differences"][0]["measurement"] == "event"
    assert command(*words) == 0  # from the beginning


def test_another_history_at_the_same_address_is_copied_from_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target holds more rows of the same series, so that counting them would not tell."""
    words = [f"sqlite://{tmp_path}/from.db", f"sqlite://{tmp_path}/to.db", "--progress", str(tmp_path / "copy.json")]
    for begin_ns, number in ((T0 + 9_000 * 3600 * SECOND, 50), (T0, 20)):
        with closing(SqliteStore(tmp_path / "from.db")) as source:
            source.write([step_point("r", Step(at, 1, None, {"loss": 1.0}), begin_ns + at * SECOND) for at in range(number)])
            source.write([event_point("r", Event("attempt_start", begin_ns, attempt=1, id="r/1"))])
        assert command(*words) == 0
        assert json.loads(capsys.readouterr().out)["rows"]["train"]["copied"] == number
        for path in tmp_path.glob("from.db*"):
            path.unlink()
    with closing(SqliteStore(tmp_path / "to.db")) as target:
        assert len(target.events("r", (), *EVER)) == 2


def test_a_store_is_not_copied_onto_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (f"sqlite://{tmp_path}/a.db", f"sqlite://{tmp_path}/./a.db", f"sqlite://{tmp_path}/link/a.db"):
        with pytest.raises(InputError, match="same store"):
            command(f"sqlite://{tmp_path}/a.db", other)
