"""Notes of people: the right rules, for the right steps."""

from __future__ import annotations

import json
import math

import pytest
from made_up import alarms, curve, event, feed, find, of_rule

from trainvitals.detect.annotations import CHANGES, rules_of
from trainvitals.detect.engine import Engine
from trainvitals.detect.rules import RULES
from trainvitals.records import Event, Step


def higher_from(first: int, by: float = 0.3):
    def change(k, values):
        if k >= first - 1:
            values["loss"] += by

    return change


def mixed(step: int | None = 600, **data) -> Event:
    return event("annotation", None, step=step, change="data_mix", by="ana", **data)


def test_a_table_of_changes_names_only_rules_that_exist():
    assert all(rule in RULES for rules in CHANGES.values() for rule in rules)


def test_a_pattern_never_means_what_must_not_be_overlooked():
    rules = list(RULES)
    assert "loss_nonfinite" not in rules_of({"rules": ["loss_*"]}, rules)
    assert {"loss_nonfinite", "breaker_trip", "run_dead", "pause_not_honoured"}.isdisjoint(rules_of({"rules": ["*"]}, rules))
    assert rules_of({"rules": ["loss_nonfinite"]}, rules) == ["loss_nonfinite"]
    assert rules_of({"rules": "loss_spike", "change": 7}, rules) == []


@pytest.mark.parametrize("told_at", [0, 300, 598])
def test_a_change_of_the_data_at_a_step_that_is_still_to_come_silences_from_there_on(told_at):
    steps = curve(1500, change=higher_from(600))
    assert alarms(find([*steps[:told_at], mixed(), *steps[told_at:]])) == []


def test_before_its_step_a_note_silences_nothing():
    def change(k, values):
        if 400 <= k < 420:
            values["loss"] += 2.0

    steps = curve(1000, change=change)
    assert of_rule(find([mixed(600), *steps]), "loss_spike")


def test_a_note_after_the_fact_closes_what_began_at_its_step_and_learns_the_new_level():
    steps = curve(1500, change=higher_from(600))
    engine = Engine("run")
    feed(engine, steps[:640])
    assert engine.open_findings
    closed = engine.update(mixed(600))
    assert closed and not any(finding.is_open for finding in closed)
    assert alarms(feed(engine, steps[640:])) == []


def test_what_began_long_before_the_step_of_a_note_is_not_explained_by_it():
    steps = curve(1500, change=higher_from(600, by=1.0))
    engine = Engine("run")
    feed(engine, steps[:640])
    assert engine.update(mixed(638)) == []
    assert of_rule(feed(engine, steps[640:700]), "loss_divergence")


def test_a_note_about_old_steps_silences_nothing_from_now_on():
    steps = curve(3000, change=higher_from(2501, by=1.0))
    assert of_rule(find([*steps[:2490], mixed(600), *steps[2490:]]), "loss_spike")


def test_a_run_that_goes_back_meets_its_note_again():
    steps = curve(1500, change=higher_from(600))
    again = [Step(s.step, 2, s.time_ns, s.values) for s in steps[400:]]
    assert alarms(find([mixed(), *steps, *again])) == []


def test_a_lowered_learning_rate_explains_a_lower_rate_and_no_spike():
    def change(k, values):
        if k >= 600:
            values["lr"] = 5e-5
        if 620 <= k < 640:
            values["loss"] += 2.0

    steps = curve(900, change=change)
    records = [*steps[:500], *(Step(s.step, 2, s.time_ns, {**s.values, "lr": 5e-5}) for s in steps[500:])]
    note = event("annotation", None, step=501, change="learning_rate")
    assert {f.rule for f in alarms(find(records))} == {"resume_lr_mismatch", "loss_spike", "breaker_alert"}
    assert {f.rule for f in alarms(find([note, *records]))} == {"loss_spike", "breaker_alert"}


def test_a_nan_is_told_whatever_a_note_says():
    def change(k, values):
        if k >= 700:
            values["loss"] = math.nan

    assert of_rule(find([mixed(), *curve(800, change=change)]), "loss_nonfinite")


def test_other_nodes_explain_another_throughput():
    def change(k, values):
        if k >= 600:
            values["tokens_per_s"] *= 0.8

    steps = curve(1000, change=change)
    assert of_rule(find(steps), "throughput_drop")
    assert not of_rule(find([event("annotation", None, step=600, change="nodes"), *steps]), "throughput_drop")


def test_notes_are_bounded_and_survive_a_restart():
    engine = Engine("run")
    feed(engine, [mixed(10_000 + k) for k in range(500)])
    engine.update(mixed(600))
    assert len(json.dumps(engine.to_state()["_notes"])) < 10_000
    again = Engine("run")
    again.restore(json.loads(json.dumps(engine.to_state())))
    assert alarms(feed(again, curve(1500, change=higher_from(600)))) == []
