"""The two stores behind one dashboard, for tests that must see the same on both."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.services.influx_server import InfluxServer
from trainvitals.settings import InfluxdbSettings
from trainvitals.store.influx import InfluxStore
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore


class Backend(Protocol):
    """gone_words: what the dashboard says while the store is away."""

    gone_words: str

    def open(self, home: Path) -> Store:
        """A fresh store of the dashboard whose settings lie in ``home``."""
        ...

    def settings(self, home: Path) -> tuple[str, str]:
        """(value of ``store``, further tables of the settings file)"""
        ...

    def take_away(self, home: Path) -> None: ...

    def bring_back(self, home: Path) -> None: ...


class SqliteBackend:
    """A file in ``home``."""

    gone_words = "that was here at"

    def open(self, home: Path) -> Store:
        return SqliteStore(home / "t.db")

    def settings(self, home: Path) -> tuple[str, str]:
        return f"sqlite://{home / 't.db'}", ""

    def take_away(self, home: Path) -> None:
        for path in list(home.glob("t.db*")):
            path.rename(home / f"away-{path.name}")

    def bring_back(self, home: Path) -> None:
        for path in list(home.glob("away-*")):
            path.rename(home / path.name.removeprefix("away-"))


@dataclass
class InfluxBackend:
    """Two databases on a real server that may be stopped and started."""

    server: InfluxServer
    names: dict[Path, tuple[str, str]] = field(default_factory=dict)
    gone_words = "cannot be reached"

    def open(self, home: Path) -> Store:
        self.names[home] = self.server.make_databases()
        database, database_long = self.names[home]
        return InfluxStore(self.server.url, InfluxdbSettings(database=database, database_long=database_long))

    def settings(self, home: Path) -> tuple[str, str]:
        database, database_long = self.names[home]
        return f"influxdb+{self.server.url}", f'[influxdb]\ndatabase = "{database}"\ndatabase_long = "{database_long}"\n'

    def take_away(self, home: Path) -> None:
        self.server.stop()

    def bring_back(self, home: Path) -> None:
        self.server.start()
