"""What a trainer's retention keeps, as seen from outside, and whether one more save would push out the safe checkpoint."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from trainvitals.incidents.retention import pause_save, retention_of, saves_until_deleted, steps_until_deleted
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

VERIFIED, DELETED, DELETING = CheckpointState.VERIFIED, CheckpointState.DELETED, CheckpointState.DELETING


def saved(step: int, state: CheckpointState = VERIFIED, path: str = "") -> CheckpointReport:
    return CheckpointReport(
        path or f"/c/checkpoint-{step}", step, "hf", state, VerificationLevel.CONTENT, True, 1, 1, modified_at_ns=step * 10**9
    )


def after(saves: int, keep: int, every: int = 100) -> list[CheckpointReport]:
    """A trainer that has saved so often and keeps the newest ``keep``."""
    return [saved(n * every, VERIFIED if n > saves - keep else DELETED) for n in range(1, saves + 1)]


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_what_is_kept_is_learnt_from_deletions(keep: int) -> None:
    found = retention_of(after(10, keep))
    assert (found.keep_last, found.interval_steps) == (keep, 100)


def test_without_a_deletion_nothing_is_known_of_it() -> None:
    assert retention_of(after(3, 5)).keep_last is None
    assert retention_of([]).interval_steps is None


def test_pins_are_no_part_of_it() -> None:
    pinned = saved(300, path="/c/.trainvitals-pinned/checkpoint-300")
    assert retention_of([*after(10, 2), pinned]) == retention_of(after(10, 2))


def test_the_steps_until_the_safe_one_is_deleted() -> None:
    reports = after(10, 3)
    retention = retention_of(reports)
    assert saves_until_deleted(saved(1000), reports, retention) == 3
    assert saves_until_deleted(saved(800), reports, retention) == 1
    assert steps_until_deleted(saved(800), reports, retention, last_step=1040) == 60
    assert steps_until_deleted(saved(1000), reports, retention, last_step=1040) == 260
    assert steps_until_deleted(saved(800), reports, retention, last_step=None) is None


def test_one_that_outlived_younger_ones_is_kept_for_good() -> None:
    reports = [saved(100), *after(10, 2)[1:]]
    assert saves_until_deleted(saved(100), reports, retention_of(reports)) is None


def decide(reports: list[CheckpointReport], step: int, **changes: object) -> bool | None:
    given = {"is_trouble_open": True, "safe": saved(step), "is_pinned": False} | changes
    return pause_save("auto", reports=reports, **given).save  # type: ignore[arg-type]


def test_a_pause_saves_when_nothing_is_wrong_nothing_is_safe_or_the_safe_one_is_pinned() -> None:
    assert decide(after(10, 1), 1000, is_trouble_open=False) is None
    assert decide(after(10, 1), 1000, safe=None) is None
    assert decide(after(10, 1), 1000, is_pinned=True) is None


@pytest.mark.parametrize(
    ("keep", "step", "save"),
    [(1, 1000, False), (2, 1000, False), (3, 1000, None), (3, 900, False), (6, 700, None), (6, 600, False)],
)
def test_in_trouble_it_saves_only_when_the_safe_one_outlives_that_with_one_to_spare(
    keep: int, step: int, save: bool | None
) -> None:
    assert decide(after(10, keep), step) is save


def test_one_that_is_not_verified_yet_may_be_the_safe_one_and_is_not_pushed_out() -> None:
    unjudged = saved(1000, CheckpointState.COMPLETE)
    assert decide([*after(9, 1)[:-1], saved(900, DELETED), unjudged], 0, safe=None) is False
    assert decide([saved(1000, CheckpointState.CORRUPT)], 0, safe=None) is None


def test_where_no_deletion_was_seen_it_does_not_save_and_what_is_kept_for_good_is_in_no_danger() -> None:
    assert decide(after(3, 5), 300) is False
    assert decide([saved(100), *after(10, 2)[1:]], 100) is None


def test_the_reason_is_a_sentence() -> None:
    told = pause_save("auto", is_trouble_open=True, safe=saved(1000), is_pinned=False, reports=after(10, 1))
    assert (
        told.why
        == "it does not save: the weights are sick, the safe checkpoint (step 1,000) is not pinned, and the trainer keeps too few"
    )
    assert pause_save("never", is_trouble_open=False, safe=None, is_pinned=False, reports=[]).save is False
    assert pause_save("always", is_trouble_open=True, safe=saved(1), is_pinned=False, reports=[]).save is True


def test_no_pause_ever_pushes_out_the_safe_one_of_a_made_up_trainer() -> None:
    """Saves, deletions seen late, and looks at any moment of a save that is followed by its deletion."""
    rng = random.Random(1)
    pauses = 0
    for _ in range(3000):
        keep, saves = rng.randint(1, 6), rng.randint(1, 14)
        reports = after(saves, keep)
        if rng.random() < 0.4:  # just now the newest is there and the oldest is not deleted yet
            reports = [replace(one, state=VERIFIED) if one.step == (saves - keep) * 100 else one for one in reports]
        if rng.random() < 0.2:
            reports = [
                replace(one, state=DELETING) if one.step == (saves - keep + 1) * 100 and keep > 1 else one for one in reports
            ]
        there = [one for one in reports if one.state is VERIFIED]
        safe = rng.choice(there)
        if pause_save("auto", is_trouble_open=True, safe=safe, is_pinned=False, reports=reports).save is False:
            continue
        pauses += 1
        left = [one.step for one in after(saves + 1, keep) if one.state is VERIFIED]
        assert safe.step in left, (keep, saves, safe.step, [(one.step, one.state) for one in reports])
    assert pauses > 100
