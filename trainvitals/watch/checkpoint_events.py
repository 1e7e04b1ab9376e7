"""What a look at the checkpoint directories has to tell, as events: for the store, the pages and the rules alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trainvitals.identity import event_id
from trainvitals.incidents.checkpoint_card import Room
from trainvitals.records import CheckpointReport, CheckpointState, Event, ResumeChoice, Severity, VerificationLevel
from trainvitals.watch.checkpoint_room import RoomEvents

#: Choices that are kept to tell what changed; a run has one or two directories.
MAX_CHOICES = 64
#: The store tells two events of one kind apart by their time; a first look at a directory tells thousands at once.
APART_NS = 10**6
#: What is being written changes in every look: told so often.
WRITING_NS = 60 * 10**9
_DEEP = (VerificationLevel.CONTENT, VerificationLevel.LOAD)


class CheckpointEvents:
    """Turns what changed into events, the oldest checkpoint first; remembers what a restart would load."""

    def __init__(self) -> None:
        self._choices: dict[str, dict[str, Any]] = {}
        self._writing: dict[str, int] = {}
        self._rooms = RoomEvents()

    def of(
        self, reports: Sequence[CheckpointReport], choices: Sequence[ResumeChoice], attempt: int | None, now_ns: int,
        rooms: Sequence[Room] = (),
    ) -> list[Event]:  # fmt: skip
        """``reports``: newest first, as the watcher gives them; ``choices``: all that are known now, told when they changed;
        ``rooms``: what the disks have left, told when that changed enough."""
        events: list[Event] = []
        for left, report in zip(range(len(reports) - 1, -1, -1), reversed(reports), strict=True):
            if self._is_told(report, now_ns):
                continue
            events.append(checkpoint_event(report, attempt, now_ns - left * APART_NS))
            if report.verified_at_ns is not None and (report.level in _DEEP or report.state is CheckpointState.CORRUPT):
                events.append(verification_event(report, report.verified_at_ns, attempt))
        for choice in choices:
            told = asdict(choice)
            if self._choices.get(choice.directory) != told:
                self._choices.pop(choice.directory, None)
                self._choices[choice.directory] = told
                events.append(pointer_event(choice, attempt, now_ns))
        while len(self._choices) > MAX_CHOICES:
            self._choices.pop(next(iter(self._choices)))
        return [*events, *self._rooms.of(rooms)]

    def _is_told(self, report: CheckpointReport, now_ns: int) -> bool:
        """Whether it was told lately that this one is being written."""
        if report.state is not CheckpointState.WRITING:
            self._writing.pop(report.path, None)
            return False
        told_ns = self._writing.get(report.path)
        if told_ns is not None and 0 <= now_ns - told_ns < WRITING_NS:
            return True
        self._writing[report.path] = now_ns
        while len(self._writing) > MAX_CHOICES:
            self._writing.pop(next(iter(self._writing)))
        return False

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"choices": self._choices, "rooms": self._rooms.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._choices = {str(directory): dict(told) for directory, told in state.get("choices", {}).items()}
        self._rooms.restore(state.get("rooms", {}))


def checkpoint_event(report: CheckpointReport, attempt: int | None, now_ns: int) -> Event:
    """What the pages read of a checkpoint's state."""
    is_bad = report.state in (CheckpointState.CORRUPT, CheckpointState.INCOMPLETE)
    return Event(
        "checkpoint", now_ns, step=report.step, attempt=attempt, id=event_id(report.path, report.state.value, now_ns),
        severity=Severity.WARNING if is_bad else Severity.INFO, source="watch",
        text=f"checkpoint {report.path} is {report.state.value}", data=asdict(report),
    )  # fmt: skip


def verification_event(report: CheckpointReport, ended_ns: int, attempt: int | None) -> Event:
    """A look at the content has ended. Its id and time are those of that look, so that saying it again adds nothing."""
    level = report.level.value if report.level is not None else ""
    is_bad = report.state is CheckpointState.CORRUPT
    text = f"checkpoint {report.path} is {report.state.value}" + (f" ({level})" if level and not is_bad else "")
    return Event(
        "verification", ended_ns, step=report.step, attempt=attempt, id=event_id("verification", report.path, level, ended_ns),
        severity=Severity.WARNING if is_bad else Severity.INFO, source="watch", text=text,
        data={
            "path": report.path, "level": level, "state": report.state.value, "reasons": list(report.reasons),
            "proof": report.proof.value, "bytes": report.bytes,
        },
    )  # fmt: skip


def pointer_event(choice: ResumeChoice, attempt: int | None, now_ns: int) -> Event:
    """What a restart would load from now on. No alarm by itself: with each save it is one that nobody has verified yet."""
    what = f"a restart would load {choice.path}" if choice.path is not None else "a restart would begin from scratch"
    return Event(
        "pointer", now_ns, step=choice.step, attempt=attempt, id=event_id("pointer", choice.directory, str(choice.path), now_ns),
        source="watch", text=choice.problem or f"{what} ({choice.how})", data=asdict(choice),
    )  # fmt: skip
