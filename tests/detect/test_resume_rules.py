"""What a resume may change without anybody meaning to: the loss, upwards or downwards."""

from __future__ import annotations

import random

import pytest
from made_up import alarms, curve, event, feed, find, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Severity, Step


def resumed(
    seed: int, *, factor: float = 1.0, overlap: int = 100, points: int = 250, is_replayed: bool = True, noise: float = 0.03
) -> list[Step]:
    """1,500 points and a second attempt that goes back by ``overlap``; replayed data gives nearly the same losses."""
    rng = random.Random(seed)
    first = curve(1500, seed=seed, noise=noise)
    again = curve(1500 - overlap + points, seed=seed if is_replayed else seed + 10_000, noise=noise)[1500 - overlap :]
    return [
        *first,
        *(
            Step(s.step, 2, s.time_ns + 10**12, {**s.values, "loss": s.values["loss"] * factor * (1 + rng.gauss(0, 5e-4))})
            for s in again
        ),
    ]


def test_a_rebound_of_one_percent_on_the_same_steps_is_found_in_all_runs_and_a_clean_resume_in_none():
    found = sum(bool(of_rule(alarms(find(resumed(seed, factor=1.01))), "resume_rebound")) for seed in range(60))
    clean = [alarms(find(resumed(seed))) for seed in range(60)]
    assert found >= 57
    assert clean == [[]] * 60


@pytest.mark.parametrize("overlap", [0, 100])
def test_a_clean_resume_with_other_data_is_neither_higher_nor_lower(overlap):
    for seed in range(30):
        assert alarms(find(resumed(seed, overlap=overlap, is_replayed=False))) == []


def test_a_lower_loss_on_the_same_steps_asks_for_repeated_data():
    (drop,) = of_rule(find(resumed(3, factor=0.985)), "resume_drop")
    assert drop.severity is Severity.WARNING and drop.first_step == 1401 and drop.data["is_paired"] and not drop.is_open
    assert "lower than the same steps before: has it seen this data before?" in drop.message


def test_a_drop_without_common_steps_is_found_from_three_percent_beyond_the_usual_fall():
    found = [of_rule(find(resumed(seed, factor=0.95, overlap=0, is_replayed=False)), "resume_drop") for seed in range(20)]
    assert all(len(drops) == 1 and not drops[0].data["is_paired"] for drops in found)


def test_a_steep_curve_that_goes_on_falling_after_a_resume_is_no_drop():
    for seed in range(10):
        first, again = curve(240, seed=seed, noise=0.02), curve(600, seed=seed + 50, noise=0.02)[240:]
        found = find([*first, *(Step(s.step, 2, s.time_ns, s.values) for s in again)])
        assert not of_rule(found, "resume_drop")


def test_a_part_that_the_log_lacks_is_no_drop():
    first, later = curve(400, noise=0.02), curve(3000, noise=0.02)[2500:]
    assert not of_rule(find([*first, *(Step(s.step, 2, s.time_ns, s.values) for s in later)]), "resume_drop")


def test_a_note_silences_the_drop_and_closes_one_that_is_open():
    records = resumed(3, factor=0.985)
    note = event("annotation", rules=["resume_*"], by="ana")
    assert not of_rule(find([*records[:1500], note, *records[1500:]]), "resume_drop")
    engine = Engine("run")
    feed(engine, records[:1530])
    assert of_rule(engine.open_findings, "resume_drop")
    (closed,) = engine.update(note)
    assert closed.rule == "resume_drop" and not closed.is_open and closed.message.endswith("; expected, says a note")
