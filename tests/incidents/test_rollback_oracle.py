"""500 made-up incidents: the recommended checkpoint against that of an oracle who knows the true onset and the true damage."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

from simulated_rollbacks import STEP_S, Case, Simulation

from trainvitals.incidents.rollback import Rollback, RollbackInputs, recommend

INCIDENTS = 500
AGREEMENT = 0.98


def answer(case: Case) -> Rollback:
    """What is recommended, after the content of what is to be recommended was compared, as it is before every restart."""
    for _ in range(len(case.reports) + 1):
        found = recommend(
            RollbackInputs(
                case.reports, case.incidents, case.findings, case.attempts, case.last_step, case.gap_steps, STEP_S, gpus=64,
            )
        )  # fmt: skip
        if found.checkpoint is None or not found.needs_content:
            return found
        case = replace(case, reports=case.content_looked_at(found.checkpoint.path))
    raise AssertionError("the recommendation never settled")


@cache
def cases(count: int) -> list[Case]:
    found: list[Case] = []
    seed = 0
    while len(found) < count:
        seed += 1
        case = Simulation(seed).case
        if case is not None:
            found.append(case)
        assert seed < 2 * count + 50, "the detectors miss too much of the made-up trouble"
    return found


def test_the_recommendation_is_the_oracles_and_never_damaged() -> None:
    misses, damaged = [], []
    made = cases(INCIDENTS)
    for case in made:
        found = answer(case)
        path = found.checkpoint.path if found.checkpoint is not None else None
        if path is not None:
            file = case.files[path]
            if file.is_damaged or file.is_silently_broken or found.checkpoint.state != "verified":
                damaged.append((case.seed, case.kind, path, case.true_onset))
        if path != case.right:
            reason = found.rejected.get(case.right or "", "")
            misses.append(f"seed {case.seed} {case.kind} onset {case.true_onset}: {path} instead of {case.right}: {reason}")
    summary = f"{len(made) - len(misses)} of {len(made)} agree; {sum(case.right is None for case in made)} have no right one"
    sys.stdout.write("\n" + "\n".join([summary, *misses]) + "\n")
    assert damaged == []
    assert len(misses) <= (1 - AGREEMENT) * len(made)


def test_every_other_checkpoint_has_a_reason_and_the_cost_is_that_of_its_step() -> None:
    for case in cases(INCIDENTS)[:60]:
        found = answer(case)
        others = {one.path for one in case.reports} - {found.checkpoint.path if found.checkpoint is not None else ""}
        assert set(found.rejected) == others and all(found.rejected.values())
        if found.checkpoint is not None:
            redo = case.last_step - (found.checkpoint.step or 0)
            assert found.redo_steps == redo and found.redo_gpu_hours == redo * STEP_S * 64 / 3600
