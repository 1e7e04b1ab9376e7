"""What the supervisor decides is a finding; it ends when the supervisor, or a person by hand, starts the trainer again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import at, curve, event, feed, of_rule

from trainvitals.detect.annotations import rules_of
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity

STEPS = curve(200)
TEXT = (
    "not starting it again: 3 starts in a row died. To go on: python -m trainvitals control resume /runs/a --by YOU --reason WHY"
)


def told(state: str, second: float = 1_000, text: str = "", **data: Any) -> Event:
    return replace(event("supervisor", second, state=state, **data), text=text)


def running() -> Engine:
    engine = Engine("run")
    feed(engine, STEPS[:100])
    return engine


def held(engine: Engine, **data: Any) -> Finding:
    (finding,) = engine.update(told("held", text=TEXT, **data))
    return finding


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("restart_loop", "restart_loop"),
        ("restart_failed", "restart_failed"),
        ("", "restart_failed"),
        ("resume_behind", "restart_failed"),
    ],
)
def test_a_hold_is_critical_whatever_its_reason(rule: str, found: str) -> None:
    finding = held(running(), rule=rule, reason="3 starts in a row died before their first step.")
    assert (finding.rule, finding.severity, finding.is_open, finding.family) == (found, Severity.CRITICAL, True, "liveness")
    assert finding.message == "the supervisor starts it no more: 3 starts in a row died before their first step"


def test_the_reason_of_an_older_supervisor_is_read_from_its_words() -> None:
    assert held(running()).message == "the supervisor starts it no more: 3 starts in a row died"


def test_a_supervisor_that_gives_up_is_told_too() -> None:
    (finding,) = running().update(told("gave_up", text="the trainer cannot start: no such file"))
    assert finding.rule == "restart_failed" and finding.message.endswith("the trainer cannot start: no such file")


@pytest.mark.parametrize(
    ("state", "text", "ending"),
    [
        ("released", "resumed by ana: disk was full", "; resumed by ana: disk was full"),
        ("started", "attempt 4 started", "; the trainer was started again"),
    ],
)
def test_it_ends_when_the_supervisor_goes_on(state: str, text: str, ending: str) -> None:
    engine = running()
    held(engine, rule="restart_loop")
    (closed,) = engine.update(told(state, 1_100, text))
    assert not closed.is_open and closed.message.endswith(ending)
    assert engine.update(told("started", 1_101)) == []


def test_it_ends_with_a_step_of_a_start_by_hand_and_not_with_a_late_one_of_the_start_that_died() -> None:
    engine = running()
    held(engine, rule="restart_loop")
    late = [replace(step, time_ns=at(995)) for step in STEPS[100:103]]
    assert not of_rule(feed(engine, late), "restart_loop")
    closed = of_rule(feed(engine, [replace(STEPS[103], time_ns=at(1_200))]), "restart_loop")
    assert [(one.is_open, one.message.endswith("; steps come again")) for one in closed] == [(False, True)]


def test_a_time_limit_is_a_mark_an_hour_before_and_a_warning_a_quarter_of_an_hour_before() -> None:
    engine = running()
    (first,) = engine.update(told("time_limit_near", 1_000, remaining_s=3_590.0, ends_at_ns=at(4_590)))
    assert (first.rule, first.severity, first.is_open) == ("time_limit_near", Severity.INFO, True)
    assert first.message == "the job's time limit ends the trainer in 59 min 50 s"
    (second,) = engine.update(told("time_limit_near", 3_700, remaining_s=890.0, ends_at_ns=at(4_590)))
    assert (second.id, second.severity, second.value) == (first.id, Severity.WARNING, 890.0)
    assert second.data["ends_at_ns"] == at(4_590)
    assert engine.update(told("time_limit_near", 3_701, remaining_s=880.0)) == []
    (closed,) = of_rule(engine.update(event("attempt_end", 4_590, reason="time_limit")), "time_limit_near")
    assert not closed.is_open


def test_when_a_time_limit_warns_can_be_set() -> None:
    engine = Engine("run", {"time_limit_near": {"warning_s": 7_200.0}})
    feed(engine, STEPS[:100])
    (finding,) = engine.update(told("time_limit_near", remaining_s=3_590.0))
    assert finding.severity is Severity.WARNING


def test_no_pattern_of_a_note_silences_that_nothing_is_started_any_more() -> None:
    assert {"restart_failed", "restart_loop"}.isdisjoint(rules_of({"rules": ["*"]}, Engine().rules))


def test_other_events_of_the_supervisor_are_no_findings() -> None:
    engine = running()
    found = [
        engine.update(told(state, text="x"))
        for state in ("started", "waiting", "phase", "recovering", "recovered", "stopped", "trouble")
    ]
    assert not any(found)


WORDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers(), max_size=2))
STATES = st.sampled_from(["held", "gave_up", "released", "started", "ended", "time_limit_near", "recovered", ""])


@given(st.lists(st.tuples(STATES, WORDS, WORDS, st.booleans()), max_size=12), st.integers(0, 12))
def test_whatever_stands_in_the_events_nothing_is_raised_and_a_restored_state_goes_on_as_before(told_, cut) -> None:
    events = [
        told("" if odd else state, 1_000.0 + n, f"{first}", rule=first, reason=second, remaining_s=second, ends_at_ns=first)
        for n, (state, first, second, odd) in enumerate(told_)
    ]
    whole, first = running(), running()
    found = feed(whole, events)
    begun = feed(first, events[:cut])
    second = Engine("run")
    second.restore(json.loads(json.dumps(first.to_state())))
    assert [*begun, *feed(second, events[cut:])] == found
    assert len(whole.open_findings) <= 4


@pytest.mark.parametrize("is_late", [False, True])
def test_an_end_that_somebody_asked_for_by_going_back_is_no_death(is_late: bool) -> None:
    engine = running()
    ending, end = (
        told("ending", 1_000, why="rollback"),
        event("attempt_end", 1_001, reason="exception: SystemExit", exit_code=143),
    )
    found = [each for one in ((end, ending) if is_late else (ending, end)) for each in engine.update(one)]
    found += engine.update(event("fault", 1_002, **{"class": "cancelled"}))
    found += engine.tick(at(1_200))
    assert [one.is_open for one in of_rule(found, "run_dead")] == ([True, False] if is_late else [])
    assert not engine.open_findings
    engine.update(event("attempt_start", 1_010, attempt=2))
    feed(engine, curve(20, first=90, attempt=2))
    died = of_rule(engine.update(event("attempt_end", 200, reason="exception: OOM", exit_code=1)), "run_dead")
    assert [(one.attempt, one.severity) for one in died] == [(2, Severity.CRITICAL)]


@pytest.mark.parametrize("why", ["hang", "shutdown", "resumed_behind"])
def test_an_end_by_the_supervisor_for_any_other_reason_is_one(why: str) -> None:
    engine = running()
    engine.update(told("ending", 1_000, why=why))
    found = engine.update(event("attempt_end", 1_001, reason="exception: SystemExit", exit_code=143))
    assert [one.rule for one in found] == ["run_dead"]


def test_a_job_that_keeps_its_nodes_while_nothing_trains_is_told_after_a_quarter_of_an_hour_and_pages_after_an_hour() -> None:
    engine = running()
    engine.update(event("attempt_end", 999, reason="stopped"))
    engine.update(told("held", 1_000, text=TEXT, road="allocation", nodes=64))
    assert not of_rule(engine.tick(at(1_890)), "run_dead_holding_nodes")
    (finding,) = of_rule(engine.tick(at(1_900)), "run_dead_holding_nodes")
    assert (finding.severity, finding.is_open, finding.data["nodes"]) == (Severity.WARNING, True, 64)
    assert finding.message == "nothing trains for 15 min, and the job keeps its 64 nodes: let the run go on, or end the job"
    (worse,) = of_rule(engine.tick(at(4_600)), "run_dead_holding_nodes")
    assert (worse.id, worse.severity) == (finding.id, Severity.CRITICAL)
    (closed,) = of_rule(engine.update(told("left", 4_700)), "run_dead_holding_nodes")
    assert not closed.is_open and closed.message.endswith("the supervisor left, and its job with it")
    assert [one.rule for one in engine.open_findings] == ["restart_failed"]


@pytest.mark.parametrize("road", ["", "resubmit", "requeue", None])
def test_a_supervisor_outside_of_the_job_holds_no_nodes(road: str | None) -> None:
    engine = running()
    engine.update(told("held", 1_000, text=TEXT, road=road, nodes=64))
    assert not of_rule(engine.tick(at(90_000)), "run_dead_holding_nodes")


def test_once_it_goes_on_no_nodes_are_idle() -> None:
    engine = running()
    engine.update(told("held", 1_000, text=TEXT, road="allocation"))
    engine.update(told("released", 1_100))
    assert not of_rule(engine.tick(at(90_000)), "run_dead_holding_nodes")
