"""One thread, behind everything else in the process, that does what follows a save: it hashes, merges and compares.

It lives only while there is something to do. A lock is held for moments, never during I/O.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from trainvitals.hook.hashing import Stopped

#: More saves than these do not wait: their hashing does not keep up, and the oldest ones are deleted soon anyway.
MAX_JOBS = 64
CLOSE_WAIT_S = 15.0
#: After an exception: other ranks may be gone, and whoever starts the job again is waiting.
FAILED_WAIT_S = 2.0
STOP_WAIT_S = 1.0
CLOSING_LOOK_S = 0.1


def wait_at_exit_s() -> float:
    """How long the end of the process may wait: briefly when an exception ended it."""
    return CLOSE_WAIT_S if getattr(sys, "last_value", None) is None else FAILED_WAIT_S


class Job(Protocol):
    """Work in pieces. ``advance``: the seconds until it wants to go on, None = done. ``give_up`` tells why it never will."""

    path: str
    done: threading.Event

    def advance(self, is_stopped: Callable[[], bool]) -> float | None: ...

    def give_up(self, reason: str) -> None: ...


class SaveWorker:
    """``fail`` takes a sentence for what went wrong. Nothing here raises or waits, but ``close``, and that for seconds."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.after_fork()

    def after_fork(self) -> None:
        """A forked child does nothing of what its parent began."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._jobs: list[Job] = []
        self._thread: threading.Thread | None = None
        self._is_closing = self._is_stopped = False

    def put(self, job: Job) -> None:
        """Begin it soon, after those that were put before."""
        dropped: Job | None = None
        with self._lock:
            if self._is_stopped:
                dropped = job
            else:
                self._jobs.append(job)
                if len(self._jobs) > MAX_JOBS:
                    dropped = self._jobs.pop(0)
                self._start()
        self._wake.set()
        if dropped is not None:
            dropped.give_up("the trainer ended first" if self._is_stopped else "later saves overtook it")
            dropped.done.set()

    def jobs_of(self, path: str) -> list[Job]:
        """Those of this checkpoint that are not done."""
        with self._lock:
            return [job for job in self._jobs if job.path == path]

    @property
    def is_busy(self) -> bool:
        """Something is not done."""
        return bool(self._jobs)

    def look_again(self) -> None:
        """A job has something new to see."""
        self._wake.set()

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="trainvitals-saves", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending; the next save tries again
            self._thread = None
            self._fail(f"checkpoints are not hashed now: {error}")

    def _run(self) -> None:
        if sys.platform == "linux":  # where a priority belongs to a thread
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        mine = threading.current_thread()
        due_s: dict[int, float] = {}
        while self._thread is mine:
            with self._lock:
                jobs = list(self._jobs)
                if not jobs or self._is_stopped:
                    self._thread = None
                    return
            for job in jobs:
                if time.monotonic() >= due_s.get(id(job), 0.0) or job.done.is_set() or self._is_closing:
                    due_s[id(job)] = self._advance(job)
            left = [due_s[id(job)] for job in jobs if not job.done.is_set()]
            if len(left) < len(jobs):
                due_s = {id(job): due_s[id(job)] for job in jobs if not job.done.is_set()}
                continue
            wait_s = max(0.0, min(left) - time.monotonic())
            self._wake.wait(min(wait_s, CLOSING_LOOK_S) if self._is_closing else wait_s)
            if self._wake.is_set():
                self._wake.clear()
                due_s = dict.fromkeys(due_s, 0.0)

    def _advance(self, job: Job) -> float:
        """When it wants to go on, on the monotonic clock."""
        seconds: float | None = None
        try:
            seconds = job.advance(lambda: self._is_stopped)
        except Stopped:
            return time.monotonic() + STOP_WAIT_S  # ``close`` tells of it
        except Exception as error:  # noqa: BLE001 - nothing may end the trainer's process; counted and told
            self._fail(f"{job.path}: {type(error).__name__}: {error}")
            job.give_up(f"{type(error).__name__}: {error}"[:300])
        if seconds is not None:
            return time.monotonic() + seconds
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
        job.done.set()
        return 0.0

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Wait, at most so long, for what is under way; what is not done then is given up, and says so."""
        self._is_closing = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            self._is_stopped = True
            self._wake.set()
            thread.join(STOP_WAIT_S)
        with self._lock:
            self._is_stopped = True
            left, self._jobs = self._jobs, []
        for job in left:
            job.give_up("the trainer ended first")
            job.done.set()
