"""Rules on checkpoints: silent on runs that save, restart, pause and hang as healthy ones do."""

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
    troubles,
    without,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
