"""Stores that the contract suite runs on. Another store joins by one more factory here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainvitals.store.protocol import Store
from trainvitals.store.sqlite import SqliteStore


def sqlite_factory(directory: Path) -> Callable[[], Store]:
    """A fresh, empty SQLite store at each first call; later calls open the same one again."""
    return lambda: SqliteStore(directory / "store" / "contract.db")


FACTORIES = {"sqlite": sqlite_factory}


@pytest.fixture(params=sorted(FACTORIES))
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the test's store; every call is another client of the same data. All are closed at the end."""
    factory = FACTORIES[request.param](tmp_path)
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(factory())
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: Callable[[], Store]) -> Store:
    return open_again()
