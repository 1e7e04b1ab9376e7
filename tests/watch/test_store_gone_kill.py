"""The store's file is deleted or replaced, and the watchdog is killed, or the new file takes nothing, before the history is read again."""

from __future__ import annotations

import shutil

import pytest
from test_start_without_store import Place
from test_store_gone import delete

from trainvitals.errors import StoreUnavailable
from trainvitals.watch import outgoing


class Full:
    """A store that takes nothing while ``is_full``."""

    def __init__(self, inner):
        self.inner, self.is_full = inner, False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def commit(self, points, state):
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        self.inner.commit(points, state)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.begin()
    made.header()
    made.train(0, 50)
    made.turns()
    yield made
    made.store.close()
    made.outbox.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_watchdog_that_is_killed_before_it_saw_that_the_store_is_a_new_one_loses_no_step(place, turns):
    delete(place)
    place.train(50, 5, seed=2)
    place.turns(turns)
    place.begin()
    place.turns(4)
    assert list(place.train_rows()["step"]) == list(range(55))
    assert any("read again from the start" in event.text for event in place.events("watch"))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_watchdog_that_is_killed_after_a_backup_was_put_back_loses_no_step(place, turns, tmp_path):
    with place.store._connections.lend() as (connection, _):
        connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    place.train(50, 50, seed=2)
    place.turns()
    delete(place)
    shutil.copy(tmp_path / "backup.db", place.path)
    place.train(100, 5, seed=3)
    place.turns(turns)
    place.begin()
    place.turns(4)
    assert list(place.train_rows()["step"]) == list(range(105))


def test_a_new_file_that_takes_nothing_for_longer_than_memory_holds_gets_everything_later(place, monkeypatch):
    monkeypatch.setattr(outgoing, "MAX_PENDING_POINTS", 100)
    place.store = Full(place.store)
    place.begin()
    place.turns()
    delete(place)
    place.train(50, 1)
    place.turns()
    place.store.is_full = True
    for part in range(10):
        place.train(51 + 20 * part, 20, seed=part)
        place.turns(1)
    place.store.is_full = False
    for _ in range(6):
        place.clock.advance(10)
        place.watchdog.turn()
    assert list(place.train_rows()["step"]) == list(range(251))
