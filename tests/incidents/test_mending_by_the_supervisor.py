"""A restart that goes on by the supervisor's own words wakes nobody; one that does not go on, or ends in a refusal, is told at once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.incidents.engine import IncidentEngine
from trainvitals.incidents.mending import Mending, Patience
from trainvitals.records import Event, Finding, Severity

S = 10**9
PHASES = {"start": 200.0, "load": 900.0, "first_step": 100.0}
DEATH = Finding(
    "f", "run_dead", "liveness", Severity.CRITICAL, 500, 500, None, 1, 0, None, None, "the trainer ended after step 500: crashed", True
)  # fmt: skip
STALL = replace(DEATH, id="s", rule="stall", value=210.0, message="no step for 3.5 min")


class Watch:
    """An engine, looked at each ten seconds."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.engine, self.now_s, self.is_supervised = IncidentEngine("r", patience), 0, True
        self.told: list[tuple[int, str]] = []
        self.engine.advance(0)

    def says(self, state: str, **data: object) -> None:
        self.engine.hear(Event("supervisor", self.now_s * S, id=f"{state}/{self.now_s}", data={"state": state, **data}))

    def starts(self, **usual_s: float) -> None:
        self.says("started", usual_s=usual_s, hang_s=1800.0)

    def find(self, finding: Finding, **changes: object) -> None:
        self.engine.add(replace(finding, **changes), self.now_s * S)

    def wait(self, seconds: int) -> list[str]:
        """What was told meanwhile."""
        begin = len(self.told)
        for _ in range(0, seconds, 10):
            self.now_s += 10
            self.engine.advance(self.now_s * S)
            for change in self.engine.take_changes(is_supervised=self.is_supervised):
                self.told.append((self.now_s, "healed" if change.is_healed else change.kind.value))
        return [kind for _, kind in self.told[begin:]]

    def steps(self, attempt: int, seconds: int) -> list[str]:
        told = []
        for _ in range(0, seconds, 10):
            self.engine.stepped(attempt)
            told += self.wait(10)
        return told


@pytest.fixture
def watch():
    made = Watch()
    made.starts(**PHASES)
    made.steps(1, 100)
    return made


def die(watch, attempt=1):
    watch.find(DEATH, id=f"f{attempt}", attempt=attempt)
    watch.says("ending", why="hang")
    watch.says("ended", attempt=attempt)


def test_a_restart_of_half_an_hour_that_goes_on_is_a_line_of_the_summary(watch):
    die(watch)
    assert watch.wait(500) == []
    watch.starts(**PHASES)
    watch.find(DEATH, id="f1", is_open=False, last_step=500)
    assert watch.wait(400) == []
    watch.says("phase", phase="start")
    assert watch.wait(1_200) == [], "twice the usual time to load"
    watch.says("phase", phase="load")
    watch.wait(300)
    assert watch.steps(2, 200) == ["healed"]


def test_a_phase_that_takes_longer_than_twice_its_usual_time_is_told(watch):
    die(watch)
    watch.starts(**PHASES)
    assert watch.wait(590) == []
    assert watch.wait(20) == ["opened"]


def test_a_trainer_that_tells_no_load_has_the_time_of_its_next_phase(watch):
    die(watch)
    watch.starts(start=20.0, first_step=700.0)
    watch.says("phase", phase="start")
    assert watch.wait(1_390) == []
    assert watch.wait(20) == ["opened"]


def test_nothing_is_kept_back_longer_than_the_whole_may_take(watch):
    die(watch)
    for _ in range(10):
        watch.wait(390)
        watch.starts(load=5_000.0)
        watch.says("phase", phase="start")
    ((second, kind),) = watch.told
    assert (second, kind) == (100 + 3_600, "opened") and watch.wait(3_600) == []


@pytest.mark.parametrize("state", ["held", "gave_up", "left", "kept_held"])
def test_a_supervisor_that_refuses_is_told_at_once(watch, state):
    die(watch)
    assert watch.wait(60) == []
    watch.says(state)
    assert watch.wait(10) == ["opened"]


def test_a_supervisor_that_vanishes_in_the_middle_of_a_restart_is_told_at_once(watch):
    die(watch)
    watch.starts(**PHASES)
    assert watch.wait(60) == []
    watch.is_supervised = False
    assert watch.wait(10) == ["opened"]


def test_starts_that_make_no_step_have_the_time_of_one_together_and_are_one_incident(watch):
    die(watch)
    for attempt in range(2, 12):
        watch.starts()
        watch.wait(30)
        watch.find(DEATH, id=f"f{attempt - 1}", attempt=attempt - 1, is_open=False)
        watch.wait(270)
        die(watch, attempt)
    assert watch.told == [(700, "opened")]
    watch.starts()
    watch.find(DEATH, id="f11", attempt=11, is_open=False)
    assert watch.steps(12, 200) == ["recovered"]


def test_a_hang_that_the_supervisor_is_about_to_end_waits_for_it_and_is_mended_like_a_death(watch):
    watch.says("started", usual_s=PHASES, hang_s=270.0)
    watch.steps(1, 100)
    watch.wait(210)
    watch.find(STALL)
    assert watch.wait(100) == []
    watch.says("ending", why="hang")
    watch.wait(60)
    watch.find(STALL, is_open=False)
    die(watch)
    watch.wait(200)
    watch.starts(**PHASES)
    watch.find(DEATH, id="f1", is_open=False, last_step=500)
    watch.wait(200)
    assert watch.steps(2, 200) == ["healed"] and [kind for _, kind in watch.told] == ["healed"]


def test_a_hang_that_the_supervisor_was_about_to_end_and_does_not_is_told_a_minute_after_its_time(watch):
    watch.says("started", usual_s=PHASES, hang_s=270.0)
    watch.steps(1, 10)
    watch.wait(210)
    watch.find(STALL)
    watch.wait(500)
    assert watch.told == [(110 + 270 + 60, "opened")]


def test_a_hang_is_told_at_its_own_deadlines_when_the_supervisor_lets_it_stand_for_half_an_hour(watch):
    watch.wait(210)
    watch.find(STALL, severity=Severity.WARNING)
    assert watch.wait(10) == ["opened"]
    watch.wait(200)
    watch.find(STALL)
    assert watch.wait(10) == ["escalated"]
    watch.wait(1_500)
    watch.says("ending", why="hang")
    watch.find(STALL, is_open=False)
    die(watch)
    watch.starts(**PHASES)
    watch.find(DEATH, id="f1", is_open=False, last_step=500)
    assert watch.steps(2, 600) == ["recovered"] and [kind for _, kind in watch.told] == ["opened", "escalated", "recovered"]


def test_a_hang_that_ends_by_itself_before_the_supervisor_acts_is_a_line_of_the_summary(watch):
    watch.says("started", usual_s=PHASES, hang_s=270.0)
    watch.steps(1, 10)
    watch.wait(210)
    watch.find(STALL)
    watch.wait(50)
    watch.engine.stepped(1)
    watch.find(STALL, is_open=False, last_step=501)
    assert watch.steps(1, 300) == ["healed"]


def test_a_hang_that_became_no_death_is_not_said_to_be_over_while_it_is_started_again(watch):
    watch.wait(210)
    watch.find(STALL)
    watch.says("ending", why="hang")
    watch.find(STALL, is_open=False)
    watch.says("ended")
    watch.starts(**PHASES)
    assert watch.wait(500) == []
    assert watch.wait(200)[0] == "opened"


def test_without_a_time_to_mend_everything_is_told_at_once():
    watch = Watch(Patience(mend_s=0.0))
    watch.starts(**PHASES)
    watch.find(STALL)
    assert watch.wait(10) == ["opened"]


def test_a_death_that_is_read_late_has_only_what_is_left_of_its_time(watch):
    watch.engine.add(DEATH, watch.now_s * S, age_ns=580 * S)
    assert watch.wait(10) == []
    assert watch.wait(20) == ["opened"]


def test_the_state_goes_on_after_a_kill_in_the_middle_of_a_restart(watch):
    die(watch)
    watch.starts(load=1_000.0)
    watch.says("phase", phase="start")
    watch.wait(900)
    state = json.loads(json.dumps(watch.engine.to_state()))
    watch.engine = IncidentEngine("r")
    watch.engine.restore(state)
    assert watch.wait(1_090) == []
    assert watch.wait(20) == ["opened"]


STATES = st.sampled_from(
    ["started", "adopted", "phase", "ending", "ended", "waiting", "released", "stopped", "done", "held", "other"]
)
SENT = st.tuples(
    STATES, st.sampled_from([None, "queue", "start", "load", "first_step", 3]), st.floats() | st.none() | st.text(max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENT, st.integers(0, 900)), max_size=30))
def test_whatever_a_supervisor_says_a_death_is_told_within_the_longest_time(said):
    mending, now_s = Mending(Patience()), 0
    mending.found(DEATH, 0)
    for (state, phase, number), after_s in said:
        data = {"state": state, "phase": phase, "seconds": number, "hang_s": number, "usual_s": {"load": number}}
        mending.hear(Event("supervisor", 0, id="e", data=data), now_s * S)
        json.dumps(mending.to_state())
        now_s += after_s
        if now_s >= 3_600:
            assert not mending.holds({"run_dead"}, 0, now_s * S)
