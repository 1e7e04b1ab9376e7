"""Looks at the checkpoint directories in a thread of its own: verifying may take long, and detection must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from trainvitals.clock import Clock
from trainvitals.identity import event_id
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Severity


class Watcher(Protocol):
    """What is asked of a ``CheckpointWatcher``."""

    def scan(self) -> list[CheckpointReport]: ...

    def to_state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Scan:
    """What one look found, and the state that must be committed with it. ``error``: why there was no look."""

    reports: tuple[CheckpointReport, ...]
    state: Mapping[str, Any] | None
    error: str = ""


class CheckpointScanner:
    """One scan at a time; ``poll`` never waits."""

    def __init__(self, watcher: Watcher, clock: Clock, period_s: float, *, in_thread: bool = True) -> None:
        self._watcher = watcher
        self._clock = clock
        self._period_s = period_s
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._done: Scan | None = None
        self._is_running = False
        self._due_s = clock.monotonic_s()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a committed scan ended."""
        self._watcher.restore(state)

    def poll(self) -> Scan | None:
        """The result of a scan that has ended, if there is one; starts the next when it is due."""
        with self._lock:
            scan, self._done = self._done, None
            start = not self._is_running and self._clock.monotonic_s() >= self._due_s
            self._is_running = self._is_running or start
        if start:
            if self._in_thread:
                threading.Thread(target=self._scan, name="checkpoint-scan", daemon=True).start()
            else:
                self._scan()
                with self._lock:
                    scan, self._done = self._done, None
        return scan

    def _scan(self) -> None:
        try:
            reports = tuple(self._watcher.scan())
            scan = Scan(reports, self._watcher.to_state())
        except Exception as error:  # noqa: BLE001 (a fault while looking must not end the watchdog: it is told and tried again)
            scan = Scan((), None, f"{type(error).__name__}: {error}")
        with self._lock:
            self._done = scan
            self._is_running = False
            self._due_s = self._clock.monotonic_s() + self._period_s


def checkpoint_event(report: CheckpointReport, attempt: int | None, now_ns: int) -> Event:
    """What the pages read of a checkpoint's state."""
    is_bad = report.state in (CheckpointState.CORRUPT, CheckpointState.INCOMPLETE)
    return Event(
        "checkpoint", now_ns, step=report.step, attempt=attempt, id=event_id(report.path, report.state.value, now_ns),
        severity=Severity.WARNING if is_bad else Severity.INFO, source="watch",
        text=f"checkpoint {report.path} is {report.state.value}", data=asdict(report),
    )  # fmt: skip


def checkpoint_finding(run: str, report: CheckpointReport, attempt: int, now_ns: int, previous: Finding | None) -> Finding | None:
    """``checkpoint_corrupt`` for a report that says corrupt or incomplete; its end when the checkpoint is good or gone."""
    bad = report.state.value in ("corrupt", "incomplete")
    if previous is None and not bad:
        return None
    if previous is not None and bad == previous.is_open:
        return None
    name = report.path.rstrip("/").rsplit("/", 1)[-1]
    step = report.step if report.step is not None else 0
    if bad:
        message = f"checkpoint {name} is {report.state.value}" + (f": {report.reasons[0]}" if report.reasons else "")
    else:
        message = f"checkpoint {name} was damaged; now it is {report.state.value}"
    return Finding(
        id=previous.id if previous else f"{run}/checkpoint_corrupt/{report.path}",
        rule="checkpoint_corrupt", family="checkpoint", severity=Severity.WARNING, first_step=step, detected_step=step,
        last_step=None if bad else step, attempt=previous.attempt if previous else attempt,
        time_ns=previous.time_ns if previous else now_ns, value=None, expected=None, message=message, is_open=bad,
        data={"path": report.path, "reasons": list(report.reasons)},
    )  # fmt: skip
