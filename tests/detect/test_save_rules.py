"""Rules on saves: late, hanging and blocking ones are told, and end."""

from __future__ import annotations

import pytest
from checkpoint_runs import (
    at,
    findings,
    live_run,
    of,
    phase,
    report,
    step,
    steps,
    told,
)

from trainvitals.records import Event, Severity

SLOW = {"min_window_s": 100.0}

# -- checkpoint_overdue ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["save", "phase", "ends", "begins", "nothing"])
def test_no_save_for_two_usual_intervals_is_told_and_ends_with_the_next_save(says):
    run = live_run(2200, 100, says=says, stop_saving_after=1200)
    (found,) = findings(run)
    assert (found.rule, found.severity, found.is_open) == ("checkpoint_overdue", Severity.WARNING, True)
    assert found.first_step == 1300
    assert 1400 <= found.detected_step <= (1406 if says != "nothing" else 1710)
    assert found.expected == 100
    later = [report(2200, "complete", 2300, written=2299), phase("end", 2200, 2300), told("persisted", 2200, 2300)]
    (ended,) = findings([*run, *later])
    assert not ended.is_open


def test_a_trainer_that_says_it_saves_while_nothing_appears_on_disk_is_told():
    run = [i for i in live_run(1900, 100) if not (isinstance(i, Event) and i.kind == "checkpoint" and (i.step or 0) > 1000)]
    (found,) = of(findings(run), "checkpoint_overdue")
    assert found.severity is Severity.WARNING
    assert "watched directories" in found.message


def test_a_trainer_that_no_longer_says_that_it_saves_is_not_late_when_it_does():
    run = [i for i in live_run(2500, 100) if not (isinstance(i, Event) and i.kind == "save" and (i.step or 0) > 1000)]
    assert findings(run) == []


def test_a_run_that_is_paused_or_hangs_is_not_late_with_its_save():
    run = live_run(650, 100)
    run.append(Event("phase", at(700), data={"phase": "paused", "state": "begin"}))
    run += [at(700 + 10 * k) for k in range(1000)]
    assert of(findings(run), "checkpoint_overdue") == []


def test_twice_the_steps_in_the_usual_time_is_no_late_save():
    slow = list(steps(1, 500, 0))
    saves = [phase("end", number, number + 0.5) for number in range(100, 501, 100)]
    items = sorted([*slow, *saves], key=lambda item: item.time_ns)
    fast = steps(501, 1400, 500, step_s=0.1)  # 900 steps in 90 s: the next save is due by time only
    assert findings([*items, *fast]) == []


def test_a_note_about_another_interval_makes_it_learn_anew():
    run = live_run(600, 100)
    note = Event("annotation", at(640), step=600, data={"rules": ["checkpoint_overdue"], "points": 500})
    after = live_run(4000, 700, first_step=601, second=640)
    assert of(findings([*run, note, *after]), "checkpoint_overdue") == []
    assert of(findings([*run, *after]), "checkpoint_overdue")


def test_an_interval_that_the_settings_declare_needs_one_save_only():
    declared = Event("metadata", at(0), data={"section": "config", "values": {"save_interval": "100"}})
    run = live_run(400, 100, says="ends", is_watched=False, stop_saving_after=100)
    assert of(findings([declared, *run]), "checkpoint_overdue")
    assert of(findings(run), "checkpoint_overdue") == []
    other = Event("metadata", at(0), data={"section": "config", "values": {"save_steps": 100, "save_strategy": "epoch"}})
    assert of(findings([other, *run]), "checkpoint_overdue") == []


# -- checkpoint_stuck -----------------------------------------------------------------------------------------------


def test_a_save_that_is_never_durable_is_told_after_three_times_the_usual():
    run = live_run(500, 100, is_async=True, save_s=300, keep=9, is_watched=False, says="save")
    lost = [item for item in run if not (isinstance(item, Event) and item.data.get("state") == "persisted" and item.step == 500)]
    wait = [at(600 + k) for k in range(2000)]
    found = of(findings([*lost, *wait]), "checkpoint_stuck")
    assert [(f.severity, f.is_open, f.first_step) for f in found] == [(Severity.WARNING, True, 500)]
    assert found[0].value == pytest.approx(900, abs=5)
    assert of(findings([*run, *wait]), "checkpoint_stuck") == []
    (ended,) = of(findings([*lost, *wait, told("persisted", 500, 2700)]), "checkpoint_stuck")
    assert not ended.is_open


def test_the_first_save_may_take_an_hour():
    begun = [step(1, 0), at(0), step(2, 1), told("begun", 2, 1), at(2)]
    assert findings([*begun, at(3500)]) == []
    assert [f.rule for f in findings([*begun, at(3700)])] == ["checkpoint_stuck"]


def test_a_log_that_prints_only_begins_never_says_that_a_save_hangs():
    run = live_run(600, 100, says="begins", is_watched=False)
    assert findings([*run, *(at(700 + 60 * k) for k in range(200))]) == []


def test_a_marker_of_an_unfinished_save_that_never_goes_away_is_told():
    run = [step(1, 0), at(1), step(2, 1), report(2, "writing", 5), *(at(5 + 60 * k) for k in range(70))]
    (found,) = findings(run)
    assert found.rule == "checkpoint_stuck"
    assert not findings([*run, report(2, "deleted", 5000)])[0].is_open


def test_a_save_that_grows_for_hours_is_not_stuck():
    run = [step(1, 0), at(1), step(2, 1)]
    for k in range(100):
        run += [report(2, "writing", 5 + 600 * k, bytes=k), at(5 + 600 * k)]
    assert findings(run) == []


def test_a_save_that_failed_is_told_until_the_next_one_is_durable():
    failed = Event("save", at(100), step=100, text="OSError: No space left on device", data={"state": "failed", "path": "/c/x"})
    run = [*steps(1, 100, 0), told("begun", 100, 100, "/c/x"), failed, *steps(101, 200, 101)]
    (found,) = findings(run)
    assert found.rule == "checkpoint_stuck"
    assert "No space left" in found.message
    assert not findings([*run, told("begun", 200, 202), told("persisted", 200, 203)])[0].is_open


def test_a_trainer_whose_clock_is_an_hour_behind_has_no_stuck_save():
    run = live_run(400, 100, is_async=True, save_s=60, is_watched=False)
    shifted = [item + 3600 * 10**9 if isinstance(item, int) else item for item in run]
    assert of(findings(shifted), "checkpoint_stuck") == []


# -- checkpoint_blocking --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("says", "severity"), [("save", Severity.WARNING), ("phase", Severity.WARNING), ("ends", Severity.INFO)])
def test_saves_that_take_a_tenth_of_the_time_are_told(says, severity):
    (found,) = findings(live_run(1500, 100, save_s=11, says=says, is_watched=False))
    assert (found.rule, found.severity) == ("checkpoint_blocking", severity)
    assert found.value == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_log_without_times_at_its_saves_is_judged_by_the_steps_around(is_async):
    items, now = [], 0.0
    for number in range(10, 8001, 10):
        now += 10
        items.append(step(number, now))
        if number % 500 == 0:
            items.append(phase("begin", number, None))
            now += 1 if is_async else 60
            items += [] if is_async else [phase("end", number, None)]
        if is_async and number % 500 == 40:
            items.append(phase("end", number - 40, None))
    found = findings(items)
    assert [(f.rule, f.severity) for f in found] == ([] if is_async else [("checkpoint_blocking", Severity.INFO)])


def test_saves_that_block_twice_as_long_as_before_are_told_and_end():
    items, now = [], 0.0
    for number in range(1, 4001):
        now += 1
        items.append(step(number, now))
        if number % 100 == 0:
            blocked_s = 20.0 if 2000 < number <= 2500 else 1.0
            items.append(told("persisted", number, now, blocked_s=blocked_s))
            now += blocked_s
    quiet = {"checkpoint_blocking": {"share": 0.5}}
    (found,) = findings(items, tunables=quiet)
    assert (found.rule, found.severity, found.is_open) == ("checkpoint_blocking", Severity.WARNING, False)
    assert 2100 <= found.detected_step <= 2300
    assert found.expected == 1.0


def test_asynchronous_saves_do_not_block():
    assert findings(live_run(1500, 100, is_async=True, save_s=80, is_watched=False)) == []
