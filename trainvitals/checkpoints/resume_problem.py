"""What is dangerous about the checkpoint that a trainer would resume from, in one sentence for a person."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainvitals.checkpoints.files import printable
from trainvitals.records import DAMAGED_NUMBERS, CheckpointReport, CheckpointState, ResumeChoice, VerificationLevel

_WHOLE = (CheckpointState.COMPLETE, CheckpointState.VERIFYING, CheckpointState.VERIFIED)
_WHY = {
    CheckpointState.WRITING: "is still being written",
    CheckpointState.STAGED: "is not on disk yet",
    CheckpointState.INCOMPLETE: "is incomplete",
    CheckpointState.CORRUPT: "is corrupt",
    CheckpointState.DELETING: "is being deleted",
    CheckpointState.DELETED: "was deleted",
    CheckpointState.UNKNOWN_FORMAT: "is of no known format",
}


def of(
    choice: ResumeChoice,
    chosen: CheckpointReport | None,
    here: Sequence[CheckpointReport],
    *,
    is_there: bool,
    is_pointer: bool,
    trouble: str,
) -> str:
    """The sentence, "" when the choice is a good one. chosen: report of the choice, None when nobody looked at it.

    Steps alone cannot tell a pointer that fell behind from a run that went back to an older checkpoint; times can: a higher step is
    only called newer when its files changed after those of the choice.
    """
    here = _trusted(here)
    if trouble:
        return _sentence(f"{trouble}{_although(here)}")
    if choice.path is None:
        return ""
    shown = printable(os.path.basename(choice.path), 100)  # noqa: PTH119
    subject = (
        f"{choice.how} says {_number(choice.step)}" if is_pointer and choice.step is not None else f"a restart would load {shown}"
    )
    if not is_there and chosen is None:
        return _sentence(f"{choice.how} names {shown}, which is not there{_although(here)}")
    if chosen is None:
        return ""
    why = _WHY.get(chosen.state)
    if why is not None:
        told = f" ({chosen.reasons[0]})" if chosen.reasons else ""
        return _sentence(f"{subject}, which {why}{told}{_instead(chosen, here)}")
    newer = _newer(chosen, here)
    if newer is not None:
        return _sentence(
            f"{subject}, newest complete is {_number(newer.step)}: a restart would repeat "
            f"{(newer.step or 0) - (chosen.step or 0):,} steps"
        )
    verified = _newest(here, (CheckpointState.VERIFIED,))
    if chosen.state is not CheckpointState.VERIFIED and verified is not None:
        return _sentence(f"{subject}, which is not verified; newest verified is {_number(verified.step)}")
    return ""


def _trusted(here: Sequence[CheckpointReport]) -> list[CheckpointReport]:
    """Without what was written after one with damaged numbers and was not loaded: it may hold the same."""
    damaged = [
        one.modified_at_ns or 0
        for one in here
        if one.state is CheckpointState.CORRUPT and any(text in reason for reason in one.reasons for text in DAMAGED_NUMBERS)
    ]
    return [one for one in here if not damaged or one.level is VerificationLevel.LOAD or (one.modified_at_ns or 0) < min(damaged)]


def _newer(chosen: CheckpointReport, here: Sequence[CheckpointReport]) -> CheckpointReport | None:
    if chosen.step is None:
        return None
    later = [
        report
        for report in here
        if report.state in _WHOLE
        and report.step is not None
        and report.step > chosen.step
        and (report.modified_at_ns or 0) >= (chosen.modified_at_ns or 0)
    ]
    return max(later, key=lambda report: report.step or 0, default=None)


def _although(here: Sequence[CheckpointReport]) -> str:
    newest = _newest(here, _WHOLE)
    return "" if newest is None else f", although {_number(newest.step)} is complete here"


def _instead(chosen: CheckpointReport, here: Sequence[CheckpointReport]) -> str:
    others = [report for report in here if report is not chosen]
    verified = _newest(others, (CheckpointState.VERIFIED,))
    if verified is not None:
        return f"; newest verified is {_number(verified.step)}"
    whole = _newest(others, _WHOLE)
    return f"; newest complete is {_number(whole.step)}" if whole is not None else "; no other is complete"


def _newest(here: Sequence[CheckpointReport], states: tuple[CheckpointState, ...]) -> CheckpointReport | None:
    found = [report for report in here if report.state in states]
    return max(found, key=lambda report: (report.modified_at_ns or 0, report.step or 0), default=None)


def _number(step: int | None) -> str:
    return "a checkpoint without a step" if step is None else f"step {step:,}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text[:1].islower() and not text.startswith(("latest", "last")) else text + "."
