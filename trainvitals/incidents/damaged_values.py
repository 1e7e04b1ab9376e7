"""Weights that a load found to be damaged were damaged in the run: what it saved after them holds the same until it was loaded. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from trainvitals.incidents.suspect import Attempt
from trainvitals.records import DAMAGED_NUMBERS, CheckpointReport, CheckpointState, VerificationLevel

#: A deleted one keeps what was found in it: that its files are gone heals no weights.
_STATES = (CheckpointState.CORRUPT, CheckpointState.DELETING, CheckpointState.DELETED)


def is_damaged_in_the_run(one: CheckpointReport) -> bool:
    """Whether its files are as they were written and its numbers are damaged."""
    return one.state in _STATES and any(text in reason for reason in one.reasons for text in DAMAGED_NUMBERS)


def is_damaged_since(checkpoints: Sequence[CheckpointReport], safe: CheckpointReport | None) -> bool:
    """Whether the run has saved damaged numbers and nothing sound after them: what comes before them is the only way back."""
    return safe is not None and any(is_damaged_in_the_run(one) and _step(one) >= _step(safe) for one in checkpoints)


class DamagedValues:
    """Which checkpoints were saved after one with damaged numbers, by a process that may have held them."""

    def __init__(self, checkpoints: Sequence[CheckpointReport], attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts
        starts_ns = sorted(attempt.started_ns for attempt in attempts)
        first: dict[int, CheckpointReport] = {}
        for one in sorted((one for one in checkpoints if one.step is not None and is_damaged_in_the_run(one)), key=_step):
            first.setdefault(bisect.bisect_right(starts_ns, one.modified_at_ns or 0), one)  # of each start the first
        self._damaged = tuple(first.values())

    @property
    def has_any(self) -> bool:
        """Whether there is one at all."""
        return bool(self._damaged)

    def reason(self, one: CheckpointReport) -> str:
        """Why ``one`` is no way back, "" when nothing of this speaks against it."""
        step = self.damaged_since(one)
        if step is None:
            return ""
        return f"the numbers in step {step:,} are damaged, and nothing has loaded this later one (checkpoint verify --level load)"

    def damaged_since(self, one: CheckpointReport) -> int | None:
        """Step of the damaged one that makes ``one`` suspect, None when there is none."""
        if one.step is None or one.level is VerificationLevel.LOAD or one.state is CheckpointState.CORRUPT:
            return None
        for damaged in self._damaged:
            step = _step(damaged)
            if one.step >= step and not self._went_back(damaged, step, one):
                return step
        return None

    def _went_back(self, damaged: CheckpointReport, step: int, one: CheckpointReport) -> bool:
        """Whether ``one`` is of a later start that went on from before the damage, or from what such a start wrote."""
        if one.modified_at_ns is None or damaged.modified_at_ns is None:
            return False
        later = [each for each in self._attempts if damaged.modified_at_ns <= each.started_ns <= one.modified_at_ns]
        is_sound, reached = False, 0
        for attempt in sorted(later, key=lambda each: each.started_ns):
            start = _start(attempt)
            if start is None:
                return False
            is_sound = start < step or (is_sound and start <= reached)
            reached = max(reached if is_sound and start >= step else 0, attempt.last_step or start)
        return is_sound


def _step(one: CheckpointReport) -> int:
    return one.step or 0


def _start(attempt: Attempt) -> int | None:
    return attempt.resumed_from_step if attempt.resumed_from_step is not None else attempt.first_step
