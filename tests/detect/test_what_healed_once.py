"""What a run did once, or long ago, or ever more of, keeps no later fault quiet."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from made_up import alarms, find, of_rule

from trainvitals.detect.loss_habit import SpikeHabit
from trainvitals.records import Finding, Severity, Step


def _run(points: int, loss: Callable[[int], float], *, noise: float = 0.02, seed: int = 3) -> list[Step]:
    rng = random.Random(seed)
    return [Step(t + 1, 1, None, {"loss": loss(t) + rng.gauss(0, noise)}) for t in range(points)]


def _falling(t: int) -> float:
    return 2.0 + 8.0 * (1 + t / 50) ** -0.5


def _paged(found: list[Finding], rule: str, since: int) -> int | None:
    """Step at which ``rule`` was told first of something that began at ``since`` or later."""
    return min((f.detected_step for f in of_rule(found, rule) if f.detected_step >= since), default=None)


def _told_critical(steps: list[Step], since: int) -> tuple[int | None, int | None]:
    found = find(steps)
    return _paged(found, "loss_divergence", since), _paged(found, "breaker_trip", since)


# -- one rise that healed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail_points", [60.0, 200.0], ids=["told as a level shift", "told as a divergence"])
@pytest.mark.parametrize("rise", [lambda t: 3.5, lambda t: min(3.5, 0.01 * t)], ids=["step", "ramp"])
def test_a_divergence_after_a_spike_that_healed_slowly_pages_and_pauses_as_in_any_run(
    tail_points: float, rise: Callable[[int], float]
) -> None:
    def loss(t: int) -> float:
        spike = 2.5 * math.exp(-(t - 1000) / tail_points) if 1000 <= t < 2500 else 0.0
        return _falling(t) + spike + (rise(t - 3000) if t >= 3000 else 0.0)

    plain = _told_critical(_run(3300, lambda t: _falling(t) + (rise(t - 3000) if t >= 3000 else 0.0)), 3000)
    assert plain[0] is not None
    assert plain[1] is not None
    after_spike = _told_critical(_run(3300, loss), 3000)
    assert after_spike[0] is not None
    assert after_spike[1] is not None
    assert after_spike[0] <= plain[0] + 5
    assert after_spike[1] <= plain[1] + 5


def test_a_lasting_rise_that_a_habit_kept_quiet_is_never_taken_as_usual_before_it_is_told() -> None:
    """Five spikes of 0.3 that heal within 100 points; the sixth stays."""
    spikes = range(1000, 3500, 500)

    def loss(t: int) -> float:
        return _falling(t) + sum(0.35 * math.exp(-(t - at) / 15) for at in spikes if t >= at) + (0.3 if t >= 3600 else 0.0)

    assert _paged(find(_run(4000, loss)), "loss_divergence", 3600) is not None


# -- a habit of spikes ----------------------------------------------------------------------------------------------


def _healed(habit: SpikeHabit, at: int, height: float, points: int = 20) -> bool:
    """One more spike: whether it was usual at its end."""
    incident = {"point": at, "level": 2.0, "peak_median": 2.0 + height}
    is_usual = habit.is_usual(at + points, incident)
    habit.healed(at + points, incident)
    return is_usual


def test_spikes_that_grow_from_one_to_the_next_are_no_habit() -> None:
    habit = SpikeHabit()
    usual = [_healed(habit, 500 * k, 1.0 + 0.1 * k) for k in range(1, 30)]
    assert not any(usual[8:])


def test_spikes_hardly_higher_or_longer_than_the_first_five_are_a_habit() -> None:
    habit = SpikeHabit()
    assert [_healed(habit, 500 * k, 1.0) for k in range(1, 8)] == [False] * 5 + [True] * 2
    assert not _healed(habit, 4000, 1.0, points=26)
    assert not _healed(habit, 4500, 1.26)
    assert _healed(habit, 5000, 1.0)


def test_a_habit_that_has_paused_for_long_is_learnt_anew() -> None:
    habit = SpikeHabit()
    for k in range(1, 6):
        _healed(habit, 500 * k, 3.0)
    assert [_healed(habit, 20_000 + 500 * k, 1.0) for k in range(6)] == [False] * 5 + [True]
    assert not _healed(habit, 23_000, 3.0)


def test_a_spike_that_gives_back_much_of_the_progress_is_critical_however_often_it_came() -> None:
    def loss(t: int) -> float:
        return 1.0 + 2.0 * math.exp(-t / 100) + (0.6 if t > 400 and t % 500 < 12 else 0.0)

    spikes = of_rule(alarms(find(_run(5000, loss, noise=0.03))), "loss_spike")
    assert [f.severity for f in spikes] == [Severity.CRITICAL] * 9


# -- a bump, and a slow rise later ----------------------------------------------------------------------------------


def test_a_slow_rise_is_told_whatever_bump_healed_in_the_run_before() -> None:
    def slow(t: int) -> float:
        return min(0.6, max(0.0, (t - 3000) / 2000 * 0.6))

    def bump(t: int) -> float:
        return 0.8 * math.exp(-(((t - 600) / 60) ** 2))

    found = find(_run(4200, lambda t: _falling(t) + bump(t) + slow(t)))
    plain = find(_run(4200, lambda t: _falling(t) + slow(t)))
    for rule in ("loss_level_shift", "loss_divergence", "breaker_trip"):
        expected, told = _paged(plain, rule, 2500), _paged(found, rule, 2500)
        assert expected is not None
        assert told is not None
        assert told <= expected + 64


@pytest.mark.parametrize("seed", range(2))
def test_a_rise_slower_than_its_reference_is_told_once_it_passes_what_the_run_wanders(seed: int) -> None:
    """Up and down by 5 % every 300 points; from 3,000 on a fifth higher for good, so slowly that ten blocks see less than the wander."""

    def loss(t: int) -> float:
        return _falling(t) + 0.14 * math.sin(t / 48) + min(0.6, max(0.0, (t - 3000) / 2000 * 0.6))

    told = _paged(alarms(find(_run(5500, loss, noise=0.05, seed=seed))), "loss_level_shift", 3000)
    assert told is not None


# -- below zero -----------------------------------------------------------------------------------------------------


def _log_likelihood(t: int) -> float:
    """A flow's: begins at 2, ends at -4."""
    return 2.0 - 6.0 * (1 - math.exp(-t / 300))


@pytest.mark.parametrize("points", [2000, 6000], ids=["6 in 2,000 points", "6 in 6,000 points"])
def test_a_log_likelihood_below_zero_that_gives_everything_back_slowly_is_told_and_paused(points: int) -> None:
    def loss(t: int) -> float:
        return _log_likelihood(t) + min(6.0, max(0.0, (t - 2000) / points * 6.0))

    found = find(_run(3200, loss))
    told, paused = _paged(found, "loss_divergence", 2000), _paged(found, "breaker_trip", 2000)
    assert told is not None
    assert told < 2500
    assert paused is not None
    assert paused < 2600


def test_a_healthy_log_likelihood_below_zero_is_no_alarm() -> None:
    assert alarms(find(_run(4000, _log_likelihood))) == []


# -- no progress yet ------------------------------------------------------------------------------------------------


def test_a_small_bump_of_a_flat_run_gives_back_no_progress_and_is_not_critical() -> None:
    found = find(_run(1000, lambda t: 2.0 + (0.12 if 90 < t < 130 or 300 < t < 340 else 0.0), noise=0.01))
    assert [f for f in alarms(found) if f.severity is Severity.CRITICAL] == []
    assert of_rule(found, "loss_spike")


def test_a_flat_run_that_leaps_is_critical_at_once() -> None:
    for seed in range(3):
        found = find(_run(400, lambda t: 2.0 + (1.0 if t >= 300 else 0.0) + (0.02 if t < 5 else 0.0), noise=0.01, seed=seed))
        critical = [f.detected_step for f in of_rule(found, "loss_spike") if f.severity is Severity.CRITICAL]
        assert critical
        assert critical[0] <= 310


# -- an average that fills up ---------------------------------------------------------------------------------------


def test_an_average_that_fills_up_after_zeros_is_no_rise_and_a_zero_or_two_at_the_start_hide_none() -> None:
    def averaged(t: int) -> float:
        return 0.003 * (1.0 - 0.7 * math.exp(-(t - 200) / 20))

    filling = [Step(t + 1, 1, None, {"loss": 0.0 if t < 200 else averaged(t)}) for t in range(500)]
    assert alarms(find(filling)) == []
    young = _run(500, lambda t: _falling(t) + (5.0 if t >= 100 else 0.0))
    for zeros in (0, 3):
        found = find([*(Step(t + 1, 1, None, {"loss": 0.0}) for t in range(zeros)), *young[zeros:]])
        assert of_rule(alarms(found), "loss_drift")
