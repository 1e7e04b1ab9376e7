"""The outbox: nothing lost, nothing claimed twice, in order within an incident, whatever the clocks do."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from notices import notice

from trainvitals.alerts import outbox as outbox_module
from trainvitals.alerts import outbox_tables
from trainvitals.alerts.back_off import wait_s
from trainvitals.alerts.outbox import LEASE_S, LONGEST_HOLD_S, MOST_CLAIMS_WITHOUT_ANSWER, Outbox
from trainvitals.alerts.outbox_rows import bounded, message_id
from trainvitals.clock import ManualClock
from trainvitals.errors import StoreError
from trainvitals.store import sqlite_connection

MANY = 10_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def outbox(tmp_path, clock):
    made = Outbox(tmp_path / "alerts.db", clock, boot="boot-1")
    yield made
    made.close()


def deliver(outbox, target="t"):
    """The id of the next message, delivered; "" when there is none."""
    claim = outbox.claim(target, MANY)
    if claim is None:
        return ""
    outbox.settle(claim, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
    return claim.notice.id


def fail(outbox, wait, target="t"):
    claim = outbox.claim(target, MANY)
    outbox.settle(claim, "retry", status=503, duration_ms=1.0, error="down", wait_s=wait)
    return claim


def test_a_notice_is_told_to_a_target_once_however_often_it_is_added(outbox):
    assert outbox.enqueue(notice("opened"), "t") and not outbox.enqueue(notice("opened"), "t")
    assert outbox.enqueue(notice("opened"), "other")
    assert deliver(outbox) and not deliver(outbox)
    assert not outbox.enqueue(notice("opened"), "t") and not deliver(outbox)
    assert deliver(outbox, "other")


def test_what_was_added_survives_another_opening(outbox, clock, tmp_path):
    told = notice("opened")
    outbox.enqueue(told, "t")
    again = Outbox(tmp_path / "alerts.db", clock, boot="boot-1")
    assert again.claim("t", MANY).notice == told
    again.close()


def test_of_one_incident_the_earlier_message_goes_first_and_others_do_not_wait_for_it(outbox, clock):
    for told in (notice("opened"), notice("recovered"), notice("opened", "other")):
        outbox.enqueue(told, "t")
    fail(outbox, 600.0)
    assert deliver(outbox) == notice("opened", "other").id
    # It answers again, so what waited goes at once.
    assert [deliver(outbox), deliver(outbox), deliver(outbox)] == [notice("opened").id, notice("recovered").id, ""]


def test_critical_messages_go_before_others(outbox):
    outbox.enqueue(notice("opened", "a", "warning"), "t")
    outbox.enqueue(notice("opened", "b", "critical"), "t")
    assert deliver(outbox) == notice("opened", "b").id


def test_a_new_message_of_an_incident_ends_the_pause_of_the_one_before_it(outbox):
    outbox.enqueue(notice("opened"), "t")
    fail(outbox, 7200.0)
    assert not deliver(outbox)
    outbox.enqueue(notice("escalated"), "t")
    assert [deliver(outbox), deliver(outbox)] == [notice("opened").id, notice("escalated").id]


def test_what_quiet_hours_hold_back_holds_nothing_else_back_and_is_not_told_after_the_end(outbox, clock):
    outbox.enqueue(notice("opened", severity="warning"), "t", clock.time_ns() + 8 * 3600 * 10**9)
    outbox.enqueue(notice("opened", "b", "warning"), "t", clock.time_ns() + 8 * 3600 * 10**9)
    outbox.enqueue(notice("recovered"), "t")
    assert deliver(outbox) == notice("recovered").id
    assert not deliver(outbox)
    clock.advance(8 * 3600 + 1)
    assert deliver(outbox) == notice("opened", "b").id
    assert not deliver(outbox)
    assert [message.incident_id for message in outbox.messages("overtaken")] == ["inc-1"]


def test_a_hold_that_a_wrong_clock_made_holds_nothing(outbox, clock):
    outbox.enqueue(notice("opened"), "t", clock.time_ns() + round((LONGEST_HOLD_S + 60) * 1e9))
    assert deliver(outbox)
    outbox.enqueue(notice("opened", "b"), "t", clock.time_ns() + 3600 * 10**9)
    assert not deliver(outbox)
    clock.advance(-10 * 365 * 86_400, wall_only=True)
    assert deliver(outbox)


def test_a_claimed_message_is_nobody_elses_until_the_lease_ends_in_monotonic_time(outbox, clock, tmp_path):
    other = Outbox(tmp_path / "alerts.db", clock, boot="boot-1")
    outbox.enqueue(notice("opened"), "t")
    first = outbox.claim("t", MANY)
    for jump_s in (86_400.0, -30 * 86_400.0):
        clock.advance(jump_s, wall_only=True)
        assert other.claim("t", MANY) is None
    clock.advance(LEASE_S + 1)
    second = other.claim("t", MANY)
    assert second is not None and second.id == first.id
    assert [attempt.outcome for attempt in outbox.attempts(first.id)] == ["expired", "sending"]
    other.close()


def test_after_a_reboot_neither_lease_nor_pause_of_the_boot_before_counts(outbox, clock, tmp_path):
    outbox.enqueue(notice("opened"), "t")
    outbox.enqueue(notice("opened", "b"), "t")
    fail(outbox, 7200.0)
    assert outbox.claim("t", MANY) is not None
    after = Outbox(tmp_path / "alerts.db", ManualClock(), boot="boot-2")
    assert {deliver(after), deliver(after)} == {notice("opened").id, notice("opened", "b").id}
    after.close()


def test_a_delivery_counts_even_when_the_lease_had_passed_on(outbox, clock):
    outbox.enqueue(notice("opened"), "t")
    slow = outbox.claim("t", MANY)
    clock.advance(LEASE_S + 1)
    quick = outbox.claim("t", MANY)
    outbox.settle(slow, "delivered", status=200, duration_ms=46_000.0, error="", wait_s=None)
    outbox.settle(quick, "retry", status=503, duration_ms=1.0, error="down", wait_s=5.0)
    assert [message.state for message in outbox.messages()] == ["sent"]


def test_a_failure_of_a_lease_that_had_passed_on_says_nothing_of_the_new_holder(outbox, clock):
    outbox.enqueue(notice("opened"), "t")
    slow = outbox.claim("t", MANY)
    clock.advance(LEASE_S + 1)
    quick = outbox.claim("t", MANY)
    outbox.settle(slow, "permanent", status=400, duration_ms=46_000.0, error="no", wait_s=None)
    assert outbox.messages()[0].state == "waiting"
    outbox.settle(quick, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
    assert outbox.messages()[0].state == "sent"


def test_a_message_that_ends_every_sender_becomes_a_dead_letter(outbox, clock):
    outbox.enqueue(notice("opened"), "t")
    outbox.enqueue(notice("recovered"), "t")
    for _ in range(MOST_CLAIMS_WITHOUT_ANSWER):
        assert outbox.claim("t", MANY).notice.id == notice("opened").id
        clock.advance(LEASE_S + 1)
    assert outbox.claim("t", MANY).notice.id == notice("recovered").id
    assert "senders ended" in outbox.messages("dead")[0].error


def test_a_target_is_not_sent_more_in_a_minute_than_it_takes(outbox, clock):
    for number in range(50):
        outbox.enqueue(notice("opened", f"inc-{number}"), "t")
    sent_at = []
    for _ in range(240):
        while (claim := outbox.claim("t", 18)) is not None:
            sent_at.append(clock.monotonic_s())
            outbox.settle(claim, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
        clock.advance(1.0)
    assert len(sent_at) == 50
    assert max(sum(1 for other in sent_at if at <= other < at + 60) for at in sent_at) == 18


def test_a_dead_letter_is_sent_again_with_the_same_id_and_all_its_tries(outbox):
    outbox.enqueue(notice("opened"), "t")
    claim = outbox.claim("t", MANY)
    outbox.settle(claim, "permanent", status=400, duration_ms=1.0, error="no", wait_s=None)
    id = message_id(notice("opened").id, "t")
    assert [message.id for message in outbox.messages("dead")] == [id] and not deliver(outbox)
    assert not outbox.send_again("msg_unknown") and outbox.send_again(id) and not outbox.send_again(id)
    again = outbox.claim("t", MANY)
    assert (again.id, again.tries, again.attempt) == (id, 0, 2)


def test_a_dead_letter_of_an_incident_that_is_over_is_sent_again_because_a_person_asked(outbox):
    outbox.enqueue(notice("opened"), "t")
    outbox.settle(outbox.claim("t", MANY), "permanent", status=400, duration_ms=1.0, error="no", wait_s=None)
    outbox.enqueue(notice("recovered"), "t")
    assert deliver(outbox)
    outbox.send_again(message_id(notice("opened").id, "t"))
    assert deliver(outbox) == notice("opened").id


def test_a_dead_letter_that_a_person_drops_is_gone(outbox):
    outbox.enqueue(notice("opened"), "t")
    outbox.settle(outbox.claim("t", MANY), "permanent", status=400, duration_ms=1.0, error="no", wait_s=None)
    id = outbox.messages("dead")[0].id
    assert outbox.forget(id) and not outbox.forget(id) and outbox.messages() == []


def test_a_target_that_was_switched_off_is_used_again_when_its_settings_change(outbox):
    outbox.disable("t", "410", "settings-1")
    assert outbox.is_disabled("t", "settings-1") and not outbox.health(["t"])[0].works
    assert not outbox.is_disabled("t", "settings-2") and outbox.health(["t"])[0].works
    assert not outbox.is_disabled("t", "settings-1")


def test_the_health_of_a_target_is_what_its_last_attempts_were(outbox):
    outbox.enqueue(notice("opened"), "t")
    outbox.enqueue(notice("opened", "b"), "t")
    assert outbox.health(["t", "never"])[0].works
    fail(outbox, 600.0)
    health = outbox.health(["t"])[0]
    assert (health.works, health.failures_in_a_row, health.error, health.waiting) == (False, 1, "down", 2)
    deliver(outbox)
    assert outbox.health(["t"])[0].works


def test_rows_are_bounded_and_what_nobody_was_told_of_is_counted(outbox, monkeypatch):
    monkeypatch.setattr(outbox_module, "KEEP", {"waiting": 5, "sent": 3, "dead": 5, "overtaken": 5})
    for number in range(8):
        outbox.enqueue(notice("opened", f"sent-{number}"), "t")
        deliver(outbox)
    for number in range(9):
        outbox.enqueue(notice("opened", f"inc-{number}"), "u")
    outbox.trim()
    assert len(outbox.messages("sent")) == 3 and len(outbox.messages("waiting")) == 5
    assert outbox.lost() == 4
    with sqlite3.connect(outbox.path) as direct:
        assert direct.execute("SELECT count(*) FROM attempt").fetchone() == (3,)
    direct.close()


def test_a_notice_that_is_too_long_or_no_text_is_cut_and_told(outbox):
    told = replace(notice("opened"), what="x" * 10**6, run="\ud800", rules=tuple(map(str, range(1000))))
    outbox.enqueue(told, "t")
    kept = outbox.claim("t", MANY).notice
    assert len(kept.what) == 2_000 and kept.run == "?" and len(kept.rules) == 40 and kept == bounded(told)


def test_a_row_of_another_version_is_a_dead_letter_and_holds_nothing_up(outbox):
    outbox.enqueue(notice("opened"), "t")
    outbox.enqueue(notice("opened", "b"), "t")
    with sqlite3.connect(outbox.path) as direct:
        direct.execute("UPDATE message SET notice = '{\"id\": 1}' WHERE seq = 1")
    direct.close()
    assert deliver(outbox) == notice("opened", "b").id
    assert "cannot read" in outbox.messages("dead")[0].error
    outbox.take_unannounced(lambda *_: pytest.fail("nothing to tell of it"))


def test_however_much_waits_the_next_message_is_found_by_an_index(outbox):
    outbox.enqueue(notice("opened"), "t")
    with sqlite3.connect(outbox.path) as direct:
        times = {"target": "t", "now_ns": 0, "now_s": 0, "boot": "", "longest_hold_ns": 0}
        plan = " ".join(row[3] for row in direct.execute(f"EXPLAIN QUERY PLAN {outbox_tables.READY}", times))
    direct.close()
    assert "message_by_incident (target=? AND incident=? AND seq<?)" in plan, plan


def test_an_outbox_on_a_network_file_system_is_refused_by_the_name_of_its_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_connection, "file_system_type", lambda path, mountinfo: "nfs4")
    with pytest.raises(StoreError, match=r"\[alerts\] outbox"):
        Outbox(tmp_path / "alerts.db").enqueue(notice("opened"), "t")


def test_a_file_of_a_newer_version_is_not_touched(tmp_path):
    path = tmp_path / "alerts.db"
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA user_version = 99")
    direct.close()
    with pytest.raises(StoreError, match="newer version"):
        Outbox(path).messages()


@settings(max_examples=60)
@given(st.data())
def test_whatever_fails_ends_jumps_or_reboots_every_message_arrives_in_order(tmp_path_factory, data):
    clock, boot = ManualClock(), 0
    path = tmp_path_factory.mktemp("outbox") / "alerts.db"
    outbox = Outbox(path, clock, boot="boot-0")
    added: dict[str, list[str]] = {}
    arrived: dict[str, list[str]] = {}
    for number in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["add", "add", "deliver", "fail", "end", "wait", "set", "reboot"])):
            case "add":
                incident = data.draw(st.sampled_from("abc"))
                told = notice("reminder", incident, number=number)
                added.setdefault(incident, []).append(told.id)
                outbox.enqueue(told, "t")
            case "wait":
                clock.advance(data.draw(st.sampled_from([1.0, 60.0, 4_000.0])))
            case "set":
                clock.advance(data.draw(st.sampled_from([-1e8, -3600.0, 3600.0, 1e8])), wall_only=True)
            case "reboot":
                outbox.close()
                boot += 1
                outbox = Outbox(path, clock, boot=f"boot-{boot}")
            case what:
                claim = outbox.claim("t", MANY)
                if claim is None:
                    continue
                arrived.setdefault(claim.notice.incident_id, [])
                if what == "deliver":
                    arrived[claim.notice.incident_id].append(claim.notice.id)
                    outbox.settle(claim, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
                elif what == "fail" and (wait := wait_s(claim.tries + 1)) is not None:
                    outbox.settle(claim, "retry", status=503, duration_ms=1.0, error="down", wait_s=wait)
    clock.advance(10_000.0)
    while (claim := outbox.claim("t", MANY)) is not None:
        arrived.setdefault(claim.notice.incident_id, []).append(claim.notice.id)
        outbox.settle(claim, "delivered", status=200, duration_ms=1.0, error="", wait_s=None)
    outbox.close()
    assert {incident: ids for incident, ids in arrived.items() if ids} == added
