"""Waiting for what the watchdog says to a request of a command."""

from __future__ import annotations

from pathlib import Path

from trainvitals.clock import SystemClock
from trainvitals.control.inbox import answer_to
from trainvitals.control.requests import Answer, WatchRequest
from trainvitals.errors import ControlError, InputError

LOOK_EVERY_S = 0.1


def wait_for_answer(run_dir: Path, request: WatchRequest, wait_s: float) -> Answer | None:
    """The watchdog's answer; None when there is none after ``wait_s``."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + wait_s
    while True:
        try:
            answer = answer_to(run_dir, request)
        except (InputError, ControlError, OSError):
            answer = None  # it may be under way; what stays unreadable ends as not answered
        if answer is not None or clock.monotonic_s() >= deadline_s:
            return answer
        clock.sleep(min(LOOK_EVERY_S, max(0.0, deadline_s - clock.monotonic_s())))


def waits_sentence(run_dir: Path, request: WatchRequest, wait_s: float, what: str) -> str:
    """What a person reads who got no answer in time. what: ``The note``."""
    return (
        f"Not answered within {wait_s:g} s. {what} waits in {run_dir / 'control' / 'requests' / request.name}; the watchdog takes it "
        f"when it looks there. Delete that file to take {what[0].lower()}{what[1:]} back."
    )
