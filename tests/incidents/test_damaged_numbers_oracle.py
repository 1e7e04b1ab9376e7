"""Made-up runs whose weights are damaged under a normal loss: what is recommended, once it was loaded, against an oracle."""

from __future__ import annotations

import sys
from dataclasses import replace

from simulated_numbers import DamagedNumbers, load_looked_at
from simulated_rollbacks import Case

from trainvitals.incidents.rollback import Rollback, RollbackInputs, recommend
from trainvitals.records import CheckpointState, VerificationLevel

RUNS = 200
AGREEMENT = 0.98


def recommended(case: Case) -> Rollback:
    return recommend(RollbackInputs(case.reports, case.incidents, case.findings, case.attempts, case.last_step, case.gap_steps))


def answer(case: Case) -> tuple[Rollback, Case]:
    """As the watchdog does it: the newest is loaded, and what is recommended until that is sound."""
    there = [one for one in case.reports if one.state is CheckpointState.VERIFIED]
    if there:
        case = load_looked_at(case, max(there, key=lambda one: one.modified_at_ns or 0).path)
    for _ in range(len(case.reports) + 1):
        found = recommended(case)
        if found.checkpoint is None or found.checkpoint.level is VerificationLevel.LOAD:
            return found, case
        assert found.needs_load
        case = load_looked_at(case, found.checkpoint.path)
    raise AssertionError("the recommendation never settled")


def test_nothing_with_damaged_numbers_is_recommended_although_the_loss_was_normal() -> None:
    made, misses, damaged, seed = 0, [], [], 0
    while made < RUNS:
        seed += 1
        assert seed < 4 * RUNS, "too few runs in which a load saw the damage"
        case = DamagedNumbers(seed).case
        if case is None:
            continue
        made += 1
        first = recommended(case)
        if first.checkpoint is not None and not first.needs_load and case.files[first.checkpoint.path].is_damaged:
            damaged.append((seed, "without a load", first.checkpoint.path))
        found, case = answer(case)
        path = found.checkpoint.path if found.checkpoint is not None else None
        if path is not None and (case.files[path].is_damaged or case.files[path].is_silently_broken):
            damaged.append((seed, "after all", path))
        if path != case.right:
            misses.append(
                f"seed {seed} {case.true_onset}: {path} instead of {case.right}: {found.rejected.get(case.right or '')}"
            )
    sys.stdout.write("\n" + "\n".join([f"{made - len(misses)} of {made} agree", *misses]) + "\n")
    assert damaged == []
    assert len(misses) <= (1 - AGREEMENT) * made


def test_before_any_load_nothing_saved_after_the_damage_is_recommended() -> None:
    """Deleted ones that were found damaged count, too, and so do starts that went on from them."""
    for seed in range(1, 60):
        case = DamagedNumbers(seed).case
        if case is None:
            continue
        found = recommended(replace(case, incidents=[], findings=[]))
        assert found.checkpoint is None or found.needs_load or found.checkpoint.level is VerificationLevel.LOAD
