"""What is asked on a host without the run directory reaches the trainer once, or is refused and counted."""

from __future__ import annotations

import pytest
from far_bench import FarBench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.access import Identity
from trainvitals.control import inbox, signed, supervised
from trainvitals.control.audit import newest
from trainvitals.control.audit_chain import history_anchors, verify
from trainvitals.control.request import history, read_request, submit
from trainvitals.control.requests import Watcher
from trainvitals.errors import StoreUnavailable
from trainvitals.store.request_rows import request_point
from trainvitals.watch.signed_requests import TOLD_AT_ONCE
from trainvitals.web import actions


@pytest.fixture
def bench(tmp_path, monkeypatch, request):
    made = FarBench(tmp_path, monkeypatch, **getattr(request, "param", {}))
    made.turn()
    yield made
    made.store.close()


def pause(bench, by="ana", reason="spike", seq=0, **more):
    return actions.ask(bench.dashboard, "r", "pause", by, reason, seq, bench.clock, **more)


def test_a_pause_reaches_the_control_file_with_its_id_and_is_answered_by_an_event(bench):
    sent = pause(bench, save=False)
    assert sent.is_done and sent.request_id and not (bench.home / "not-on-this-host").exists()
    bench.turn()
    found = read_request(bench.dir)
    assert (found.desired, found.by, found.reason, found.source, found.save) == ("paused", "ana", "spike", "ui", False)
    assert found.request_id == sent.request_id
    (event,) = bench.answers(sent.request_id)
    assert (event.kind, event.data["outcome"], event.data["seq"]) == ("control", "applied", 1)
    records = [record for record in newest(bench.dir, 99) if record.data.get("request") == sent.request_id]
    assert [record.kind for record in records] == ["request", "answer"] and records[0].by == "ana"
    assert verify(bench.dir, history_anchors(bench.dir)).is_intact


def test_what_the_watchdogs_inbox_knows_may_be_asked_from_elsewhere_too(bench):
    note = actions.annotate(bench.dashboard, "r", step=600, change="data_mix", text="new mix", by="ana", clock=bench.clock)
    armed = actions.set_breaker(bench.dashboard, "r", "armed", "ana", "night", bench.clock)
    quiet = actions.silence(
        bench.dashboard, "r", {"rules": ["loss_spike"], "seconds": 600, "comment": "known"}, "ana", bench.clock
    )
    bench.turn()
    assert bench.answers(quiet.request_id)[0].data.get("outcome") != "refused" and bench.watchdog._incidents.silences
    assert {event.kind: event.text for sent in (note, armed) for event in bench.answers(sent.request_id)} == {
        "annotation": "new mix", "breaker": "armed by ana: night",
    }  # fmt: skip
    assert {answer.outcome for answer in inbox.answered(bench.dir)} == {"applied"}
    assert bench.told().breaker == "armed"
    assert set(bench.watchdog._far._requests.kinds) >= {
        "pause",
        "resume",
        "checkpoint",
        "stop",
        "rollback",
        "annotation",
        "breaker",
    }


def test_a_way_back_is_put_before_the_supervisor_and_refused_where_there_is_none(bench):
    nobody = actions.go_back(bench.dashboard, "r", "/ckpt/100", "ana", "spike", bench.clock)
    bench.turn()
    (refused,) = bench.answers(nobody.request_id)
    assert refused.data["outcome"] == "refused" and "Nobody supervises this run" in refused.text
    supervised.make_directories(bench.dir)
    supervised.announce(bench.dir, Watcher("r", ("rollback",), "node9", 1))
    asked = actions.go_back(bench.dashboard, "r", "/ckpt/100", "ana", "spike", bench.clock)
    bench.turn(3)
    (name,) = supervised.waiting(bench.dir)
    request = supervised.read(bench.dir, name)
    assert (request.id, request.by, request.data["to"]) == (asked.request_id, "ana", "/ckpt/100")
    assert bench.answers(asked.request_id)[0].data["outcome"] == "applied"
    assert bench.told().control.supervisor == "node9"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"signature": ""}, signed.UNSIGNED),
        ({"signature": "v1=" + "0" * 64}, signed.WRONG_SIGNATURE),
        ({"key": b"another secret, and long enough too"}, signed.WRONG_SIGNATURE),
        ({"request": {"run": "other"}}, signed.OTHER_RUN),
        ({"request": {"kind": "format_disk"}}, signed.UNKNOWN_KIND),
        ({"age_s": 601}, signed.STALE),
        ({"age_s": -400}, signed.FROM_THE_FUTURE),
        ({"request": {"data": {"reason": ""}}}, signed.NOT_CARRIED_OUT),
        ({"request": {"data": {"reason": ["no", "text"]}}}, signed.NOT_CARRIED_OUT),
        ({"request": {"data": {"reason": "x", "save": "yes"}}}, signed.NOT_CARRIED_OUT),
        ({"request": {"kind": "annotation", "data": {"step": 1, "text": "\x07"}}}, None),
    ],
)
def test_what_does_not_count_is_refused_counted_and_told_and_touches_nothing(bench, change, reason):
    before = read_request(bench.dir)
    made = bench.request(now_ns=bench.clock.time_ns() - change.get("age_s", 0) * 10**9, **change.get("request", {}))
    bench.plant(made, **{key: change[key] for key in ("signature", "key") if key in change})
    bench.turn(4)
    assert read_request(bench.dir) == before and not history(bench.dir)
    if reason is None:  # the inbox of this host says why, as it does for people here
        assert bench.answers(made.id)[0].data["outcome"] == "refused"
        return
    assert bench.refused() == {reason: 1}
    (event,) = [event for event in bench.events("watch") if event.data.get("reason") == reason]
    assert event.data["outcome"] == "refused" and reason in event.text
    is_counted = f"Signed requests refused so far: {reason} 1." in bench.told().control.sentence
    assert is_counted == (reason != signed.NOT_CARRIED_OUT)


def test_a_copy_of_a_request_does_not_count_and_is_no_answer_to_the_first(bench):
    sent = pause(bench)
    bench.turn()
    submit(bench.dir, "r", action="resume", by="ben", source="cli", reason="fine")
    (row,) = bench.rows()
    for later_ns in (5 * 10**9, 6 * 10**9):
        bench.store.write([request_point("r", "pause", row.time_ns + later_ns, row.id, row.text, row.signature)])
    bench.turn(3)
    assert bench.refused() == {signed.REPLAYED: 2} and read_request(bench.dir).desired == "running"
    assert [event.kind for event in bench.answers(sent.request_id)] == ["control"]


def test_what_was_taken_is_known_after_a_restart_and_a_clock_set_back(bench):
    pause(bench)
    bench.turn()
    submit(bench.dir, "r", action="resume", by="ben", source="cli", reason="fine")
    bench.plant(bench.request(), signature="")
    bench.turn()
    bench.start()
    bench.turn(3)
    (row, _) = bench.rows()
    bench.store.write([request_point("r", "pause", row.time_ns + 7 * 10**9, row.id, row.text, row.signature)])
    bench.turn(3)
    assert bench.refused() == {signed.UNSIGNED: 1, signed.REPLAYED: 1}
    assert [one.action for one in history(bench.dir)] == ["pause", "resume"]


def test_a_kill_between_the_file_and_the_commit_asks_nothing_twice(bench):
    class NeverCommits:
        def __init__(self, store):
            self.load_state = store.load_state

        def commit(self, points, state):
            raise StoreUnavailable("killed before the commit")

    supervised.make_directories(bench.dir)
    supervised.announce(bench.dir, Watcher("r", ("rollback",), "node9", 1))
    bench.start(NeverCommits(bench.store))
    saved = [actions.ask(bench.dashboard, "r", "checkpoint", "ana", f"n{n}", n, bench.clock) for n in range(3)]
    back = actions.go_back(bench.dashboard, "r", "/ckpt/100", "ana", "spike", bench.clock)
    note = actions.annotate(bench.dashboard, "r", step=1, change="note", text="n", by="ana", clock=bench.clock)
    for _ in range(3):
        bench.turn(2)
        bench.start(NeverCommits(bench.store))
    bench.start()
    bench.turn(4)
    assert read_request(bench.dir).checkpoint_request == 3
    assert [one.request_id for one in history(bench.dir)] == [one.request_id for one in saved]
    assert len(supervised.waiting(bench.dir)) == 1
    for sent in (*saved, back, note):
        assert len(bench.answers(sent.request_id)) == 1
        asked = [
            r
            for r in newest(bench.dir, 200)
            if r.kind == "request" and sent.request_id in (r.data.get("request"), r.data.get("id"))
        ]
        assert len(asked) == 1
    assert bench.refused() == {} and verify(bench.dir, history_anchors(bench.dir)).is_intact


def test_of_two_operators_one_wins_and_the_other_is_told_who_was_first(bench):
    first = pause(bench, "ana", "spike")
    bench.clock.advance(1)
    second = actions.ask(bench.dashboard, "r", "checkpoint", "ben", "to be sure", 0, bench.clock)
    bench.turn()
    assert bench.answers(first.request_id)[0].data["outcome"] == "applied"
    (event,) = bench.answers(second.request_id)
    assert event.data["outcome"] == "refused" and "1 (paused) by ana, expected 0" in event.text


def test_the_same_press_twice_is_one_request_and_both_are_answered(bench):
    twice = [pause(bench), pause(bench)]
    bench.turn()
    assert [one.seq for one in history(bench.dir)] == [1]
    assert [bench.answers(sent.request_id)[0].data["seq"] for sent in twice] == [1, 1]


@pytest.mark.parametrize(
    ("bench", "who", "reason"),
    [
        ({"access": {"runs": {"r": {"operators": ["ana"]}}}}, "ben", "may look at 'r', but not act on it"),
        ({"login": {"mode": "proxy", "proxy_addresses": ["10.0.0.1"]}}, "ana", "nobody is logged in"),
    ],
    indirect=["bench"],
)
def test_the_watchdog_asks_its_own_settings_who_may_act(bench, who, reason):
    sent = pause(bench, who)
    bench.turn()
    (event,) = bench.answers(sent.request_id)
    assert event.data["reason"] == signed.NOT_AN_OPERATOR and reason in event.text and not history(bench.dir)
    assert [record.by for record in newest(bench.dir, 9) if record.kind == "access_refused"] == [who]


@pytest.mark.parametrize("bench", [{"login": {"mode": "proxy", "proxy_addresses": ["10.0.0.1"]}}], indirect=True)
def test_a_name_that_a_login_vouched_for_at_the_dashboard_counts_here(bench):
    sent = pause(bench, Identity("ana", is_proven=True))
    bench.turn()
    assert bench.answers(sent.request_id)[0].data["outcome"] == "applied" and '"is_proven":true' in bench.rows()[0].text


def test_a_viewer_is_refused_at_the_dashboard_and_nothing_is_sent(bench):
    bench.dashboard = bench.settings_of(bench.home / "nowhere", access={"runs": {"*": {"operators": ["ana"]}}})
    sent = pause(bench, "ben")
    assert not sent.is_done and "may look at 'r'" in sent.sentence and bench.rows() == []


def test_a_flood_of_rows_without_a_signature_is_counted_and_told_a_few_times_only(bench):
    for number in range(300):
        bench.plant(bench.request(changes={"issued_at_ns": bench.clock.time_ns() + number * 10**6}), signature="")
    sent = pause(bench)
    bench.turn(4)
    assert bench.refused() == {signed.UNSIGNED: 300} and bench.answers(sent.request_id)[0].data["outcome"] == "applied"
    assert len([event for event in bench.events("watch") if event.data.get("reason")]) <= TOLD_AT_ONCE + 1


def test_a_store_that_is_away_is_told_once_and_what_waits_is_taken_when_it_is_back(bench):
    bench.is_store_away = True
    bench.watchdog._far._requests._feed._drop()
    sent = pause(bench)
    bench.turn(5)
    assert not history(bench.dir)
    bench.is_store_away = False
    bench.turn(3)
    assert bench.answers(sent.request_id)[0].data["outcome"] == "applied"
    assert sum("signed requests are not read: the store is away" in said for said in bench.said) == 1


def test_a_request_that_waited_for_too_long_while_the_store_was_away_is_refused_as_stale(bench):
    bench.is_store_away = True
    bench.watchdog._far._requests._feed._drop()
    sent = pause(bench)
    bench.clock.advance(700)
    bench.is_store_away = False
    bench.turn(3)
    (event,) = bench.answers(sent.request_id)
    assert event.data["reason"] == signed.STALE and not history(bench.dir)


def test_keys_can_be_changed_without_a_restart_of_either_side(bench):
    old = bench.key_file.read_bytes()
    pause(bench)
    bench.turn()
    second = bench.home / "second"
    second.write_bytes(old)
    second.chmod(0o600)
    bench.tables = {"requests": {"key_files": [str(bench.key_file), str(second)]}}
    bench.start()
    bench.key_file.write_bytes(b"a new secret that is long enough, too")
    actions.ask(bench.dashboard, "r", "resume", "ana", "fine", 1, bench.clock)
    bench.clock.advance(1)
    bench.plant(bench.request(kind="checkpoint"), key=old)
    bench.turn(3)
    assert sorted(one.action for one in history(bench.dir)) == ["checkpoint", "pause", "resume"]
    second.write_bytes(b"the old one is taken out of use ......")
    bench.plant(bench.request(kind="checkpoint"), key=old)
    bench.turn(3)
    assert bench.refused() == {signed.WRONG_SIGNATURE: 1}


def test_without_a_key_nothing_is_sent_or_taken_and_both_sides_say_so(bench):
    sent = pause(bench)
    bench.key_file.unlink()
    assert "cannot be read" in pause(bench).sentence and not pause(bench).is_done
    bench.turn(5)
    assert not bench.answers(sent.request_id)
    assert sum("signed requests are not read: The key file" in said for said in bench.said) == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(codec="utf-8"), max_size=200),
    data=st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20)),
)
def test_hostile_rows_end_nothing(bench, text, data):
    now_ns = bench.clock.time_ns()
    clean = "".join(c for c in text if c.isprintable())
    bench.store.write([request_point("r", "pause", now_ns, f"x{clean}", text, "v1=" + clean)])
    for kind in ("pause", "rollback", "annotation", "breaker"):
        bench.plant(bench.request(kind=kind, data=data, by=clean.strip()[:100] or "x"))
    bench.turn(2)


def test_the_state_of_a_run_is_told_to_other_hosts_at_once_and_else_every_few_seconds(bench):
    def rows():
        return len(bench.store.raw("control", ["json"], {"run": "r"}, 0, 2**62))

    bench.turn(4)
    before = rows()
    for _ in range(10):
        bench.clock.advance(1)
        bench.watchdog.turn()
    assert rows() - before == 2
    submit(bench.dir, "r", action="pause", by="ben", source="cli", reason="fine")
    bench.clock.advance(1)
    bench.watchdog.turn()
    assert rows() - before == 3 and bench.told().control.seq == 1
    assert [event.data["action"] for event in bench.told().requests] == ["pause"]


def test_a_run_that_shares_its_directory_reads_nothing_and_tells_nothing(tmp_path, monkeypatch):
    bench = FarBench(tmp_path, monkeypatch)
    bench.settings_of = lambda run_dir, **more: _near(FarBench.settings_of(bench, run_dir, **more))
    bench.start()
    bench.plant(bench.request())
    bench.turn(4)
    assert not history(bench.dir) and bench.store.raw("control", ["json"], {}, 0, 2**62).empty
    bench.store.close()


def _near(settings):
    from dataclasses import replace

    return replace(settings, runs=tuple(replace(run, control_road="files") for run in settings.runs))
