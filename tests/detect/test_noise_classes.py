"""Healthy runs that are unlike a falling curve with bell-shaped noise, and the faults that must still be found in them."""

from __future__ import annotations

import math
import random

import pytest
from made_up import alarms, curve, find, of_rule

from bench.detection_curves import NOISE_CLASSES, healthy, inject, records
from trainvitals.records import Severity, Step

FLAT_POINTS = 9000


def _flat(points: int, lr: list[float] | None = None, *, level: float = 3.0, noise: float = 0.01) -> list[Step]:
    rng = random.Random(5)
    rate = [1e-4] * points if lr is None else lr
    return [Step(t + 1, 1, None, {"loss": level + rng.gauss(0, noise), "lr": rate[t]}) for t in range(points)]


@pytest.mark.parametrize("noise", NOISE_CLASSES)
def test_a_healthy_run_of_every_noise_class_raises_no_alarm(noise: str) -> None:
    rng = random.Random(f"test/{noise}")
    found = find(records(rng, healthy(rng, 4000, noise), noise))
    assert alarms(found) == []


@pytest.mark.parametrize("noise", [noise for noise in NOISE_CLASSES if noise not in ("averaged", "gaps", "resumes", "stairs")])
def test_a_run_of_every_noise_class_that_blows_up_is_critical(noise: str) -> None:
    rng = random.Random(f"test/{noise}")
    run = healthy(rng, 4000, noise)
    for t in range(3000, 4000):
        run.loss[t] += max(2.0, 40 * run.sigma[t])
    found = find(records(rng, run, noise))
    assert any(f.severity is Severity.CRITICAL and 3001 <= f.detected_step <= 3120 for f in found if f.family == "loss")


def test_a_flat_loss_is_a_plateau_and_a_flat_loss_in_the_warm_up_is_none() -> None:
    (told,) = of_rule(find(_flat(FLAT_POINTS)), "loss_plateau")
    assert told.severity is Severity.WARNING
    rising = [1e-4 * (t + 1) / FLAT_POINTS for t in range(FLAT_POINTS)]
    assert of_rule(find(_flat(FLAT_POINTS, rising)), "loss_plateau") == []


def test_the_time_of_a_plateau_counts_from_the_end_of_the_warm_up() -> None:
    warm_up = [1e-4 * min(1.0, (t + 1) / 5000) for t in range(FLAT_POINTS)]
    (told,) = of_rule(find(_flat(FLAT_POINTS, warm_up)), "loss_plateau")
    assert told.severity is Severity.INFO
    assert told.detected_step >= 5000 + 2000


def test_a_plateau_with_hardly_any_learning_rate_left_is_only_a_mark() -> None:
    spent = [1e-4 if t < 1000 else 1e-6 for t in range(FLAT_POINTS)]
    (told,) = of_rule(find(_flat(FLAT_POINTS, spent)), "loss_plateau")
    assert told.severity is Severity.INFO


def test_a_loss_that_lives_around_zero_has_no_plateau() -> None:
    assert of_rule(find(_flat(FLAT_POINTS, level=0.0)), "loss_plateau") == []


def test_a_negative_loss_has_spikes_like_any_other() -> None:
    def change(k: int, values: dict[str, float]) -> None:
        values["loss"] -= 14.0
        if 700 <= k < 720:
            values["loss"] += 1.0

    (told,) = of_rule(find(curve(1000, change=change)), "loss_spike")
    assert 700 <= told.first_step <= 702
    assert alarms(find(curve(1000, change=lambda k, values: values.update(loss=values["loss"] - 14.0)))) == []


def test_a_run_with_little_progress_for_its_noise_is_not_paged_for_giving_some_back() -> None:
    rng = random.Random(3)
    steps = []
    for t in range(2000):
        loss = -0.15 * min(1.0, t / 1000) + rng.gauss(0, 0.015) + (0.08 if 1500 <= t < 1505 else 0.0)
        steps.append(Step(t + 1, 1, None, {"loss": loss}))
    assert [f for f in find(steps) if f.severity is Severity.CRITICAL] == []


def test_a_lone_high_norm_beside_a_heavy_tailed_loss_stays_a_mark() -> None:
    rng = random.Random(9)
    steps = []
    for t in range(1200):
        loss = 2 + rng.gauss(0, 0.01 if rng.random() < 0.8 else 0.04)
        norm = 0.3 * math.exp(rng.gauss(0, 0.05)) * (12 if t == 900 else 1)
        steps.append(Step(t + 1, 1, None, {"loss": 2.05 if t == 901 else loss, "grad_norm": norm}))
    (told,) = of_rule(find(steps), "grad_norm_spike")
    assert told.severity is Severity.INFO


@pytest.mark.parametrize("buckets", [180, 260, 600])
def test_five_percent_less_throughput_is_found_in_a_young_run_too(buckets: int) -> None:
    def change(k: int, values: dict[str, float]) -> None:
        values["tokens_per_s"] = 1e6 * (1 + rng.gauss(0, 0.01)) * (0.95 if k >= buckets else 1.0)

    rng = random.Random(buckets)
    steps = curve(buckets + 100, keep=("tokens_per_s",), change=change)
    (told,) = of_rule(find(steps), "throughput_drop")
    assert buckets - 5 <= told.first_step <= told.detected_step <= buckets + 70
    assert told.severity is Severity.WARNING


def test_throughput_that_swings_two_percent_over_a_day_is_usual() -> None:
    rng = random.Random(2)
    run = healthy(rng, 9000, "diurnal")
    assert of_rule(find(records(rng, run)), "throughput_drop") == []
    inject(run, 6000, "throughput", 0.15, rng)
    (told,) = of_rule(find(records(rng, run)), "throughput_drop")
    assert told.detected_step > 6000


def _odd(places: tuple[int, ...], at: tuple[int, ...]) -> list[Step]:
    def change(k: int, values: dict[str, float]) -> None:
        values["loss"] += 0.5 if k in places or k in at else 0.0

    return curve(1200, keep=("loss",), change=change)


def test_three_odd_batches_within_five_points_are_a_spike_only_where_odd_batches_are_rare() -> None:
    near = (1000, 1002, 1004)
    assert len(of_rule(find(_odd((), near)), "loss_spike")) == 1
    many = (400, 500, 600, 700, 800, 900)
    assert of_rule(find(_odd(many, near)), "loss_spike") == []
    assert len(of_rule(find(_odd(many, (1000, 1001, 1002))), "loss_spike")) == 1
    assert len(of_rule(find(_odd(many, (1000, 1001, 1003, 1004))), "loss_spike")) == 1


def test_progress_given_back_pages_when_it_lasts_and_not_for_a_chance_of_three() -> None:
    def change(k: int, values: dict[str, float]) -> None:
        values["loss"] += 3.0 if k in places else 0.0

    places: tuple[int, ...] = (600, 602, 603)
    (told,) = of_rule(find(curve(800, keep=("loss",), change=change)), "loss_spike")
    assert told.severity is Severity.WARNING
    places = tuple(range(600, 606))
    (told,) = of_rule(find(curve(800, keep=("loss",), change=change)), "loss_spike")
    assert told.severity is Severity.CRITICAL


def test_a_rise_so_slow_that_the_usual_level_follows_it_becomes_critical_and_trips_the_breaker() -> None:
    def change(k: int, values: dict[str, float]) -> None:
        values["loss"] += min(1.5, 1.5 * max(0, k - 1000) / 200)

    found = find(curve(1500, noise=0.12, keep=("loss",), change=change))
    critical = [f for f in found if f.severity is Severity.CRITICAL and f.rule != "breaker_trip"]
    assert 1000 < min(f.detected_step for f in critical) <= 1120
    (spike,) = of_rule(found, "loss_spike")
    assert spike.expected == pytest.approx(3.75, abs=0.1)
    (trip,) = of_rule(found, "breaker_trip")
    assert 1100 < trip.detected_step <= 1250


def test_a_slow_rise_of_two_percent_is_no_spike() -> None:
    def change(k: int, values: dict[str, float]) -> None:
        values["loss"] += min(0.08, 0.08 * max(0, k - 1000) / 200)

    found = find(curve(1800, noise=0.01, keep=("loss",), change=change))
    assert of_rule(found, "loss_spike") == of_rule(found, "loss_divergence") == []
