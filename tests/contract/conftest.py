"""Stores that the contract suite runs on. Another store joins by one more name here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services.fixtures import INFLUX_STORES, MakePlace
from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore

STORES = ("sqlite", *INFLUX_STORES)


@pytest.fixture(params=STORES)
def open_again(request: pytest.FixtureRequest, make_influx_place: MakePlace, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; every call is another client of the same data. All are closed at the end."""
    if request.param != "sqlite":
        yield make_influx_place(request.param).open
        return
    opened: list[SqliteStore] = []

    def open_one() -> Store:
        opened.append(SqliteStore(tmp_path / "store" / "contract.db"))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: Callable[[], Store]) -> Store:
    return open_again()
