"""A watchdog that starts while its store cannot be opened: it detects, pauses and tells people, and nothing is doubled afterwards."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest
from test_watchdog import Bench, NoCheckpoints

from trainvitals.alerts.outbox import Outbox
from trainvitals.control.records import ControlStatus
from trainvitals.control.request import history, read_request
from trainvitals.errors import StoreError
from trainvitals.settings import parse
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.alerting import Alerting
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.state_copy import FILE
from trainvitals.watch.watchdog import Watchdog


class Place(Bench):
    """With a pager, and a store whose directory may be a file."""

    def __init__(self, tmp_path, breaker="armed"):
        super().__init__(tmp_path, breaker)
        self.status = ControlStatus(understands=("save",))
        self.path = tmp_path / "store.db"
        target = {"kind": "webhook", "url": "http://127.0.0.1:1/", "allow_private": True}
        alerts = parse(
            {"alerts": {"outbox": str(tmp_path / "alerts.db"), "targets": {"pager": target}}}, str(tmp_path / "t.toml")
        )
        self.settings = replace(self.settings, alert_targets=alerts.alert_targets, alerts=alerts.alerts)
        self.outbox = Outbox(tmp_path / "alerts.db", self.clock)

    def begin(self):
        """As the command does it."""
        run = self.settings.runs[0]
        self.watchdog = Watchdog(
            self.settings, run, self.store, self.clock,
            sources=RunSources(run, self.clock, LocalProcessTable("node1", lambda pid: (True, None))),
            scanner=CheckpointScanner(NoCheckpoints(), self.clock, 10, in_thread=False),
            breaker=BreakerAction(run, lambda _dir: self.status), node="node1", say=self.said.append,
            alerts=Alerting(self.settings, run, self.outbox, self.clock, self.said.append),
        )  # fmt: skip
        try:
            self.watchdog.restore()
        except StoreError as error:
            self.watchdog.begin_without_store(str(error))
        return self.watchdog

    def take_store_away(self):
        for path in self.path.parent.glob("store.db*"):
            path.rename(path.with_name("kept-" + path.name))
        self.path.mkdir()

    def mend_store(self, *, is_new=False):
        self.path.rmdir()
        for path in self.path.parent.glob("kept-store.db*"):
            if is_new:
                path.unlink()
            else:
                path.rename(path.with_name(path.name.removeprefix("kept-")))

    def turns(self, count=3):
        for _ in range(count):
            self.clock.advance(1)
            self.watchdog.turn()

    def blow_up(self, first, count=6):
        for step in range(first, first + count):
            self.clock.advance(1)
            self.step(step, loss=math.nan)
            self.watchdog.turn()

    def told(self):
        """Of the loss; that nobody obeys the pause is another story, as no trainer runs here."""
        return [(one.kind, one.incident_id) for one in self.outbox.messages() if "/loss/" in one.incident_id]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.store.close()
    made.outbox.close()


def once(events):
    ids = [event.id for event in events]
    assert len(ids) == len(set(ids)), sorted(ids)
    return events


def check_that_it_was_told_once(place):
    assert read_request(place.dir).desired == "paused"
    assert len([one for one in history(place.dir) if one.source == "breaker"]) == 1
    assert len(place.told()) == 1
    (incident,) = [one for one in once(place.events("incident")) if one.data["family"] == "loss"]
    assert incident.data["id"] == place.told()[0][1]
    decisions = [one for one in once(place.events("breaker")) if one.data["decision"] in ("paused", "stale")]
    assert [one.data["decision"] for one in decisions] == ["paused"]


def test_the_first_start_ever_without_a_store_detects_pauses_and_tells_and_the_store_has_all_of_it_later(place):
    place.take_store_away()
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.blow_up(100)
    assert read_request(place.dir).desired == "paused", "the breaker needs no store"
    assert len(place.told()) == 1
    assert any("cannot be opened" in sentence for sentence in place.said) and place.watchdog.store_trouble
    place.mend_store()
    place.clock.advance(5)
    place.turns()
    assert place.watchdog.store_trouble == ""
    assert list(place.train_rows()["step"]) == list(range(106))
    check_that_it_was_told_once(place)


def test_a_start_without_the_store_that_knows_the_run_goes_on_from_the_copy_and_tells_nothing_again(place):
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.blow_up(100)
    place.clock.advance(11)
    place.turns()
    check_that_it_was_told_once(place)
    place.take_store_away()
    place.begin()
    place.train(106, 20, seed=2)
    place.turns()
    assert any("goes on from the copy" in sentence for sentence in place.said)
    place.mend_store()
    place.clock.advance(5)
    place.turns()
    assert list(place.train_rows()["step"]) == list(range(126))
    check_that_it_was_told_once(place)
    place.begin()
    place.turns()
    check_that_it_was_told_once(place)


def test_a_blow_up_while_the_store_is_away_after_a_restart_is_one_incident_and_one_message(place):
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.take_store_away()
    for _ in range(3):  # and the watchdog dies again and again meanwhile
        place.begin()
        place.turns(2)
    place.blow_up(100)
    place.begin()
    place.turns()
    assert len(place.told()) == 1
    place.mend_store()
    place.clock.advance(5)
    place.turns()
    assert list(place.train_rows()["step"]) == list(range(106))
    assert read_request(place.dir).desired == "paused"
    assert len(place.told()) == 1
    assert len(once(place.events("incident"))) == 1


def test_a_new_store_in_the_place_of_one_that_was_lost_gets_the_whole_history(place):
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.clock.advance(11)
    place.turns()
    place.take_store_away()
    place.begin()
    place.train(100, 10)
    place.turns()
    place.blow_up(110)
    place.mend_store(is_new=True)
    place.clock.advance(5)
    place.turns(5)
    assert list(place.train_rows()["step"]) == list(range(116))
    assert any("read again from the start" in event.text for event in place.events("watch"))
    check_that_it_was_told_once(place)


def test_a_damaged_store_is_waited_for_as_one_that_is_away(place):
    place.take_store_away()
    place.path.rmdir()
    place.path.write_bytes(os.urandom(8192))
    place.store = SqliteStore(place.path)
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    place.blow_up(100)
    assert len(place.told()) == 1
    place.path.unlink()
    place.clock.advance(5)
    place.turns()
    assert list(place.train_rows()["step"]) == list(range(106))
    check_that_it_was_told_once(place)


@pytest.mark.parametrize("harm", ["garbage", "of another run", "empty", "link", "written by others", "directory", "cut"])
def test_a_copy_that_cannot_be_trusted_is_left_alone_and_the_files_are_read_from_the_start(place, harm, tmp_path):
    place.begin()
    place.header()
    place.train(0, 60)
    place.turns()
    copy = place.dir / FILE
    assert copy.stat().st_mode & 0o777 == 0o600
    told = copy.read_bytes()
    if harm == "garbage":
        copy.write_bytes(os.urandom(3000))
    elif harm == "of another run":
        copy.write_bytes(told.replace(b'"r"', b'"other"', 1))
    elif harm == "empty":
        copy.write_bytes(b"")
    elif harm == "cut":
        copy.write_bytes(told[: len(told) // 2])
    elif harm == "link":
        copy.rename(tmp_path / "elsewhere")
        copy.symlink_to(tmp_path / "elsewhere")
    elif harm == "written by others":
        copy.chmod(0o666)
    else:
        copy.unlink()
        copy.mkdir()
    place.take_store_away()
    place.begin()
    place.train(60, 20)
    place.turns()
    place.mend_store()
    place.clock.advance(5)
    place.turns()
    assert list(place.train_rows()["step"]) == list(range(80))
    if harm != "cut":
        assert any(FILE in event.text for event in place.events("watch")), "why it is not used is said"


def test_a_store_that_is_away_is_tried_less_and_less_often_but_never_given_up(place):
    place.take_store_away()
    place.begin()
    place.header()
    place.train(0, 5)
    for _ in range(100):
        place.clock.advance(0.5)
        place.watchdog.turn()
    assert 10 <= place.watchdog.counters.commit_failures <= 20
    place.mend_store()
    place.clock.advance(5)
    place.watchdog.turn()
    assert len(place.train_rows()) == 5
