"""When a request counts: pure decisions of the trainer's side. A request that does not count never disturbs training."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.control.records import ControlRequest

#: Allowance for wall clocks that differ between dashboard and trainer.
CLOCK_SLACK_S = 300.0
#: Of a step: the words between ranks carry 64 bits, also for its negative.
MAX_STEP = 2**62


@dataclass(frozen=True, slots=True)
class Received:
    """A request that counts. seen_s: the trainer's own monotonic clock when it was first seen.

    is_fresh: it appeared while the trainer was looking, so its age is known without comparing two wall clocks.
    was_applied: an earlier start of the trainer has carried it out; only its level still counts.
    """

    request: ControlRequest
    seen_s: float
    is_fresh: bool
    was_applied: bool = False


def whole_step(step: object) -> int:
    """The step as the words between ranks and the status file carry it. Raises ``ValueError``, and whatever its conversion raises."""
    number = int(step)  # type: ignore[call-overload]
    if not 0 <= number <= MAX_STEP:
        raise ValueError("a step is a whole number from 0 to 2**62")
    return int(number)


def objection(request: ControlRequest, run: str, known_seq: int, known_id: str) -> str:
    """Why a request that was read does not count, as a sentence; "" when it counts.

    known_seq, known_id: the highest request received so far, also by earlier starts of the trainer.
    """
    if request.run and run and request.run != run:
        return f"control.json is for the run {request.run!r}, this is {run!r}; it was ignored."
    if request.seq < known_seq:
        if request == ControlRequest():
            return f"control.json is missing; the state asked for last (seq {known_seq}) stays."
        return f"control.json has seq {request.seq}, but {known_seq} was received before; the lower one was ignored."
    if request.seq == known_seq and known_seq > 0 and known_id and request.request_id != known_id:
        return f"control.json was changed without a higher seq than {known_seq}; the change was ignored."
    return ""


def has_expired(received: Received, now_ns: int, now_s: float) -> bool:
    """Past its end, by the age since it was first seen on the trainer's own clock.

    The wall clocks are compared, with five minutes of slack, only for a request that was there before the trainer began
    to look: so a wrong clock neither kills nor revives what a person asks now.
    """
    request = received.request
    if request.expires_at_ns is None:
        return False
    if now_s - received.seen_s > (request.expires_at_ns - request.issued_at_ns) / 1e9:
        return True
    return not received.is_fresh and now_ns > request.expires_at_ns + CLOCK_SLACK_S * 1e9


def is_bare(request: ControlRequest, checkpoint_done: int) -> bool:
    """A pause that must not save: the trainer's own retention would delete an older checkpoint for this one."""
    return request.desired == "paused" and request.save is False and request.checkpoint_request <= checkpoint_done


def wants_save(received: Received, checkpoint_done: int) -> bool:
    """Carrying this out begins with a checkpoint, where one can be made."""
    request = received.request
    if received.was_applied or is_bare(request, checkpoint_done):
        return False
    return request.desired != "running" or request.checkpoint_request > checkpoint_done


def refusal_to_start(request: ControlRequest) -> str:
    """What a trainer prints when a stopped or parked run is started; names who did that and why."""
    word = "parked" if request.desired == "paused" else "stopped"
    who = request.by or "somebody"
    return (
        f"The run was {word} by {who} ({request.reason or 'no reason given'}; seq {request.seq}) and stays {word} until "
        f"somebody resumes it: python -m trainvitals control resume RUN_DIR --by WHO --reason WHY"
    )
