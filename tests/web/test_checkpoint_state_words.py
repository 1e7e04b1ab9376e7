"""Words of one checkpoint: verified is said of nothing that is damaged, and a save that failed is told without its times."""

from __future__ import annotations

import pytest
from test_words import run_view

from trainvitals.incidents.saves import SaveTime
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel
from trainvitals.web.checkpoint_words import detail_lines, took


def report(state: CheckpointState, level: VerificationLevel | None) -> CheckpointReport:
    return CheckpointReport("/c/checkpoint-5", 5, "huggingface", state, level, True, 3, 10)


@pytest.mark.parametrize("state", [one for one in CheckpointState if one is not CheckpointState.VERIFIED])
def test_only_a_verified_one_is_called_verified(state: CheckpointState) -> None:
    one = report(state, VerificationLevel.STRUCTURE)
    assert "verified" not in detail_lines(one, run_view(checkpoints=(one,)), 0)[0].value


def test_a_verified_one_says_how_far() -> None:
    one = report(CheckpointState.VERIFIED, VerificationLevel.CONTENT)
    assert "content verified" in detail_lines(one, run_view(checkpoints=(one,)), 0)[0].value


def test_a_save_that_failed_before_it_had_times_is_a_failed_one() -> None:
    assert took(SaveTime(5, "/c/checkpoint-5", 1, problem="no space left")) == "failed"
