"""The trainer hangs while the store is lost, or what was kept cannot be used: the history is read again, and the hang is told all the same."""

from __future__ import annotations

import json
import zlib

import pytest
from test_start_without_store import Place, once
from test_store_gone import delete

from trainvitals.watch.state_copy import FILE


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.begin()
    made.header()
    for step in range(120):
        made.clock.advance(1)
        made.step(step, loss=2.0)
        if step % 5 == 0:
            made.watchdog.turn()
    made.watchdog.turn()
    yield made
    made.store.close()
    made.outbox.close()


def silence(place, seconds):
    for _ in range(seconds // 10):
        place.clock.advance(10)
        place.watchdog.turn()


def told(place):
    return [one.incident_id for one in place.outbox.messages()]


def check_that_the_hang_is_told(place):
    (finding,) = [one for one in place.watchdog._engine.open_findings if one.rule == "stall"]
    assert finding.severity.value == "critical" and "is_history" not in finding.data
    (incident,) = [one for one in once(place.events("incident")) if "stall" in one.data["id"]]
    assert told(place) == [incident.data["id"]]


@pytest.mark.parametrize("silent_s", [20, 40, 100, 300])
def test_a_hang_is_told_once_whenever_the_store_is_deleted_during_it(place, silent_s):
    silence(place, silent_s)
    delete(place)
    silence(place, 600)
    check_that_the_hang_is_told(place)


def test_a_hang_is_told_when_the_store_is_deleted_and_the_watchdog_killed_during_it(place):
    silence(place, 40)
    delete(place)
    place.begin()
    silence(place, 600)
    check_that_the_hang_is_told(place)


def spoil(blob):
    state = json.loads(zlib.decompress(blob))
    state["engine"]["version"] = -1
    return zlib.compress(json.dumps(state).encode())


def test_a_hang_is_told_when_another_version_starts_during_it(place):
    silence(place, 40)
    ((key, blob),) = [one for one in place.store.load_state("watch/r/").items() if one[0].endswith("state")]
    place.store.commit([], {key: spoil(blob)})
    place.begin()
    silence(place, 600)
    assert any("the kept state could not be used" in said for said in place.said)
    check_that_the_hang_is_told(place)


def test_a_run_that_goes_on_is_no_hang_after_its_history_was_read_again(place):
    delete(place)
    for step in range(120, 320):
        place.clock.advance(1)
        place.step(step, loss=2.0)
        if step % 5 == 0:
            place.watchdog.turn()
    assert told(place) == [] and place.watchdog._engine.open_findings == []


def test_an_old_run_that_is_read_for_the_first_time_wakes_nobody(place):
    for path in place.path.parent.glob("store.db*"):
        path.unlink()
    (place.dir / FILE).unlink()
    place.clock.advance(86_400)
    place.begin()
    silence(place, 600)
    assert told(place) == []
