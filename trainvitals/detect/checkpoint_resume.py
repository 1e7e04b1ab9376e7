"""Whether a start of the trainer, done or to come, misses a newer checkpoint. Pure.

Trainers choose by name or by a small file, almost never by content; NeMo once began runs from step 0 in silence
(NVIDIA-NeMo/Speech pull request 10228).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.detect.checkpoint_book import BAD, MOVING, CheckpointBook, Entry, age_key
from trainvitals.detect.findings import format_step


@dataclass(frozen=True, slots=True)
class Start:
    """A start that goes on after ``from_step``. is_told: the trainer said so; else it is the step before its first point, which
    may be off by ``slack_steps``. at_ns: when; None = not known. highest_step: of all that was run before."""

    from_step: int
    is_told: bool
    at_ns: int | None
    highest_step: int
    slack_steps: int

    @property
    def is_from_scratch(self) -> bool:
        """Whether it began anew."""
        return self.from_step <= (0 if self.is_told else self.slack_steps)


@dataclass(frozen=True, slots=True)
class Missed:
    """What a start could have gone on from."""

    step: int
    what: str
    path: str | None
    is_verified: bool


def missed(start: Start, book: CheckpointBook, told_step: int | None, told_before: int | None) -> Missed | None:
    """The newest checkpoint that was there when the trainer started and is newer than what it went on from.

    told_step, told_before: the last two saves that the trainer told of; used where no directory is watched, and then only a start
    from before both: the last one may not have been durable.
    """
    slack = 1 if start.is_told else max(1, start.slack_steps)
    if book.completed:
        for entry in _whole(book.good()):
            step, written_ns = entry["step"], entry["modified_ns"]
            # A step that this run never reached is another run's, or counted in other units (samples, tokens).
            if step is None or step > start.highest_step + start.slack_steps:
                continue
            if written_ns is None or start.at_ns is None or written_ns > start.at_ns:
                continue
            if step - start.from_step <= slack:
                return None
            verified = bool(entry["is_verified"])
            return Missed(step, f"{'verified' if verified else 'complete'} checkpoint {entry['name']}", entry["path"], verified)
        return None
    if told_step is None or told_before is None or told_step > start.highest_step + start.slack_steps:
        return None
    if told_before - start.from_step <= slack:
        return None
    return Missed(told_step, "a checkpoint (as the trainer told)", None, False)


def _whole(entries: list[Entry]) -> list[Entry]:
    """Those that a run can go on from: weights alone, saved in between, are none where others hold the optimizer too."""
    if not any(entry["has_optimizer"] for entry in entries):
        return entries
    return [entry for entry in entries if entry["has_optimizer"] is not False]


def would_miss(choice: Mapping[str, Any], book: CheckpointBook) -> str | None:
    """A sentence when a restart would load the wrong one, "" when it would not, None when that cannot be said now."""
    picked = book.entries.get(str(choice["path"])) if choice["path"] is not None else None
    if picked is not None and picked["state"] in MOVING:
        return None
    trusted = {entry["path"] for entry in book.trusted()}
    here = _whole([entry for entry in book.in_directory(str(choice["directory"])) if entry["path"] in trusted])
    newest = next((entry for entry in here if entry["step"] is not None), None)
    better = ""
    if newest is not None:
        better = f"newest {'verified' if newest['is_verified'] else 'complete'} is step {format_step(newest['step'])}"
    problem = str(choice["problem"])
    what = choice["path"].rsplit("/", 1)[-1][:120] if choice["path"] else ""
    wrong = f"a restart would load {what} ({choice['how']})"
    if choice["path"] is None:
        if newest is None:
            return problem
        return problem or f"a restart would begin from scratch ({choice['how']}); {better}"
    if picked is None:
        return problem
    if picked["state"] in BAD:
        return ""  # ``checkpoint_corrupt`` says that a restart would load it
    if newest is None or newest["path"] == picked["path"] or picked["step"] is None or newest["step"] == picked["step"]:
        return ""
    if age_key(picked) >= age_key(newest):
        return ""
    if picked["step"] > newest["step"]:
        return f"{wrong}, which an earlier start left behind; {better}"
    return problem or f"{wrong}; {better}"
