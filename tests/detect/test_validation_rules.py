"""Validation loss: not a number, rising while the training loss is not, no longer told; and all that is none of it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import pytest
from made_up import curve, feed, find, last_states, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Finding, Severity, Step

EVERY = 20


def told(step: int, value: object, name: str = "") -> Event:
    data: dict[str, object] = {"validation_loss": value}
    if name:
        data["validation_set"] = name
    return Event("message", None, step=step, data=data)


def run(points: int, at: Callable[[int], object], *, every: int = EVERY, name: str = "") -> list[Step | Event]:
    """A healthy training with an evaluation every so many steps; ``at(k)`` is the k-th, None = it does not come."""
    records: list[Step | Event] = []
    for step in curve(points):
        records.append(step)
        k, rest = divmod(step.step, every)
        if rest == 0 and (value := at(k)) is not None:
            records.append(told(step.step, value, name))
    return records


def falling(k: int) -> float:
    return 2.0 + 2.0 * (1 + k) ** -0.5


def of_validation(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.rule.startswith("validation_")]


@pytest.mark.parametrize("value", ["nan", "inf", math.nan])
def test_a_validation_loss_that_is_no_number_is_a_warning_at_once(value: object) -> None:
    (found,) = of_validation(find(run(600, lambda k: value if k == 10 else falling(k))))
    assert (found.rule, found.severity, found.detected_step) == ("validation_nonfinite", Severity.WARNING, 200)
    assert found.last_step == 220


def test_a_rise_that_goes_on_beside_a_falling_training_loss_is_told_with_its_set() -> None:
    rng = random.Random(1)
    found = of_validation(
        find(run(1600, lambda k: falling(min(k, 40)) + max(0, k - 40) * 0.02 + rng.gauss(0, 0.004), name="books"))
    )
    assert [(one.rule, one.severity) for one in found] == [("validation_rise", Severity.WARNING)]
    assert 700 <= found[0].first_step <= 900 and found[0].detected_step <= 1100 and "books" in found[0].message


def test_another_validation_set_or_size_is_no_rise() -> None:
    rng = random.Random(2)
    assert not of_validation(find(run(1600, lambda k: falling(k) + (0.3 if k > 40 else 0) + rng.gauss(0, 0.004))))


def test_a_rise_of_both_losses_is_left_to_the_rules_of_the_training_loss() -> None:
    records = run(1600, lambda k: falling(min(k, 40)) + max(0, k - 40) * 0.02)
    risen = [
        Step(one.step, 1, one.time_ns, {**one.values, "loss": one.values["loss"] + max(0, one.step - 800) * 0.004})
        if isinstance(one, Step)
        else one
        for one in records
    ]
    assert not of_rule(find(risen), "validation_rise")


def test_evaluations_that_stop_coming_are_a_mark_and_only_then() -> None:
    (found,) = of_validation(find(run(900, lambda k: falling(k) if k <= 20 or k >= 40 else None)))
    assert (found.rule, found.severity, found.first_step, found.detected_step) == ("validation_missing", Severity.INFO, 420, 470)
    assert found.last_step == 800
    assert not of_validation(find(run(900, lambda k: falling(k) if k in (1, 3, 8, 9, 20, 21) else None)))


def test_accuracies_and_rewards_are_not_losses() -> None:
    rising = [Event("message", None, data={"validation_accuracy": k / 50, "validation_reward": float(k)}) for k in range(50)]
    assert not of_validation(find([*curve(200), *rising]))


@pytest.mark.parametrize("kind", ["normal", "heavy", "few_digits", "wander", "small_set"])
def test_healthy_evaluations_of_every_noise_raise_nothing(kind: str) -> None:
    for seed in range(3):
        rng, walk = random.Random(seed), [0.0]

        def value(k: int, rng: random.Random = rng, walk: list[float] = walk) -> float:
            walk[0] = 0.95 * walk[0] + rng.gauss(0, 0.01)
            noise = {
                "normal": rng.gauss(0, 0.005), "heavy": 0.005 * rng.gauss(0, 1) / max(0.2, abs(rng.gauss(0, 1))),
                "few_digits": rng.gauss(0, 0.01), "wander": walk[0], "small_set": rng.gauss(0, 0.15),
            }[kind]  # fmt: skip
            found = falling(k) + noise
            return round(found, 2) if kind == "few_digits" else found

        assert not of_validation(find(run(2000, value, every=5)))


def test_more_sets_than_are_kept_are_counted_and_the_state_goes_on_exactly() -> None:
    records = run(1600, lambda k: falling(min(k, 40)) + max(0, k - 40) * 0.02)
    whole = Engine("run")
    expected = feed(whole, records)
    first = Engine("run")
    found = feed(first, records[:900])
    second = Engine("run")
    second.restore(json.loads(json.dumps(first.to_state())))
    assert last_states([*found, *feed(second, records[900:])]) == last_states(expected)
    for k in range(40):
        second.update(told(1600, 2.0, f"set{k}"))
    assert second.to_state()["_validation"]["left_out"] == 40 - 15
