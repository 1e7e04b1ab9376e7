"""What holds the breaker: said as it is now, and nothing that a person did not do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import SECOND, START_NS, curve, event, feed, of_rule

from trainvitals.detect.breaker import DAY_NS, BreakerState, DefaultLimits, obstacle
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Step

LIMITS = DefaultLimits()


def high_from(*firsts: int, length: int = 10_000):
    def change(k, values):
        if any(first <= k < first + length for first in firsts):
            values["loss"] += 1.5

    return change


def saved(state: str) -> Event:
    return event("control", 8000, desired="running", state=state, by="ana", source="cli")


@pytest.mark.parametrize("states", [["requested", "checkpoint"], ["requested", "failed"], ["requested", "expired"]])
def test_a_person_who_asks_for_a_checkpoint_does_not_disarm_it(states):
    steps = curve(1000, change=high_from(810))
    engine = Engine("run")
    feed(engine, [*steps[:800], *(saved(state) for state in states)])
    assert engine.breaker_hold() == ""
    (trip,) = of_rule(feed(engine, steps[800:]), "breaker_trip")
    assert trip.detected_step <= 920


@pytest.mark.parametrize(
    "events",
    [
        [event("control", 8000, desired="paused", state="requested", by="ana")],
        [
            event("control", 8000, desired="paused", state="requested", by="breaker"),
            event("control", 8001, desired="running", state="requested", by="ana"),
        ],
        [event("control", 8000, desired="running", state="running", by="ana")],
    ],
)
def test_a_person_who_pauses_or_resumes_does(events):
    engine = Engine("run")
    feed(engine, [*curve(800), *events])
    assert "a person paused or resumed; disarmed for 500 more points" in engine.breaker_hold()


def test_the_count_down_moves_in_what_is_logged_and_in_what_holds():
    steps = curve(1400, change=high_from(820))
    engine = Engine("run")
    feed(engine, [*steps[:800], event("control", 8000, desired="running", state="running", by="ana")])
    feed(engine, steps[800:1000])
    assert "disarmed for 300 more points" in engine.breaker_hold()
    feed(engine, steps[1000:1250])
    left = [
        entry["reason"].rpartition(" more points")[0].rpartition(" ")[2]
        for entry in engine.take_breaker_log()
        if "disarmed" in entry["reason"]
    ]
    assert len(left) > 10 and [int(n) for n in left] == sorted({int(n) for n in left}, reverse=True)


def test_the_pauses_of_the_day_that_are_used_are_said_with_the_time_of_the_next_one():
    engine = Engine("run")
    steps = curve(2600, change=high_from(600, 1200, 1800, length=250))
    found = feed(engine, steps[:1700])
    assert len(of_rule(found, "breaker_trip")) == 2
    engine.take_breaker_log()
    words = engine.breaker_hold()
    assert words.startswith("2 of 2 automatic pauses of the last 24 h are used: it only alerts now; next one at ")
    assert not of_rule(feed(engine, steps[1700:]), "breaker_trip")
    holds = [entry for entry in engine.take_breaker_log() if entry["decision"] == "hold"]
    assert len(holds) == 1 and words in holds[0]["reason"]


def test_when_another_thing_holds_it_that_is_another_decision():
    state = BreakerState(since_start=1000, cool_down=1, pauses_ns=(START_NS, START_NS + SECOND))
    assert obstacle(state, LIMITS, START_NS + 5 * SECOND, is_lr_rising=True).kind == "day"
    later = START_NS + DAY_NS + 2 * SECOND
    assert obstacle(state, LIMITS, later, is_lr_rising=True).kind == "cool_down"
    assert obstacle(replace(state, cool_down=0), LIMITS, later, is_lr_rising=True).kind == "warm_up"
    assert obstacle(replace(state, cool_down=0), LIMITS, later, is_lr_rising=False) is None
    engine = Engine("run")
    feed(engine, [*curve(800), event("attempt_start", None, attempt=2)])
    steps = [Step(s.step, 2, s.time_ns, s.values) for s in curve(700, first=801, change=high_from(110, length=500))]
    feed(engine, steps[:100])
    assert "quiet points" in engine.breaker_hold()
    feed(engine, [event("control", 8000, desired="running", state="running", by="ana"), *steps[100:590]])
    reasons = [entry["reason"] for entry in engine.take_breaker_log() if entry["decision"] == "hold"]
    assert "disarmed" in reasons[0]


def test_times_that_are_none_name_no_next_pause():
    for pauses in ((None, START_NS), (-(10**30), 10**30)):
        words = obstacle(replace(BreakerState(since_start=1000), pauses_ns=pauses), LIMITS, None, is_lr_rising=False).words
        assert words == "2 of 2 automatic pauses of the last 24 h are used: it only alerts now"
    off = obstacle(BreakerState(since_start=1000), replace(LIMITS, pauses_per_day=0), None, is_lr_rising=False)
    assert off.words == "automatic pauses are switched off ([breaker] pauses_per_day = 0)"


def test_a_note_that_explains_the_loss_is_said():
    engine = Engine("run")
    feed(engine, [event("annotation", None, step=600, change="data_mix"), *curve(700)])
    assert engine.breaker_hold() == "a note explains the loss for 401 more points, unless it blows up"
