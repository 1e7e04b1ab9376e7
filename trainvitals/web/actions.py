"""What people may ask of a trainer from a page: checked here, on the server, whatever the page shows."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.clock import Clock, SystemClock
from trainvitals.control.request import read_request, submit
from trainvitals.errors import ControlConflict, TrainvitalsError
from trainvitals.settings import Settings

ACTIONS = ("pause", "resume", "checkpoint")
#: The same person asking the same again within this time pressed twice.
SAME_PRESS_NS = 60 * 10**9


@dataclass(frozen=True)
class Outcome:
    """is_done: the request stands in the control file (the trainer's answer comes in its status). sentence: for the person."""

    is_done: bool
    sentence: str
    seq: int = 0


def ask(
    settings: Settings, run_name: str, action: str, by: str, reason: str, expected_seq: int, clock: Clock | None = None
) -> Outcome:
    """Write the request into the run's control file. Only runs of the dashboard's own settings can be meant; never raises
    for what people or files do. ``expected_seq``: the number the person was looking at, so nobody overwrites unseen."""
    clock = clock or SystemClock()
    if action not in ACTIONS:
        return Outcome(False, f"This page cannot ask for {action!r}.")
    try:
        run = settings.run(run_name)
        request = submit(
            run.dir, run.name, action=action, by=by, source="ui", reason=reason, expected_seq=expected_seq, clock=clock
        )
    except ControlConflict as conflict:
        present = read_request(settings.run(run_name).dir)
        pressed_twice = (present.action, present.by, present.reason) == (action, by.strip(), reason.strip())
        if pressed_twice and clock.time_ns() - present.issued_at_ns <= SAME_PRESS_NS:
            return Outcome(True, f"Asked once already (number {present.seq}).", present.seq)
        return Outcome(False, str(conflict))
    except (TrainvitalsError, OSError) as error:
        return Outcome(False, str(error))
    return Outcome(True, f"Asked (number {request.seq}); the trainer answers when its step ends.", request.seq)
