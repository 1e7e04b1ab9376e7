"""From the spool to a store: order, refusals, outages, dead letters, several processes on one file."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spool_fakes import FakeStore, event, step, steps

from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError, StoreRejected, StoreUnavailable
from trainvitals.records import Point
from trainvitals.store.sink import spool_stats, waiting_s
from trainvitals.store.spool import Spool
from trainvitals.store.spool_codec import decode_batch
from trainvitals.store.spool_file import SpoolFile
from trainvitals.store.spool_shipper import LONGEST_PAUSE_S, BackOff, Outcome, Shipper, sift


def drain(shipper: Shipper) -> None:
    while (outcome := shipper.ship_once()) is Outcome.DELIVERED:
        continue
    assert outcome is Outcome.IDLE


def test_all_that_was_appended_arrives_once_and_leaves_the_file(file):
    store = FakeStore()
    for first in range(0, 1_000, 7):
        file.append(steps(first, 7), {})
    drain(Shipper(file, store))
    assert store.steps == list(range(1_001)) and file.is_empty()
    assert sum(map(len, store.requests)) == file.counters()["delivered"] == 1_001


def test_nothing_leaves_the_file_before_the_store_said_yes(file):
    store = FakeStore()
    file.append(steps(0, 10), {})
    store.on_write = lambda _: [None for _ in [file.counters()["waiting"] == 10 or pytest.fail("deleted too early")]]
    drain(Shipper(file, store))
    assert store.steps == list(range(10))


def test_after_an_outage_the_first_request_carries_the_newest_samples_and_the_oldest_events(file):
    store = FakeStore()
    store.is_away = True
    shipper = Shipper(file, store)
    for number in range(500):
        file.append([step(number), event(number, "e")], {})
    for _ in range(6):
        assert shipper.ship_once() is Outcome.FAILED
    assert shipper.fault == "The server cannot be reached."
    store.is_away = False
    shipper.ship_once()
    first = store.requests[0]
    assert max(point.fields["step"] for point in first if point.measurement == "train") == 499
    assert min(point.time_ns for point in first if point.measurement == "event") == 0
    assert shipper.fault == ""
    drain(shipper)
    assert store.steps == list(range(500)) and len(store.rows) == 1_000


def test_the_newest_jump_the_queue_every_few_requests_while_a_backlog_is_worked_off(file):
    store = FakeStore()
    shipper = Shipper(file, store)
    for number in range(1_000):
        file.append([step(number)], {})
    newest_first = []
    for _ in range(8):
        file.append([step(1_000 + len(newest_first))], {})
        shipper.ship_once()
        newest_first.append(1_000 + len(newest_first) in {point.fields["step"] for point in store.requests[-1]})
    assert newest_first == [True, False, False, False, True, False, False, False]


def test_a_later_state_of_an_event_is_never_overwritten_by_an_earlier_one(file):
    store = FakeStore()
    for version in range(500):
        file.append(
            [Point("event", {"run": "r", "kind": "incident", "source": "w"}, 1, {"severity": 0, "text": str(version)})], {}
        )
        seen = [int(row["text"]) for row in store.rows.values()]
        if version % 120 == 0:
            Shipper(file, store).ship_once()
            assert [int(row["text"]) for row in store.rows.values()] >= seen
    drain(Shipper(file, store))
    assert [row["text"] for row in store.rows.values()] == ["499"]


@pytest.mark.parametrize("partial", [True, False])
def test_bad_points_are_found_one_by_one_and_kept_with_the_reason(file, partial):
    bad = {3, 500, 501, 999}
    store = FakeStore(refuses=lambda point: point.fields["step"] in bad, partial=partial)
    for first in range(0, 1_000, 100):
        file.append(steps(first, 100), {})
    drain(Shipper(file, store))
    assert set(store.steps) == set(range(1_000)) - bad
    letters = file.dead_letters(100)
    assert [decode_batch(letter.body)[0].fields["step"] for letter in letters] == sorted(bad)
    assert all(letter.reason == "400: 1 lines are bad" and letter.points == 1 for letter in letters)
    count = file.counters()
    assert (count["delivered"], count["refused"], count["dead_letters"], count["waiting"]) == (996, 4, 4, 0)


@given(st.lists(st.booleans(), max_size=60), st.booleans())
def test_sifting_writes_every_good_point_and_names_every_bad_one(is_bad, partial):
    store = FakeStore(refuses=lambda point: is_bad[point.fields["step"]], partial=partial)
    found = sift(store.write, steps(0, len(is_bad)))
    assert [point.fields["step"] for point, _ in found] == [number for number, bad in enumerate(is_bad) if bad]
    assert store.steps == [number for number, bad in enumerate(is_bad) if not bad]


def test_a_batch_that_is_refused_as_a_whole_takes_no_request_a_point(file):
    requests = []

    def beyond_retention(points):
        requests.append(len(points))
        raise StoreRejected(f"partial write: points beyond retention policy dropped={len(points)}")

    store = FakeStore()
    store.on_write = beyond_retention
    file.append(steps(0, 900), {})
    drain(Shipper(file, store))
    assert len(requests) == 2 and file.counters()["dead_letters"] == 900


def test_an_outage_in_the_middle_of_sifting_leaves_nothing_twice_among_the_dead_letters(file):
    store = FakeStore(refuses=lambda point: point.fields["step"] % 50 == 0, partial=False)
    for first in range(0, 300, 30):
        file.append(steps(first, 30), {})
    calls = 0

    def away_now_and_then(_points):
        nonlocal calls
        calls += 1
        if calls % 17 == 0:
            raise StoreUnavailable("gone for a moment")

    store.on_write = away_now_and_then
    shipper = Shipper(file, store)
    outcomes = set()
    for _ in range(200):
        outcomes.add(shipper.ship_once())
    assert Outcome.FAILED in outcomes and file.is_empty()
    assert set(store.steps) == {number for number in range(300) if number % 50}
    dead = [decode_batch(letter.body)[0].fields["step"] for letter in file.dead_letters(100)]
    assert sorted(dead) == [0, 50, 100, 150, 200, 250]


def test_a_dead_letter_is_sent_again_or_forgotten_by_a_person(file):
    bad = {1, 2, 3}
    store = FakeStore(refuses=lambda point: point.fields["step"] in bad)
    file.append(steps(0, 5), {})
    shipper = Shipper(file, store)
    drain(shipper)
    one, two, _three = file.dead_letters(10)
    assert [letter.id for letter in file.dead_letters(10, after_id=one.id)] == [two.id, two.id + 1]
    bad.clear()
    assert file.resend([two.id]) == 1 and file.forget([one.id, 4_711]) == 1
    drain(shipper)
    assert store.steps == [0, 2, 4] and file.counters()["dead_letters"] == 1
    assert file.resend(None) == 1
    drain(shipper)
    assert store.steps == [0, 2, 3, 4]
    assert file.counters()["dead_letters"] == file.counters()["dead_letter_bytes"] == 0


def test_dead_letters_are_bounded_and_what_goes_is_counted(open_file):
    file = open_file(max_dead_letters=10)
    file.append(steps(0, 64), {})
    drain(Shipper(file, FakeStore(refuses=lambda _: True)))
    assert [decode_batch(letter.body)[0].fields["step"] for letter in file.dead_letters(100)] == list(range(54, 64))
    assert file.counters()["dead_letters_dropped"] == 54 == file.stats().dropped


def test_damaged_bytes_in_a_batch_become_a_dead_letter_and_the_rest_arrives(file):
    import sqlite3

    store = FakeStore()
    for first in range(0, 30, 10):
        file.append(steps(first, 10), {})
    connection = sqlite3.connect(file.path)
    connection.execute("UPDATE batch SET body = x'789c00' WHERE id = 2")
    connection.commit()
    connection.close()
    drain(Shipper(file, store))
    assert store.steps == [*range(10), *range(20, 30)]
    (letter,) = file.dead_letters(10)
    assert letter.points == 10 and "damaged" in letter.reason
    assert file.counters()["refused"] == 10


@pytest.mark.parametrize("error", [StoreError("the database does not exist"), RuntimeError("a bug in the client")])
def test_what_is_no_refusal_of_points_keeps_them_and_says_why(file, error):
    store = FakeStore()

    def fail(_points):
        raise error

    store.on_write = fail
    file.append(steps(0, 3), {})
    shipper = Shipper(file, store)
    assert shipper.ship_once() is Outcome.FAILED and str(error) in shipper.fault
    assert file.counters()["waiting"] == 3 and "dead_letters" not in file.counters()


def test_only_one_shipper_at_a_time_sends_from_a_file(file, open_file):
    store, other = FakeStore(), Shipper(open_file(), FakeStore())
    file.append(steps(0, 3), {})
    seen = []
    store.on_write = lambda _: seen.append(other.ship_once())
    drain(Shipper(file, store))
    assert seen == [Outcome.BUSY] and other.ship_once() is Outcome.IDLE


def test_pauses_double_up_to_a_bound_and_are_spread():
    back_off = BackOff(random.Random(1))
    pauses = [back_off.next_pause_s() for _ in range(40)]
    assert all(0.25 * 2**n <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses[:5]))
    assert all(LONGEST_PAUSE_S / 2 <= pause <= LONGEST_PAUSE_S for pause in pauses[7:])
    assert len({round(pause, 6) for pause in pauses[7:]}) > 20


def test_the_thread_delivers_by_itself_and_close_delivers_the_last_words(tmp_path):
    store, said = FakeStore(), []
    spool = Spool(SpoolFile(tmp_path / "a.spool"), store, said.append)
    spool.write(steps(0, 10))
    assert store.wait_for(10)
    spool.commit(steps(10, 1), {"k": b"v"})
    spool.close()
    assert store.steps == list(range(11)) and store.is_closed and said == []


def test_an_outage_is_said_once_and_its_end_once_and_appends_go_on(tmp_path):
    store, said = FakeStore(), []
    second_try = threading.Event()
    tries = []

    def count(_points):
        tries.append(1)
        if len(tries) >= 3:
            second_try.set()

    store.is_away, store.on_write = True, count
    spool = Spool(SpoolFile(tmp_path / "a.spool", ManualClock()), store, said.append)
    spool.write(steps(0, 10))
    assert second_try.wait(20)
    stats = spool.stats()
    assert stats.waiting == 10 and stats.fault == "The server cannot be reached."
    store.is_away = False
    assert store.wait_for(10)
    spool.close()
    assert said == [
        "the store takes nothing; points wait in the spool: The server cannot be reached.",
        "the store takes points again; what waited in the spool is being delivered.",
    ]


def test_closing_during_an_outage_does_not_wait_and_the_next_start_delivers(tmp_path):
    store = FakeStore()
    store.is_away = True
    spool = Spool(SpoolFile(tmp_path / "a.spool"), store, lambda _: None)
    spool.commit(steps(0, 5), {"watch/r/state": b"offsets"})
    spool.close()
    store.is_away = False
    again = Spool(SpoolFile(tmp_path / "a.spool"), store, lambda _: None)
    assert again.load_state("watch/r/") == {"watch/r/state": b"offsets"}
    assert store.wait_for(5)
    again.close()


def test_a_store_that_hangs_holds_up_neither_appends_nor_the_end(tmp_path):
    store, go_on, hangs = FakeStore(), threading.Event(), threading.Event()

    def hang(_points):
        hangs.set()
        go_on.wait(60)

    store.on_write = hang
    spool = Spool(SpoolFile(tmp_path / "a.spool"), store, lambda _: None)
    spool.write(steps(0, 5))
    assert hangs.wait(20)
    spool.write(steps(5, 5))
    spool.close(wait_s=0.05)
    assert not store.is_closed, "the store's client is still in use by the request that hangs"
    go_on.set()
    spool.close()
    assert store.steps == list(range(10)) and store.is_closed


def test_a_damaged_spool_is_said_once(tmp_path):
    said = []
    first = Spool(SpoolFile(tmp_path / "a.spool"), FakeStore(), said.append, start=False)
    first.write(steps(0, 5))
    first.close()
    (tmp_path / "a.spool").write_bytes(b"no database at all" * 500)
    spool = Spool(SpoolFile(tmp_path / "a.spool"), FakeStore(), said.append, start=False)
    spool.write(steps(5, 5))
    assert spool.stats().damaged_files == spool.stats().damaged_files == 1
    spool.close()
    assert len(said) == 1 and "was damaged and set aside as a.spool.damaged-" in said[0]


def test_a_closed_terminal_does_not_end_the_delivery(tmp_path, monkeypatch):
    closed = (tmp_path / "terminal").open("w")
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    store, third_try, tries = FakeStore(), threading.Event(), []

    def count(_points):
        tries.append(1)
        if len(tries) >= 3:  # the outage was to be said after the second
            third_try.set()

    store.is_away, store.on_write = True, count
    spool = Spool(SpoolFile(tmp_path / "a.spool"), store)
    spool.write(steps(0, 5))
    assert third_try.wait(20)
    store.is_away = False
    assert store.wait_for(5)
    spool.close()


def test_how_long_rows_wait_is_not_made_up_when_the_file_cannot_be_read(tmp_path):
    spool = Spool(SpoolFile(tmp_path / "a.spool"), FakeStore(), lambda _: None, start=False)
    assert waiting_s(spool) == 0.0
    (tmp_path / "a.spool").unlink()
    (tmp_path / "a.spool").mkdir()
    with pytest.raises(StoreUnavailable):
        waiting_s(spool)
    stats = spool_stats(spool)
    assert stats is not None and stats.fault
    spool.close()
