"""A note of changed data explains a shift, and no blow-up: that is told all the same, since its true onset."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from made_up import alarms, event, feed, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step

NOTE_AT, BLOW_UP_AT = 600, 900


def steps(
    last: int, loss: Callable[[int], float], grad_norm: Callable[[int], float] = lambda n: 0.4, seed: int = 1, attempt: int = 1
) -> list[Step]:
    """A run that started near 10 and came down to 2; ``loss`` and ``grad_norm`` tell what is added, and the norm."""
    noise = random.Random(seed)
    return [
        Step(
            n, attempt, n * 10**10,
            {
                "loss": 2.0 + 8.0 * (1 + n / 20) ** -1.5 + loss(n) + noise.gauss(0, 0.02),
                "grad_norm": grad_norm(n) * (1 + 0.1 * noise.uniform(-1, 1)),
            },
        )
        for n in range(1, last + 1)
    ]  # fmt: skip


def noted(step: int | None = NOTE_AT, change: str = "data_mix", **data) -> Event:
    return event("annotation", None, step=step, change=change, by="ana", **data)


def told(records: list[Step | Event]) -> list[Finding]:
    return alarms(last_states(feed(Engine("run"), records)))


def ramp(slope: float, first: int = BLOW_UP_AT, shift: float = 0.0) -> Callable[[int], float]:
    return lambda n: (shift if n >= NOTE_AT else 0.0) + slope * max(0, n - first)


@pytest.mark.parametrize("change", ["data_mix", "context_length"])
def test_a_loss_that_runs_away_under_a_note_is_told_with_its_onset_and_the_levels_from_before_it(change):
    found = told([noted(change=change), *steps(1050, ramp(0.012, shift=0.15), lambda n: 0.4 + 0.02 * max(0, n - BLOW_UP_AT))])
    (spike,) = of_rule(found, "loss_spike")
    assert spike.severity is Severity.CRITICAL
    assert BLOW_UP_AT - 10 <= spike.first_step <= BLOW_UP_AT + 20
    assert spike.detected_step <= BLOW_UP_AT + 80
    assert spike.expected == pytest.approx(2.15, abs=0.1)
    assert BLOW_UP_AT - 30 <= spike.data["rise_from"] <= spike.first_step
    (norm,) = of_rule(found, "grad_norm_spike")
    assert norm.expected == pytest.approx(0.4, abs=0.05) and norm.first_step >= spike.first_step


def test_a_blow_up_that_begins_with_the_note_itself_is_told_too():
    (spike,) = of_rule(told([noted(), *steps(750, ramp(0.02, first=NOTE_AT))]), "loss_spike")
    assert NOTE_AT <= spike.first_step <= NOTE_AT + 15 and spike.expected == pytest.approx(2.0, abs=0.1)


def test_a_jump_that_gives_back_a_sixth_of_the_progress_is_told_at_once():
    (spike,) = of_rule(told([noted(), *steps(950, lambda n: 1.5 if n >= BLOW_UP_AT else 0.0)]), "loss_spike")
    assert spike.severity is Severity.CRITICAL and spike.detected_step <= BLOW_UP_AT + 8 and spike.first_step == BLOW_UP_AT


def test_gradients_many_times_the_usual_beside_a_higher_loss_end_the_silence():
    found = told([noted(), *steps(960, lambda n: 0.15 if n >= BLOW_UP_AT else 0.0, lambda n: 1.8 if n >= BLOW_UP_AT else 0.4)])
    (norm,) = of_rule(found, "grad_norm_spike")
    assert norm.first_step == BLOW_UP_AT and norm.detected_step <= BLOW_UP_AT + 25
    assert of_rule(found, "loss_spike")


def test_a_slow_rise_that_goes_on_is_told_before_the_note_ends():
    found = of_rule(told([noted(points=2000), *steps(1600, ramp(0.0008))]), "loss_spike")
    assert found and BLOW_UP_AT <= found[0].first_step < found[0].detected_step < 1500


def test_a_rise_that_is_under_way_when_the_note_ends_is_told_since_it_began():
    ends_at, begins_at = NOTE_AT + 500, NOTE_AT + 470
    (spike,) = of_rule(told([noted(), *steps(ends_at + 20, ramp(0.006, first=begins_at))]), "loss_spike")
    assert begins_at <= spike.first_step <= begins_at + 25


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shift", [-0.4, 0.1, 0.3, 0.8])
def test_a_shift_that_stays_flat_is_silent_during_the_note_and_after_it(seed, shift):
    def norm(n):
        return 2.5 if NOTE_AT <= n < NOTE_AT + 12 else 0.4  # gradients are shaken for some steps

    assert told([noted(), *steps(1600, lambda n: shift if n >= NOTE_AT else 0.0, norm, seed=seed)]) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_mixture_that_is_changed_over_some_hundred_steps_is_silent(seed):
    def rise(n):
        return 0.18 * min(1.0, max(0, n - NOTE_AT) / 200)

    assert told([noted(), *steps(1600, rise, seed=seed)]) == []


def test_a_rule_that_the_note_names_stays_silent_whatever_happens():
    rules = ["loss_spike", "loss_divergence", "loss_level_shift", "loss_drift"]
    found = told([noted(rules=rules), *steps(1000, ramp(0.02))])
    assert not [f for f in found if f.rule in rules]


def test_a_run_that_goes_back_before_the_blow_up_keeps_the_level_of_the_note():
    first = steps(1000, ramp(0.02, shift=0.15))
    again = [Step(s.step, 2, s.time_ns, s.values) for s in steps(1400, lambda n: 0.15 if n >= NOTE_AT else 0.0) if s.step > 880]
    engine = Engine("run")
    assert of_rule(feed(engine, [noted(), *first]), "loss_spike")
    found = last_states(feed(engine, again))
    assert not [f for f in alarms(found) if f.is_open] and not engine.open_findings


def test_what_is_usual_is_not_learnt_from_the_blow_up():
    engine = Engine("run")
    feed(engine, [noted(), *steps(1000, ramp(0.02), lambda n: 0.4 if n < BLOW_UP_AT else 4.0)])
    assert engine.metric_usual("loss") == pytest.approx(2.05, abs=0.1)
    assert engine.metric_usual("grad_norm") == pytest.approx(0.4, abs=0.05)


def test_a_person_who_explains_a_rise_afterwards_excuses_its_height_and_nothing_beyond_it():
    def rise(n):
        return (1.5 if n >= BLOW_UP_AT else 0.0) + 0.02 * max(0, n - 1050)

    records = steps(1200, rise)
    quiet = feed(engine := Engine("run"), [*records[:920], noted(BLOW_UP_AT), *records[920:1049]])
    assert not [f for f in last_states(quiet) if f.is_open]
    (spike,) = of_rule(alarms(last_states(feed(engine, records[1049:]))), "loss_spike")
    assert 1050 <= spike.first_step <= 1070


def test_a_restart_in_the_middle_changes_nothing():
    records = [noted(), *steps(1000, ramp(0.02, shift=0.15))]
    whole = feed(Engine("run"), records)
    for cut in (700, 905, 930):
        first, second = Engine("run"), Engine("run")
        found = feed(first, records[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert [*found, *feed(second, records[cut:])] == whole
