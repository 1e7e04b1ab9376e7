"""The store's file is deleted or replaced under a running watchdog: it is said, the history is read again, and nothing is told twice."""

from __future__ import annotations

import shutil

import pytest
from test_start_without_store import Place, check_that_it_was_told_once, once

from trainvitals.control.request import history, read_request
from trainvitals.records import Severity
from trainvitals.store.spool import Spool
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.store_gone import STORE_REPLACED
from trainvitals.web.lost import reading_health


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.store.close()
    made.outbox.close()


def delete(place):
    for path in place.path.parent.glob("store.db*"):
        path.unlink()


def notes(place):
    return [event for event in once(place.events("watch")) if STORE_REPLACED in event.data]


def test_a_deleted_store_is_said_and_its_history_is_read_again_from_the_files(place):
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.blow_up(100)
    check_that_it_was_told_once(place)
    delete(place)
    place.train(106, 10, seed=2)
    place.turns(4)
    assert list(place.train_rows()["step"]) == list(range(116))
    assert read_request(place.dir).desired == "paused"
    assert len([one for one in history(place.dir) if one.source == "breaker"]) == 1
    (incident,) = [one for one in once(place.events("incident")) if one.data["family"] == "loss"]
    assert [identifier for _, identifier in place.told()] == [incident.data["id"]]
    (note,) = notes(place)
    assert note.severity is Severity.WARNING
    assert any("was deleted or replaced" in sentence for sentence in place.said)
    assert str(place.path) in reading_health(0, place.events("watch"))


def test_a_backup_that_is_put_back_under_the_watchdog_is_filled_up_to_now(place, tmp_path):
    place.begin()
    place.header()
    place.train(0, 50)
    place.turns()
    with place.store._connections.lend() as (connection, _):
        connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    place.train(50, 50)
    place.turns()
    delete(place)
    shutil.copy(tmp_path / "backup.db", place.path)
    place.train(100, 5)
    place.turns(4)
    assert list(place.train_rows()["step"]) == list(range(105))
    assert len(notes(place)) == 1


def test_a_store_that_was_never_there_or_comes_later_is_no_loss(place):
    place.take_store_away()
    place.store.close()
    place.store = SqliteStore(place.path)
    place.begin()
    place.header()
    place.train(0, 20)
    place.turns()
    place.mend_store(is_new=True)
    place.clock.advance(5)
    place.turns()
    assert list(place.train_rows()["step"]) == list(range(20))
    assert notes(place) == []


def test_each_loss_is_said_once_and_a_start_says_none(place):
    place.begin()
    place.header()
    for part in range(3):
        place.train(part * 10, 10)
        place.turns()
        delete(place)
    place.train(30, 10)
    place.turns(4)
    assert [note.data[STORE_REPLACED] for note in notes(place)] == [3]  # what was said before went with its file
    place.begin()
    place.turns()
    assert len(notes(place)) == 1


def test_rows_that_waited_in_a_deleted_spool_are_read_again(place, tmp_path):
    far = SqliteStore(tmp_path / "far.db")
    file = SpoolFile(tmp_path / "spool" / "watch.spool", place.clock)
    spool = Spool(file, far, place.said.append, start=False)
    place.start(spool)
    place.header()
    place.train(0, 30)
    place.turns()
    for path in file.path.parent.glob("watch.spool*"):
        path.unlink()
    place.train(30, 10)
    place.turns(4)
    assert spool.ship_until_empty(50)
    assert list(far.raw("train", ["step"], {"run": "r"}, 0, 2**62)["step"]) == list(range(40))
    assert [event.severity for event in far.events("r", ("watch",), 0, 2**62) if STORE_REPLACED in event.data] == [
        Severity.WARNING
    ]
    spool.close()
