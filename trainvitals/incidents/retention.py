"""What a trainer's retention leaves on disk, as seen from outside, and what one more save would cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from trainvitals.records import CheckpointReport, CheckpointState

PIN_DIRECTORY = "/.trainvitals-pinned/"
_UNJUDGED = frozenset({CheckpointState.STAGED, CheckpointState.COMPLETE, CheckpointState.VERIFYING})
_GONE = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})
#: A trainer that saves before it deletes has one more for a moment, and that moment may be the one that was seen.
DOUBT = 1
#: So many younger ones that were deleted before it say that a checkpoint is kept for good; one alone may be somebody's own doing.
OUTLIVED = 2


@dataclass(frozen=True)
class Retention:
    """keep_last: newest ones that were left when one was deleted, None = no deletion was seen. interval_steps: between saves."""

    keep_last: int | None = None
    interval_steps: int | None = None


@dataclass(frozen=True)
class PauseSave:
    """Whether a pause saves (None = the trainer decides, which means yes) and the sentence that says why."""

    save: bool | None = None
    why: str = "it saves first"


def retention_of(reports: Sequence[CheckpointReport]) -> Retention:
    """From the newest report of every checkpoint that is or was there; pinned ones are no part of the trainer's retention."""
    own = [one for one in reports if one.step is not None and PIN_DIRECTORY not in one.path]
    there = [one for one in own if one.state not in _GONE]
    gone = [one for one in own if one.state in _GONE]
    steps = sorted({one.step for one in own if one.step is not None})
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    keep_last = None
    if gone:
        newest_gone = max(map(_age, _by_retention(gone, there)))
        keep_last = max(1, sum(_age(one) > newest_gone for one in there))
    return Retention(keep_last, median_low(gaps) if gaps else None)


def _by_retention(gone: Sequence[CheckpointReport], there: Sequence[CheckpointReport]) -> Sequence[CheckpointReport]:
    """Without the one that went although an older one is left: a person took it, or a disk. Several of them are the trainer's way."""
    oldest = min(map(_age, there), default=None)
    in_turn = [one for one in gone if oldest is None or _age(one) < oldest]
    return in_turn if in_turn and len(gone) - len(in_turn) < OUTLIVED else gone


def saves_until_deleted(safe: CheckpointReport, reports: Sequence[CheckpointReport], retention: Retention) -> int | None:
    """How many more saves until the trainer deletes ``safe``; None when no deletion was seen, or it outlived one already."""
    if retention.keep_last is None:
        return None
    younger = [one for one in reports if one.state is CheckpointState.DELETED and _age(one) > _age(safe)]
    if sum(PIN_DIRECTORY not in one.path for one in younger) >= OUTLIVED:
        return None  # it is kept for good: every N-th, the best, or by hand
    newer = sum(
        _age(one) > _age(safe)
        for one in reports
        if one.step is not None and one.state not in _GONE and PIN_DIRECTORY not in one.path
    )
    return max(1, retention.keep_last - newer)


def steps_until_deleted(
    safe: CheckpointReport, reports: Sequence[CheckpointReport], retention: Retention, last_step: int | None
) -> int | None:
    """How many more steps until the trainer deletes ``safe``, by the usual distance of its saves; None = not known or never."""
    saves = saves_until_deleted(safe, reports, retention)
    if saves is None or retention.interval_steps is None or last_step is None:
        return None
    newest = max((one.step or 0 for one in reports if one.state not in _GONE and PIN_DIRECTORY not in one.path), default=0)
    return max(0, newest + saves * retention.interval_steps - last_step)


def pause_save(
    mode: str, *, is_trouble_open: bool, safe: CheckpointReport | None, is_pinned: bool, reports: Sequence[CheckpointReport]
) -> PauseSave:
    """Whether a pause should save now. mode: ``save_on_pause`` of the run. is_trouble_open: an incident about the weights is open."""
    if mode == "always":
        return PauseSave(True, "it saves: save_on_pause is always")
    if mode == "never":
        return PauseSave(False, "it does not save: save_on_pause is never")
    if not is_trouble_open:
        return PauseSave(None, "it saves first")
    if safe is None and any(one.state in _UNJUDGED for one in reports):
        return PauseSave(False, "it does not save: the weights are sick, and what it could push out has not been verified yet")
    if safe is None:
        return PauseSave(None, "it saves first: there is no safe checkpoint that a save could push out")
    name = "the safe checkpoint" if safe.step is None else f"the safe checkpoint (step {safe.step:,})"
    if is_pinned:
        return PauseSave(None, f"it saves first: {name} is pinned, so no save can push it out")
    retention = retention_of(reports)
    saves = saves_until_deleted(safe, reports, retention)
    if retention.keep_last is not None and saves is None:
        return PauseSave(None, f"it saves first: {name} has outlived younger ones, so the trainer keeps it for good")
    if saves is not None and saves > 1 + DOUBT:
        return PauseSave(None, f"it saves first: {name} outlives this save")
    why = "how many the trainer keeps is not known" if saves is None else "the trainer keeps too few"
    return PauseSave(False, f"it does not save: the weights are sick, {name} is not pinned, and {why}")


def has_no_verdict_yet(path: str, reports: Sequence[CheckpointReport]) -> bool:
    """Whether the checkpoint at ``path`` is there and is only looked at again: what was said of its end still holds."""
    return any(one.path == path and one.state in {*_UNJUDGED, CheckpointState.WRITING} for one in reports)


def _age(one: CheckpointReport) -> tuple[int, int]:
    return (one.modified_at_ns or 0, one.step or 0)


def expiry(
    safe: CheckpointReport, known: Sequence[CheckpointReport], last_step: int | None, *, is_rewritten: bool
) -> tuple[str, bool] | None:
    """(when the trainer deletes ``safe``, whether the next save does); None when it does not, as far as was seen."""
    if is_rewritten:
        return "is written over by the next save", True
    retention = retention_of(known)
    saves = saves_until_deleted(safe, known, retention)
    if saves is None:
        return None
    steps = steps_until_deleted(safe, known, retention, last_step)
    about = f" (in about {steps:,} steps)" if steps is not None else ""
    if saves == 1:
        return f"is deleted with the next save{about}", True
    return f"is deleted with the {saves}. save from now{about}", False
