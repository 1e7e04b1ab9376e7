"""Weights with damaged numbers are no accident of one file: what was saved after them is no way back until it was loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_rollback import chosen, saved
from test_suspect import SECOND_NS, Start

from trainvitals.checkpoints.load_values import Tensor, Values, judge
from trainvitals.incidents.damaged_values import is_damaged_in_the_run
from trainvitals.incidents.rollback import RollbackInputs, recommend
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

LOAD = VerificationLevel.LOAD


def damaged(step: int, reason: str = "tensor w in model.pt holds NaN (64 of 64 sampled values)") -> CheckpointReport:
    return saved(step, state=CheckpointState.CORRUPT, reasons=("model.pt: a note", reason))


def test_no_later_one_is_recommended_until_it_was_loaded() -> None:
    path, rejected = chosen(saved(3700), damaged(3800), damaged(3900), saved(4050), damaged(4200), saved(4300))
    assert path == "/c/checkpoint-3700"
    assert "step 3,800 are damaged" in rejected["/c/checkpoint-4050"] and "--level load" in rejected["/c/checkpoint-4300"]
    proven = chosen(saved(3700), damaged(3800), saved(3900), saved(4050, level=LOAD), saved(4100))
    assert proven[0] == "/c/checkpoint-4050" and "step 3,800" in proven[1]["/c/checkpoint-4100"]


def test_one_before_it_is_to_be_loaded_first() -> None:
    assert "load this one first" in recommend(RollbackInputs([saved(3700), damaged(3800)])).why
    assert "load this one first" not in recommend(RollbackInputs([saved(3700, level=LOAD), damaged(3800)])).why


def test_a_start_that_went_back_before_the_damage_has_weights_of_its_own() -> None:
    starts = [Start(1, 0, 1, 3850), Start(2, 4000 * SECOND_NS, 3701, 4100, 3700)]
    again = saved(3900, "/c/again", modified_at_ns=4050 * SECOND_NS)
    assert chosen(saved(3700), damaged(3800), again, attempts=starts)[0] == "/c/again"
    went_on = [starts[0], replace(starts[1], resumed_from_step=3800, first_step=3801)]
    assert chosen(saved(3700), damaged(3800), again, attempts=went_on)[0] == "/c/checkpoint-3700"


@pytest.mark.parametrize("reason", ["model.pt is truncated", "model.pt: checksum differs"])
def test_damage_of_a_file_says_nothing_of_what_was_saved_later(reason: str) -> None:
    assert chosen(saved(3700), damaged(3800, reason), saved(3900))[0] == "/c/checkpoint-3900"


@pytest.mark.parametrize(
    "values", [Values(64, 64, 0, 0, 0), Values(64, 0, 3, 0, 0), Values(64, 0, 0, 64, 0), Values(64, 0, 0, 0, 64)]
)
def test_what_a_load_says_of_numbers_is_understood(values: Values) -> None:
    (sentence,) = judge([(TENSOR, values)]).damaged
    assert is_damaged_in_the_run(damaged(1, sentence))


TENSOR = Tensor("layer.weight", "model.pt", "F32", 4096, 0, 2)


def test_damage_in_a_deleted_one_counts_on() -> None:
    gone = replace(damaged(3800), state=CheckpointState.DELETED)
    assert chosen(saved(3700), gone, saved(3900))[0] == "/c/checkpoint-3700"


def test_a_loaded_one_of_another_start_clears_nothing() -> None:
    starts = [Start(1, 0, 1, 5000), Start(2, 6000 * SECOND_NS, 3701, 4100, 3700)]
    others = saved(3900, "/c/first", modified_at_ns=100, level=LOAD)
    bad = replace(damaged(3800), modified_at_ns=6100 * SECOND_NS)
    later = saved(4050, modified_at_ns=6200 * SECOND_NS)
    assert chosen(saved(3700, modified_at_ns=90), others, bad, later, attempts=starts)[0] == "/c/checkpoint-3700"


@pytest.mark.parametrize(("reached", "expected"), [(4000, "/c/third"), (3760, "/c/checkpoint-3700")])
def test_a_third_start_is_sound_when_it_went_on_from_what_the_second_wrote(reached: int, expected: str) -> None:
    starts = [
        Start(1, 0, 1, 3950),
        Start(2, 4000 * SECOND_NS, 3701, reached, 3700),
        Start(3, 4200 * SECOND_NS, 3901, 4100, 3900),
    ]
    bad = replace(damaged(3800), modified_at_ns=3800 * SECOND_NS)
    third = saved(4050, "/c/third", modified_at_ns=4300 * SECOND_NS)
    assert chosen(saved(3700), bad, third, attempts=starts)[0] == expected


def test_what_must_be_loaded_first_is_said_apart() -> None:
    assert recommend(RollbackInputs([saved(3700), damaged(3800)])).needs_load
    assert not recommend(RollbackInputs([saved(3700, level=LOAD), damaged(3800)])).needs_load
    assert not recommend(RollbackInputs([saved(3700)])).needs_load
