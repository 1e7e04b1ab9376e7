"""Thin: drives ``trainvitals.checkpoints`` and turns each changed report into an event of kind ``checkpoint``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainvitals.checkpoints import CheckpointWatcher
from trainvitals.checkpoints.watcher import report_to_mapping
from trainvitals.clock import Clock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, Event, Point, Severity
from trainvitals.store.encode import event_point

_BAD = (CheckpointState.INCOMPLETE, CheckpointState.CORRUPT)


class CheckpointCollector:
    """Scans the directories; the first scan reports all that is there."""

    name = "checkpoints"

    def __init__(self, run: str, directories: Sequence[str], clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._watcher = CheckpointWatcher(directories, clock)

    def collect(self) -> Iterable[Point]:
        """Raises ``InputError`` when a directory cannot be read; its known checkpoints stay known."""
        changed = self._watcher.scan()
        if self._watcher.text and not changed:
            raise InputError(self._watcher.text)
        return [event_point(self._run, self._event(report)) for report in changed]

    def close(self) -> None:
        """Nothing is held open between scans."""

    def _event(self, report: CheckpointReport) -> Event:
        return Event(
            kind="checkpoint",
            time_ns=self._clock.time_ns(),
            step=report.step,
            id=report.path,
            severity=Severity.WARNING if report.state in _BAD else Severity.INFO,
            source="collector/checkpoints",
            text="; ".join((report.state.value, *report.reasons[:1])),
            data=report_to_mapping(report),
        )
