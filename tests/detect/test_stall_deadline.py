"""The stall rule against its own promise: found within one poll, nothing false for what was announced or has been seen."""

from __future__ import annotations

import random

import pytest
from made_up import at, curve, event, feed, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity, Step

POLL_S = 5.0


class Watched:
    """An engine whose clock is polled while steps come, as ``watch`` does it."""

    def __init__(self) -> None:
        self.engine = Engine("run")
        self.now_s = 0.0
        self.step = 0
        self.stalls: list = []
        self._polled_s = 0.0

    def wait(self, seconds: float) -> None:
        end = self.now_s + seconds
        while self._polled_s + POLL_S <= end:
            self._polled_s += POLL_S
            self.stalls += of_rule(self.engine.tick(at(self._polled_s)), "stall")
        self.now_s = end

    def train(self, steps: int, seconds: float) -> None:
        for _ in range(steps):
            self.wait(seconds)
            self.step += 1
            self.stalls += of_rule(self.engine.update(Step(self.step, 1, at(self.now_s), {"loss": 3.0})), "stall")

    def phase(self, name: str, state: str) -> None:
        self.stalls += of_rule(self.engine.update(event("phase", self.now_s, phase=name, state=state)), "stall")


@pytest.mark.parametrize("step_s", [0.5, 8.0, 40.0])
def test_a_thousand_announced_evaluations_and_checkpoints_of_ten_steps_are_no_stall(step_s):
    rng = random.Random(3)
    watched = Watched()
    watched.train(20, step_s)
    for number in range(340):
        name = "eval" if number % 2 else "checkpoint"
        watched.phase(name, "begin")
        watched.wait(step_s * rng.uniform(1, 10))
        watched.phase(name, "end")
        watched.train(4, step_s)
    assert watched.stalls == []


@pytest.mark.parametrize("step_s", [0.5, 8.0, 40.0])
def test_a_thousand_unannounced_waits_that_the_run_has_shown_are_no_stall(step_s):
    rng = random.Random(4)
    watched = Watched()
    watched.train(20, step_s)
    watched.train(1, 11 * step_s)  # the first one nobody could know of
    watched.stalls.clear()
    for number in range(340):
        watched.train(5 if number % 50 else 300, step_s)
        watched.train(1, step_s * rng.uniform(1, 11))
    assert watched.stalls == []


@pytest.mark.parametrize("step_s", [0.5, 8.0, 40.0, 300.0])
def test_a_hang_is_found_within_one_poll_of_the_deadline_in_force_and_critical_within_one_of_twice_that(step_s):
    watched = Watched()
    watched.train(100, step_s)
    deadline_s = watched.engine.stall_deadline_s()
    assert deadline_s == pytest.approx(min(1800.0, max(60.0, 10 * step_s)))
    last_s = watched.now_s
    watched.wait(3 * deadline_s)
    opened, escalated = watched.stalls
    assert opened.severity is Severity.WARNING and escalated.severity is Severity.CRITICAL and escalated.id == opened.id
    assert deadline_s <= opened.value <= deadline_s + POLL_S
    assert 2 * deadline_s <= escalated.value <= 2 * deadline_s + POLL_S
    assert opened.time_ns == at(last_s + deadline_s)


def test_the_deadline_follows_the_longest_of_the_last_2000_gaps():
    watched = Watched()
    watched.train(100, 1.0)
    assert watched.engine.stall_deadline_s() == 60.0
    watched.train(1, 400.0)
    assert watched.engine.stall_deadline_s() == 600.0
    watched.train(1900, 1.0)
    assert watched.engine.stall_deadline_s() == 600.0
    watched.train(200, 1.0)
    assert watched.engine.stall_deadline_s() == 60.0


def test_evaluations_longer_than_the_cap_are_known_after_the_second_and_one_hang_that_was_overcome_hides_no_other():
    watched = Watched()
    watched.train(100, 200.0)
    watched.train(1, 10_000.0)
    assert watched.engine.stall_deadline_s() == 1800.0
    watched.train(150, 200.0)
    watched.train(1, 2000.0)
    watched.stalls.clear()
    for _ in range(4):
        watched.train(250, 200.0)
        watched.train(1, 2000.0)
    assert watched.stalls == []
    assert watched.engine.stall_deadline_s() == 3000.0


def test_a_hang_inside_an_announced_phase_is_found_from_what_such_phases_took():
    watched = Watched()
    watched.train(30, 2.0)
    for _ in range(3):
        watched.phase("checkpoint", "begin")
        watched.wait(100.0)
        watched.phase("checkpoint", "end")
        watched.train(10, 2.0)
    watched.phase("checkpoint", "begin")
    watched.wait(299.0)
    assert watched.stalls == []
    watched.wait(2.0 + POLL_S)
    (stall,) = watched.stalls
    assert "deadline 5 min" in stall.message


def test_a_gap_spent_in_an_announced_phase_is_not_the_pace_of_the_run():
    watched = Watched()
    watched.train(100, 2.0)
    watched.phase("checkpoint", "begin")
    watched.wait(900.0)
    watched.phase("checkpoint", "end")
    watched.train(5, 2.0)
    assert watched.engine.stall_deadline_s() == 60.0


def test_a_phase_that_never_says_that_it_ended_ends_with_the_next_step():
    engine = Engine("run")
    feed(engine, curve(100))
    engine.update(event("phase", 995, phase="eval", state="begin"))
    engine.update(Step(101, 1, at(1100), {"loss": 3.0}))
    assert engine.stall_deadline_s() == 157.5  # the wait counts as one that the run has shown


def test_an_unknown_phase_moves_nothing():
    engine = Engine("run")
    feed(engine, curve(100))
    engine.update(Event("phase", at(995), data={"phase": "something", "state": "begin"}))
    assert engine.stall_deadline_s() == 100.0


@pytest.mark.parametrize("step_s", [5_280.0, 9_600.0])
def test_a_log_that_tells_a_step_once_in_hours_is_no_stall_and_its_hang_is_one(step_s):
    watched = Watched()
    watched.engine.update(event("attempt_start", 0.0))
    watched.train(1, step_s)
    watched.stalls.clear()  # nobody can know yet how slow it is
    watched.train(40, step_s)
    watched.train(1, 1.3 * step_s)
    watched.train(40, step_s)
    assert watched.stalls == []
    assert watched.engine.stall_deadline_s() == pytest.approx(1.5 * step_s)
    watched.wait(1.5 * step_s + POLL_S)
    assert [finding.severity for finding in watched.stalls] == [Severity.WARNING]
    watched.wait(1.5 * step_s + POLL_S)
    assert watched.stalls[-1].severity is Severity.CRITICAL


def test_a_slow_log_is_known_for_one_after_a_restart_too():
    watched = Watched()
    watched.train(30, 7_000.0)
    watched.engine.update(event("attempt_start", watched.now_s))
    watched.stalls.clear()
    watched.train(3, 7_000.0)
    assert watched.stalls == []


def test_a_hang_that_was_overcome_in_a_young_run_hides_no_other():
    watched = Watched()
    watched.train(6, 5.0)
    watched.train(1, 10_000.0)
    assert watched.engine.stall_deadline_s() == 1800.0


def test_the_first_gap_of_an_old_slow_log_is_its_pace_and_no_stall():
    engine = Engine("run")
    found = [finding for step in range(12) for finding in engine.update(Step(100 * step, 1, at(5_280.0 * step), {"loss": 3.0}))]
    assert of_rule(found, "stall") == []
