"""What the settings say of saves, and what ranks other than the first tell of them."""

from __future__ import annotations

import json
from pathlib import Path

from checkpoint_runs import RULES, at, findings, live_run, of, report, steps, told
from made_up import last_states

from trainvitals import settings
from trainvitals.detect.engine import Engine
from trainvitals.incidents.saves import saves_of
from trainvitals.records import Event, Severity
from trainvitals.watch.engines import engine_for


def planned_engine(tmp_path: Path, every: int) -> Engine:
    file = tmp_path / "trainvitals.toml"
    file.write_text(f'[[runs]]\nname = "r"\ndir = "{tmp_path}"\ncheckpoint_every_steps = {every}\n')
    read = settings.load(file)
    return engine_for(read, read.runs[0])


def overdue(engine: Engine, items, again=None):
    found = []
    for count, item in enumerate(items):
        found += engine.tick(item) if isinstance(item, int) else engine.update(item)
        if again is not None and count == 50:
            state = json.loads(json.dumps(engine.to_state()))
            engine = again
            engine.restore(state)
    return [one for one in last_states([*found, *engine.finish()]) if one.rule == "checkpoint_overdue"]


def test_a_save_is_late_by_the_interval_that_the_settings_plan_after_the_first_save(tmp_path):
    run = [*steps(1, 100, 0.0), told("persisted", 100, 101.0), *steps(101, 400, 101.0)]
    assert overdue(Engine("r"), run) == []
    (found,) = overdue(planned_engine(tmp_path, 100), run)
    assert found.severity is Severity.WARNING and found.expected == 100
    (again,) = overdue(planned_engine(tmp_path, 100), run, planned_engine(tmp_path, 100))
    assert again == found


def test_what_the_settings_plan_counts_more_than_what_the_trainers_own_settings_declare(tmp_path):
    declared = Event("metadata", at(0.5), data={"section": "config", "values": {"save_interval": 1000}})
    run = [declared, *steps(1, 100, 0.0), told("persisted", 100, 101.0), *steps(101, 400, 101.0)]
    (found,) = overdue(planned_engine(tmp_path, 100), run)
    assert found.expected == 100


def test_a_healthy_run_with_a_plan_has_no_finding(tmp_path):
    engine = planned_engine(tmp_path, 100)
    found = []
    for item in live_run(900, 100):
        found += engine.tick(item) if isinstance(item, int) else engine.update(item)
    assert [one for one in found if one.rule in RULES] == []


def test_the_part_of_a_rank_that_failed_stays_told_though_the_first_rank_is_done(tmp_path):
    failed = told("failed", 100, 102.0, rank=3, reason="No space left on device")
    run = [*steps(1, 100, 0.0), told("begun", 100, 101.0), failed, told("persisted", 100, 103.0), *steps(101, 150, 103.0)]
    (found,) = of(findings(run), "checkpoint_stuck")
    assert found.is_open and "No space left" in found.message
    (whole,) = of(findings([*run, report(100, second=160.0), *steps(151, 160, 161.0)]), "checkpoint_stuck")
    assert not whole.is_open and "saved now" in whole.message
    (later,) = of(findings([*run, told("persisted", 200, 210.0), *steps(201, 210, 211.0)]), "checkpoint_stuck")
    assert not later.is_open
    (save,) = saves_of(run_events(run))
    assert save.persisted_s is None and save.problem and save.step == 100


def run_events(run):
    return [item for item in run if isinstance(item, Event)]
