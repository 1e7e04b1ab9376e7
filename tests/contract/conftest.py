"""Stores that the contract suite runs on. Another store joins by one more factory here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.services.fake_influx import FakeInflux
from tests.services.influx_server import INFLUXD, NGINX, InfluxServer, NginxServer
from trainvitals.clock import ManualClock
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

STORES = ("sqlite", "influxd", "influxd_through_nginx", "influxdb2_rules", "influxdb3_rules")


class Server(Protocol):
    """A server that has databases."""

    url: str

    def make_databases(self) -> tuple[str, str]: ...

    def drop_databases(self, *names: str) -> None: ...


@pytest.fixture(scope="session")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxServer]:
    """One real InfluxDB server for all tests of a session."""
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path_factory.mktemp("influxd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nginx(influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    """nginx in front of it."""
    if NGINX is None:
        pytest.skip("needs nginx (Debian package nginx-light)")
    server = NginxServer(tmp_path_factory.mktemp("nginx"), influxd.port).start()
    yield server
    server.stop()


@contextmanager
def _fake(influxd: InfluxServer, major: int) -> Iterator[FakeInflux]:
    server = FakeInflux(influxd, major)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def influxdb2_rules(influxd: InfluxServer) -> Iterator[FakeInflux]:
    with _fake(influxd, 2) as server:
        yield server


@pytest.fixture(scope="session")
def influxdb3_rules(influxd: InfluxServer) -> Iterator[FakeInflux]:
    with _fake(influxd, 3) as server:
        yield server


@contextmanager
def _factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    name = request.param
    if name == "sqlite":
        yield lambda: SqliteStore(tmp_path / "store" / "contract.db")
        return
    influxd: InfluxServer = request.getfixturevalue("influxd")
    names = influxd.make_databases()
    url, write_path = influxd.url, "auto"
    token_file = tmp_path / "token"
    token_file.write_text("any\n")
    if name == "influxd_through_nginx":
        url, write_path = request.getfixturevalue("nginx").url, "v2"
    elif name != "influxd":
        fake: FakeInflux = request.getfixturevalue(name)
        fake.adopt(*names)
        url = fake.url
        token_file.write_text(fake.token)
    settings = InfluxdbSettings(
        token_file=str(token_file), org="org", database=names[0], database_long=names[1], write_path=write_path
    )
    yield lambda: InfluxStore(url, settings, ManualClock())
    influxd.drop_databases(*names)


@pytest.fixture(params=STORES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; every call is another client of the same data. All are closed at the end."""
    opened: list[Store] = []
    with _factory(request, tmp_path) as factory:

        def open_one() -> Store:
            opened.append(factory())
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


@pytest.fixture
def store(open_again: Callable[[], Store]) -> Store:
    return open_again()
