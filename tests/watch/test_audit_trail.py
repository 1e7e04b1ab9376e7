"""What the watchdog adds to the audit: each answer once, however often it starts, and the head as an event of the store."""

from __future__ import annotations

import math

import pytest
from test_watchdog import Bench

from trainvitals.control import audit, files, inbox
from trainvitals.control.audit import Head, append, newest
from trainvitals.control.audit_chain import Anchor, verify
from trainvitals.control.audited import ask, ask_watchdog
from trainvitals.control.records import ControlStatus
from trainvitals.records import Finding, Severity
from trainvitals.store.sqlite import SqliteStore
from trainvitals.watch.breaker_action import BreakerAction


@pytest.fixture
def bench(tmp_path, request):
    made = Bench(tmp_path, **getattr(request, "param", {}))
    made.watchdog.turn()
    yield made
    made.store.close()


def turn(bench):
    bench.clock.advance(1.1)
    bench.watchdog.turn()


def says(bench, **status):
    told = ControlStatus(run="r", attempt=1, pid=7, host="n1", heartbeat_ns=bench.clock.time_ns(), **status)
    files.make_directories(bench.dir)
    files.replace(files.control_dir(bench.dir) / files.STATUS_FILE, told.to_json().encode(), files.STATUS_MODE)


def pause(bench):
    return ask(bench.dir, "r", action="pause", by="ana", source="cli", reason="spike", clock=bench.clock).request


def kinds(bench):
    return [record.kind for record in newest(bench.dir, 100)]


def test_acknowledged_and_applied_are_told_once_each_over_restarts(bench):
    request = pause(bench)
    says(bench, state="pausing", ack_seq=1, ack_request_id=request.request_id)
    turn(bench)
    bench.start()
    turn(bench)
    says(bench, state="paused", desired="paused", ack_seq=1, ack_request_id=request.request_id, applied_seq=1, applied_at_step=42)
    turn(bench)
    bench.start()
    turn(bench)
    turn(bench)
    assert kinds(bench) == ["request", "acknowledged", "applied"]
    acknowledged, applied = newest(bench.dir, 2)
    assert (acknowledged.data["seq"], acknowledged.data["request_n"]) == (1, 1)
    assert acknowledged.data["after_s"] == pytest.approx(1.1)
    assert (applied.data["step"], applied.by) == (42, "trainer 7 on n1")
    assert verify(bench.dir).is_intact


def test_a_refusal_is_told_with_its_reason(bench):
    request = pause(bench)
    says(bench, ack_seq=1, ack_request_id=request.request_id, applied_seq=1, refused_seq=1, refusal="no checkpoint callback")
    turn(bench)
    assert kinds(bench) == ["request", "acknowledged", "refused"]
    assert newest(bench.dir, 1)[0].data["refusal"] == "no checkpoint callback"


def test_a_kill_after_the_record_and_before_the_commit_tells_nothing_twice(bench):
    says(bench, ack_seq=3, ack_request_id="x")
    bench.watchdog._audit.poll(1e9)
    bench.start()
    turn(bench)
    assert kinds(bench) == ["acknowledged"]


def test_the_head_is_kept_in_the_store_once_so_that_a_cut_end_is_found(bench):
    pause(bench)
    append(bench.dir, "note", by="a", source="cli", data={}, clock=bench.clock)
    turn(bench)
    bench.start()
    turn(bench)
    heads = bench.events("audit")
    assert [event.data["n"] for event in heads] == [2]
    path = bench.dir / "control" / "audit.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert verify(bench.dir).is_intact
    anchors = [Anchor(Head(event.data["n"], event.data["hash"]), "the store") for event in heads]
    assert verify(bench.dir, anchors).broken_n == 2


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
def test_what_the_breaker_decided_and_asked_for_is_told_once(bench):
    bench.status = ControlStatus()
    bench.header()
    bench.train(0, 120)
    bench.watchdog.turn()
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    bench.start()
    turn(bench)
    told = {record.kind: record for record in newest(bench.dir, 100)}
    assert kinds(bench).count("breaker") == kinds(bench).count("request") == 1
    assert (told["request"].by, told["request"].data["action"]) == ("breaker", "pause")
    assert told["breaker"].data["decision"] == "paused"


def test_a_note_and_its_answer_are_told(bench):
    data = {"change": "data_mix", "text": "new mix", "step": 6}
    asked = ask_watchdog(bench.dir, "r", kind="annotation", by="ana", source="ui", data=data, clock=bench.clock)
    turn(bench)
    request, answer = newest(bench.dir, 2)
    assert (request.kind, request.data["request"]) == ("request", asked.id)
    assert (answer.kind, answer.data["request"], answer.data["outcome"], answer.data["asked_by"]) == (
        "answer", asked.id, "applied", "ana",
    )  # fmt: skip


def test_a_disk_that_takes_nothing_is_told_and_what_waited_is_written_later(bench, monkeypatch):
    lock = files.control_dir(bench.dir) / "audit.lock"
    says(bench, ack_seq=3, ack_request_id="x")
    lock.mkdir()
    turn(bench)
    assert any("not in the audit yet (1 wait)" in sentence for sentence in bench.said)
    assert any("not in the audit yet" in event.text for event in bench.events("watch"))
    lock.rmdir()
    bench.clock.advance(10)
    turn(bench)
    assert kinds(bench) == ["acknowledged"]
    assert bench.watchdog._audit.trouble == ""


def test_what_waits_is_bounded_and_what_is_given_up_is_counted(bench, monkeypatch):
    monkeypatch.setattr("trainvitals.watch.audit_trail.MAX_WAITING", 2)
    lock = files.control_dir(bench.dir) / "audit.lock"
    lock.mkdir()
    for seq in range(1, 6):
        says(bench, ack_seq=seq, ack_request_id=f"x{seq}")
        turn(bench)
    assert bench.watchdog._audit.lost == 3
    bench.clock.advance(10)
    turn(bench)
    assert "3 records were given up" in bench.watchdog._audit.trouble
    lock.rmdir()
    bench.clock.advance(10)
    turn(bench)
    assert [record.data["seq"] for record in newest(bench.dir, 9)] == [4, 5]


# -- arming -----------------------------------------------------------------------------------------------------------


def arm(bench, mode, reason="watching the ramp"):
    data = {"mode": mode, "reason": reason}
    return ask_watchdog(bench.dir, "r", kind="breaker", by="ana", source="ui", data=data, clock=bench.clock)


def test_a_breaker_is_armed_by_a_request_and_stays_so_over_restarts(bench):
    asked = arm(bench, "armed")
    turn(bench)
    assert inbox.answer_to(bench.dir, asked).sentence.startswith("The breaker of this run is armed now; it was dry-run.")
    bench.start()
    bench.clock.advance(6)
    bench.watchdog.turn()
    assert inbox.watcher_of(bench.dir).breaker == "armed"
    event = bench.events("breaker")[-1]
    assert (event.data["decision"], event.data["mode"], event.data["by"]) == ("mode", "armed", "ana")
    assert kinds(bench) == ["request", "breaker_mode"]
    bench.status = ControlStatus()
    bench.header()
    bench.train(0, 120)
    bench.watchdog.turn()
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    assert bench.events("breaker")[-1].data["decision"] == "paused"


@pytest.mark.parametrize("bench", [{"breaker": "armed"}], indirect=True)
@pytest.mark.parametrize("mode", ["off", "dry-run"])
def test_a_breaker_that_was_disarmed_pauses_nobody(bench, mode):
    arm(bench, mode)
    turn(bench)
    bench.status = ControlStatus()
    bench.header()
    bench.train(0, 120)
    bench.watchdog.turn()
    bench.train(120, 4, loss=math.nan)
    bench.watchdog.turn()
    assert not any(event.data["decision"] == "paused" for event in bench.events("breaker"))
    assert "request" in kinds(bench)
    assert sum(record.data.get("action") == "pause" for record in newest(bench.dir, 99)) == 0


def test_the_newest_mode_counts_when_the_store_is_a_new_one(bench, tmp_path):
    arm(bench, "armed")
    turn(bench)
    arm(bench, "off")
    turn(bench)
    fresh = SqliteStore(tmp_path / "new.db")
    bench.start(fresh)
    assert bench.watchdog._mode.mode == "off"
    fresh.close()


@pytest.mark.parametrize(
    ("mode", "reason", "says_what"),
    [
        ("on", "why", "mode must be one of"),
        ("armed", "", "reason is missing"),
        ("armed", "x\0", "control characters"),
    ],
)
def test_what_is_no_mode_or_has_no_reason_is_refused(bench, mode, reason, says_what):
    asked = arm(bench, mode, reason)
    turn(bench)
    answer = inbox.answer_to(bench.dir, asked)
    assert answer.outcome == "refused"
    assert says_what in answer.sentence
    assert bench.watchdog._mode.mode == "dry-run"


def test_a_pause_of_the_breaker_is_not_held_up_by_an_audit_that_takes_nothing(bench):
    files.make_directories(bench.dir)
    (files.control_dir(bench.dir) / audit.AUDIT_FILE).mkdir()
    action = BreakerAction(bench.settings.runs[0], lambda _: ControlStatus())
    action.mode = "armed"
    trip = Finding("f", "breaker_trip", "breaker", Severity.CRITICAL, 1, 1, 1, 1, None, None, None, "nan")
    event = action.carry_out(trip, 1, bench.clock.time_ns())
    assert event.data["decision"] == "paused"
    assert "not in the audit" in event.text
