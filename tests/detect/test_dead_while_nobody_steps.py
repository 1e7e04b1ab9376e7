"""A trainer that dies in a pause is dead, and so is one that was ended for a way back and never started again: no step tells either."""

from __future__ import annotations

import json

import pytest

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity, Step

S = 10**9
T0 = 1_700_000_000 * S
END_NS = T0 + 300 * S


class Run:
    def __init__(self):
        self.engine, self.found = Engine("r"), {}
        self.take(Event("attempt_start", T0, attempt=1, id="s"))
        for step in range(1, 301):
            self.take(Step(step, 1, T0 + step * S, {"loss": 2.0}, {}))

    def take(self, record):
        self.keep(self.engine.update(record))

    def keep(self, findings):
        self.found.update({finding.id: finding for finding in findings})

    def say(self, kind, after_s, /, severity=Severity.INFO, **data):
        self.take(Event(kind, END_NS + after_s * S, step=300, attempt=1, id=f"{kind}/{after_s}", severity=severity, data=data))

    def wait(self, from_s, to_s):
        for second in range(from_s, to_s, 10):
            self.keep(self.engine.tick(END_NS + second * S))

    @property
    def rules(self):
        return {finding.rule for finding in self.found.values() if finding.is_open and finding.severity is Severity.CRITICAL}


DEATHS = [
    ("process_gone", "run_dead"), ("out_of_memory", "out_of_memory"), ("nccl_timeout", "nccl_timeout"), ("crashed", "run_dead"),
    ("killed", "run_dead"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rule"), DEATHS)
def test_a_death_in_a_pause_is_told_after_its_grace_also_over_a_restart_of_the_watchdog(kind, rule):
    run = Run()
    run.say("control", 10, state="paused")
    run.say("fault", 20, Severity.CRITICAL, **{"class": kind})
    state = json.loads(json.dumps(run.engine.to_state()))
    run.engine = Engine("r")
    run.engine.restore(state)
    run.wait(30, 1_800)
    assert rule in run.rules


def test_a_deadly_line_before_a_pause_that_the_trainer_heard_of_says_nothing_in_the_pause():
    run = Run()
    run.say("fault", 5, Severity.CRITICAL, **{"class": "crashed"})
    run.say("control", 10, state="paused")
    run.wait(20, 7_200)
    assert run.rules == set()


def way_back():
    run = Run()
    run.say("supervisor", 10, state="ending", why="rollback")
    run.say("attempt_end", 20, reason="killed", exit_code=-15)
    return run


def test_a_way_back_after_which_nothing_is_started_is_told():
    run = way_back()
    run.wait(30, 800)
    assert run.rules == set()
    run.wait(800, 1_000)
    assert run.rules == {"run_dead"}
    run.say("attempt_start", 1_100)
    assert run.rules == set()


def test_a_way_back_that_goes_on_is_told_to_nobody():
    run = way_back()
    run.say("supervisor", 30, state="ended", kind="rollback")
    run.say("supervisor", 40, state="started")
    run.wait(50, 7_200)
    assert "run_dead" not in run.rules
