"""What the pages say of a run whose directory lies on another host: only what its watchdog told through the store."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control.mirror import Mirror
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.requests import Watcher
from trainvitals.errors import StoreUnavailable
from trainvitals.records import Event
from trainvitals.settings import parse
from trainvitals.store.encode import event_point
from trainvitals.store.request_rows import control_point
from trainvitals.store.sqlite import SqliteStore
from trainvitals.web import remote
from trainvitals.web.poller import Poller
from trainvitals.web.remote import FarReader

S = 10**9
NOW_NS = 1_767_323_045 * S
PAUSED = Mirror(
    ControlRequest(run="r", seq=4, desired="paused", by="ana", source="ui", reason="spike", action="pause", issued_at_ns=NOW_NS),
    ControlStatus(run="r", state="paused", desired="paused", ack_seq=4, applied_seq=4, applied_at_step=70, checkpoint_step=70,
                  by="ana", source="ui", reason="spike", heartbeat_ns=NOW_NS, since_ns=NOW_NS),
    0.4, Watcher("r", ("pause",), "node1", 7, "armed"), Watcher("r", ("rollback",), "node2", 8),
)  # fmt: skip


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "store.db")
    yield made
    made.close()


@pytest.fixture
def settings(tmp_path):
    run = {"name": "r", "dir": str(tmp_path / "not-here"), "control_road": "store"}
    return parse({"store": f"sqlite://{tmp_path}/store.db", "runs": [run]})


def told(store, settings, now_ns, mirror=None, at_ns=None, reader=None):
    if mirror is not None:
        store.write([control_point("r", now_ns if at_ns is None else at_ns, mirror.request.seq, mirror.to_text())])
    return (reader or FarReader()).read(store, settings.runs[0], now_ns)


def test_the_state_is_the_trainers_own_with_how_old_the_watchdogs_word_is(store, settings):
    found = told(store, settings, NOW_NS + 3 * S, PAUSED, NOW_NS)
    assert found.control.sentence == "Paused at step 70, checkpoint 70 (ana: spike). As the watchdog on node1 told 3 s ago."
    assert (found.control.state, found.control.seq, found.control.supervisor, found.breaker) == ("paused", 4, "node2", "armed")
    assert found.control.can_act and found.control.heartbeat_age_s == pytest.approx(3.4)


def test_a_watchdog_that_tells_nothing_any_more_is_what_the_sentence_is_about(store, settings):
    found = told(store, settings, NOW_NS + 90 * S, PAUSED, NOW_NS).control
    assert found.state == "silent" and found.supervisor == ""
    assert found.sentence.startswith(
        "The watchdog on node1 has told nothing of this run for 1 min 30 s. It last said: paused at step 70"
    )


def test_a_trainer_that_is_silent_is_told_as_such_by_a_watchdog_that_is_not(store, settings):
    found = told(store, settings, NOW_NS + S, replace(PAUSED, heartbeat_age_s=40.0), NOW_NS).control
    assert found.state == "silent" and found.sentence.startswith("No heartbeat from the trainer for 41 s")


@pytest.mark.parametrize("ahead_s", [-3_000, 3_000])
def test_a_clock_that_stands_elsewhere_makes_nobody_silent_once_a_second_row_came(store, settings, ahead_s):
    reader = FarReader()
    for at_s in (0, 5):
        row_ns = NOW_NS + (at_s + ahead_s) * S
        found = told(store, settings, NOW_NS + at_s * S, PAUSED, row_ns, reader)
    assert found.control.state == "paused" and "told 0 s ago" in found.control.sentence
    assert told(store, settings, NOW_NS + 12 * S, reader=reader).control.sentence.endswith("told 7 s ago.")
    assert told(store, settings, NOW_NS + 50 * S, reader=reader).control.state == "silent"


def test_a_run_of_which_nothing_was_told_offers_no_button_and_says_what_to_do(store, settings):
    store.write([event_point("r", Event("watch", NOW_NS, id="x"))])
    found = told(store, settings, NOW_NS).control
    assert (found.state, found.can_act) == ("unreadable", False) and 'control_road = "store"' in found.sentence


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "refused": [], "history": []}'])
def test_what_cannot_be_read_is_a_sentence(store, settings, text):
    store.write([control_point("r", NOW_NS, 1, text)])
    assert told(store, settings, NOW_NS).control.state == "unreadable"


def test_a_store_of_an_older_program_has_no_such_table_and_breaks_no_page(tmp_path, store, settings):
    store.write([event_point("r", Event("watch", NOW_NS, id="x"))])
    with sqlite3.connect(tmp_path / "store.db") as raw:
        for table in ("control", "control_last", "requests"):
            raw.execute(f'DROP TABLE "{table}"')
    raw.close()
    reading = SqliteStore(tmp_path / "store.db", read_only=True)
    assert told(reading, settings, NOW_NS).control.state == "unreadable"
    reading.close()


def test_the_poller_opens_no_directory_of_such_a_run(store, settings):
    def never(*_):
        raise AssertionError("the run directory is on another host")

    store.write([control_point("r", NOW_NS, 4, replace(PAUSED, history=(PAUSED.request,)).to_text())])
    poller = Poller(settings, lambda: store, never, never, ManualClock(NOW_NS + S), never, never, never)
    poller.tick()
    snapshot = poller.snapshot()
    run = snapshot.run("r")
    assert snapshot.error == "" and run.control.state == "paused" and run.settings.breaker == "armed"
    assert run.breaker_of_settings == "dry-run" and "on another host" in run.audit.state
    assert [event.data["by"] for event in run.control_history] == ["ana"]


def test_a_request_is_sent_until_the_watchdogs_own_event_says_more(store, settings):
    store.write([control_point("r", NOW_NS, 4, PAUSED.to_text())])
    events = [
        Event("control", NOW_NS, id="a", source="watch", text="pause asked by ana", data={"request": "one", "outcome": "applied"}),
        Event("watch", NOW_NS, id="b", source="watch", text="A signed request was refused.", data={"request": "two", "outcome": "refused"}),
    ]  # fmt: skip
    store.write([event_point("r", event) for event in events])
    poller = Poller(settings, lambda: store, lambda *_: "", lambda *_: None, ManualClock(NOW_NS + S))
    poller.tick()
    run = poller.snapshot().run("r")
    said = [remote.fate(run, request_id, NOW_NS, NOW_NS + late_s * S) for request_id, late_s in
            (("one", 1), ("two", 1), ("three", 1), ("three", 60))]  # fmt: skip
    assert said[:3] == [
        "Applied: pause asked by ana",
        "Refused. A signed request was refused.",
        "Sent; waiting for the watchdog.",
    ]
    assert said[3].startswith("Sent 1 min 0 s ago and not applied yet")


def test_a_store_that_takes_nothing_is_told_as_not_known_for_it_may_have_taken_it(settings, tmp_path, monkeypatch):
    class Away:
        def write(self, points):
            raise StoreUnavailable("the store is away")

        def close(self):
            pass

    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    monkeypatch.setattr(remote, "open_store", lambda *_, **__: Away())
    monkeypatch.setenv("TRAINVITALS_REQUEST_KEY", "k" * 40)
    with pytest.raises(StoreUnavailable, match=r"It is not known .* the store is away"):
        remote.send(settings, settings.runs[0], kind="pause", who=remote.Identity("ana"), data={"reason": "x"})
