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

from trainvitals.clock import Clock, SystemClock
from trainvitals.control.conversation import Conversation
from trainvitals.control.group import PARKED_END, Alone, Crew, PeersLost, exit_code_of
from trainvitals.control.rules import Received, has_expired, is_bare, refusal_to_start, wants_save, whole_step
from trainvitals.control.telling import EventSink, Telling

#: How long the loop waits, once, for the first look at the file; a hung file system must not keep training from starting.
FIRST_LOOK_S = 5.0
FINAL_WRITE_S = 5.0
_live: weakref.WeakSet[ControlClient] = weakref.WeakSet()


class ControlClient:
    """One per run, in a run of one process; with more there is ``trainvitals.hook.group_control``.

    on_checkpoint: saves everything needed to go on (weights, optimizer, RNG, data position) for the step it is given, and
    returns when it is safely on disk; raising or returning False means it failed. A pause needs it, unless
    ``pause_without_checkpoint`` or the request says that it must not save. drain: finishes asynchronous saves that are under way;
    called first. while_held: called about once a second while paused, for watchdogs of the trainer's own.
    can_park: the loop ends when ``at_step`` answers "park", with exit code 75. max_hold_s: a pause that lasts longer ends by itself,
    because idle GPUs cost money; where the loop can park and the request does not say "hold", it parks. crew: who carries it out.
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
        drain: Callable[[], object] | None = None,
        while_held: Callable[[], object] | None = None,
        can_park: bool = False,
        crew: Crew | None = None,
    ) -> None:
        self._errors = self._last_step = 0
        self._crew: Crew = crew if crew is not None else Alone(on_checkpoint, drain, while_held)
        self._can_park = bool(can_park)
        self._pause_without_checkpoint = pause_without_checkpoint
        self._clock: Clock = clock or SystemClock()
        self._telling = Telling(recorder, self._clock, self._kept)
        self._max_hold_s = max_hold_s
        self._poll_s = poll_s if isinstance(poll_s, (int, float)) and 0 < poll_s < 3600 else 1.0
        self._pid = os.getpid()
        self._handled: Received | None = None
        self._has_waited = False
        self._answer = "continue"
        self._saved_step: int | None = None
        self._conversation = Conversation(run_dir, run, self._clock, self._poll_s, self._can_park)
        self._conversation.ensure_thread()
        _live.add(self)

    @property
    def errors(self) -> int:
        """Exceptions that were kept from the training loop."""
        return self._errors + self._crew.errors

    def at_start(self) -> str | None:
        """None, or the sentence that says who stopped or parked this run and why: print it, do not train, ``sys.exit(exit_code)``."""
        try:
            talk = self._conversation
            self._wait_for_first_look()
            received = talk.received
            if received is None or self._is_void(received):
                return None
            request = received.request
            stays_parked = self._stays_parked(received)
            if request.desired != "stopped" and not stays_parked:
                return None
            self._answer = "park" if stays_parked else "stop"
            if stays_parked:
                self._telling.finish(PARKED_END)
            talk.change(
                state="stopped", done=received, how="park" if stays_parked else "",
                by=request.by, source=request.source, reason=request.reason,
            )  # fmt: skip
            self._telling.record(received, "refused_to_start", None, refusal_to_start(request))
            talk.flush(FINAL_WRITE_S)
            return refusal_to_start(request)
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and put into the status
            self._kept(error)
            return None

    @property
    def refuses_start(self) -> str | None:
        """The same as ``at_start()``."""
        return self.at_start()

    @property
    def exit_code(self) -> int:
        """Of a program whose loop was left: 75 when it was parked (or stays parked), else 0; under torchrun always 0."""
        return exit_code_of(self._answer, os.environ)

    @property
    def answer(self) -> str:
        """What ``at_step`` answered last; after a refusal of ``at_start`` "stop" or "park"."""
        return self._answer

    def step_ended(self, step: int) -> None:
        """For the heartbeat alone: a step at whose end nothing is obeyed."""
        self._conversation.step_ended(step)

    def wants_save(self, step: int) -> bool:
        """For a trainer that saves by itself: whether what was asked for begins with a checkpoint at this step. Holds nothing."""
        try:
            talk = self._conversation
            talk.step_ended(step)
            received = talk.received
            if (
                received is None
                or received is self._handled
                or os.getpid() != self._pid
                or not self._is_time(received, self._whole(step))
            ):
                return False
            is_void = self._is_void(received)
            return not is_void and self._crew.can_save and wants_save(received, talk.checkpoint_done) and self._saved_step != step
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and put into the status
            self._kept(error)
            return False

    def give_up(self, sentence: str) -> None:
        """The ranks can no longer act as one: refuse what is outstanding, and say why; training goes on by itself."""
        talk = self._conversation
        received = talk.received
        is_midway = talk.state in ("pausing", "stopping", "checkpointing")
        if received is not None and (received is not self._handled or is_midway):
            self._handled = received
            if not received.was_applied:
                talk.refuse(received, sentence)
        if talk.state not in ("running", "stopped"):
            talk.change(state="running", pause_ended=True)
        talk.problem(sentence)

    def at_step(self, step: int) -> str:
        """Call after each optimizer step. Returns "continue", or "stop" or "park" when the loop must end; holds while paused.

        "park" only with ``can_park``. Raises only what a ``crew`` of many ranks raises when they lose each other.
        """
        try:
            talk = self._conversation
            talk.step_ended(step)
            if talk.received is self._handled and self._has_waited:
                return self._answer
            if os.getpid() != self._pid:
                return "continue"  # a forked child has no thread and no say
            self._wait_for_first_look()
            return self._obey(self._whole(step))
        except PeersLost:
            raise
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and put into the status
            self._kept(error)
            return "continue"

    def _whole(self, step: object) -> int:
        """What is no step (NaN, None) takes no pause away: the one after the last known stands in, so that it never passes for saved."""
        try:
            self._last_step = whole_step(step)
        except Exception as error:  # noqa: BLE001 - a class of the trainer's own may raise anything; counted and put into the status
            self._last_step = max(self._last_step, self._conversation.last_step) + 1
            self._kept(error)
        return self._last_step

    def _wait_for_first_look(self) -> None:
        """Once: a file system that hangs from the start must not cost these seconds at every step."""
        if not self._has_waited:
            self._has_waited = True
            self._conversation.first_look.wait(FIRST_LOOK_S)

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
                if talk.state != "paused" or self._hold(step):
                    return self._answer
                continue
            request = received.request
            if not self._is_time(received, step):
                return self._answer
            if (
                talk.state != "paused" and self._crew.can_save and not self._crew.is_ready(step)
                and wants_save(received, talk.checkpoint_done) and not self._is_void(received)
            ):  # fmt: skip
                return self._answer  # seen after the trainer was asked whether to save; the next step begins with that
            self._handled = received
            self._answer = "continue"
            if self._is_void(received):
                if not received.was_applied:
                    talk.refuse(received, "it had expired before the step ended")
                    self._telling.record(received, "expired", step, "not carried out: expired")
                continue
            if request.desired != "running":
                (self._stop if request.desired == "stopped" else self._pause)(received, step)
                if self._answer != "continue":
                    return self._answer  # told as the end by now: a resume that came meanwhile is for the next start
                continue
            was_paused = talk.state == "paused"
            if was_paused:
                talk.change(state="resuming", at_step=step)
                self._telling.phase("end")
            has_saved = self._checkpoint_if_asked(received, step)
            talk.change(state="running", done=received, at_step=step, pause_ended=True)
            if not received.was_applied and (was_paused or not has_saved):
                self._telling.record(received, "running", step)

    def _is_time(self, received: Received, step: int) -> bool:
        first = received.request.valid_from_step
        return received.was_applied or first is None or step >= first or self._conversation.state == "paused"

    def _stays_parked(self, received: Received) -> bool:
        """Started again although it was parked and nobody resumed it: holding would only keep the nodes busy."""
        request = received.request
        is_parked = request.how == "park" or self._conversation.was_parked
        return self._can_park and received.was_applied and request.desired == "paused" and is_parked

    def _is_void(self, received: Received) -> bool:
        """Refused before, or past its end and not yet carried out."""
        if received.request.seq == self._conversation.refused_seq:
            return True
        now_ns, now_s = self._clock.time_ns(), self._clock.monotonic_s()
        return not received.was_applied and has_expired(received, now_ns, now_s)

    def _pause(self, received: Received, step: int) -> None:
        talk, request = self._conversation, received.request
        was_paused = talk.state == "paused"
        problem = text = ""
        if not received.was_applied and (not was_paused or request.checkpoint_request > talk.checkpoint_done):
            bare = is_bare(request, talk.checkpoint_done)
            talk.change(
                state="pausing", at_step=step, how="hold" if was_paused else "",
                by=request.by, source=request.source, reason=request.reason,
            )  # fmt: skip
            problem = self._settle(step) if bare else self._save(step, request.checkpoint_request)
            if problem and not bare and not was_paused and not self._pause_without_checkpoint:
                talk.change(state="running", at_step=step)
                talk.refuse(received, f"no pause, because {problem}", keep_error=True)
                self._telling.record(received, "failed", step, problem)
                return
            text = "no checkpoint was saved, as asked" if bare and not problem and not was_paused else ""
        if self._stays_parked(received) or (self._can_park and request.how == "park"):
            self._park(received, step, problem, problem or text, was_paused)
            return
        text = "held again after a restart; no further checkpoint was saved" if received.was_applied else problem or text
        if request.how == "park":
            text = f"held, because this loop cannot be parked; {text}".removesuffix("; ")
        talk.change(
            state="paused", done=received, at_step=step, error=problem, how="hold",
            by=request.by, source=request.source, reason=request.reason,
        )  # fmt: skip
        self._telling.record(received, "paused", step, text)
        if not was_paused:
            self._telling.phase("begin")
            self._telling.say(f"held after step {step}: paused by {request.by}: {request.reason}"[:500])

    def _park(self, received: Received, step: int, problem: str, text: str, was_paused: bool) -> None:
        """The loop ends as for a stop, but what is asked for stays "paused": after a resume the run may be started again."""
        request = received.request
        if was_paused:
            self._telling.phase("end")
        self._conversation.change(
            state="stopped", done=received, at_step=step, error=problem, pause_ended=True, how="park",
            by=request.by, source=request.source, reason=request.reason,
        )  # fmt: skip
        self._telling.record(received, "stopped", step, f"parked; {text}".removesuffix("; "))
        self._telling.finish(PARKED_END)
        self._answer = "park"
        self._telling.say(f"parked after step {step}: paused by {request.by}: {request.reason}"[:500])
        self._conversation.flush(FINAL_WRITE_S)

    def _stop(self, received: Received, step: int) -> None:
        """A stop is carried out even when its checkpoint fails: an explicit order must not depend on a full disk."""
        talk, request = self._conversation, received.request
        was_paused = talk.state == "paused"
        problem = ""
        if not received.was_applied:
            talk.change(state="stopping", at_step=step, by=request.by, source=request.source, reason=request.reason)
            problem = self._save(step, request.checkpoint_request) if self._crew.can_save else self._settle(step)
        if was_paused:
            self._telling.phase("end")
        error = f"stopped without a new checkpoint, because {problem}" if problem else ""
        talk.change(
            state="stopped", done=received, at_step=step, error=error, pause_ended=True,
            by=request.by, source=request.source, reason=request.reason,
        )  # fmt: skip
        self._telling.record(received, "stopped", step, error)
        self._telling.finish("stopped")
        self._answer = "stop"
        talk.flush(FINAL_WRITE_S)

    def _checkpoint_if_asked(self, received: Received, step: int) -> bool:
        talk, request = self._conversation, received.request
        if request.checkpoint_request <= talk.checkpoint_done:
            return False
        talk.change(state="checkpointing", at_step=step, by=request.by, source=request.source, reason=request.reason)
        problem = self._save(step, request.checkpoint_request)
        if problem:
            talk.refuse(received, problem, keep_error=True)
        self._telling.record(received, "failed" if problem else "checkpoint", step, problem)
        return True

    def _save(self, step: int, counter: int) -> str:
        """Save once per step and counter; "" or why there is no checkpoint."""
        talk = self._conversation
        if self._saved_step == step:
            talk.change(checkpoint_done=counter)
            return ""
        if self._crew.can_save:
            problem = self._settle(step) or self._carried_out("the checkpoint", self._crew.save, step)
        else:
            problem = "the trainer gave no on_checkpoint function"
        if problem:
            talk.change(checkpoint_done=counter, error=problem)
        else:
            self._saved_step = step
            talk.change(checkpoint_done=counter, checkpoint_step=step)
        return problem

    def _settle(self, step: int) -> str:
        """Earlier asynchronous saves end before anything else: while the loop holds, nobody would finish them."""
        return self._carried_out("finishing an earlier save", self._crew.drain, step)

    def _carried_out(self, what: str, act: Callable[[int], str], step: int) -> str:
        try:
            return act(step)
        except PeersLost:
            raise
        except Exception as error:  # noqa: BLE001 - a crew of the trainer's own making may raise anything; it is told, not thrown
            self._errors += 1
            return f"{what} failed: {type(error).__name__}: {error}"[:500]

    def _hold(self, step: int) -> bool:
        """Wait until something else is desired or the hold has lasted too long (True: parked); the thread goes on with heartbeats."""
        talk, held = self._conversation, self._handled
        begun_s = self._clock.monotonic_s()
        while talk.received is held:
            if not talk.ensure_thread():
                reason = "the control thread could not be started again, so nobody could end the pause"
            elif self._max_hold_s is not None and self._clock.monotonic_s() - begun_s >= self._max_hold_s:
                reason = f"the longest allowed hold of {self._max_hold_s:g} s is over"
                if self._can_park and held is not None:
                    if held.request.how != "hold":
                        self._park(held, step, "", reason, was_paused=True)
                        return True
                    begun_s = float("inf")  # whoever asks for a hold by name keeps it
                    continue
            else:
                talk.wait_for_news(min(self._poll_s, self._crew.hold_period_s))
                self._crew.held()
                continue
            if held is not None:
                talk.refuse(held, f"{reason}; training goes on", keep_error=True)
                self._telling.record(held, "hold_ended", step, reason)
            self._telling.phase("end")
            talk.change(state="running", at_step=step, pause_ended=True)
            break
        return False

    def _kept(self, error: Exception) -> None:
        self._errors += 1
        self._conversation.problem(f"{type(error).__name__}: {error}"[:500])


def _close_all() -> None:
    for client in list(_live):
        client.close()


atexit.register(_close_all)
