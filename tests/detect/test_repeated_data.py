"""Data read twice after a resume: the loss is too low, and where new data begins it rises to what it truly is."""

from __future__ import annotations

import json
import math
import random

import pytest
from made_up import alarms, at, event, feed, find, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Finding, Severity, Step

RESUMED = 1500


def replayed(
    *,
    noise: float = 0.02,
    again: int = 200,
    after: int = 600,
    level: float = 2.51,
    rise: int = 0,
    later: float = 0.0,
    seed: int = 1,
) -> list[Step]:
    """2.50 before a resume, 2.35 for ``again`` points, then ``level``, reached within ``rise`` points; from 20 points on ``later`` more."""
    rng = random.Random(seed)

    def step(number: int, attempt: int, loss: float) -> Step:
        return Step(number, attempt, at(number * 10), {"loss": loss + rng.gauss(0, noise)})

    steps = [step(number, 1, 2.5 + 6 * (1 + number / 20) ** -1.5) for number in range(1, RESUMED + 1)]
    steps += [step(RESUMED + 1 + k, 2, 2.35 + 0.03 * math.exp(-k / 30)) for k in range(again)]
    for k in range(after):
        share = min(1.0, k / rise) if rise else 1.0
        steps.append(step(RESUMED + 1 + again + k, 2, 2.35 + (level - 2.35) * share + (later if k >= 20 else 0.0)))
    return steps


def loud(found: list[Finding]) -> set[tuple[str, Severity]]:
    return {(finding.rule, finding.severity) for finding in found if finding.severity is not Severity.INFO}


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("again", [200, 1200])
def test_the_rise_where_new_data_begins_is_a_level_shift_and_pauses_nobody(noise: float, again: int) -> None:
    for seed in range(3):
        found = find(replayed(noise=noise, again=again, seed=seed))
        assert loud(found) == {("resume_drop", Severity.WARNING), ("loss_level_shift", Severity.WARNING)}
        (shift,) = (told for told in of_rule(alarms(found), "loss_level_shift") if "is_return" in told.data)
        assert RESUMED + again <= shift.first_step <= shift.detected_step <= RESUMED + again + 20
        assert not shift.is_open and shift.message.endswith("; taken as usual again")
        assert "as it was before the resume from step 1,500: does new data begin here" in shift.message


def test_a_loss_that_stays_low_after_the_resume_is_told_once() -> None:
    assert loud(find(replayed(level=2.35))) == {("resume_drop", Severity.WARNING)}


@pytest.mark.parametrize("change", [{"level": 2.8}, {"level": 4.0, "rise": 100}, {"later": 0.6}])
@pytest.mark.parametrize("noise", [0.005, 0.05])
def test_a_rise_beyond_the_level_from_before_is_what_it_always_was(change: dict[str, float], noise: float) -> None:
    found = find(replayed(noise=noise, **change))  # type: ignore[arg-type]
    assert ("loss_divergence", Severity.CRITICAL) in loud(found)
    (trip,) = of_rule(found, "breaker_trip")
    assert trip.detected_step <= RESUMED + 200 + 250


def test_a_rise_that_goes_back_is_over_and_a_second_one_is_still_expected() -> None:
    steps = replayed(after=40)
    low = replayed(level=2.35, after=400, seed=2)[RESUMED + 200 :]
    steps += [Step(step.step + 40, 2, step.time_ns, step.values) for step in low]
    assert {rule for rule, _ in loud(find(steps))} == {"resume_drop", "loss_level_shift"}
    more = replayed(after=300, seed=3)[RESUMED + 200 :]
    again = [*steps, *(Step(step.step + 440, 2, step.time_ns, step.values) for step in more)]
    assert len(of_rule(alarms(find(again)), "loss_level_shift")) == 2


def test_without_a_drop_after_the_resume_the_same_rise_is_a_spike_that_does_not_come_back() -> None:
    steps = [Step(step.step, 1, step.time_ns, step.values) for step in replayed()]
    assert ("loss_divergence", Severity.CRITICAL) in loud(find(steps))


def test_the_level_after_it_is_judged_as_usual_at_once_and_after_the_next_resume() -> None:
    steps = replayed(after=120)
    rest = [Step(step.step, 2, step.time_ns, {"loss": step.values["loss"] + 0.8}) for step in replayed(after=200)[len(steps) :]]
    (spike,) = of_rule(find([*steps, *rest]), "loss_spike")
    assert spike.first_step == steps[-1].step + 1
    assert spike.expected == pytest.approx(2.51, abs=0.02)
    resumed = [Step(step.step - 20, 3, step.time_ns, step.values) for step in replayed(after=400, seed=4)[len(steps) :]]
    assert loud(find([*steps, *resumed])) == {("resume_drop", Severity.WARNING), ("loss_level_shift", Severity.WARNING)}


def test_a_note_ends_it_and_a_restart_of_the_watchdog_changes_nothing() -> None:
    steps = replayed()
    expected = feed(Engine("run"), steps)
    for cut in (RESUMED + 100, RESUMED + 220, RESUMED + 260):
        first, second = Engine("run"), Engine("run")
        found = feed(first, steps[:cut])
        second.restore(json.loads(json.dumps(first.to_state())))
        assert last_states([*found, *feed(second, steps[cut:])]) == last_states(expected)
    engine = Engine("run")
    feed(engine, steps[: RESUMED + 220])
    closed = engine.update(event("annotation", rules=["loss_*"], by="ana"))
    assert ("loss_level_shift", False) in {(finding.rule, finding.is_open) for finding in closed}
    assert feed(engine, steps[RESUMED + 220 :]) == []
