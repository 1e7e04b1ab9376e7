"""Looks at the content of one checkpoint at a time, in a thread of lowest priority, apart from the scans that see names and sizes."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainvitals.checkpoints import files, hash_record, load, low_priority, schedule
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import Unreadable, Vanished, printable
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.checkpoints.hashes import Pace, Stopped
from trainvitals.checkpoints.inspection import Inspection, look_at
from trainvitals.checkpoints.schedule import DAY_NS, Candidate, Job, Policy
from trainvitals.checkpoints.verification import deepen
from trainvitals.clock import Clock
from trainvitals.records import VerificationLevel


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look at a content ended with. ``inspection`` None: it was interrupted, or the files changed meanwhile.

    ``error``: a sentence when the look itself failed, which says nothing about the checkpoint.
    """

    job: Job
    inspection: Inspection | None
    ended_at_ns: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the look that is running; sizes in bytes."""

    path: str
    level: VerificationLevel
    done_bytes: int
    total_bytes: int


class Verifier:
    """``offer`` what there is after every scan, then ``take`` what has ended. Neither waits (unless ``in_thread`` is False)."""

    def __init__(
        self, store: HashStore, clock: Clock, policy: Policy | None = None, run: str = "", limits: load.Limits | None = None, *,
        in_thread: bool = True,
    ) -> None:  # fmt: skip
        self._store, self._clock, self._policy, self._run, self._limits = store, clock, policy or Policy(), run, limits
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._stop = threading.Event()
        self._done: list[Outcome] = []
        self._done_bytes = 0
        self._total_bytes = 0

    @property
    def store(self) -> HashStore:
        """Where the hashes are kept."""
        return self._store

    @property
    def progress(self) -> Progress | None:
        """Of the look that is running, None when there is none."""
        with self._lock:
            job = self._job
            return None if job is None else Progress(job.path, job.level, self._done_bytes, self._total_bytes)

    def offer(self, candidates: Sequence[Candidate], wanted: Collection[str] = ()) -> Job | None:
        """All checkpoints, newest first; ``wanted``: paths of those that come first. Returns the job that was started now; a running one that is no longer wanted is stopped."""
        job = schedule.next_job(candidates, self._clock.time_ns(), self._policy, wanted)
        with self._lock:
            if self._job is not None:
                running = self._job
                is_as_it_was = any(one.path == running.path and one.signature == running.signature for one in candidates)
                is_overtaken = job is not None and job.is_urgent and job.path != running.path
                if not is_as_it_was or is_overtaken:
                    self._stop.set()
                return None
            if job is None:
                return None
            self._job = job
            self._done_bytes = self._total_bytes = 0
            self._stop.clear()
        if self._in_thread:
            threading.Thread(target=self._run_job, args=(job,), name="checkpoint-content", daemon=True).start()
        else:
            self._run_job(job)
        return job

    def take(self) -> list[Outcome]:
        """Looks that have ended since the last call."""
        with self._lock:
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Ask a running look to stop; what it has proven is kept."""
        self._stop.set()

    def _run_job(self, job: Job) -> None:
        inspection, error = None, ""
        try:
            if self._in_thread:
                low_priority.lower()
            inspection = self._look(job)
        except Stopped:
            pass  # goes on where it was when the checkpoint is offered again
        except (Vanished, Unreadable) as failure:
            error = f"{printable(job.path)}: {printable(str(failure))}"
        except Exception as failure:  # noqa: BLE001 (a fault of ours must not end the watchdog: it is told and tried again)
            error = f"{printable(job.path)}: {type(failure).__name__}: {printable(str(failure))}"
        with self._lock:
            self._done.append(Outcome(job, inspection, self._clock.time_ns(), error))
            self._job = None

    def _look(self, job: Job) -> Inspection | None:
        seen = files.listing(job.path)
        if seen.signature != job.signature:
            return None
        with self._lock:
            self._total_bytes = seen.bytes
        pace = Pace(self._clock, 0.0 if job.is_urgent else self._policy.mb_per_s, self._stop.is_set, self._tell)
        shares = self._store.shared(seen.name)
        record = hash_record.with_shares(self._store.load(job.path), shares, seen.entries, job.since_ns, job.since_ns - DAY_NS)
        work = Work(
            self._clock, pace, record, keeps_hashes=True, read_since_ns=job.since_ns, keep=self._store.save,
            run=self._run,
        )  # fmt: skip
        looked = look_at(seen, VerificationLevel.STRUCTURE, self._run)
        inspection, _ = deepen(seen, looked, job.level, work, self._limits)
        is_as_it_was = files.listing(job.path).signature == job.signature and not inspection.has_vanished
        return inspection if is_as_it_was else None

    def _tell(self, count: int) -> None:
        with self._lock:
            self._done_bytes += count
