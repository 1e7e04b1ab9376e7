"""Saved state: continuing from it is the same as never having stopped, and it stays small."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from made_up import SECOND, START_NS, curve

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Step, split_nonfinite

QUICK = {
    "loss_spike": {"min_points": 20, "warmup_points": 30, "window": 40},
    "loss_divergence": {"page_after_points": 15, "rebase_after_points": 60},
    "loss_level_shift": {"block_points": 8, "rebase_after_points": 40},
    "loss_drift": {"block_points": 4},
    "loss_plateau": {"info_points": 60, "warning_points": 90},
    "grad_norm_spike": {"min_points": 20, "warmup_points": 30, "window": 40, "rebase_after_points": 30},
    "throughput_drop": {"bucket_s": 2.0, "min_points": 15, "recent_points": 4, "slow_points": 8, "rebase_after_points": 30},
    "stall": {"floor_s": 3.0, "first_step_s": 30.0, "min_points": 4},
}


def _stream(seed: int, points: int = 260) -> list[Step | Event | int]:
    """Steps, events and ticks (ints) with every kind of trouble at seeded places."""
    rng = random.Random(seed)
    items: list[Step | Event | int] = []
    now, step, attempt, trouble, left = START_NS, 0, 1, "", 0
    kinds = ["spike", "grad", "nan", "slow", "zero", "absent", "stale", "low"]
    for _ in range(points):
        now += SECOND
        step += 1
        if left == 0:
            trouble, left = (rng.choice(kinds), rng.randint(1, 45)) if rng.random() < 0.06 else ("", 1)
            left += 40 if trouble == "spike" and left > 20 else 0
        left -= 1
        values = {
            "loss": 2 + 5 * (1 + step / 20) ** -0.5 + rng.gauss(0, 0.02),
            "grad_norm": 0.3 * math.exp(rng.gauss(0, 0.1)),
            "tokens_per_s": 1000 * (1 + rng.gauss(0, 0.01)),
            "lr": 1e-4,
        }
        if trouble == "spike":
            values["loss"] += 1.5
        elif trouble == "grad":
            values["grad_norm"] *= 20
        elif trouble == "nan":
            values["loss"] = math.nan
        elif trouble == "slow":
            values["tokens_per_s"] *= 0.5
        elif trouble == "zero":
            values.update(loss=0.0, grad_norm=math.nan)
        elif trouble == "absent":
            del values["loss"]
        elif trouble == "stale":
            values["grad_norm"] = 7.0
        elif trouble == "low":
            values["loss"] = 0.01
        finite, nonfinite = split_nonfinite(values)
        items.append(Step(step, attempt, now if rng.random() < 0.95 else None, finite, nonfinite))
        chance = rng.random()
        if chance < 0.01:
            step, attempt = max(1, step - rng.randint(1, 60)), attempt + 1
            items.append(Event("attempt_start", now, attempt=attempt, data={"attempt": attempt}))
        elif chance < 0.02:
            step = max(1, step - rng.randint(1, 30))
        elif chance < 0.03:
            items.append(Event("phase", now, data={"phase": rng.choice(["paused", "eval", "checkpoint"]), "state": "begin"}))
            now += rng.randint(1, 50) * SECOND
            items.append(now)
        elif chance < 0.04:
            items.append(Event("annotation", now, data={"rules": ["loss_*"], "points": 30}))
        elif chance < 0.05:
            items.append(Event("fault", now, text="out of memory", data={"class": "out_of_memory"}))
            now += rng.randint(1, 90) * SECOND
            items.append(now)
        elif chance < 0.06:
            items.append(Event("control", now, data={"desired": "running", "state": "running", "by": "ana"}))
        elif chance < 0.08:
            now += rng.randint(1, 60) * SECOND
            items.append(now)
    return items


def _drive(engine: Engine, items: list[Step | Event | int]) -> list:
    found = []
    for item in items:
        found += engine.tick(item) if isinstance(item, int) else engine.update(item)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3))
@example(seed=1761, cuts=[0.0])  # goes back before a resume whose drop was being followed
def test_stopping_and_continuing_anywhere_gives_identical_findings(seed: int, cuts: list[float]):
    items = _stream(seed)
    through = Engine("run", QUICK)
    expected = _drive(through, items)
    places = sorted({int(cut * len(items)) for cut in cuts})
    engine, got, before = Engine("run", QUICK), [], 0
    for place in [*places, len(items)]:
        got += _drive(engine, items[before:place])
        saved = json.loads(json.dumps(engine.to_state(), allow_nan=False))
        engine = Engine("run", QUICK)
        engine.restore(saved)
        before = place
    assert got == expected
    assert engine.open_findings == through.open_findings
    assert engine.to_state() == through.to_state()
    assert engine.finish() == through.finish()


def test_the_streams_of_the_property_test_do_exercise_the_rules():
    rules = {finding.rule for seed in range(40) for finding in _drive(Engine("run", QUICK), _stream(seed))}
    assert {
        "loss_spike", "loss_divergence", "loss_nonfinite", "grad_norm_spike", "throughput_drop", "stall", "run_dead",
        "breaker_trip", "loss_outlier", "resume_rebound", "loss_implausible_drop",
    } <= rules  # fmt: skip


def test_a_state_is_independent_of_the_engine_it_was_taken_from():
    engine = Engine("run")
    steps = curve(300)
    for step in steps[:200]:
        engine.update(step)
    state = engine.to_state()
    kept = json.dumps(state)
    for step in steps[200:]:
        engine.update(step)
    assert json.dumps(state) == kept


def test_the_state_stays_below_200_kb_after_100000_points():
    engine = Engine("run")
    rng = random.Random(4)
    for k in range(1, 100_001):  # the windows are full long before; this is the promised number
        loss = 2 + 8 * (1 + k / 50) ** -0.3 + rng.gauss(0, 0.05) * (20 if rng.random() < 0.01 else 1)
        engine.update(Step(k, 1, START_NS + k * SECOND, {"loss": loss, "grad_norm": rng.random(), "tokens_per_s": 1e6 + k / 7}))
    assert len(json.dumps(engine.to_state())) < 200_000


def test_a_state_of_another_version_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="start anew"):
        Engine("run").restore({"version": 99})
