"""What keeps a run from being started, and what ends that: only a request of a person to go on. Pure."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.supervisor.history import STATE_FILE, History

NO_CHECKPOINT = "no checkpoint can be used"
#: What follows from what the control file says while a run is kept.
STAY, ASK, TELL, GO = "stay", "ask", "tell", "go"


def judged(history: History, request: ControlRequest | None, *, is_readable: bool) -> str:
    """Of a history that ``is_kept``. ``ASK``: the control file does not say (any more) that the run is stopped. ``TELL``: a person asked for
    something that does not end it. What cannot be read changes nothing: what was asked for last stays."""
    if request is None and not is_readable:
        return STAY
    seq = history.hold_seq
    is_untold = seq is None and bool(history.held)
    if is_untold or request is None or (seq is not None and request.seq < seq):
        return ASK
    if seq is not None and request.seq == seq:
        return STAY
    if request.desired == "paused":
        return TELL
    return GO if request.desired == "running" else STAY


def after_park(history: History, request: ControlRequest | None, status: ControlStatus | None) -> History:
    """A resume that came while the trainer was parking is the last word: it is started again. status: what the trainer said last."""
    last = history.last
    is_resumed = (
        last is not None and last.kind == "parked" and status is not None and status.how == "park"
        and request is not None and request.desired == "running" and request.seq > status.applied_seq
    )  # fmt: skip
    return history.seen_by_a_person() if is_resumed else history


def begun_again(history: History, request: ControlRequest | None) -> History:
    """``run`` was started again after it had come to its end: whoever did so wants the trainer to run, also where it could not start
    before. Only a park stays one for as long as the run is asked to pause."""
    last = history.last
    is_parked = last is not None and last.kind == "parked" and request is not None and request.desired == "paused"
    return history if not history.is_over or is_parked else replace(history.seen_by_a_person(), is_over=False)


def reason(history: History) -> str:
    """As the request to stop gives it."""
    return history.held or "the run was stopped, and the request that said so is gone"


def answer(request: ControlRequest) -> str:
    """To ``TELL``."""
    asked = f"{request.by or 'somebody'} asked for a {request.action or 'pause'}"
    return f"{asked}; nothing is started all the same, until somebody resumes the run"


def sentence(history: History, run_dir: str) -> str:
    """Why it is held, and what lets it go on."""
    return f"{history.held.rstrip('.')}. {way_on(history, run_dir)}"


def way_on(history: History, run_dir: str) -> str:
    """What lets a held run go on, for people."""
    resume = f"python -m trainvitals control resume {run_dir} --by YOU --reason WHY"
    if not history.held.startswith(NO_CHECKPOINT):
        return f"To go on: {resume}"
    return (
        f"Bring a checkpoint back first (a file system that is not mounted, a copy), then: {resume}. To begin at step 0 on purpose: end "
        f"this supervisor, move {STATE_FILE} in {run_dir} and what is left of the checkpoints away, start run again, and resume"
    )
