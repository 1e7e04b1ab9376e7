"""From the two control files to what a person reads. Pure. The state comes from the status file, never from the request."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from trainvitals.control.records import ControlRequest, ControlStatus

SILENT_AFTER_S = 15.0
#: Allowance for a loaded machine on top of three poll periods; a network file system may need up to 60 s.
ACKNOWLEDGE_SLACK_S = 5.0


@dataclass(frozen=True)
class ControlState:
    """Control state from the status file only, never from the request alone.

    state: running, pausing, paused, resuming, checkpointing, stopping, stopped, not_wired (no status file),
    silent (heartbeat too old), unreadable. sentence: what a person reads. can_act: buttons may be offered. supervisor: host of
    the supervisor that starts this trainer, "" = none that is known. by_hand: what stops a trainer that does not answer, one command
    a line, "" while it may still answer. can_park: the trainer understands a pause that saves, ends and gives its nodes back.
    """

    state: str
    sentence: str
    can_act: bool
    desired: str = "running"
    seq: int = 0
    ack_seq: int = 0
    is_pending: bool = False
    by: str = ""
    source: str = ""
    reason: str = ""
    at_step: int | None = None
    heartbeat_age_s: float | None = None
    since_ns: int | None = None
    supervisor: str = ""
    by_hand: str = ""
    can_park: bool = False


def unreadable(sentence: str) -> ControlState:
    """The state of control files that cannot be read."""
    return ControlState("unreadable", sentence, can_act=False)


def is_pending(request: ControlRequest, status: ControlStatus | None) -> bool:
    """The request stands and the trainer has neither carried it out nor refused it."""
    return request.seq > 0 and (status is None or request.seq > max(status.applied_seq, status.refused_seq))


def describe(
    request: ControlRequest,
    status: ControlStatus | None,
    now_ns: int,
    poll_s: float = 1.0,
    heartbeat_age_s: float | None = None,
    supervisor: str = "",
) -> ControlState:
    """What the trainer does, what was asked, and what is still outstanding.

    heartbeat_age_s: seconds since the heartbeat last changed on the reader's own clock, when the reader has measured
    it; otherwise the difference of the two wall clocks, which a wrong clock falsifies. supervisor: host of the live one, "" = none.
    """
    if status is None:
        asked = f" A request (seq {request.seq}, {request.desired}) is waiting there." if request.seq else ""
        if request.desired == "stopped" and request.source == "supervisor":
            asked = f" {_hold_words(request)}"
        return ControlState(
            "not_wired",
            "No trainer has reported here: not wired. Add the control client to the training loop (docs/control.md)." + asked,
            can_act=False,
            desired=request.desired,
            seq=request.seq,
            is_pending=request.seq > 0,
            by=request.by,
            source=request.source,
            reason=request.reason,
            supervisor=supervisor,
        )
    age_s = heartbeat_age_s if heartbeat_age_s is not None else max(0.0, (now_ns - status.heartbeat_ns) / 1e9)
    pending = is_pending(request, status)
    state = status.state
    sentence = _of_state(status, request)
    if status.ended and state == "stopped" and status.how != "park":
        sentence = f"The trainer has ended{_at(status.step)}." if status.desired != "stopped" else sentence
    elif age_s > SILENT_AFTER_S:
        state = "silent"
        sentence = f"No heartbeat from the trainer for {_duration(age_s)}; it last said: {sentence[0].lower()}{sentence[1:]}"
    if pending:
        sentence = _of_pending(request, status, now_ns, age_s, poll_s, sentence, supervisor)
    elif status.refused_seq == request.seq and request.seq > 0:
        sentence = (
            f"{sentence} The request (seq {request.seq}, {request.action or request.desired}) was refused: {status.refusal}"
        )
    if status.error and status.error not in sentence:
        sentence = f"{sentence} Problem: {status.error}"
    # Who brought the state about is in the status; a request that is still pending is not its reason.
    is_told = status.state != "running" and bool(status.by)
    told = status if (is_told or request.seq < status.applied_seq) and not _is_held(request, status, age_s) else request
    return ControlState(
        state,
        sentence,
        can_act=True,
        desired=request.desired,
        seq=request.seq,
        ack_seq=status.ack_seq,
        is_pending=pending,
        by=told.by,
        source=told.source,
        reason=told.reason,
        at_step=status.applied_at_step if state != "running" else status.step,
        heartbeat_age_s=age_s,
        since_ns=status.since_ns,
        supervisor=supervisor,
        can_park="how" in status.understands,
        by_hand="\n".join(_commands(status)) if pending and "To stop it by hand: " in sentence else "",
    )


def fallback_commands(status: ControlStatus | None) -> str:
    """How to stop a trainer that does not answer, as text to copy."""
    return ", or ".join(_commands(status))


def _commands(status: ControlStatus | None) -> list[str]:
    here = (
        [f"ssh {shlex.quote(status.host)} kill -TERM {status.pid}"] if status is not None and status.pid and status.host else []
    )
    return [*here, "scancel --signal=TERM JOBID", "kubectl delete pod POD"]


def _of_state(status: ControlStatus, request: ControlRequest) -> str:
    who = f" ({status.by}: {status.reason})" if status.by else ""
    step = status.applied_at_step
    if status.state == "pausing":
        is_bare = request.save is False and "save" in status.understands
        return f"Pausing{' without a' if is_bare else ':'} checkpoint{_at(step)}{who}."
    if status.state == "paused":
        has_saved = step is not None and status.checkpoint_step == step
        saved = f"checkpoint {step:,}" if has_saved else "without a checkpoint of this step"
        return f"Paused{_at(step)}, {saved}{who}."
    if status.state == "checkpointing":
        return f"Saving a checkpoint{_at(step)}{who}."
    if status.state == "resuming":
        return f"Resuming{_at(step)}{who}."
    if status.state == "stopping":
        return f"Stopping: checkpoint{_at(step)}{who}."
    if status.state == "stopped" and status.how == "park":
        has_saved = step is not None and status.checkpoint_step == step
        saved = f"checkpoint {step:,}" if has_saved else "without a checkpoint of this step"
        return f"Parked{_at(step)}, {saved}{who}; its nodes are free once its launcher ends. After a resume it has to be started again."
    if status.state == "stopped":
        stays = "; it will not start again before somebody resumes the run" if request.desired == "stopped" else ""
        return f"Stopped{_at(step)}{who}{stays}."
    age = f", {_duration(status.step_age_s)} ago" if status.step_age_s is not None and status.step_age_s >= 60 else ""
    return f"Running, last step {status.step:,}{age}." if status.step is not None else "Running, no step ended yet."


def _is_held(request: ControlRequest, status: ControlStatus, age_s: float) -> bool:
    """The supervisor holds the run after the trainer's death, by asking for a stop that no trainer is there to see."""
    is_gone = status.ended or age_s > SILENT_AFTER_S
    return is_gone and request.desired == "stopped" and request.source == "supervisor" and is_pending(request, status)


def _hold_words(request: ControlRequest) -> str:
    return f"The supervisor starts it no more until somebody resumes the run: {request.reason.rstrip('.')}."


def is_for_the_supervisor(request: ControlRequest, status: ControlStatus | None, age_s: float) -> bool:
    """A resume of a trainer that is gone: a live supervisor starts it. age_s: of the trainer's heartbeat."""
    is_resume = request.desired == "running" and request.action != "checkpoint"
    return is_resume and (status is None or status.ended or age_s > SILENT_AFTER_S)


def _of_pending(
    request: ControlRequest, status: ControlStatus, now_ns: int, age_s: float, poll_s: float, sentence: str, supervisor: str
) -> str:
    what = request.action or request.desired
    is_over = status.ended or status.state == "stopped"
    if status.ack_seq >= request.seq and not is_over:
        if status.state in ("pausing", "stopping", "checkpointing", "resuming"):
            return sentence
        return f"Acknowledged ({what}, seq {request.seq}): the trainer acts when the step now running ends. {sentence}"
    if supervisor and is_for_the_supervisor(request, status, age_s):
        return f"{sentence} Resume (seq {request.seq}) asked for; the supervisor on {supervisor} starts the trainer again."
    if _is_held(request, status, age_s):
        return f"{sentence} {_hold_words(request)}"
    if is_over:
        if request.desired == "running" and request.action != "checkpoint":
            return f"{sentence} It may start again (resume, seq {request.seq}, is waiting for it); nothing starts it from here."
        return f"Requested ({what}, seq {request.seq}); the trainer will see it when it starts again. {sentence}"
    waited_s = max(0.0, (now_ns - request.issued_at_ns) / 1e9)
    heartbeat = f"last heartbeat {_duration(age_s)} ago"
    if waited_s <= 3 * poll_s + ACKNOWLEDGE_SLACK_S:
        return f"Requested ({what}, seq {request.seq}), waiting for the trainer: {heartbeat}."
    return (
        f"Not acknowledged by the trainer: {what} (seq {request.seq}), asked {_duration(waited_s)} ago, {heartbeat}. "
        f"To stop it by hand: {fallback_commands(status)}. {sentence}"
    )


def _at(step: int | None) -> str:
    return "" if step is None else f" at step {step:,}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
