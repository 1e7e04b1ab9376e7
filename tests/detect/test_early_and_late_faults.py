"""Faults of young runs and of quiet ones that no rule for other kinds of runs may hide."""

from __future__ import annotations

import math
import random

import pytest
from made_up import alarms, curve, find, of_rule

from trainvitals.records import Severity, Step


@pytest.mark.parametrize("at", [70, 100, 150])
def test_a_run_of_every_step_that_goes_wrong_before_it_has_a_usual_level_is_a_warning(at: int) -> None:
    def goes_wrong(k: int, values: dict[str, float]) -> None:
        if k >= at:
            values["loss"] = 12.0 + (values["loss"] - 2.0) * 0.01

    found = find(curve(1000, change=goes_wrong, keep=("loss",)))
    assert any(f.detected_step <= at + 60 for f in alarms(found))


def test_a_young_run_that_falls_as_usual_is_none() -> None:
    for seed in range(6):
        assert alarms(find(curve(500, seed=seed, noise=0.1, keep=("loss",)))) == []


def test_a_young_run_that_goes_back_to_a_higher_loss_is_none() -> None:
    steps = [*curve(300, keep=("loss",)), *curve(300, first=40, attempt=2, seed=2, keep=("loss",))]
    assert alarms(find(steps)) == []


@pytest.mark.parametrize(("gap_s", "limit"), [(3600.0, 2), (120.0, 6), (1.0, 20)])
def test_no_number_from_the_start_on_is_critical_after_ten_minutes_or_twenty_points_and_the_breaker_pauses(
    gap_s: float, limit: int
) -> None:
    def none(k: int, values: dict[str, float]) -> None:
        values["loss"] = math.nan

    found = find(curve(60, seconds=gap_s, change=none, keep=("loss",)))
    (nonfinite,) = [f for f in of_rule(found, "loss_nonfinite") if f.severity is Severity.CRITICAL][:1]
    assert nonfinite.severity is Severity.CRITICAL
    (trip,) = of_rule(found, "breaker_trip")
    assert trip.detected_step <= limit + 3


def test_a_grad_norm_far_above_its_usual_is_a_warning_also_where_it_began_a_hundred_times_as_high() -> None:
    rng = random.Random(4)
    steps = []
    for k in range(3000):
        norm = (0.2 + 30.0 * math.exp(-k / 60)) * math.exp(rng.gauss(0, 0.1)) * (20.0 if k >= 2500 else 1.0)
        steps.append(Step(k + 1, 1, None, {"loss": 2.0 + 8.0 * (1 + k / 50) ** -0.5 + rng.gauss(0, 0.01), "grad_norm": norm}))
    assert any(f.detected_step <= 2510 for f in of_rule(alarms(find(steps)), "grad_norm_spike"))


def test_a_small_loss_that_jumps_above_what_counts_as_zero_is_one_incident_and_not_many() -> None:
    rng = random.Random(9)
    steps = [
        Step(k + 1, 1, None, {"loss": (8.0 * math.exp(-k / 100) + (0.005 if k < 3000 else 0.06)) * math.exp(rng.gauss(0, 0.2))})
        for k in range(3600)
    ]
    spikes = of_rule(alarms(find(steps)), "loss_spike")
    assert len(spikes) == 1
