"""The backups that docs/sizing.md recommends: made while rows are written, restored into a new place, read back."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from tests.services.influx_server import INFLUXD, InfluxServer
from trainvitals.records import Event, NodeSample, Point, Step
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.encode import event_point, node_point, step_point
from trainvitals.store.influx import InfluxStore
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

SECOND = 1_000_000_000
T0 = 1_767_326_400 * SECOND
EVER = (0, 2**62)


def rows(first: int, last: int) -> list[Point]:
    points: list[Point] = []
    for step in range(first, last):
        points.append(step_point("r", Step(step, 1, None, {"loss": step / 3}, {"grad_norm": "inf"}), T0 + step * SECOND))
        points.append(node_point(NodeSample("n1", T0 + step * SECOND, "ok", gpus=8, text="ok")))
    points.append(event_point("r", Event("watch", T0 + first * SECOND, id=f"e{first}", text='a "quoted" text')))
    return points


def content(store: Store) -> list[pd.DataFrame]:
    return [
        store.raw(name, fields, {}, *EVER)
        for name, fields in (("train", ["step", "loss", "grad_norm"]), ("node", ["state", "gpus"]), ("event", ["id", "text"]))
    ]


def assert_same(one: list[pd.DataFrame], other: list[pd.DataFrame]) -> None:
    for left, right in zip(one, other, strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)


@pytest.mark.parametrize("how", ["backup", "vacuum"])
def test_a_sqlite_backup_made_while_rows_come_in_is_whole_and_goes_on(tmp_path: Path, how: str) -> None:
    with closing(SqliteStore(tmp_path / "live.db")) as live:
        live.commit(rows(0, 500), {"watch/r/state": b"offset"})
        then = content(live)
        with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
            if how == "vacuum":
                connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
            else:
                with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
                    connection.backup(copy)
        live.write(rows(500, 600))
    with closing(SqliteStore(tmp_path / "copy.db")) as restored:
        assert_same(content(restored), then)
        assert restored.load_state("watch/") == {"watch/r/state": b"offset"}
        restored.write(rows(500, 600))  # what came after the backup is read again from the trainer's files
        with closing(SqliteStore(tmp_path / "live.db")) as live:
            assert_same(content(restored), content(live))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[InfluxServer]:
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path / "influxd").start()
    yield server
    server.stop()


def influxd(server: InfluxServer, *words: str) -> None:
    assert INFLUXD is not None
    port = re.findall(r'^bind-address = "127.0.0.1:(\d+)"', (server.directory / "influxd.conf").read_text(), re.MULTILINE)[0]
    command = [INFLUXD, words[0], "-portable", "-host", f"127.0.0.1:{port}", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_influxd_backup_is_restored_under_its_own_name_after_the_database_was_lost(
    tmp_path: Path, own_server: InfluxServer
) -> None:
    hardware, long = own_server.make_databases()
    settings = InfluxdbSettings(database=hardware, database_long=long)
    with closing(InfluxStore(own_server.url, settings)) as store:
        store.write(rows(0, 500))
        then = content(store)
        for database in (hardware, long):
            influxd(own_server, "backup", "-database", database, str(tmp_path / f"backup-{database}"))
        store.write(rows(500, 600))
        own_server.drop_databases(hardware, long)
        for database in (hardware, long):
            influxd(own_server, "restore", "-db", database, str(tmp_path / f"backup-{database}"))
    with closing(InfluxStore(own_server.url, settings)) as restored:
        deadline_s = time.monotonic() + 30  # influxd says that a shard is restored a moment before a query finds its rows
        while [len(one) for one in content(restored)] != [len(one) for one in then] and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert_same(content(restored), then)
        restored.write(rows(400, 600))
        assert len(restored.raw("train", ["step"], {}, *EVER)) == 600
