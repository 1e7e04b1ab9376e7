"""The thread beside the training loop: reads ``control.json``, writes ``control_status.json``. All file access is here.

The loop and the thread share a few variables under a lock that is never held during file access.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from trainvitals import __version__
from trainvitals.clock import Clock
from trainvitals.control import files
from trainvitals.control.records import UNDERSTANDS, UNDERSTANDS_PARKING, ControlRequest, ControlStatus
from trainvitals.control.request import read_request, read_status
from trainvitals.control.rules import CLOCK_SLACK_S, MAX_STEP, Received, has_expired, objection
from trainvitals.errors import TrainvitalsError

HEARTBEAT_S = 1.0


class Conversation:
    """received: the newest request that counts, None before there is one. state: what the status file says.

    was_parked: the start before this one ended for a pause.
    """

    def __init__(self, run_dir: str | os.PathLike[str], run: str, clock: Clock, poll_s: float, can_park: bool = False) -> None:
        self.first_look = threading.Event()
        self.received: Received | None = None
        self.state = "running"
        self.refused_seq = 0
        self.checkpoint_done = 0
        self.was_parked = False
        self._how = ""
        self._understands = UNDERSTANDS_PARKING if can_park else UNDERSTANDS
        self._run_dir = run_dir
        self._run = run
        self._clock = clock
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._news = threading.Event()
        self._written = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closing = False
        self._version = 0
        self._written_version = -1
        self._tried_version = -1
        self._step: int | None = None
        self._step_s = 0.0
        self._last_good_s: float | None = None
        self._read_problem = ""
        self._action_problem = ""
        self._write_problem = ""
        self._has_warned = False
        self._attempt = 0
        self._ack = (0, "")
        self._applied_seq = 0
        self._refusal = ""
        self._applied_at_step: int | None = None
        self._checkpoint_step: int | None = None
        self._pause_started_ns: int | None = None
        self._since_ns = clock.time_ns()
        self._who = ("", "", "")
        self._bad_reads = 0
        self._heartbeat_seq = 0

    # what the training loop calls: variables only

    def step_ended(self, step: object) -> None:
        """Remember the step for the heartbeat."""
        self._step = step if type(step) is int and 0 <= step <= MAX_STEP else self._step
        self._step_s = self._clock.monotonic_s()

    @property
    def last_step(self) -> int:
        """The last step that was one; 0 before there is one."""
        return self._step or 0

    def change(
        self,
        state: str | None = None,
        done: Received | None = None,
        at_step: int | None = None,
        error: str | None = None,
        checkpoint_done: int | None = None,
        checkpoint_step: int | None = None,
        by: str | None = None,
        source: str | None = None,
        reason: str | None = None,
        pause_ended: bool = False,
        how: str = "",
    ) -> None:
        """Take over what is given and have it written soon. ``done``: the request that was carried out. how: of the pause."""
        with self._lock:
            if state is not None:
                self._how = how
            if state is not None and state != self.state:
                self.state = state
                self._since_ns = self._clock.time_ns()
                if state == "paused":
                    self._pause_started_ns = self._since_ns
            if done is not None:
                if done.request.seq > self._applied_seq and done.request.seq != self.refused_seq and error is None:
                    self._action_problem = ""
                self._applied_seq = max(self._applied_seq, done.request.seq)
            if at_step is not None:
                self._applied_at_step = at_step
            if error is not None:
                self._action_problem = error
            if checkpoint_done is not None:
                self.checkpoint_done = max(self.checkpoint_done, checkpoint_done)
            if checkpoint_step is not None:
                self._checkpoint_step = checkpoint_step
            if by is not None:
                self._who = (by, source or "", reason or "")
            if pause_ended:
                self._pause_started_ns = None
                if self.state == "running":
                    self._who = ("", "", "")
            self._version += 1
        self._wake.set()

    def refuse(self, received: Received, why: str, *, keep_error: bool = False) -> None:
        """Say in the status that a request was received and not carried out."""
        with self._lock:
            self.refused_seq = max(self.refused_seq, received.request.seq)
            self._refusal = why
            if keep_error:
                self._action_problem = why
            self._version += 1
        self._wake.set()

    def problem(self, sentence: str) -> None:
        """Put a problem into the status."""
        with self._lock:
            self._action_problem = sentence

    def wait_for_news(self, seconds: float) -> None:
        """Until another request was received, at most so long."""
        self._news.wait(seconds)
        self._news.clear()

    def flush(self, timeout_s: float) -> None:
        """Wait, at most so long, until the thread has tried to write what was changed before."""
        version = self._version
        self._wake.set()
        with self._written:
            self._written.wait_for(lambda: self._tried_version >= version, timeout_s)

    def close(self, timeout_s: float) -> None:
        """A last status with ``ended``, then the thread ends; waits at most so long."""
        if self._closing:
            return
        with self._lock:
            self._closing = True
            if self.state != "stopped":
                self.state = "stopped"
                self._since_ns = self._clock.time_ns()
            self._version += 1
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def ensure_thread(self) -> bool:
        """Start the thread if it does not run; False when that is impossible."""
        if os.getpid() != self._pid or self._closing:
            return False
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = threading.Thread(target=self._talk, name="trainvitals-control", daemon=True)
                self._thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is ending
                self._thread = None
                self._warn(f"the control thread cannot be started ({error})")
                return False
        return True

    # the thread

    def _talk(self) -> None:
        next_look_s = 0.0
        while True:
            is_last = self._closing
            try:
                if not self.first_look.is_set():
                    self._recall()
                if time.monotonic() >= next_look_s and not is_last:
                    next_look_s = time.monotonic() + self._poll_s * 0.9
                    self._look()
                self.first_look.set()
                self._write_status(is_last)
            except Exception as error:  # noqa: BLE001 - the thread must live as long as the training; told in the status
                self.problem(f"{type(error).__name__}: {error}"[:500])
                self.first_look.set()
            if is_last:
                return
            self._wake.wait(min(self._poll_s, HEARTBEAT_S))
            self._wake.clear()

    def _recall(self) -> None:
        """What earlier starts of the trainer have done, so that nothing is done twice."""
        try:
            files.make_directories(self._run_dir)
        except (TrainvitalsError, OSError) as error:
            self._write_problem = str(error)
        try:
            before = read_status(self._run_dir)
        except (TrainvitalsError, OSError) as error:
            self._bad_reads += 1
            self._read_problem = f"The earlier status could not be read, so requests before it may be carried out again: {error}"
            return
        if before is None or (self._run and before.run and before.run != self._run):
            self._attempt = 1
            return
        with self._lock:
            self._attempt = before.attempt + 1
            self._ack = (before.applied_seq, before.ack_request_id if before.ack_seq == before.applied_seq else "")
            if before.refused_seq > before.applied_seq:
                self._ack = (before.refused_seq, before.ack_request_id if before.ack_seq == before.refused_seq else "")
            self._applied_seq = before.applied_seq
            self.refused_seq, self._refusal = before.refused_seq, before.refusal
            self.checkpoint_done, self._checkpoint_step = before.checkpoint_done, before.checkpoint_step
            self._heartbeat_seq = before.heartbeat_seq
            self.was_parked = before.how == "park"

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        try:
            request = read_request(self._run_dir)
        except (TrainvitalsError, OSError) as error:
            self._bad_reads += 1
            self._read_problem = f"{error} The state asked for last stays."
            return
        is_fresh = self._last_good_s is not None and now_s - self._last_good_s <= CLOCK_SLACK_S
        self._last_good_s = now_s
        current = self.received
        if current is not None and current.request == request:
            self._read_problem = ""
            return
        why_not = objection(request, self._run, *self._ack)
        if why_not:
            if why_not != self._read_problem:
                self._bad_reads += 1
            self._read_problem = why_not
            return
        self._read_problem = ""
        if request.seq == 0 and current is None and self._applied_seq == 0 and request.desired == "running":
            return
        self._receive(Received(request, now_s, is_fresh, was_applied=0 < request.seq <= self._applied_seq))

    def _receive(self, received: Received) -> None:
        request = received.request
        with self._lock:
            self._ack = (request.seq, request.request_id)
            self._version += 1
        if not received.was_applied and has_expired(received, self._clock.time_ns(), self._clock.monotonic_s()):
            self.refuse(received, "it had expired before the trainer saw it")
            return
        self.received = received
        self._news.set()

    def _write_status(self, is_last: bool) -> None:
        with self._lock:
            version = self._version
            self._heartbeat_seq += 1
            status = self._status(is_last)
        try:
            if not files.control_dir(self._run_dir).is_dir():
                files.make_directories(self._run_dir)
            path = files.control_dir(self._run_dir) / files.STATUS_FILE
            # A plain heartbeat need not survive a power cut; a change of state must.
            files.replace(path, status.to_json().encode(), files.STATUS_MODE, durable=version != self._written_version)
            self._write_problem = ""
            self._written_version = version
        except (TrainvitalsError, OSError) as error:
            self._write_problem = f"The status could not be written: {error}"
            self._warn(self._write_problem)
        with self._written:
            self._tried_version = version
            self._written.notify_all()

    def _status(self, is_last: bool) -> ControlStatus:
        request = self.received.request if self.received is not None else ControlRequest()
        problems = [text for text in (self._action_problem, self._read_problem, self._write_problem) if text]
        age_s = None if self._step is None else round(max(0.0, self._clock.monotonic_s() - self._step_s), 3)
        return ControlStatus(
            run=self._run or request.run,
            attempt=self._attempt,
            state=self.state,
            desired=request.desired,
            ack_seq=self._ack[0],
            ack_request_id=self._ack[1],
            applied_seq=self._applied_seq,
            refused_seq=self.refused_seq,
            refusal=self._refusal,
            checkpoint_done=self.checkpoint_done,
            applied_at_step=self._applied_at_step,
            checkpoint_step=self._checkpoint_step,
            error=" ".join(problems) or None,
            heartbeat_ns=self._clock.time_ns(),
            heartbeat_seq=self._heartbeat_seq,
            pause_started_ns=self._pause_started_ns,
            since_ns=self._since_ns,
            step=self._step,
            step_age_s=age_s,
            by=self._who[0],
            source=self._who[1],
            reason=self._who[2],
            pid=self._pid,
            host=os.uname().nodename,
            bad_reads=self._bad_reads,
            ended=is_last,
            how=self._how,
            hook_version=__version__,
            understands=self._understands,
        )

    def _warn(self, sentence: str) -> None:
        """Once: the status file cannot tell, so the trainer's own log does."""
        if self._has_warned:
            return
        self._has_warned = True
        try:
            print(f"trainvitals control: {sentence[:500]} Training goes on.", file=sys.stderr)  # noqa: T201
        except (OSError, ValueError):
            self._bad_reads += 1  # stderr is closed too; the counter is all that is left
