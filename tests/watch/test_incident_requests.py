"""People and incidents: to have one, to silence a rule, to end a silence; asked for in the inbox, from the command line and from a page."""

from __future__ import annotations

import json
import re

import pytest
from test_watchdog import Bench

from trainvitals.__main__ import main
from trainvitals.control.audit import newest
from trainvitals.control.inbox import answer_to, submit
from trainvitals.control.requests import ACKNOWLEDGE, SILENCE
from trainvitals.watch.incident_files import read_index
from trainvitals.web.actions import acknowledge, silence, unsilence


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.watchdog.turn()  # from now on it is known that somebody watches
    yield made
    made.store.close()


def sick(bench):
    bench.header()
    bench.train(0, 400)
    bench.watchdog.turn()
    for step in range(400, 410):
        bench.clock.advance(1)
        bench.step(step, loss=float("nan"))
    bench.watchdog.turn()
    return read_index(bench.dir)[0][0]


def ask(bench, kind, by="ana", **data):
    request = submit(bench.dir, "r", kind=kind, by=by, source="cli", data=data, clock=bench.clock)
    bench.clock.advance(2)
    bench.watchdog.turn()
    return answer_to(bench.dir, request)


def incident_row(bench):
    return max(bench.events("incident"), key=lambda event: event.data["updated_at_ns"]).data


def test_who_has_an_incident_is_stored_with_it_and_survives_a_restart(bench):
    incident = sick(bench)
    answer = ask(bench, ACKNOWLEDGE, incident=incident.id, note="looking at shard 7")
    assert answer.outcome == "applied" and "ana has the incident" in answer.sentence
    row = incident_row(bench)
    assert (row["acknowledged_by"], row["acknowledged_note"]) == ("ana", "looking at shard 7")
    (event,) = bench.events("acknowledgement")
    assert event.data["request"] == answer.request.id
    bench.start()
    bench.clock.advance(1)
    bench.step(410, loss=float("nan"))
    bench.train(411, 100)
    bench.watchdog.turn()
    assert incident_row(bench)["acknowledged_by"] == "ana", "until it is over it is hers"
    assert len(bench.events("incident")) == 1


@pytest.mark.parametrize(
    "data", [{"incident": "nothing"}, {"incident": ""}, {"incident": 5}, {"note": "x"}, {"incident": "r/", "note": {}}]
)
def test_an_acknowledgement_of_nothing_is_refused_in_words(bench, data):
    sick(bench)
    answer = ask(bench, ACKNOWLEDGE, **data)
    assert answer.outcome == "refused" and answer.sentence


def test_a_silence_is_kept_over_restarts_and_ends(bench):
    answer = ask(bench, SILENCE, rules=["loss_*", "breaker_*"], up_to="critical", seconds=3600, comment="new data, ticket 5")
    assert answer.outcome == "applied" and "Silent until" in answer.sentence and " UTC: " in answer.sentence
    bench.start()
    assert sick(bench).silenced_until_ns is not None
    assert not any("incident opened" in sentence for sentence in bench.said)
    ended = ask(bench, SILENCE, end=answer.request.id[:8])
    assert ended.outcome == "applied"
    assert any("incident opened" in sentence for sentence in bench.said)
    assert incident_row(bench)["silenced_until_ns"] is None
    assert [event.data.get("end") is not None for event in bench.events("silence")] == [False, True]


def test_what_the_breaker_does_is_told_unless_it_is_silenced_by_name_or_with_its_family(bench):
    ask(bench, SILENCE, rules=["loss_*"], up_to="critical", seconds=3600, comment="new data")
    assert "breaker_trip" in sick(bench).rules
    assert any("incident opened" in sentence for sentence in bench.said)


def test_a_silence_outlives_a_state_that_cannot_be_read(bench):
    ask(bench, SILENCE, rules=["loss_*", "breaker_*"], up_to="critical", seconds=3600, comment="new data")
    bench.store.commit([], {"watch/r/state": b"junk"})
    bench.start()
    assert sick(bench).silenced_until_ns is not None


@pytest.mark.parametrize(
    "data",
    [{"seconds": -5, "comment": "x"}, {"seconds": 60}, {"end": "12345678"}, {"seconds": 60, "comment": "x", "runs": ["other-*"]}],
)
def test_a_silence_that_is_none_is_refused_in_words(bench, data):
    answer = ask(bench, SILENCE, **data)
    assert answer.outcome == "refused" and answer.sentence


def test_a_storm_of_a_silenced_rule_and_a_kill_of_the_watchdog_tell_nothing(bench):
    ask(bench, SILENCE, families=["loss"], up_to="critical", seconds=3600, comment="known")
    bench.header()
    bench.train(0, 400)
    for step in range(400, 500):
        bench.clock.advance(1)
        bench.step(step, loss=float("nan"))
        if step % 20 == 0:
            bench.start()
        bench.watchdog.turn()
    assert not any(re.search("incident (opened|escalated)", sentence) for sentence in bench.said)


# -- the command and the page -----------------------------------------------------------------------------------------


def command(capsys, *words):
    code = main(["incident", *words])
    out = capsys.readouterr()
    return code, [json.loads(line) for line in out.out.splitlines()], out.err


def test_the_list_tells_what_is_open_and_what_is_silent(bench, capsys):
    assert command(capsys, "list", str(bench.dir)) == (
        0,
        [],
        "No incident so far; the watchdog writes them into incidents/ of the run directory.\n",
    )
    incident = sick(bench)
    code, rows, err = command(capsys, "list", str(bench.dir))
    assert code == 1 and rows[0]["incident"] == incident.id and rows[0]["state"] == "open"
    assert "1 open; the gravest, critical" in err


def test_the_command_asks_the_watchdog_and_says_what_it_answers(bench, capsys, monkeypatch):
    incident = sick(bench)
    from trainvitals.cli import answer as module

    def turning(run_dir, request):
        bench.clock.advance(2)
        bench.watchdog.turn()
        return answer_to(run_dir, request)

    monkeypatch.setattr(module, "answer_to", turning)
    code, rows, err = command(capsys, "acknowledge", str(bench.dir), incident.id, "--by", "ana", "--note", "mine")
    assert (code, rows[0]["outcome"]) == (0, "applied") and "ana has the incident" in err
    words = (
        "silence",
        str(bench.dir),
        "--by",
        "ana",
        "--rule",
        "loss_*",
        "--for",
        "2h",
        "--comment",
        "planned",
        "--up-to",
        "critical",
    )
    code, rows, _ = command(capsys, *words)
    assert (code, rows[0]["outcome"]) == (0, "applied")
    assert [one.comment for one in read_index(bench.dir)[1]] == ["planned"]
    code, rows, _ = command(capsys, "unsilence", str(bench.dir), rows[0]["id"], "--by", "ana")
    assert (code, rows[0]["outcome"]) == (0, "applied")
    assert read_index(bench.dir)[1] == []
    kinds = [record.data.get("kind") for record in newest(bench.dir, 50) if record.kind == "request"]
    assert kinds == ["acknowledge", "silence", "silence"], "all of it is in the audit"


@pytest.mark.parametrize(
    "words",
    [
        ("acknowledge", "DIR", "x"), ("silence", "DIR", "--by", "a", "--for", "2h"), ("silence", "DIR", "--by", "a", "--for", "soon", "--comment", "x"),
        ("silence", "DIR", "--by", "a", "--comment", "x"), ("silence", "DIR", "--by", "a", "--for", "90d", "--comment", "x"), ("list", "/no/such/dir"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_before_anything_is_asked(bench, capsys, words):
    words = [str(bench.dir) if word == "DIR" else word for word in words]
    try:
        code = main(["incident", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2 and capsys.readouterr().err
    assert not list((bench.dir / "control" / "requests").glob("1*.json"))


def test_what_a_page_asks_is_checked_on_the_server(bench):
    incident = sick(bench)
    from dataclasses import replace

    from trainvitals.settings import AccessSettings

    settings = replace(bench.settings, access={"r": AccessSettings(operators=("ana",))})
    assert not acknowledge(settings, "r", incident.id, "eve", "", bench.clock).is_done
    assert not silence(settings, "r", {"rules": ["x"], "seconds": 60, "comment": "x"}, "eve", bench.clock).is_done
    assert not unsilence(settings, "r", "12345678", "eve", bench.clock).is_done
    assert not acknowledge(settings, "other", incident.id, "ana", "", bench.clock).is_done
    assert not silence(settings, "r", {"seconds": 0, "comment": "x"}, "ana", bench.clock).is_done
    asked = acknowledge(settings, "r", incident.id, "ana", "mine", bench.clock)
    assert asked.is_done and asked.request_id
    bench.clock.advance(2)
    bench.watchdog.turn()
    assert incident_row(bench)["acknowledged_by"] == "ana"
    assert [record.kind for record in newest(bench.dir, 50)].count("access_refused") == 3
