"""A pause that was asked for must come."""

from __future__ import annotations

import json

import pytest
from made_up import at, curve, event, feed, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity

STEPS = curve(200)


def asked(second: float = 991, by: str = "breaker", desired: str = "paused") -> Event:
    return event("control", second, desired=desired, state="requested", by=by)


def running() -> Engine:
    engine = Engine("run")
    feed(engine, STEPS[:100])
    return engine


def test_steps_that_go_on_after_a_request_to_pause_are_critical():
    engine = running()
    assert engine.update(asked()) == []
    assert not of_rule(feed(engine, STEPS[100:102]), "pause_not_honoured")
    (finding,) = of_rule(feed(engine, STEPS[102:103]), "pause_not_honoured")
    assert finding.severity is Severity.CRITICAL and finding.is_open and finding.first_step == 100
    assert finding.message == "asked to pause by breaker after step 100; steps go on for 30 s"
    assert len(of_rule(feed(engine, STEPS[103:150]), "pause_not_honoured")) == 0
    closed = engine.update(event("phase", 1500, phase="paused", state="begin"))
    assert [(f.rule, f.is_open) for f in closed] == [("pause_not_honoured", False)]
    assert closed[0].message.endswith("; it paused")


@pytest.mark.parametrize(
    "answer",
    [
        event("control", 1005, desired="paused", state="paused", by="ana"),
        event("phase", 1005, phase="paused", state="begin"),
        event("attempt_end", 1005, attempt=1, reason="stopped"),
        asked(1005, desired="running"),
    ],
)
def test_a_pause_that_comes_or_is_taken_back_is_none(answer):
    engine = running()
    found = [*engine.update(asked()), *feed(engine, STEPS[100:102]), *engine.update(answer), *feed(engine, STEPS[110:120])]
    assert not of_rule(found, "pause_not_honoured")


def test_many_steps_a_second_are_given_ten_seconds():
    quick = curve(400, seconds=0.1)
    engine = Engine("run")
    feed(engine, quick[:100])
    engine.update(asked(9.95))
    (finding,) = of_rule(feed(engine, quick[100:300]), "pause_not_honoured")
    assert finding.detected_step in (200, 201, 202)


def test_a_source_without_times_is_given_twenty_points():
    untimed = curve(200, seconds=None)
    engine = Engine("run")
    feed(engine, untimed[:100])
    engine.update(asked())
    (finding,) = of_rule(feed(engine, untimed[100:]), "pause_not_honoured")
    assert finding.detected_step == 120


@pytest.mark.parametrize("state", ["failed", "expired", "refused_to_start"])
def test_a_trainer_that_says_it_could_not_is_told_at_once(state):
    engine = running()
    told = Event(
        "control", at(995), text="the checkpoint could not be saved", data={"desired": "paused", "state": state, "by": "ana"}
    )
    (finding,) = of_rule(engine.update(told), "pause_not_honoured")
    assert "asked for by ana" in finding.message and "could not be saved" in finding.message
    assert not of_rule(engine.update(told), "pause_not_honoured")


def test_the_request_survives_a_restart_of_the_watch():
    engine = running()
    engine.update(asked())
    again = Engine("run")
    again.restore(json.loads(json.dumps(engine.to_state())))
    assert of_rule(feed(again, STEPS[100:110]), "pause_not_honoured")
