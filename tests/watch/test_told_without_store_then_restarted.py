"""What was told while the store took nothing is in the store one day, also after a restart or a kill; and what the breaker decided, too."""

from __future__ import annotations

import json

import pytest
from test_start_without_store import Place, check_that_it_was_told_once, once
from test_store_gone import delete
from test_store_gone_kill import Full

from trainvitals.watch import ahead
from trainvitals.watch.ahead import NUMBER, number_of, pack_waiting, unpack_waiting
from trainvitals.watch.kept_state import packed, unpacked
from trainvitals.watch.state_copy import FILE


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.store = Full(made.store)
    made.begin()
    made.header()
    made.train(0, 100)
    made.turns()
    yield made
    made.store.close()
    made.outbox.close()


def hang_and_go_on(place):
    """A hang that is told, and is over: the log shows nothing of it but a gap."""
    for _ in range(60):
        place.clock.advance(30)
        place.watchdog.turn()
    assert stalls(place.outbox.messages())
    place.train(100, 30, seed=3)
    place.turns(5)


def stalls(messages):
    return {one.incident_id for one in messages if "/stall/" in one.incident_id}


def incidents(place):
    return {one.data["id"]: one.data for one in once(place.events("incident"))}


def end(place, how):
    """The watchdog ends."""
    if how == "stopped":
        place.watchdog.last_turn()
        place.watchdog.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_a_hang_that_was_told_and_is_over_is_in_the_store_after_restarts_without_it(place, how, restarts):
    place.store.is_full = True
    hang_and_go_on(place)
    for _ in range(restarts):
        end(place, how)
        place.begin()
        place.turns(2)
    place.store.is_full = False
    place.clock.advance(10)
    place.turns(4)
    told = stalls(place.outbox.messages())
    assert told and told <= set(incidents(place))
    assert all(incidents(place)[identifier]["closed_at_ns"] is not None for identifier in told)
    assert list(place.train_rows()["step"]) == list(range(130))
    assert len(once(place.events("alert"))) == len(place.outbox.messages())
    assert json.loads((place.dir / FILE).read_bytes().partition(b"\n")[0])["schema"] == 1


def test_a_hang_that_was_told_is_in_the_store_when_the_next_start_cannot_open_it_and_it_is_mended_later(place):
    place.store.is_full = True
    hang_and_go_on(place)
    place.store.is_full = False
    place.take_store_away()
    place.begin()
    place.turns(2)
    place.begin()
    place.turns(2)
    place.mend_store()
    place.clock.advance(10)
    place.turns(4)
    assert stalls(place.outbox.messages()) <= set(incidents(place))
    assert list(place.train_rows()["step"]) == list(range(130))


def test_a_hang_that_was_told_on_the_first_day_without_any_store_is_in_the_first_store(tmp_path):
    place = Place(tmp_path)
    place.take_store_away()
    place.begin()
    place.header()
    place.train(0, 100)
    place.turns()
    hang_and_go_on(place)
    place.begin()
    place.turns(2)
    place.mend_store()
    place.begin()
    place.turns(4)
    assert stalls(place.outbox.messages()) <= set(incidents(place))
    assert list(place.train_rows()["step"]) == list(range(130))
    place.store.close()
    place.outbox.close()


def test_what_the_breaker_decided_without_a_store_is_in_it_after_a_restart_a_long_time_later(place):
    place.store.is_full = True
    place.blow_up(100)
    place.begin()
    place.clock.advance(600)
    place.turns(2)
    place.store.is_full = False
    place.clock.advance(10)
    place.turns(4)
    check_that_it_was_told_once(place)


@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_the_breaker_decided_is_in_a_store_that_takes_the_place_of_one_that_was_lost(place, is_restarted):
    place.blow_up(100)
    place.turns(3)
    place.clock.advance(600)
    place.turns(1)
    place.watchdog.last_turn()
    if is_restarted:
        place.take_store_away()
        place.mend_store(is_new=True)
        place.begin()
    else:
        delete(place)
    place.turns(4)
    check_that_it_was_told_once(place)


def test_a_kill_between_the_commit_and_the_next_copy_brings_no_older_row_back(place):
    place.store.is_full = True
    place.blow_up(100)
    old = (place.dir / FILE).read_bytes()
    assert json.loads(old.partition(b"\n")[0])["schema"] == 2
    place.store.is_full = False
    place.clock.advance(10)
    place.turns(2)
    place.train(106, 60, seed=4)
    place.clock.advance(400)
    place.turns(6)
    before = incidents(place)
    (place.dir / FILE).write_bytes(old)
    place.begin()
    place.turns(3)
    after = incidents(place)
    assert {one: after[one]["closed_at_ns"] for one in before} == {one: before[one]["closed_at_ns"] for one in before}
    check_that_it_was_told_once(place)


def test_what_finds_no_room_beside_the_copy_is_the_oldest_and_is_counted(place, monkeypatch):
    monkeypatch.setattr(ahead, "MAX_POINTS", 3)
    place.store.is_full = True
    place.blow_up(100)
    place.watchdog.last_turn()
    place.begin()
    place.store.is_full = False
    place.clock.advance(10)
    place.turns(3)
    assert place.watchdog.counters.events_not_kept > 0
    assert any("lost in a restart" in sentence for sentence in place.said)
    assert list(place.train_rows()["step"]) == list(range(106))


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_file_that_was_cut_is_not_used_and_the_run_is_watched_all_the_same(place, cut):
    place.store.is_full = True
    place.blow_up(100)
    whole = (place.dir / FILE).read_bytes()
    (place.dir / FILE).write_bytes(whole[: int(len(whole) * cut)])
    place.store.is_full = False
    place.begin()
    place.turns(4)
    assert list(place.train_rows()["step"]) == list(range(106))
    assert any(FILE in sentence for sentence in place.said)


def test_waiting_points_are_the_same_afterwards_and_the_newest_stay_where_room_is_short(place):
    place.store.is_full = True
    place.blow_up(100)
    points = place.watchdog._out.waiting_others()
    assert list(unpack_waiting(pack_waiting(points, 1 << 20)).points) == points
    short = unpack_waiting(pack_waiting(points, 600))
    assert short.left_out + len(short.points) == len(points)
    assert list(short.points) == points[short.left_out :]


def test_a_state_without_a_number_is_older_than_any_with_one_and_newer_than_none():
    assert number_of(None) < number_of(packed({})) < number_of(packed({NUMBER: 1}))
    assert number_of(b"garbage") == number_of(packed([])) == 0
    assert unpacked(packed({NUMBER: 1})) == {NUMBER: 1}
