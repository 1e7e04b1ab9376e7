"""Looks at the checkpoint directories in a thread of its own: verifying may take long, and detection must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainvitals.clock import Clock
from trainvitals.incidents.checkpoint_card import Room
from trainvitals.records import CheckpointReport, ResumeChoice

#: Scans in a row that could not read something before it is told: network file systems hiccup.
TROUBLED_SCANS = 3
#: A look that has not come back for so long is told: a file system that hangs gives no error, it gives nothing. A look at very many
#: files on a slow one takes less; what a look finds afterwards counts as ever.
HUNG_S = 120.0


class Watcher(Protocol):
    """What is asked of a ``CheckpointWatcher``."""

    @property
    def reports(self) -> list[CheckpointReport]: ...

    def scan(self) -> list[CheckpointReport]: ...

    def advise(self, wanted: Collection[str], step_s: float | None) -> None: ...

    def to_state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Scan:
    """What one look found, and the state that must be committed with it. ``error``: why there was no look, or no whole one.

    choices: what a restart would load, of each directory. known: all checkpoints, not only those that changed. rooms: what the
    disks have left.
    """

    reports: tuple[CheckpointReport, ...]
    state: Mapping[str, Any] | None
    error: str = ""
    choices: tuple[ResumeChoice, ...] = ()
    known: tuple[CheckpointReport, ...] = ()
    rooms: tuple[Room, ...] = ()


class CheckpointScanner:
    """One scan at a time; ``poll`` never waits. ``choose`` looks up what a restart would load, ``look_at_rooms`` what the disks
    have left; they run after each scan, in its thread."""

    def __init__(
        self, watcher: Watcher, clock: Clock, period_s: float, *, in_thread: bool = True,
        choose: Callable[[], Sequence[ResumeChoice]] = tuple, look_at_rooms: Callable[[], Sequence[Room]] = tuple,
    ) -> None:  # fmt: skip
        self._watcher = watcher
        self._choose = choose
        self._look_at_rooms = look_at_rooms
        self._clock = clock
        self._period_s = period_s
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._done: Scan | None = None
        self._is_running = False
        self._due_s = clock.monotonic_s()
        self._troubled_scans = 0
        self._started_s = 0.0

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a committed scan ended."""
        self._watcher.restore(state)

    def advise(self, wanted: Collection[str], step_s: float | None) -> None:
        """What the next scan should know: paths whose content comes first, usual seconds of a step."""
        self._watcher.advise(wanted, step_s)

    def poll(self) -> Scan | None:
        """The result of a scan that has ended, if there is one; starts the next when it is due.

        While one hangs: a scan without reports whose ``error`` says so.
        """
        with self._lock:
            scan, self._done = self._done, None
            if self._is_running and scan is None and self._clock.monotonic_s() - self._started_s >= HUNG_S:
                return Scan((), None, self._hung())
            start = not self._is_running and self._clock.monotonic_s() >= self._due_s
            self._is_running = self._is_running or start
            self._started_s = self._clock.monotonic_s() if start else self._started_s
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
            scan = Scan(reports, self._watcher.to_state(), self._trouble(), known=tuple(self._watcher.reports))
            try:
                scan = replace(scan, rooms=tuple(self._look_at_rooms()))
                scan = replace(scan, choices=tuple(self._choose()))
            except Exception as error:  # noqa: BLE001 (the reports are worth having all the same; it is told)
                scan = replace(scan, error=f"what a restart would load is not known ({type(error).__name__}: {error})")
        except Exception as error:  # noqa: BLE001 (a fault while looking must not end the watchdog: it is told and tried again)
            scan = Scan((), None, f"{type(error).__name__}: {error}")
        with self._lock:
            self._done = scan
            self._is_running = False
            self._due_s = self._clock.monotonic_s() + self._period_s

    def _hung(self) -> str:
        """The same words each time: they are told once."""
        where = str(getattr(self._watcher, "where", ""))
        return (
            f"the look at {where or 'their directories'} has not come back for {HUNG_S / 60:.0f} minutes: the file system there hangs, "
            "or is very slow. Look whether it answers (ls, df). Steps are judged all the same; no checkpoint is verified meanwhile"
        )

    def _trouble(self) -> str:
        """What the watcher could not read, when that lasts: a directory that was mistyped, or is not mounted."""
        text = str(getattr(self._watcher, "text", ""))
        self._troubled_scans = self._troubled_scans + 1 if text else 0
        return text if self._troubled_scans >= TROUBLED_SCANS else ""
