"""Servers as fixtures, one of each a session; ``tests/conftest.py`` offers them to every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services.fake_influx import FakeInflux
from tests.services.influx_server import INFLUXD, NGINX, InfluxServer, NginxServer
from trainvitals.clock import Clock, ManualClock
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore

#: Ways to an InfluxDB server that the contract suite runs on.
INFLUX_STORES = ("influxd", "influxd_through_nginx", "influxdb2_rules", "influxdb3_rules")


@pytest.fixture(scope="session")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxServer]:
    """One real InfluxDB server."""
    if INFLUXD is None:
        pytest.skip("needs influxd (Debian package influxdb)")
    server = InfluxServer(tmp_path_factory.mktemp("influxd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nginx(influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    """nginx in front of it, for the real ``/api/v2/write`` path of influxdb-client."""
    if NGINX is None:
        pytest.skip("needs nginx (Debian package nginx-light)")
    server = NginxServer(tmp_path_factory.mktemp("nginx"), influxd.port).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def influxdb2_rules(influxd: InfluxServer) -> Iterator[FakeInflux]:
    """The rules of 2.x in front of it."""
    server = FakeInflux(influxd, 2)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def influxdb3_rules(influxd: InfluxServer) -> Iterator[FakeInflux]:
    """The rules of 3 in front of it."""
    server = FakeInflux(influxd, 3)
    yield server
    server.stop()


class InfluxPlace:
    """Two fresh databases, and one for signed requests, on one of ``INFLUX_STORES``; ``open`` makes clients of them."""

    def __init__(
        self, name: str, influxd: InfluxServer, server: InfluxServer | NginxServer | FakeInflux, directory: Path
    ) -> None:
        self.behind, self.server = influxd, server
        self.names = influxd.make_databases()
        self.requests = f"requests_{self.names[0]}"
        influxd.query(f'CREATE DATABASE "{self.requests}"')
        self.token_file = directory / "token"
        self.token_file.write_text("any\n")
        if isinstance(server, FakeInflux):
            server.adopt(*self.names, self.requests)
            self.token_file.write_text(server.token)
        self.settings = InfluxdbSettings(
            token_file=str(self.token_file), org="org", database=self.names[0], database_long=self.names[1],
            database_requests=self.requests,
            write_path="v2" if name == "influxd_through_nginx" else "auto", timeout_s=20.0,
        )  # fmt: skip
        self._opened: list[InfluxStore] = []

    def open(self, clock: Clock | None = None, read_only: bool = False) -> InfluxStore:
        """Another client of the same data; all are closed at the end."""
        self._opened.append(InfluxStore(self.server.url, self.settings, clock or ManualClock(), read_only))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self.behind.drop_databases(*self.names, self.requests)


MakePlace = Callable[[str], InfluxPlace]


@pytest.fixture
def make_influx_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePlace]:
    """Name of a way -> fresh databases there."""
    made: list[InfluxPlace] = []

    def make(name: str) -> InfluxPlace:
        behind = request.getfixturevalue("influxd")
        server = request.getfixturevalue("nginx" if name == "influxd_through_nginx" else name)
        made.append(InfluxPlace(name, behind, server, tmp_path))
        return made[-1]

    yield make
    for place in made:
        place.close()


@pytest.fixture
def influx_place(make_influx_place: MakePlace) -> InfluxPlace:
    """Fresh databases on the real server."""
    return make_influx_place("influxd")
