"""Pins, lets go of and looks at checkpoints in a thread of its own: a copy may take minutes, and detection must not wait for it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainvitals.checkpoints import inspect
from trainvitals.checkpoints.pinning import (
    CannotPin,
    Pin,
    known_pin,
    original_path,
    pin,
    pin_path,
    pins,
    release,
    still_holds,
    tidy,
)
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState

Kind = Literal["look", "pin", "release", "check"]


@dataclass(frozen=True)
class Job:
    """One thing to do. path: of a checkpoint directory (look), a checkpoint (pin) or a pin (release, check). owner: the run."""

    kind: Kind
    path: str
    report: CheckpointReport | None = None
    why: str = ""
    copy_limit_bytes: int = 0
    owner: str = ""


@dataclass(frozen=True)
class Done:
    """What came of a job. made: pins that are there now, with what was verified of them; of a check:
    only what was written again since. problem: half a sentence, "" = none.

    others: runs for which a pin that was to be released is still kept. is_absent: the checkpoint directory is empty or not
    there, so that nothing is known of its pins.
    """

    job: Job
    made: tuple[tuple[Pin, CheckpointReport], ...] = ()
    problem: str = ""
    others: tuple[str, ...] = ()
    is_absent: bool = False


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
            return Done(job, _look(job.path, job.owner), is_absent=_is_absent(job.path))
        if job.kind == "release":
            return Done(job, others=release(job.path, job.owner))
        assert job.report is not None
        if job.kind == "pin":
            made = pin(job.path, job.copy_limit_bytes, job.owner)
            report = _verified(made, job.report)
            if report.state is not CheckpointState.VERIFIED:
                release(made.path, job.owner)
                return Done(job, problem="; ".join(report.reasons[:1]) or f"what was pinned is {report.state.value}")
            return Done(job, ((made, report),))
        known = job.report
        if still_holds(job.path, known.files, known.bytes, known.modified_at_ns):
            return Done(job)
        if _is_absent(os.path.dirname(original_path(job.path))):  # noqa: PTH120
            return Done(job, problem="its directory is empty or not there: is it mounted?", is_absent=True)
        seen = inspect(job.path) if still_holds(job.path, known.files, known.bytes, None) else None
        if seen is not None and seen.state is CheckpointState.VERIFIED:  # the trainer wrote over the same files
            return Done(job, ((known_pin(job.path, job.owner), seen),))
        return Done(job, problem="its files are not those any more that were verified")
    except (CannotPin, InputError) as error:
        return Done(job, problem=str(error))


def _look(directory: str, owner: str) -> tuple[tuple[Pin, CheckpointReport], ...]:
    """What an earlier start of the watchdog left."""
    tidy(directory)
    return tuple((known_pin(path, owner), inspect(path)) for path in pins(directory))


def _is_absent(directory: str) -> bool:
    try:
        return not os.listdir(directory)  # noqa: PTH208
    except OSError:
        return True


def _verified(made: Pin, known: CheckpointReport) -> CheckpointReport:
    """The report of the pin. Linked files are the verified ones themselves; copied ones are looked at anew."""
    seen = inspect(pin_path(made.path))
    is_same = (seen.files, seen.bytes, seen.modified_at_ns) == (known.files, known.bytes, known.modified_at_ns)
    if made.how != "links" or seen.state is not CheckpointState.VERIFIED or not is_same:
        return seen
    return replace(known, path=made.path)
