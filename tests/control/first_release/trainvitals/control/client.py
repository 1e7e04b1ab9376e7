"""The trainer's side of control: a thread looks at ``control.json`` and writes the heartbeat, the training loop obeys.

    client = ControlClient(run_dir, run="llama-70b", on_checkpoint=save, recorder=recorder)
    if sentence := client.at_start():
        sys.exit(sentence)
    for step in range(start, steps):
        ...  # forward, backward, optimizer step
        if client.at_step(step) == "stop":
            break

Training comes first: nothing here raises into the loop, all file access is in the thread, and whatever is unreadable,
late, or meant for another run leaves training as it is.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Protocol

from trainvitals.clock import Clock, SystemClock
from trainvitals.control.conversation import Conversation
from trainvitals.control.rules import Received, has_expired, refusal_to_start

#: How long the loop waits, once, for the first look at the file; a hung file system must not keep training from starting.
FIRST_LOOK_S = 5.0
FINAL_WRITE_S = 5.0
_live: weakref.WeakSet[ControlClient] = weakref.WeakSet()


class EventSink(Protocol):
    """What the client needs of a ``trainvitals.hook.Recorder``."""

    def event(self, kind: str, /, step: object = None, text: str = "", **data: object) -> None:
        """Write an event."""
        ...

    def phase(self, name: str, state: str = "begin") -> None:
        """Write the begin or end of a phase."""
        ...


class ControlClient:
    """One per run, on rank 0.

    on_checkpoint: saves everything needed to go on (weights, optimizer, RNG, data position) for the step it is given, and
    returns when it is safely on disk; raising or returning False means it failed. A pause needs it, unless
    ``pause_without_checkpoint``. max_hold_s: a pause that lasts longer ends by itself, because idle GPUs cost money.
    errors: exceptions that were kept from the training loop.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        on_checkpoint: Callable[[int], object] | None = None,
        pause_without_checkpoint: bool = False,
        poll_s: float = 1.0,
        recorder: EventSink | None = None,
        clock: Clock | None = None,
        max_hold_s: float | None = None,
    ) -> None:
        self.errors = 0
        self._on_checkpoint = on_checkpoint
        self._pause_without_checkpoint = pause_without_checkpoint
        self._recorder = recorder
        self._clock: Clock = clock or SystemClock()
        self._max_hold_s = max_hold_s
        self._poll_s = poll_s if isinstance(poll_s, (int, float)) and 0 < poll_s < 3600 else 1.0
        self._pid = os.getpid()
        self._handled: Received | None = None
        self._answer = "continue"
        self._saved_step: int | None = None
        self._conversation = Conversation(run_dir, run, self._clock, self._poll_s)
        self._conversation.ensure_thread()
        _live.add(self)

    def at_start(self) -> str | None:
        """None, or the sentence that says who stopped this run and why: print it and do not train."""
        try:
            talk = self._conversation
            talk.first_look.wait(FIRST_LOOK_S)
            received = talk.received
            if received is None or received.request.desired != "stopped" or self._is_void(received):
                return None
            request = received.request
            talk.change(state="stopped", done=received, by=request.by, source=request.source, reason=request.reason)
            self._record(received, "refused_to_start", None, refusal_to_start(request))
            talk.flush(FINAL_WRITE_S)
            return refusal_to_start(request)
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and put into the status
            self._kept(error)
            return None

    @property
    def refuses_start(self) -> str | None:
        """The same as ``at_start()``."""
        return self.at_start()

    def at_step(self, step: int) -> str:
        """Call after each optimizer step. Returns "continue", or "stop" when the loop must end; holds while paused."""
        try:
            talk = self._conversation
            talk.step_ended(step)
            if talk.received is self._handled and talk.first_look.is_set():
                return self._answer
            if os.getpid() != self._pid:
                return "continue"  # a forked child has no thread and no say
            talk.first_look.wait(FIRST_LOOK_S)
            return self._obey(int(step))
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and put into the status
            self._kept(error)
            return "continue"

    def close(self) -> None:
        """Say good-bye in the status file and end the thread, waiting a few seconds at most."""
        if os.getpid() == self._pid:
            self._conversation.close(FINAL_WRITE_S)

    def _obey(self, step: int) -> str:
        """Carry out what was received, hold while paused, until nothing new is there."""
        talk = self._conversation
        while True:
            received = talk.received
            if received is None or received is self._handled:
                if talk.state != "paused":
                    return self._answer
                self._hold(step)
                continue
            request = received.request
            is_late_step = request.valid_from_step is None or step >= request.valid_from_step or talk.state == "paused"
            if not received.was_applied and not is_late_step:
                return self._answer
            self._handled = received
            self._answer = "continue"
            if self._is_void(received):
                if not received.was_applied:
                    talk.refuse(received, "it had expired before the step ended")
                    self._record(received, "expired", step, "not carried out: expired")
                continue
            if request.desired == "stopped":
                self._stop(received, step)
                return self._answer
            if request.desired == "paused":
                self._pause(received, step)
                continue
            if talk.state == "paused":
                talk.change(state="resuming", at_step=step)
                self._phase("end")
            self._checkpoint_if_asked(received, step)
            talk.change(state="running", done=received, at_step=step, pause_ended=True)
            if request.seq > 0 and not received.was_applied:
                self._record(received, "running", step)

    def _is_void(self, received: Received) -> bool:
        """Refused before, or past its end and not yet carried out."""
        if received.request.seq == self._conversation.refused_seq:
            return True
        now_ns, now_s = self._clock.time_ns(), self._clock.monotonic_s()
        return not received.was_applied and has_expired(received, now_ns, now_s)

    def _pause(self, received: Received, step: int) -> None:
        talk, request = self._conversation, received.request
        was_paused = talk.state == "paused"
        wants_more = request.checkpoint_request > talk.checkpoint_done
        problem = ""
        if not received.was_applied and (not was_paused or wants_more):
            talk.change(state="pausing", at_step=step, by=request.by, source=request.source, reason=request.reason)
            problem = self._save(step, request.checkpoint_request)
        if problem and not was_paused and not self._pause_without_checkpoint:
            talk.change(state="running", at_step=step)
            talk.refuse(received, f"no pause, because {problem}", keep_error=True)
            self._record(received, "failed", step, problem)
            return
        text = "held again after a restart; no further checkpoint was saved" if received.was_applied else problem
        talk.change(
            state="paused", done=received, at_step=step, error=problem,
            by=request.by, source=request.source, reason=request.reason,
        )  # fmt: skip
        self._record(received, "paused", step, text)
        if not was_paused:
            self._phase("begin")

    def _stop(self, received: Received, step: int) -> None:
        """A stop is carried out even when its checkpoint fails: an explicit order must not depend on a full disk."""
        talk, request = self._conversation, received.request
        was_paused = talk.state == "paused"
        problem = ""
        if not received.was_applied:
            talk.change(state="stopping", at_step=step, by=request.by, source=request.source, reason=request.reason)
            if self._on_checkpoint is not None:
                problem = self._save(step, request.checkpoint_request)
        if was_paused:
            self._phase("end")
        error = f"stopped without a new checkpoint, because {problem}" if problem else ""
        talk.change(state="stopped", done=received, at_step=step, error=error, pause_ended=True)
        self._record(received, "stopped", step, error)
        self._answer = "stop"
        talk.flush(FINAL_WRITE_S)

    def _checkpoint_if_asked(self, received: Received, step: int) -> None:
        talk, request = self._conversation, received.request
        if request.checkpoint_request <= talk.checkpoint_done:
            return
        talk.change(state="checkpointing", at_step=step, by=request.by, source=request.source, reason=request.reason)
        problem = self._save(step, request.checkpoint_request)
        if problem:
            talk.refuse(received, problem, keep_error=True)
        self._record(received, "failed" if problem else "checkpoint", step, problem)

    def _save(self, step: int, counter: int) -> str:
        """Save once per step and counter; "" or why there is no checkpoint."""
        talk = self._conversation
        if self._saved_step == step:
            talk.change(checkpoint_done=counter)
            return ""
        problem = ""
        if self._on_checkpoint is None:
            problem = "the trainer gave no on_checkpoint function"
        else:
            try:
                if self._on_checkpoint(step) is False:
                    problem = "the checkpoint failed: on_checkpoint returned False"
            except Exception as error:  # noqa: BLE001 - the trainer's own save may raise anything; it is told, not thrown
                self.errors += 1
                problem = f"the checkpoint failed: {type(error).__name__}: {error}"[:500]
        if problem:
            talk.change(checkpoint_done=counter, error=problem)
        else:
            self._saved_step = step
            talk.change(checkpoint_done=counter, checkpoint_step=step)
        return problem

    def _hold(self, step: int) -> None:
        """Wait until something else is desired or the hold has lasted too long; the thread goes on with heartbeats."""
        talk, held = self._conversation, self._handled
        begun_s = self._clock.monotonic_s()
        while talk.received is held:
            if not talk.ensure_thread():
                reason = "the control thread could not be started again, so nobody could end the pause"
            elif self._max_hold_s is not None and self._clock.monotonic_s() - begun_s >= self._max_hold_s:
                reason = f"the longest allowed hold of {self._max_hold_s:g} s is over"
            else:
                talk.wait_for_news(self._poll_s)
                continue
            if held is not None:
                talk.refuse(held, f"{reason}; training goes on", keep_error=True)
                self._record(held, "hold_ended", step, reason)
            self._phase("end")
            talk.change(state="running", at_step=step, pause_ended=True)
            return

    def _record(self, received: Received, state: str, step: int | None, text: str = "") -> None:
        if self._recorder is None:
            return
        request = received.request
        try:
            self._recorder.event(
                "control", step, text, state=state, seq=request.seq, desired=request.desired, by=request.by,
                source=request.source, reason=request.reason,
                latency_s=round(self._clock.monotonic_s() - received.seen_s, 3),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - a recorder of the trainer's own making may raise; counted
            self._kept(error)

    def _phase(self, state: str) -> None:
        if self._recorder is not None:
            try:
                self._recorder.phase("paused", state)
            except Exception as error:  # noqa: BLE001 - as above
                self._kept(error)

    def _kept(self, error: Exception) -> None:
        self.errors += 1
        self._conversation.problem(f"{type(error).__name__}: {error}"[:500])


def _close_all() -> None:
    for client in list(_live):
        client.close()


atexit.register(_close_all)
