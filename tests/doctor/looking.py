"""Settings of one run, and what the doctor finds in them."""

import socket
from pathlib import Path

from trainvitals.clock import SystemClock
from trainvitals.doctor import of_machine, of_run
from trainvitals.settings import parse

ROOT = Path(__file__).resolve().parents[2]
CLOCK = SystemClock()


def settings_of(place, run=(), **more):
    table = {
        "name": "r", "dir": str(place / "run"), "logs": [str(place / "*.log")], "checkpoints": [str(place / "checkpoints")],
    } | dict(run)  # fmt: skip
    return parse({"store": f"sqlite://{place}/store.db", "runs": [table]} | more)


def look(settings, check, clock=CLOCK):
    """What one check finds, as (state, text with advice)."""
    checkups = [*of_machine.checkups(settings, clock, ROOT, 10.0), *of_run.checkups(settings, settings.runs[0], clock)]
    (checkup,) = [checkup for checkup in checkups if checkup.check == check]
    return [(finding.state, f"{finding.text} | {finding.advice}") for finding in checkup.look()]


def says(found, state, sentence):
    return any(state == was and sentence in text for was, text in found), found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
