"""Losses that are not those of a shuffled language model: solved, adversarial, reinforced, in the order of the data, bursting by habit.

Each kind has its healthy run, which alarms nobody, and the fault that must still be heard in it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import pytest
from made_up import alarms, find, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.detect.wander import Wander
from trainvitals.records import Finding, Severity, Step


def _run(points: int, loss: Callable[[int, random.Random], float], *, spacing: int = 1, seed: int = 3) -> list[Step]:
    rng = random.Random(seed)
    return [Step((t + 1) * spacing, 1, None, {"loss": loss(t, rng)}) for t in range(points)]


def _with_norm(points: int, of: Callable[[int, random.Random], tuple[float, float]], seed: int = 3) -> list[Step]:
    rng = random.Random(seed)
    steps = []
    for t in range(points):
        loss, norm = of(t, rng)
        steps.append(Step(t + 1, 1, None, {"loss": loss, "grad_norm": norm}))
    return steps


def _heard(found: list[Finding]) -> list[tuple[str, str, int]]:
    return [(f.rule, f.severity.value, f.detected_step) for f in alarms(found) if f.rule != "breaker_alert"]


# -- as good as zero ------------------------------------------------------------------------------------------------


def _solved(t: int, rng: random.Random) -> float:
    """Falls by a factor of a million; from then on it jumps up ten-fold every few hundred points, as full-batch Adam does."""
    base = 5.0 * math.exp(-t / 60) + 1e-5
    burst = 300.0 * math.exp(-((t - 1000) % 300) / 20) if t > 1000 else 0.0
    return base * (1 + burst) * math.exp(rng.gauss(0, 0.1))


def test_a_solved_loss_that_jumps_by_factors_is_no_alarm() -> None:
    assert alarms(find(_run(4000, _solved))) == []


def test_a_solved_loss_that_comes_back_to_where_it_began_is_critical() -> None:
    found = find(_run(3000, lambda t, rng: _solved(t, rng) + (4.0 if t >= 2000 else 0.0)))
    assert any(f.severity is Severity.CRITICAL and f.rule == "loss_spike" and f.detected_step <= 2010 for f in found)


def test_grad_norm_of_a_solved_loss_is_a_mark_only() -> None:
    def of(t: int, rng: random.Random) -> tuple[float, float]:
        norm = (3.0 * math.exp(-t / 60) + 1e-6) * math.exp(rng.gauss(0, 0.2))
        return _solved(t, rng), norm * (80 if t % 300 < 5 and t > 1000 else 1)

    assert alarms(find(_with_norm(3000, of))) == []


# -- nothing trained yet --------------------------------------------------------------------------------------------


def test_zeros_until_the_replay_buffer_is_full_are_no_level() -> None:
    found = find(_run(2000, lambda t, rng: 0.0 if t < 300 else 0.4 * math.exp(rng.gauss(0, 0.2))))
    assert alarms(found) == []


def test_a_loss_as_small_as_rounding_until_the_first_reward_is_no_level() -> None:
    found = find(_run(2000, lambda t, rng: 1e-13 * rng.random() if t < 500 else 0.02 * math.exp(rng.gauss(0, 0.3))))
    assert alarms(found) == []


def _nan_first(points: int) -> list[Step]:
    rng = random.Random(4)
    bad = [Step(t + 1, 1, None, {}, {"loss": "nan"}) for t in range(points)]
    return [*bad, *(Step(t + 1, 1, None, {"loss": 0.5 + 0.1 * rng.random()}) for t in range(points, points + 400))]


def test_no_number_before_the_first_loss_warns_and_does_not_page_or_pause() -> None:
    found = find(_nan_first(15))
    assert [(f.rule, f.severity) for f in alarms(found)] == [("loss_nonfinite", Severity.WARNING)]


def test_no_number_from_the_start_on_and_never_one_pages_after_twenty_points() -> None:
    found = of_rule(find(_nan_first(60)), "loss_nonfinite")
    assert [f.severity for f in found] == [Severity.CRITICAL]


def test_no_number_after_a_loss_pages_as_before() -> None:
    steps = [
        *_run(300, lambda t, rng: 2 + rng.gauss(0, 0.01)),
        *(Step(300 + t, 1, None, {}, {"loss": "nan"}) for t in range(1, 5)),
    ]
    found = find(steps)
    assert of_rule(found, "loss_nonfinite")[0].severity is Severity.CRITICAL
    assert of_rule(found, "breaker_trip")


# -- around zero, adversarial ---------------------------------------------------------------------------------------


def _critic(t: int, rng: random.Random) -> float:
    """Goes down to -18 while it wins and settles at -7 for as long as the generator learns."""
    return -18 * math.exp(-(((t - 300) / 150) ** 2)) - 7 * (1 - math.exp(-t / 400)) + 3e-4 * t + rng.gauss(0, 0.6)


def test_a_critic_that_loses_ground_is_no_alarm() -> None:
    assert alarms(find(_run(6000, _critic))) == []


def test_a_policy_whose_loss_shrinks_to_zero_is_no_alarm() -> None:
    found = find(_run(6000, lambda t, rng: -0.6 * math.exp(-t / 2500) * (1 - math.exp(-t / 80)) + rng.gauss(0, 0.15)))
    assert alarms(found) == []


def test_a_critic_that_explodes_is_heard() -> None:
    found = find(_run(4000, lambda t, rng: _critic(t, rng) + (60 if t >= 3000 else 0)))
    assert any(f.rule == "loss_divergence" and f.severity is Severity.CRITICAL for f in found)


# -- data in an order -----------------------------------------------------------------------------------------------


def _in_order(points: int, seed: int, by: float = 0.1) -> Callable[[int, random.Random], float]:
    """Chapters of 100 to 300 points, each easier or harder by up to a share of ``by`` than what is usual."""
    chapters: list[float] = []
    draw = random.Random(seed)
    while len(chapters) < points:
        chapters += [draw.uniform(-by, by)] * draw.randint(100, 300)
    return lambda t, rng: (2.0 + 6.0 * (1 + t / 40) ** -0.6) * (1 + chapters[t]) + rng.gauss(0, 0.03)


@pytest.mark.parametrize("seed", range(3))
def test_chapters_within_the_noise_are_told_a_few_times_only(seed: int) -> None:
    """Forty chapters, each easier or harder by up to 2 %: no spike, and nobody is paged."""
    heard = _heard(find(_run(8000, _in_order(8000, seed, by=0.02), seed=seed)))
    assert [item for item in heard if item[1] == "critical" or item[0] == "loss_spike"] == []
    assert len(heard) <= 5


@pytest.mark.parametrize("seed", range(3))
def test_chapters_far_out_of_the_noise_look_like_divergences_and_are_told(seed: int) -> None:
    """A tenth harder for 300 points: what tells it from a divergence is only that it comes back, later."""
    heard = _heard(find(_run(8000, _in_order(8000, seed), seed=seed)))
    assert 1 <= len([item for item in heard if item[0] == "loss_divergence"]) <= 12


def test_a_rise_larger_than_the_chapters_is_heard_in_such_a_run() -> None:
    order = _in_order(6000, 1)
    found = find(_run(6000, lambda t, rng: order(t, rng) + (1.5 if t >= 5000 else 0.0)))
    assert any(f.severity is Severity.CRITICAL and 5000 <= f.detected_step <= 5100 for f in found)


def test_a_shift_in_a_run_without_any_wander_is_heard_as_before() -> None:
    found = find(_run(4000, lambda t, rng: 2.0 + 6.0 * (1 + t / 40) ** -0.6 + rng.gauss(0, 0.03) + (0.1 if t >= 3000 else 0.0)))
    assert any(f.rule in ("loss_level_shift", "loss_spike", "loss_drift") for f in alarms(found))


@pytest.mark.parametrize("middles", [[1.0] * 40, [3.0 - 0.05 * i for i in range(40)]], ids=["flat", "falling"])
def test_what_never_came_back_by_itself_allows_nothing(middles: list[float]) -> None:
    wander = Wander()
    for middle in middles:
        wander.push(middle)
    assert wander.allowance == 0.0


def _wander(middles: list[float]) -> Wander:
    wander = Wander()
    for middle in middles:
        wander.push(middle)
    return wander


ONE_SWING = [2.4, 2.1, *[2.0] * 6]


def test_rises_that_were_taken_back_twice_are_allowed_again_and_one_that_stayed_is_not() -> None:
    assert _wander([*[2.0] * 12, *ONE_SWING, *ONE_SWING]).allowance == pytest.approx(0.6)
    assert _wander([*[2.0] * 12, *[2.4] * 30]).allowance == 0.0


def test_one_bump_is_no_wander_and_old_ones_are_forgotten() -> None:
    assert _wander([*[2.0] * 12, *ONE_SWING, *[2.0] * 10]).usual_swing == 0.0
    assert _wander([*[2.0] * 12, *ONE_SWING, *ONE_SWING, *[2.0] * 32]).allowance == 0.0


# -- a habit of spikes ----------------------------------------------------------------------------------------------


def _bursting(t: int, rng: random.Random) -> float:
    """A target network renewed every 500 steps: up by a quarter, a tenth of all progress, for a dozen points."""
    since = t % 500
    return (1.0 + 2.0 * math.exp(-t / 100)) * math.exp(rng.gauss(0, 0.03)) + (0.25 if t > 400 and since < 12 else 0.0)


def test_spikes_that_come_again_and_again_and_heal_are_told_a_few_times_only() -> None:
    spikes = of_rule(alarms(find(_run(10_000, _bursting))), "loss_spike")
    assert 1 <= len(spikes) <= 6
    assert max(f.detected_step for f in spikes) < 3500


def test_a_spike_higher_than_the_usual_ones_is_told() -> None:
    found = find(_run(8000, lambda t, rng: _bursting(t, rng) + (2.5 if 7000 <= t < 7012 else 0.0)))
    assert any(f.rule == "loss_spike" and 7000 <= f.detected_step <= 7010 for f in alarms(found))


def test_a_spike_as_high_as_the_usual_ones_that_stays_is_critical() -> None:
    found = find(_run(8000, lambda t, rng: _bursting(t, rng) + (0.25 if t >= 7012 else 0.0)))
    assert any(f.rule == "loss_divergence" and f.severity is Severity.CRITICAL and f.detected_step < 7200 for f in found)


# -- skewed noise ---------------------------------------------------------------------------------------------------


def test_losses_of_single_samples_with_a_long_tail_are_no_spikes() -> None:
    """Batches of four: most are easy, one in twelve is not, and three of those fall together now and then."""
    heard = []
    for seed in range(3):
        found = find(_run(8000, lambda t, rng: 0.1 * math.exp(rng.gauss(0, 1.1)), seed=seed))
        heard += of_rule(alarms(found), "loss_spike")
    assert heard == []


# -- young runs -----------------------------------------------------------------------------------------------------


def test_a_sparse_log_that_climbs_while_the_learning_rate_warms_up_is_heard() -> None:
    found = find(
        _run(60, lambda t, rng: 0.12 + 0.7 * math.exp(-t / 2) + 0.25 * min(1.0, t / 40) + rng.gauss(0, 0.01), spacing=25)
    )
    assert [f.rule for f in alarms(found)] == ["loss_drift"]


def test_a_young_sparse_log_that_is_mostly_noise_is_no_alarm() -> None:
    heard = [
        alarms(find(_run(110, lambda t, rng: 0.7 * math.exp(rng.gauss(0, 0.5)), spacing=25, seed=seed))) for seed in range(20)
    ]
    assert [found for found in heard if found] == []


def test_a_sparse_log_that_falls_by_stairs_is_no_alarm() -> None:
    def stairs(t: int, rng: random.Random) -> float:
        return 0.8 * 0.6 ** (t // 16) * (1.1 if t % 2 else 0.9) * math.exp(rng.gauss(0, 0.05))

    assert alarms(find(_run(128, stairs, spacing=25))) == []


def test_a_resume_of_a_young_quiet_run_that_comes_back_ten_times_higher_is_heard() -> None:
    steps = _run(119, lambda t, rng: 0.026 + 2 * math.exp(-t / 3) + rng.gauss(0, 0.0005))
    again = [Step(t, 2, None, {"loss": 0.26 * math.exp(-(t - 115) / 6) + 0.026}) for t in range(115, 160)]
    found = find([*steps, *again])
    assert of_rule(alarms(found), "resume_rebound") or of_rule(alarms(found), "loss_spike")


def test_a_resume_of_a_young_run_that_goes_on_as_it_was_is_no_alarm() -> None:
    steps = _run(119, lambda t, rng: 1.0 + 2 * math.exp(-t / 30) + rng.gauss(0, 0.02))
    again = _run(60, lambda t, rng: 1.0 + 2 * math.exp(-(t + 115) / 30) + rng.gauss(0, 0.02), seed=9)
    found = find([*steps, *(Step(s.step + 114, 2, None, s.values) for s in again)])
    assert alarms(found) == []


# -- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [_solved, _critic, _bursting, _in_order(3000, 2)], ids=["solved", "critic", "bursting", "in order"]
)
def test_a_restart_in_the_middle_changes_nothing(kind: Callable[[int, random.Random], float]) -> None:
    steps = _run(3000, kind)
    whole, first = Engine("run"), Engine("run")
    expected = [f for s in steps for f in whole.update(s)]
    told = [f for s in steps[:1700] for f in first.update(s)]
    second = Engine("run")
    second.restore(json.loads(json.dumps(first.to_state())))
    told += [f for s in steps[1700:] for f in second.update(s)]
    assert last_states(told) == last_states(expected)
