"""Stands for a trainer that runs as a job elsewhere: submits it (or puts it back into the queue), follows it, and ends as it ended.

A process of its own under the keeper, so that the supervisor starts, ends and adopts it like any trainer. SIGUSR1: cancel the job. SIGTERM
and SIGINT end only the follower: a host that is rebooted must not take a training on thousands of GPUs with it; whoever supervises next
follows the job again. The job itself carries a comment that names its start, so that one whose submission was never answered is found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import TypeVar

from trainvitals.clock import Clock, StopSignal, SystemClock
from trainvitals.errors import InputError, TrainvitalsError
from trainvitals.supervisor import slurm_commands as slurm
from trainvitals.supervisor import slurm_job
from trainvitals.supervisor.slurm_commands import SlurmError, UnknownJobError
from trainvitals.supervisor.slurm_job import FORGOTTEN, NOT_SUBMITTED, STARTED_ANEW, SUBMITTING, JobRecord
from trainvitals.supervisor.slurm_nodes import bad_nodes
from trainvitals.supervisor.slurm_text import Job, expand, joined

_Answer = TypeVar("_Answer")
LEFT_CODE = 143
FAILED_CODE = 1
CANCEL_AGAIN_S = 30.0
#: A submission that was not answered is looked for so often before it is called none.
LOOKS_FOR_IT = 4
#: One that was refused in words is looked for, too: not every text tells whether it was taken before.
LOOKS_AFTER_A_REFUSAL = 2
MAX_TRIES = 5
MAX_LOST = 64
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state", "job requeued in held state"})


@dataclass(frozen=True, slots=True)
class Order:
    """mark: of the start, in the job's comment. exclude: nodes it must not get. previous: job of an earlier start, which must be over
    before. is_requeue: put ``previous`` back into the queue when Slurm lets it. is_attach: the job of this start is there already."""

    run_dir: str
    attempt: int
    mark: str
    poll_s: float
    exclude: str = ""
    previous: str = ""
    is_requeue: bool = False
    is_attach: bool = False

    @property
    def comment(self) -> str:
        return f"trainvitals:{self.mark}"

    @property
    def comment_of_run(self) -> str:
        """The beginning that those of all its starts have in common."""
        return f"trainvitals:{self.mark.partition('/')[0]}/"

    def to_text(self) -> str:
        """JSON."""
        return json.dumps(asdict(self))


class _LeftError(Exception):
    """The follower was told to end; the job goes on."""


class Follower:
    """``run`` until the job is over; what is known is in ``slurm_job.json`` all the time."""

    def __init__(
        self, order: Order, command: Sequence[str], environment: Mapping[str, str], clock: Clock, stop: StopSignal
    ) -> None:
        self._order, self._command, self._environment = order, tuple(command), environment
        self._clock, self._stop = clock, stop
        self.record = JobRecord(order.attempt)
        self._is_cancelled = self._is_left = False
        self._cancel_due_s = 0.0

    def cancel(self) -> None:
        """From a signal handler: the job must end."""
        self._is_cancelled = True
        self._stop.set()

    def leave(self) -> None:
        """From a signal handler: the follower must end, the job goes on."""
        self._is_left = True
        self._stop.set()

    def run(self) -> int:
        """Returns the exit code of the process."""
        try:
            self.record = self._attached() if self._order.is_attach else self._started()
            if self.record.job:
                self._follow()
        except _LeftError:
            return LEFT_CODE
        except UnknownJobError as error:
            self._keep(replace(self.record, state=FORGOTTEN, is_over=True, is_waiting=False, trouble=str(error)))
        except (SlurmError, InputError) as error:
            self._keep(replace(self.record, state=NOT_SUBMITTED, is_over=True, is_waiting=False, trouble=str(error)))
        code = self.record.code
        return FAILED_CODE if code is None else code

    # -- how the job comes to be --------------------------------------------------------------------------------------

    def _attached(self) -> JobRecord:
        known = slurm_job.read(self._order.run_dir)
        job = known.job if known is not None and known.attempt == self._order.attempt else ""
        if not job:
            job = self._search()
        if not job:
            return self._keep(
                JobRecord(
                    self._order.attempt, state=NOT_SUBMITTED, is_over=True, is_waiting=False, trouble="it was never submitted"
                )
            )
        kept = known if known is not None and known.job == job else JobRecord(self._order.attempt)
        kept = self._keep(replace(kept, job=job))
        seen = self._ask(lambda: slurm.show_job(job), is_patient=True)
        if seen.is_waiting and seen.reason in HELD_REASONS:
            self._let_go_or_end(job)
        return kept

    def _started(self) -> JobRecord:
        order = self._order
        # A kill from here on leaves a trace of what may have been put back into the queue.
        self._keep(replace(self.record, job=order.previous if order.is_requeue else ""))
        if order.previous:
            if order.is_requeue and self._requeued(order.previous):
                return self.record
            self._end(order.previous)
        self._end_strays()
        for tried in range(1, MAX_TRIES + 1):
            try:
                job = slurm.submit(self._submission(), self._environment)
                break
            except SlurmError as error:
                # Without an answer there may be a job all the same: a second one beside it would be a second trainer.
                job = self._search(LOOKS_FOR_IT if error.is_silence else LOOKS_AFTER_A_REFUSAL)
                if job:
                    break
                if not error.is_silence or tried == MAX_TRIES:
                    raise
                self._say(f"{error} Trying again.")
                self._wait(tried)
        self._keep(replace(self.record, job=job))
        if order.exclude:
            self._let_go_or_end(job)
        return self.record

    def _submission(self) -> list[str]:
        more = ["--parsable", f"--comment={self._order.comment}", "--requeue" if self._order.is_requeue else "--no-requeue"]
        if self._order.exclude:
            more.append("--hold")  # its own list of nodes to leave out is read, and ours is put to it, before it may start
        return [self._command[0], *more, *self._command[1:]]

    def _let_go(self, job: str) -> None:
        """A held job, with the nodes that must not be used beside those that its script leaves out."""
        if self._order.exclude:
            slurm.exclude(job, _excluded(slurm.show_job(job).excluded, self._order.exclude))
        slurm.release(job)

    def _let_go_or_end(self, job: str) -> None:
        """A held job that cannot be let go would wait for ever."""
        try:
            self._ask(lambda: self._let_go(job))
        except UnknownJobError:
            raise
        except SlurmError:
            self._ask(lambda: slurm.cancel(job))
            raise

    def _requeued(self, job: str) -> bool:
        """Whether Slurm put it back; it refuses for jobs that it forgot, and for those of ``--no-requeue``."""

        def again() -> None:
            seen = slurm.show_job(job)
            if not (seen.is_waiting and seen.reason in HELD_REASONS):
                _keep_back(job)
            seen = self._until(job, lambda found: found.is_waiting)
            # Nodes that its script leaves out stay out: what an earlier start added is among them, and can be used again only by a new job.
            slurm.exclude(job, _excluded(seen.excluded, self._order.exclude))
            slurm.start_soon(job)
            slurm.release(job)

        try:
            self._ask(again)
        except SlurmError as error:
            self._say(f"job {job} cannot be put back into the queue ({error}); submitting a new one")
            return False
        return True

    def _end(self, job: str) -> None:
        """Nothing of an earlier start may run beside the new one."""
        try:
            if not self._ask(lambda: slurm.show_job(job)).is_over:
                self._say(f"job {job} of an earlier start is still there: ending it first")
                self._ask(lambda: slurm.cancel(job))
                self._until(job, lambda found: found.is_over)
        except UnknownJobError:
            return  # long over

    def _until(self, job: str, holds: Callable[[Job], bool]) -> Job:
        while True:
            seen = self._ask(lambda: slurm.show_job(job))
            if holds(seen):
                return seen
            self._wait()

    def _search(self, looks: int = LOOKS_FOR_IT) -> str:
        for _ in range(looks):
            for id, comment in self._ask(lambda: slurm.jobs_with_comment(self._order.comment)):
                if comment == self._order.comment:
                    return id
            self._wait()
        return ""

    def _end_strays(self) -> None:
        """Jobs of earlier starts that were submitted although nobody was told so."""
        for id, comment in self._ask(lambda: slurm.jobs_with_comment(self._order.comment_of_run)):
            if comment != self._order.comment:
                self._end(id)

    # -- while it is there --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        job = self.record.job
        base = self.record.restarts if self.record.state != SUBMITTING else None
        while True:
            seen = self._ask(lambda: slurm.show_job(job), is_patient=True)
            base = seen.restarts if base is None else base
            # Its state alone tells nothing: a controller that died goes on from what it had saved, where a running job may still wait.
            if seen.restarts > base:
                self._caught(seen)
                return
            record = self.record.seen(seen, self._clock.time_ns())
            if record.is_over:
                record = replace(record, lost_nodes=self._lost(record))
            if record != self.record:
                self._keep(record)
            if record.is_over:
                return
            if self._is_cancelled and self._clock.monotonic_s() >= self._cancel_due_s:
                self._cancel_due_s = self._clock.monotonic_s() + CANCEL_AGAIN_S
                self._ask(lambda: slurm.cancel(job), is_patient=True)
            self._wait()

    def _caught(self, seen: Job) -> None:
        """Slurm put it back by itself, with whatever checkpoint it likes: kept from starting until somebody decided."""
        if self._is_cancelled:
            self._ask(lambda: slurm.cancel(seen.id), is_patient=True)
        else:
            try:
                self._ask(lambda: _keep_back(seen.id))
            except SlurmError as error:
                self._say(f"job {seen.id} cannot be held ({error}); ending it")
                self._ask(lambda: slurm.cancel(seen.id), is_patient=True)
        lost = self._lost(self.record)
        self._keep(
            replace(self.record, state=STARTED_ANEW, is_over=True, is_waiting=False, lost_nodes=lost, restarts=seen.restarts)
        )

    def _lost(self, record: JobRecord) -> tuple[str, ...]:
        if record.state == "COMPLETED":
            return ()
        bad = set(bad_nodes([self._ask(slurm.show_nodes, is_patient=True)]))
        return tuple(name for name in record.nodes if name in bad)[:MAX_LOST]

    # -- parts --------------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], _Answer], *, is_patient: bool = False) -> _Answer:
        """Until Slurm answers: from its silence nothing is concluded. is_patient: nor from any other trouble, the job is there."""
        while True:
            try:
                return question()
            except UnknownJobError:
                raise
            except SlurmError as error:
                if not error.is_silence and not is_patient:
                    raise
                if self.record.trouble != str(error):
                    self._keep(replace(self.record, trouble=str(error)))
                    self._say(str(error))
            self._wait()

    def _wait(self, times: int = 1) -> None:
        if self._stop.is_set():
            self._clock.sleep(min(1.0, self._order.poll_s))
        else:
            self._stop.wait(self._order.poll_s * times)
        if self._is_left:
            raise _LeftError

    def _keep(self, record: JobRecord) -> JobRecord:
        self.record = record
        try:
            slurm_job.write(self._order.run_dir, record)
        except (TrainvitalsError, OSError) as error:  # a full disk: the job goes on, and the next change is tried again
            self._say(f"cannot write {slurm_job.JOB_FILE}: {error}")
        return record

    def _say(self, text: str) -> None:
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
        sys.stderr.write(f"trainvitals run: {shown}\n")


def _excluded(own: str, more: str) -> str:
    """Both lists as one; names of a form that only Slurm reads stay as it wrote them."""
    try:
        return joined([*expand(own), *expand(more)])
    except InputError:
        return f"{own},{more}" if more else own


def _keep_back(job: str) -> None:
    """In the queue, held: a job that completes before it waits again is refused by the second command only, one that runs by the first."""
    try:
        slurm.hold(job)
    except UnknownJobError:
        raise
    except SlurmError as error:
        if error.is_silence:
            raise
        slurm.requeue_held(job)


def main(order: str, command: Sequence[str]) -> int:
    """``order``: an ``Order`` as JSON."""
    follower = Follower(Order(**json.loads(order)), command, dict(os.environ), SystemClock(), StopSignal())

    def leave(_number: int, _frame: FrameType | None) -> None:
        follower.leave()

    def cancel(_number: int, _frame: FrameType | None) -> None:
        follower.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    signal.signal(signal.SIGUSR1, cancel)
    return follower.run()
