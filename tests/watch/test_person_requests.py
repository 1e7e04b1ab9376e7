"""What people ask of the watchdog is done once, answered, and survives a kill at the worst moment."""

from __future__ import annotations

import json
import zlib

import pytest
from test_watchdog import Bench

from trainvitals.control import inbox
from trainvitals.control.requests import Watcher, WatchRequest, new_id
from trainvitals.errors import StoreUnavailable
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch import requests as requests_module
from trainvitals.watch.requests import Requests


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.watchdog.turn()  # from now on it is known that somebody watches
    yield made
    made.store.close()


def ask(bench, **more):
    data = {"change": "data_mix", "text": "new mix", "step": 600} | more.pop("data", {})
    given = {"kind": "annotation", "by": "ana", "source": "ui", "clock": bench.clock} | more
    return inbox.submit(bench.dir, given.pop("run", "r"), data=data, **given)


def turn(bench, watchdog=None):
    bench.clock.advance(1)
    (watchdog or bench.watchdog).turn()


def notes_of(bench) -> int:
    """How many notes the detectors hold, as the committed state says."""
    state = bench.store.load_state("watch/r/")["watch/r/state"]
    return len(json.loads(zlib.decompress(state))["engine"]["_notes"])


def plant(bench, name: str, text: str) -> None:
    (bench.dir / "control" / "requests" / name).write_text(text)


def test_a_note_becomes_one_event_with_who_what_where_and_what_it_silences(bench):
    made = ask(bench, data={"points": 50, "rules": ["straggler"]})
    turn(bench)
    (event,) = bench.events("annotation")
    assert (event.step, event.text, event.source, event.id) == (600, "new mix", "ui", f"r/request/{made.id}")
    assert abs(event.time_ns - made.issued_at_ns) < 10**6
    assert {key: event.data[key] for key in ("change", "points", "rules", "by", "request")} == {
        "change": "data_mix", "points": 50, "rules": ["straggler"], "by": "ana", "request": made.id,
    }  # fmt: skip
    assert {"loss_spike", "straggler"} <= set(event.data["silenced"]) and "throughput_drop" not in event.data["silenced"]
    answer = inbox.answer_to(bench.dir, made)
    assert answer.outcome == "applied"
    assert answer.sentence.startswith("The note about data mix counts from step 600 on: for 50 points it silences loss_outlier,")
    assert inbox.listing(bench.dir).names == ()
    assert any("annotation: new mix" in said for said in bench.said)


def test_a_note_without_a_step_is_one_of_the_newest_step(bench):
    bench.header()
    bench.train(0, 30)
    bench.watchdog.turn()
    made = ask(bench, data={"step": None, "change": "note"})
    turn(bench)
    assert bench.events("annotation")[0].step == 29
    assert inbox.answer_to(bench.dir, made).sentence == "The note is kept at step 29; it silences nothing."


def test_the_right_rule_is_silenced_from_a_persons_request_to_the_stored_finding(bench):
    bench.header()
    bench.train(0, 600)
    bench.watchdog.turn()
    ask(bench)
    turn(bench)
    bench.train(600, 300, loss=2.6, seed=2)
    bench.watchdog.turn()
    assert [event for event in bench.events("finding") if event.data["rule"].startswith("loss_")] == []


def test_without_the_request_the_same_curve_is_an_alarm(bench):
    bench.header()
    bench.train(0, 600)
    bench.watchdog.turn()
    bench.train(600, 300, loss=2.6, seed=2)
    bench.watchdog.turn()
    assert any(event.data["rule"] == "loss_divergence" for event in bench.events("finding"))


def test_a_kill_between_the_commit_and_the_answer_applies_nothing_twice(bench, monkeypatch):
    made = ask(bench)
    with monkeypatch.context() as patched:
        patched.setattr(Requests, "settle", lambda self: None)  # killed here
        turn(bench)
    assert inbox.listing(bench.dir).names == (made.name,) and inbox.answer_to(bench.dir, made) is None
    again = bench.start()
    for _ in range(3):
        turn(bench, again)
        again.note("something to commit")
        turn(bench, again)
    assert len(bench.events("annotation")) == 1 and notes_of(bench) == 1
    assert inbox.listing(bench.dir).names == () and inbox.answer_to(bench.dir, made).outcome == "applied"


def test_a_kill_before_the_commit_loses_nothing(bench, monkeypatch):
    made = ask(bench)

    class Away:
        def __init__(self, store):
            self.store = store

        def load_state(self, prefix):
            return self.store.load_state(prefix)

        def commit(self, points, state):
            raise StoreUnavailable("away")

    killed = bench.start(Away(bench.store))
    turn(bench, killed)
    turn(bench, killed)
    assert inbox.listing(bench.dir).names == (made.name,) and bench.events("annotation") == []
    turn(bench, bench.start())
    assert len(bench.events("annotation")) == 1 and notes_of(bench) == 1
    assert inbox.answer_to(bench.dir, made).outcome == "applied"


def test_while_the_store_is_away_a_request_waits_and_is_taken_once(bench, monkeypatch):
    made = ask(bench)
    with monkeypatch.context() as patched:

        def away(*_args):
            raise StoreUnavailable("away")

        patched.setattr(bench.store, "commit", away)
        for _ in range(5):
            turn(bench)
        assert inbox.answer_to(bench.dir, made) is None
    bench.clock.advance(5)  # a store that was away is tried again after a pause
    turn(bench)
    assert len(bench.events("annotation")) == 1 and notes_of(bench) == 1
    assert inbox.answer_to(bench.dir, made).outcome == "applied"


def test_an_answered_request_that_is_put_back_is_taken_away_without_a_second_event(bench):
    made = ask(bench)
    turn(bench)
    for name in (made.name, f"17-{made.id}.json"):
        text = (
            made.to_json()
            if name == made.name
            else WatchRequest("annotation", "ana", "ui", made.data, "r", made.id, 17).to_json()
        )
        plant(bench, name, text)
    turn(bench)
    assert len(bench.events("annotation")) == 1 and notes_of(bench) == 1
    assert inbox.listing(bench.dir).names == ()
    assert inbox.answer_to(bench.dir, made).outcome == "applied"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (WatchRequest("format", "bob", "cli", {}, "r", new_id(), 10**18), "knows no requests of the kind 'format', only annotation"),
        (WatchRequest("annotation", "bob", "cli", {"text": "x"}, "other", new_id(), 10**18), "it is for the run 'other', this is 'r'"),
        (WatchRequest("annotation", "bob", "cli", {"text": "x", "step": -1}, "", new_id(), 10**18), "step must be a whole number"),
        (WatchRequest("annotation", "bob", "cli", {"text": "x", "change": "mood"}, "", new_id(), 10**18), "change must be one of"),
        (WatchRequest("annotation", "bob", "cli", {"text": ""}, "", new_id(), 10**18), "text must say"),
        (WatchRequest("annotation", "bob", "cli", {"text": "\x1b[2J"}, "", new_id(), 10**18), "control characters"),
        (WatchRequest("annotation", "bob", "cli", {"text": "\ud800"}, "", new_id(), 10**18), "control characters"),
        (WatchRequest("annotation", "bob", "cli", {"text": "x", "rules": ["loss_spyke"]}, "", new_id(), 10**18), "is loss_spike meant?"),
        (WatchRequest("annotation", "bob", "cli", {"text": "x", "points": 10**9}, "", new_id(), 10**18), "points must be"),
    ],
)  # fmt: skip
def test_what_is_refused_is_answered_and_told_in_an_event(bench, request_, why):
    plant(bench, request_.name, request_.to_json())
    for _ in range(2):
        turn(bench)
    answer = inbox.answer_to(bench.dir, request_)
    assert answer.outcome == "refused" and why in answer.sentence and answer.sentence.startswith("A request of bob was refused")
    (told,) = [event for event in bench.events("watch") if event.data.get("outcome") == "refused"]
    assert told.text == answer.sentence and told.data["request"] == request_.id and told.data["refused_requests"] == 1
    assert bench.events("annotation") == [] and inbox.listing(bench.dir).names == ()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"schema": 2}', "x" * 100_000])
def test_a_file_that_is_no_request_is_tried_three_times_then_refused_and_never_read_again(bench, text):
    name = f"{10**18}-{new_id()}.json"
    plant(bench, name, text)
    for _ in range(2):
        turn(bench)
        assert inbox.listing(bench.dir).names == (name,)
    for _ in range(3):
        turn(bench)
    assert inbox.listing(bench.dir).names == ()
    assert len([event for event in bench.events("watch") if event.data.get("outcome") == "refused"]) == 1


def test_a_request_that_was_still_being_written_is_taken_when_it_is_whole(bench):
    request_ = WatchRequest("annotation", "bob", "cli", {"text": "x", "step": 3}, "r", new_id(), 10**18)
    plant(bench, request_.name, request_.to_json()[:40])
    turn(bench)
    plant(bench, request_.name, request_.to_json())
    turn(bench)
    assert inbox.answer_to(bench.dir, request_).outcome == "applied"


def test_foreign_files_are_said_once_with_their_number_and_left_alone(bench):
    for name in ("one.txt", "two.txt"):
        plant(bench, name, "x")
    for _ in range(4):
        turn(bench)
    assert len([said for said in bench.said if "2 files there are no request and are left alone" in said]) == 1
    assert (bench.dir / "control" / "requests" / "one.txt").exists()


def test_a_flood_of_requests_is_taken_in_order_and_bit_by_bit(bench, monkeypatch):
    monkeypatch.setattr(requests_module, "MAX_A_LOOK", 3)
    made = []
    for number in range(8):
        bench.clock.advance(0.01)
        made.append(ask(bench, data={"step": number}))
    turn(bench)
    assert [event.step for event in bench.events("annotation")] == [0, 1, 2]
    turn(bench)
    turn(bench)
    assert [event.step for event in bench.events("annotation")] == list(range(8))


def test_a_disk_that_takes_no_answer_is_said_and_nothing_is_applied_twice(bench, monkeypatch):
    made = ask(bench)
    with monkeypatch.context() as patched:

        def full(*_args):
            raise OSError(28, "No space left on device")

        patched.setattr(inbox, "settle", full)
        for _ in range(4):
            turn(bench)
    assert len([said for said in bench.said if "carried out, but cannot be answered" in said]) == 1
    bench.watchdog.note("something to commit")
    turn(bench)
    assert inbox.answer_to(bench.dir, made).outcome == "applied"
    assert len(bench.events("annotation")) == 1 and notes_of(bench) == 1


def test_one_request_that_cannot_be_answered_keeps_no_other_from_its_answer(bench, monkeypatch):
    settle = inbox.settle

    def refuse_the_first(run_dir, answer):
        if answer.name == stuck.name:
            raise OSError(39, "Directory not empty")
        settle(run_dir, answer)

    stuck, other = ask(bench), ask(bench)
    monkeypatch.setattr(inbox, "settle", refuse_the_first)
    turn(bench)
    assert inbox.answer_to(bench.dir, stuck) is None and inbox.answer_to(bench.dir, other).outcome == "applied"
    assert len(bench.events("annotation")) == 2
    monkeypatch.undo()
    turn(bench)
    assert inbox.answer_to(bench.dir, stuck).outcome == "applied" and len(bench.events("annotation")) == 2


def test_notes_outlive_a_state_that_another_version_wrote(bench):
    ask(bench)
    turn(bench)
    bench.store.commit([], {"watch/r/state": zlib.compress(b'{"unknown": 1}')})
    again = bench.start()
    turn(bench, again)
    assert notes_of(bench) == 1 and len(bench.events("annotation")) == 1


def test_notes_outlive_the_store(bench, tmp_path):
    made = ask(bench)
    ask(bench, data={"points": -1})
    turn(bench)
    store = SqliteStore(tmp_path / "new.db")
    turn(bench, bench.start(store))
    (event,) = store.events("r", ["annotation"], 0, 2**62)
    store.close()
    assert (event.step, event.data["request"]) == (600, made.id)
    assert event == bench.events("annotation")[0]


def test_secrets_in_a_note_are_masked_before_anything_is_kept(bench):
    secret = "hf_abcdefghijklmnopqrstuvwxyzABCDEF12"
    made = ask(bench, data={"text": f"started with HF_TOKEN={secret}"})
    turn(bench)
    assert secret not in bench.events("annotation")[0].text
    kept = (bench.dir / "control" / "requests" / "answered" / made.name).read_text()
    assert secret not in kept and "started with" in kept
    assert secret not in " ".join(bench.said)


def test_the_longest_notes_of_any_script_are_kept_and_the_state_can_be_read_again(bench):
    made = ask(bench, by="🜁" * 200, data={"text": "password=🜂 " * 181, "rules": ["loss_*"] * 100})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Requests, "settle", lambda self: None)
        turn(bench)
    again = bench.start()
    turn(bench, again)
    again.note("something to commit")
    turn(bench, again)
    assert inbox.answer_to(bench.dir, made).outcome == "applied"
    assert not any("read again from the start" in said for said in bench.said)


def test_a_clock_of_the_asker_that_is_ahead_does_not_put_the_note_into_the_future(bench):
    made = WatchRequest("annotation", "bob", "cli", {"text": "x", "step": 3}, "r", new_id(), bench.clock.time_ns() + 10**13)
    plant(bench, made.name, made.to_json())
    turn(bench)
    assert bench.events("annotation")[0].time_ns <= bench.clock.time_ns()


def test_an_unsafe_directory_is_said_once_and_the_watch_goes_on(bench):
    (bench.dir / "control" / "requests").chmod(0o777)
    bench.header()
    bench.train(0, 20)
    for _ in range(3):
        turn(bench)
    assert len(bench.train_rows()) == 20
    assert len([said for said in bench.said if "requests of people cannot be read" in said]) == 1


def test_a_watchdog_that_ends_says_so_and_one_without_a_directory_asks_nobody(bench, tmp_path):
    assert inbox.why_not(bench.dir, "r", "annotation") == ""
    bench.watchdog.close()
    assert "Nobody watches" in inbox.why_not(bench.dir, "r", "annotation")
    nowhere = Requests("", "r")
    assert nowhere.poll(0.0, 0, None) == [] and nowhere.again() == []
    nowhere.settle()
    nowhere.close()
    inbox.announce(bench.dir, Watcher("r", ("annotation",)))
