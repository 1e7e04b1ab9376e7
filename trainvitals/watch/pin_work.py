"""Pins, lets go of and looks at checkpoints in a thread of its own: a copy may take minutes, and detection must not wait for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainvitals.checkpoints import inspect
from trainvitals.checkpoints.pinning import CannotPin, Pin, pin, pin_path, pins, release, still_holds, tidy
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState

Kind = Literal["look", "pin", "release", "check"]


@dataclass(frozen=True)
class Job:
    """One thing to do. path: of a checkpoint directory (look), a checkpoint (pin) or a pin (release, check)."""

    kind: Kind
    path: str
    report: CheckpointReport | None = None
    why: str = ""
    copy_limit_bytes: int = 0


@dataclass(frozen=True)
class Done:
    """What came of a job. made: pins that are there now, with what was verified of them. problem: half a sentence, "" = none."""

    job: Job
    made: tuple[tuple[Pin, CheckpointReport], ...] = ()
    problem: str = ""


class PinWork:
    """One job at a time, in order. ``poll`` never waits."""

    def __init__(self, *, in_thread: bool = True) -> None:
        self.in_thread = in_thread
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._done: deque[Done] = deque()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._waiting and not self._is_running

    def add(self, jobs: Sequence[Job]) -> None:
        """Have them done; begins at once."""
        with self._lock:
            self._waiting.extend(jobs)
            start = bool(self._waiting) and not self._is_running
            self._is_running = self._is_running or start
        if start and self.in_thread:
            threading.Thread(target=self._work, name="checkpoint-pin", daemon=True).start()
        elif start:
            self._work()

    def poll(self) -> list[Done]:
        """What was done since the last call."""
        with self._lock:
            done, self._done = list(self._done), deque()
        return done

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                job = self._waiting.popleft()
            try:
                result = carry_out(job)
            except Exception as error:  # noqa: BLE001 (a fault must not end the thread: it is told, and the plan is made again)
                result = Done(job, problem=f"{type(error).__name__}: {error}")
            with self._lock:
                self._done.append(result)


def carry_out(job: Job) -> Done:
    """Do one job; what cannot be done is told in ``problem``."""
    try:
        if job.kind == "look":
            return Done(job, _look(job.path))
        if job.kind == "release":
            release(job.path)
            return Done(job)
        assert job.report is not None
        if job.kind == "pin":
            made = pin(job.path, job.copy_limit_bytes)
            report = _verified(made, job.report)
            if report.state is not CheckpointState.VERIFIED:
                release(made.path)
                return Done(job, problem="; ".join(report.reasons[:1]) or f"what was pinned is {report.state.value}")
            return Done(job, ((made, report),))
        is_whole = still_holds(job.path, job.report.files, job.report.bytes)
        return Done(job, problem="" if is_whole else "its files are not those any more that were verified")
    except (CannotPin, InputError) as error:
        return Done(job, problem=str(error))


def _look(directory: str) -> tuple[tuple[Pin, CheckpointReport], ...]:
    """What an earlier start of the watchdog left."""
    tidy(directory)
    return tuple((pin(path), inspect(path)) for path in pins(directory))


def _verified(made: Pin, known: CheckpointReport) -> CheckpointReport:
    """The report of the pin. Linked files are the verified ones themselves; copied ones are looked at anew."""
    seen = inspect(pin_path(made.path))
    is_same = (seen.files, seen.bytes, seen.modified_at_ns) == (known.files, known.bytes, known.modified_at_ns)
    if made.how != "links" or seen.state is not CheckpointState.VERIFIED or not is_same:
        return seen
    return replace(known, path=made.path)
