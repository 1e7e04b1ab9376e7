"""Rules on checkpoints: each one fires, is silent on healthy runs, and goes on exactly from its saved state."""

from __future__ import annotations

import json
import random

import pytest
from checkpoint_runs import (
    alarms,
    at,
    findings,
    live_run,
    of,
    phase,
    pointer,
    report,
    start,
    step,
    steps,
    told,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainvitals.detect.checkpoint_book import CheckpointBook
from trainvitals.detect.engine import Engine
from trainvitals.detect.save_schedule import SaveSchedule
from trainvitals.detect.tunables import TUNABLES
from trainvitals.records import Event, Severity

SLOW = {"min_window_s": 100.0}

# -- healthy runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["save", "phase", "ends", "begins", "nothing"])
@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_healthy_run_has_no_finding(says, is_watched, is_async):
    run = live_run(1500, 100, says=says, is_watched=is_watched, is_async=is_async, save_s=30 if is_async else 2)
    assert findings(run) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    every=st.integers(40, 300), keep=st.integers(2, 5), says=st.sampled_from(["save", "phase", "ends", "begins", "nothing"]),
    is_watched=st.booleans(), is_async=st.booleans(), share=st.floats(0.001, 0.04), step_s=st.sampled_from([0.2, 1.0, 3.0]),
)  # fmt: skip
def test_no_healthy_schedule_of_saves_has_a_finding(every, keep, says, is_watched, is_async, share, step_s):
    save_s = every * step_s * (0.8 if is_async else share)
    run = live_run(
        every * 9 + 17, every, keep=keep, says=says, is_watched=is_watched, is_async=is_async, save_s=save_s, step_s=step_s
    )
    assert findings(run) == []


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), small=st.integers(20, 80), times=st.floats(1.3, 12.0))
def test_two_schedules_at_once_are_no_late_save(seed, small, times):
    large = round(small * times)
    rng = random.Random(seed)
    items, now = [], 0.0
    for number in range(1, small * 40):
        now += 1
        items.append(step(number, now))
        if number % small == 0 or number % large == 0 or rng.random() < 0.002:  # ... and somebody saves by hand
            items += [phase("begin", number, now), phase("end", number, now + 1)]
            now += 1
    assert of(findings(items), "checkpoint_overdue") == []


@pytest.mark.parametrize("kind", ["exponential", "lognormal", "growing", "multiples", "rarer"])
def test_a_run_that_saves_when_its_loss_improves_is_never_surely_late(kind):
    draws = {
        "exponential": lambda rng, k: rng.expovariate(1 / 500),
        "lognormal": lambda rng, k: rng.lognormvariate(6, 1),
        "growing": lambda rng, k: 20 * 1.15 ** min(k, 60) * rng.uniform(0.5, 2),
        "multiples": lambda rng, k: 100 * (1 + int(rng.expovariate(0.36))),
        "rarer": lambda rng, k: 100 * (1 + int(rng.expovariate(1 / (1 + k / 10)))),
    }
    late = 0
    for seed in range(20):
        rng, schedule, number = random.Random(seed), SaveSchedule(4, 8), 0
        for k in range(300):
            gap, interval = max(1, round(draws[kind](rng, k))), schedule.interval()
            late += interval is not None and gap > (2 if interval.is_sure else 4) * interval.steps
            number += gap
            schedule.saved(number, number * 10**9)
    assert late <= 1, "of 6,000 saves"


def test_a_usual_interval_is_sure_after_eight_of_its_kind():
    few = findings(live_run(1500, 100, stop_saving_after=700, is_watched=False))
    assert [(f.rule, f.severity) for f in few] == [("checkpoint_overdue", Severity.WARNING)], "at four times the interval"
    early = findings(live_run(1000, 100, stop_saving_after=700, is_watched=False))
    assert [(f.rule, f.severity) for f in early] == [("checkpoint_overdue", Severity.INFO)]


def test_a_restart_that_saves_the_same_step_again_is_no_finding():
    first = live_run(1050, 100)
    second = live_run(1500, 100, first_step=1001, attempt=2, second=1200, existing=[800, 900, 1000])
    assert findings([*first, start(2, 1200, 1000), *second]) == []
    again = live_run(1500, 100, first_step=901, attempt=2, second=1200, existing=[700, 800, 900])
    # Step 1,000 was there: but it was being saved when the trainer died.
    lost = [*first, report(1000, "incomplete", 1190), start(2, 1200, 900), *again]
    assert of(findings(lost), "resume_behind") == []


def test_a_local_and_a_shared_copy_of_each_save_are_no_finding():
    items = []
    for item in live_run(1000, 50):
        items.append(item)
        if isinstance(item, Event) and item.kind == "checkpoint" and item.step and item.step % 100 == 0:
            data = {**item.data, "path": item.data["path"].replace("/c/", "/shared/")}
            items.append(Event("checkpoint", item.time_ns, step=item.step, data=data))
    assert findings(items) == []


def test_long_evaluations_between_the_saves_are_no_finding():
    items, now = [], 0.0
    for number in range(1, 1001):
        now += 1
        items.append(step(number, now))
        if number % 100 == 0:
            items += [phase("begin", number, now), phase("begin", number, now, "eval"), phase("end", number, now + 500, "eval")]
            items.append(phase("end", number, now + 501))
            now += 501
    assert findings(items) == []


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


# -- checkpoint_corrupt ---------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_told_and_closes_when_it_is_gone():
    run = live_run(500, 100)
    bad = report(500, "corrupt", 600, reasons=["model.safetensors: cut short"])
    (found,) = findings([*run, bad, at(600)])
    assert (found.rule, found.severity, found.is_open, found.first_step) == ("checkpoint_corrupt", Severity.WARNING, True, 500)
    assert found.message == "checkpoint checkpoint-500 is corrupt: model.safetensors: cut short; newest verified: step 400"
    assert found.data["path"] == "/c/checkpoint-500"
    (gone,) = findings([*run, bad, at(600), report(500, "deleted", 700), at(700)])
    assert not gone.is_open
    (whole,) = findings([*run, bad, at(600), report(500, "verified", 700), at(700)])
    assert whole.message.endswith("; now it is verified")


def test_a_damaged_checkpoint_that_a_restart_would_load_is_critical_after_half_an_hour():
    run = [*live_run(500, 100), report(500, "corrupt", 600), pointer("/c/checkpoint-500", 500, 600), at(600)]
    assert {f.severity for f in of(findings(run), "checkpoint_corrupt")} == {Severity.WARNING}
    (found,) = of(findings([*run, at(2500)]), "checkpoint_corrupt")
    assert found.severity is Severity.CRITICAL
    assert "a restart would load it" in found.message
    assert of(findings([*run, at(2500)]), "resume_behind") == [], "one finding says it"


def test_the_last_checkpoint_that_breaks_is_critical():
    run = [step(1, 0), report(1, "complete", 1), at(2), report(1, "corrupt", 50), at(51)]
    (found,) = findings(run)
    assert found.severity is Severity.CRITICAL
    assert "no complete checkpoint is left" in found.message


def test_what_an_old_start_left_half_written_is_no_alarm():
    run = [step(1, 0), *(report(n, "verified", 10, written=n) for n in (3, 4, 5)), report(2, "incomplete", 10, written=2), at(11)]
    (found,) = findings(run)
    assert (found.rule, found.severity) == ("checkpoint_corrupt", Severity.INFO)


def test_a_thousand_damaged_checkpoints_are_told_in_bounded_findings():
    run = [step(1, 0), *(report(n, "corrupt", 10, written=n) for n in range(1, 1001)), at(11)]
    found = findings(run)
    assert len(found) == 11
    assert any("more checkpoints are incomplete or corrupt" in f.message for f in found)


def test_a_damaged_checkpoint_is_not_forgotten_among_hundreds_of_good_ones():
    run = [step(1, 0), report(1, "corrupt", 1), *(report(n, "verified", n, written=n) for n in range(2, 400)), at(401)]
    run += [*(report(n, "verifying", 500 + n, written=n) for n in range(2, 50)), at(600)]
    run += [*(report(n, "verified", 600 + n, written=n) for n in range(2, 50)), at(700)]
    (found,) = findings(run)
    assert (found.rule, found.is_open) == ("checkpoint_corrupt", True)


def test_a_pinned_copy_is_no_save_of_its_own():
    book = CheckpointBook()
    for number in (1, 2):
        saved = report(number, "verified", number)
        book.take(saved.data, saved.time_ns)
        pinned = report(number, "verified", 50 + number, written=number, path=f"/c/.trainvitals-pinned/checkpoint-{number}")
        book.take(pinned.data, pinned.time_ns)
    assert (book.completed, len(book.entries)) == (2, 4)


# -- checkpoint_no_optimizer ----------------------------------------------------------------------------------------


def without(number: int, second: float) -> Event:
    return report(number, "verified", second, has_optimizer=False)


def test_a_run_that_no_longer_saves_its_optimizer_is_told():
    run = [i for i in live_run(600, 100) if not (isinstance(i, Event) and i.kind == "checkpoint" and (i.step or 0) > 400)]
    lost = [without(500, 701), without(600, 702), *steps(601, 640, 703), at(750)]
    (found,) = of(findings([*run, *lost]), "checkpoint_no_optimizer")
    assert (found.severity, found.is_open, found.expected) == (Severity.WARNING, True, 400)
    back = [report(700, "verified", 800), at(801)]
    assert not of(findings([*run, *lost, *back]), "checkpoint_no_optimizer")[0].is_open


def test_a_last_save_of_the_weights_alone_is_a_mark():
    run = live_run(605, 100)
    (found,) = findings([*run, without(605, 650), at(651), pointer("/c/checkpoint-605", 605, 652), at(653)])
    assert (found.rule, found.severity) == ("checkpoint_no_optimizer", Severity.INFO)


def test_weights_saved_in_between_are_no_alarm():
    items = []
    for item in live_run(1500, 100):
        items.append(item)
        if isinstance(item, Event) and item.kind == "checkpoint" and item.data["state"] == "verified" and item.time_ns:
            half = Event("checkpoint", item.time_ns + 1, step=item.step + 20, data={
                **item.data, "path": f"/w/weights-{item.step}", "step": item.step + 20, "has_optimizer": False,
                "modified_at_ns": item.data["modified_at_ns"] + 1,
            })  # fmt: skip
            items.append(half)
    assert alarms(findings(items)) == []


def test_an_old_checkpoint_whose_optimizer_is_stripped_is_no_alarm():
    run = live_run(600, 100, keep=9)
    stripped = [report(n, "verified", 700 + n, written=700 + n, has_optimizer=False) for n in (100, 200, 300)]
    assert findings([*run, *stripped, *steps(601, 700, 1100), at(1300)]) == []


def test_a_run_that_would_go_on_from_weights_alone_is_told():
    run = [*steps(1, 200, 0), without(100, 150), at(201), pointer("/c/checkpoint-100", 100, 202), at(203)]
    (found,) = of(findings(run), "checkpoint_no_optimizer")
    assert found.severity is Severity.WARNING
    assert "a restart would load it" in found.message


# -- checkpoint_too_few_verified ------------------------------------------------------------------------------------


def test_a_run_that_keeps_one_checkpoint_is_told():
    run = live_run(3000, 100, keep=1)
    (found,) = of(findings(run), "checkpoint_too_few_verified")
    assert (found.severity, found.expected) == (Severity.WARNING, 2)


def test_two_verified_ones_in_rotation_are_enough():
    assert findings(live_run(4000, 50, keep=2, verify_s=40)) == []


def test_complete_ones_of_a_format_that_cannot_be_verified_are_a_mark():
    items = [i for i in live_run(3000, 100) if not (isinstance(i, Event) and i.data.get("state") == "verified")]
    (found,) = of(findings(items), "checkpoint_too_few_verified")
    assert found.severity is Severity.INFO
    assert "not verified" in found.message


# -- resume_behind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [300, None])
def test_a_start_from_an_older_checkpoint_is_told_until_its_steps_are_passed(resumed):
    run = [*live_run(550, 100), start(2, 700, resumed), *steps(301, 340, 710, attempt=2)]
    (found,) = of(findings(run), "resume_behind")
    assert (found.severity, found.is_open, found.value, found.expected) == (Severity.WARNING, True, 300, 500)
    assert "verified checkpoint checkpoint-500 of step 500 was there" in found.message
    (ended,) = of(findings([*run, *steps(341, 520, 760, attempt=2)]), "resume_behind")
    assert not ended.is_open


def test_a_start_from_scratch_that_costs_hours_is_critical():
    run = [*live_run(550, 100, step_s=60), start(2, 40_000), *steps(1, 20, 40_010, attempt=2)]
    (found,) = of(findings(run), "resume_behind")
    assert found.severity is Severity.CRITICAL
    assert "started from scratch" in found.message


def test_a_start_from_the_newest_checkpoint_is_fine():
    assert findings([*live_run(550, 100), start(2, 700, 500), *steps(501, 600, 710, attempt=2)]) == []
    assert findings([*live_run(550, 100), start(2, 700), *steps(500, 600, 710, attempt=2)]) == []


def test_a_sparse_log_does_not_make_a_start_look_behind():
    items = [i for i in live_run(1000, 100) if not (hasattr(i, "values") and i.step % 10)]
    assert findings([*items, start(2, 1300), *steps(1000, 1100, 1310, attempt=2, every=10)]) == []


def test_a_start_from_scratch_is_found_from_a_log_alone():
    first = live_run(550, 100, says="phase", is_watched=False)
    log = [item for item in first if not isinstance(item, int)]
    (found,) = findings([*log, start(2, 700), *steps(1, 20, 710, attempt=2)])
    assert found.rule == "resume_behind"
    # The last one may not have been durable when it died.
    assert findings([*log, start(2, 700), *steps(401, 420, 710, attempt=2)]) == []


def test_going_back_before_a_loss_incident_is_a_mark():
    engine_run = [*live_run(550, 100)]
    engine = Engine("r")
    for item in engine_run:
        engine.tick(item) if isinstance(item, int) else engine.update(item)
    engine._checkpoints._sick_from = 450
    found = engine.update(start(2, 700, 400))
    found += engine.update(step(401, 710, 2))
    (behind,) = [f for f in found if f.rule == "resume_behind"]
    assert behind.severity is Severity.INFO


def test_checkpoints_counted_in_other_units_are_never_behind():
    tokens = [report(n * 1_000_000, "verified", n, written=n) for n in (1, 2, 3)]
    run = [*steps(1, 500, 0), at(500), *tokens, at(501), start(2, 600), *steps(1, 20, 610, attempt=2)]
    assert of(findings(run), "resume_behind") == []


def test_what_was_written_after_the_start_was_not_missed():
    run = [
        *steps(1, 500, 0),
        at(500),
        start(2, 600),
        report(300, "verified", 605, written=604),
        at(605),
        *steps(1, 9, 610, attempt=2),
    ]
    assert of(findings(run), "resume_behind") == []


def test_a_pointer_that_is_behind_is_told_after_ten_minutes_and_ends_when_it_is_right():
    run = [*live_run(500, 100), pointer("/c/checkpoint-300", 300, 600), at(600), at(900)]
    assert of(findings(run), "resume_behind") == []
    (found,) = of(findings([*run, at(1300)]), "resume_behind")
    assert found.message == "a restart would load checkpoint-300 (latest); newest verified is step 500"
    assert (found.severity, found.value, found.expected) == (Severity.WARNING, 300, 500)
    (ended,) = of(findings([*run, at(1300), pointer("/c/checkpoint-500", 500, 1400), at(1401)]), "resume_behind")
    assert not ended.is_open


def test_no_pointer_means_a_start_from_scratch():
    run = [*live_run(500, 100), pointer(None, None, 600), at(600), at(1300)]
    (found,) = of(findings(run), "resume_behind")
    assert found.message == "a restart would begin from scratch (latest); newest verified is step 500"
    said = "There is no latest, so a restart would begin at step 0, although step 500 is complete here."
    (found,) = of(findings([*live_run(500, 100), pointer(None, None, 600, said), at(600), at(1300)]), "resume_behind")
    assert found.message == said


def test_a_pointer_at_a_save_in_progress_is_waited_for():
    run = [*live_run(500, 100), report(600, "writing", 600), pointer("/c/checkpoint-600", 600, 600), at(600), at(3000)]
    assert of(findings(run), "resume_behind") == []


def test_the_highest_number_may_be_left_behind_by_an_earlier_start():
    run = [*live_run(500, 100), start(2, 600, 300), *steps(301, 420, 600, attempt=2)]
    run += [report(400, "verified", 720, written=715), pointer("/c/checkpoint-500", 500, 730), at(730), at(1400)]
    found = [f for f in of(findings(run), "resume_behind") if f.data["kind"] == "would_load"]
    assert len(found) == 1
    assert "an earlier start left behind" in found[0].message


# -- state, hostile data --------------------------------------------------------------------------------------------


def troubles() -> list:
    run = live_run(280, 40, keep=1, save_s=4)
    run += [report(280, "corrupt", 900), pointer("/c/checkpoint-240", 240, 900), without(250, 910), at(910), at(2800)]
    run += [told("begun", 290, 2801), at(9000), start(2, 9100, 100), *steps(101, 130, 9110, attempt=2)]
    return run


@pytest.mark.parametrize("each", [1, 7])
def test_going_on_from_the_state_after_any_record_finds_the_same(each):
    items = troubles()
    expected = findings(items)
    assert {"checkpoint_corrupt", "checkpoint_stuck", "resume_behind"} <= {f.rule for f in expected}
    # A state through JSON at each record of a thousand takes long: the steps in the middle are alike.
    assert findings(items, restart_each=each if each > 1 else 3) == expected


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_within_one_look_does_not_matter(rng):
    look = [report(n, "verified", 600, written=n) for n in (200, 300, 400)] + [without(500, 600), report(450, "corrupt", 600)]
    look.append(pointer("/c/checkpoint-300", 300, 600))
    rng.shuffle(look)
    head, tail = live_run(550, 10_000), [at(601), at(700), at(3000)]

    def told_of(found):
        return sorted((f.rule, f.severity, f.message) for f in found)

    expected = told_of(findings([*head, *sorted(look, key=lambda e: str(e.data)), *tail]))
    assert told_of(findings([*head, *look, *tail])) == expected


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip
names = st.sampled_from(
    ["path", "state", "step", "directory", "how", "problem", "modified_at_ns", "has_optimizer", "reasons", "blocked_s",
     "phase", "section", "values", "resumed_from_step"]
)  # fmt: skip
values = anything | st.sampled_from(
    ["corrupt", "verified", "writing", "begun", "persisted", "checkpoint", "/c/x", "config", 10**30]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Event, kind=st.sampled_from(["checkpoint", "save", "pointer", "phase", "resume", "attempt_start", "metadata"]),
            time_ns=st.none() | st.integers(0, 2**62), step=st.none() | st.integers(0, 2**62), data=st.dictionaries(names, values, max_size=6),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_no_event_of_a_strange_file_breaks_the_rules(events):
    engine = Engine("r")
    for number, event in enumerate(events):
        engine.update(event)
        engine.update(step(number, number))
        engine.tick(at(number + 0.5))
    engine.finish()
    json.dumps(engine.to_state(), allow_nan=False)


def test_the_state_stays_small_with_ten_thousand_checkpoints():
    engine = Engine("r")
    engine.update(step(1, 0))
    for n in range(10_000):
        engine.update(report(n, "corrupt" if n % 3 else "verified", n, path="/x/" + "y" * 3000 + str(n), reasons=["z" * 5000]))
    engine.tick(at(10_001))
    assert len(json.dumps(engine.to_state())) < 200_000


# -- what the hook compared at a resume -----------------------------------------------------------------------------


def resume_check(second: float, **differs) -> Event:
    check = {"path": "/c/checkpoint-500", "step": 500, "config_is_equal": True, "script_is_equal": True, "has_optimizer": True}
    return Event("message", at(second), step=500, text="resumed", data={"resume_check": check | differs})


def settings_findings(items) -> list:
    engine = Engine("r")
    found = [f for item in items for f in (engine.tick(item) if isinstance(item, int) else engine.update(item))]
    found += engine.finish()
    return [f for f in found if f.rule == "resume_config_changed"]


@pytest.mark.parametrize(("attempt", "severity"), [(2, Severity.WARNING), (1, Severity.INFO)])
def test_a_checkpoint_that_other_settings_saved_is_told(attempt, severity):
    head = [*steps(1, 500, 0), start(2, 600, 500)] if attempt == 2 else []
    check = resume_check(605, config_is_equal=False, script_is_equal=False)
    (found,) = settings_findings([*head, check, *steps(501, 540, 610, attempt=attempt)])
    assert found.severity is severity
    assert found.message.startswith("config and script not as when checkpoint-500 was saved")
    assert settings_findings([*head, resume_check(605), *steps(501, 540, 610, attempt=attempt)]) == []


def test_settings_that_were_compared_key_by_key_are_not_told_again():
    def told_settings(attempt, second, value):
        data = {"section": "config", "values": {"lr": value, "run_started_at": f"{second}"}, "part": 0, "parts": 1}
        return Event("metadata", at(second), attempt=attempt, data=data)

    def run(value):
        return [
            told_settings(1, 0, 1), *steps(1, 500, 1), start(2, 600, 500), told_settings(2, 601, value),
            resume_check(605, config_is_equal=False), *steps(501, 540, 610, attempt=2),
        ]  # fmt: skip

    assert len(settings_findings(run(2))) == 1
    assert "goes on from it" not in settings_findings(run(2))[0].message


def test_a_start_from_a_checkpoint_without_optimizer_is_told_until_the_next_start():
    run = [*live_run(550, 100), start(2, 700, 500), resume_check(701, has_optimizer=False), *steps(501, 540, 710, attempt=2)]
    (found,) = of(findings(run), "checkpoint_no_optimizer")
    assert (found.severity, found.is_open) == (Severity.WARNING, True)
    assert "attempt 2 goes on from checkpoint-500, which holds no optimizer state" in found.message
    assert not of(findings([*run, start(3, 800, 500)]), "checkpoint_no_optimizer")[0].is_open


def test_the_phases_of_a_trainer_that_tells_its_saves_are_not_counted_beside_them():
    items = []
    for item in live_run(1000, 100, is_async=True, save_s=40, is_watched=False):
        if isinstance(item, Event) and item.kind == "save" and item.data["state"] in ("begun", "staged"):
            state = "begin" if item.data["state"] == "begun" else "end"
            items.append(Event("phase", item.time_ns, step=item.step, data={"phase": "checkpoint", "state": state}))
        items.append(item)
    lost = [i for i in items if not (isinstance(i, Event) and i.data.get("state") == "persisted" and (i.step or 0) > 600)]
    assert findings(items) == []
    assert {f.rule for f in findings([*lost, *(at(1100 + k) for k in range(800))])} >= {"checkpoint_overdue", "checkpoint_stuck"}


# -- more of what healthy runs do -----------------------------------------------------------------------------------


def test_weights_saved_beside_whole_checkpoints_are_nothing_to_go_on_from():
    run = [*live_run(550, 100), without(540, 690), at(691), pointer("/c/checkpoint-500", 500, 692), at(692), at(1800)]
    assert of(findings(run), "resume_behind") == []
    again = [*live_run(550, 100), without(540, 690), at(691), start(2, 700, 500), *steps(501, 530, 710, attempt=2)]
    assert of(findings(again), "resume_behind") == []


def test_a_half_written_directory_of_an_earlier_death_is_no_save_that_hangs():
    run = [
        *live_run(500, 100),
        report(350, "writing", 600, path="/c/checkpoint-350.tmp"),
        *(at(600 + 600 * k) for k in range(20)),
    ]
    assert of(findings(run), "checkpoint_stuck") == []


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_life_of_deaths_restarts_pauses_and_other_directories_gives_no_alarm(seed):
    """Every start goes on from the newest checkpoint that was whole, as it should."""
    rng = random.Random(seed)
    every, keep, step_s = rng.choice([50, 100, 170]), rng.randint(2, 4), rng.choice([0.5, 1.0, 4.0])
    says, is_watched, is_async = rng.choice(["save", "phase", "ends", "nothing"]), rng.random() < 0.7, rng.random() < 0.5
    save_s = rng.uniform(0.5, 0.9) * every * step_s if is_async else 0.02 * every * step_s
    items, done, second = [], 0, 0.0
    for attempt in range(1, rng.randint(2, 4) + 1):
        last = done + rng.randint(every // 2, 5 * every)
        part = live_run(
            last, every, keep=keep, says=says, is_watched=is_watched, is_async=is_async, save_s=save_s, step_s=step_s, first_step=done + 1,
            attempt=attempt, second=second,
        )  # fmt: skip
        died = max(
            item if isinstance(item, int) else item.time_ns for item in part if isinstance(item, int) or hasattr(item, "values")
        )
        alive = [item for item in part if (item if isinstance(item, int) else item.time_ns) <= died]
        items += alive
        persisted = [
            i.step for i in alive if isinstance(i, Event) and (i.data.get("state") in ("persisted", "end") or (i.kind == "checkpoint" and i.data["state"] == "complete"))
        ]  # fmt: skip
        if says == "nothing" and not is_watched:
            persisted = [number for number in range(done + 1, last + 1) if number % every == 0][:-1]
        done = max([done, *persisted])
        second = (died - at(0)) / 1e9 + rng.uniform(30, 3000)
        items.append(Event("attempt_end", died, attempt=attempt, data={"attempt": attempt, "reason": "killed"}))
        items += [at(second - 5), start(attempt + 1, second, done if rng.random() < 0.5 else None)]
        if rng.random() < 0.3:
            items.append(Event("phase", at(second + 1), data={"phase": "paused", "state": "begin"}))
            items += [at(second + 1 + 60 * k) for k in range(30)]
            second += 1900
            items.append(Event("phase", at(second), data={"phase": "paused", "state": "end"}))
    assert alarms(findings(items)) == []


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), says=st.sampled_from(["save", "phase", "ends", "begins", "nothing"]),
    is_watched=st.booleans(), is_async=st.booleans(),
)  # fmt: skip
def test_records_of_several_sources_that_overtake_each_other_give_no_finding(seed, says, is_watched, is_async):
    rng = random.Random(seed)

    def read_at(item):
        return (item if isinstance(item, int) else item.time_ns) + rng.uniform(0, 3e9) * (not hasattr(item, "values"))

    run = live_run(900, 60, says=says, is_watched=is_watched, is_async=is_async, save_s=40 if is_async else 1.5)
    assert findings(sorted(run, key=read_at)) == []


@pytest.mark.parametrize("rule", ["checkpoint_blocking", "checkpoint_overdue", "checkpoint_stuck", "checkpoint_too_few_verified"])
@pytest.mark.parametrize("number", [0.0, 1e-9, 3.7, 1e308])
def test_no_number_in_the_settings_breaks_the_rules(rule, number):
    tunables = {rule: dict.fromkeys(TUNABLES[rule], number)}
    for finding in findings(troubles(), tunables=tunables):
        json.dumps(finding.data, allow_nan=False)
