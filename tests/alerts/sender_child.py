"""A process that delivers, and that kills itself -9 at one point: ``sender_child.py SETTINGS POINT``; or that adds: ``SETTINGS add``."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

from tests.alerts.notices import DIVERGENCE
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Delivery
from trainvitals.settings import load


def main() -> None:
    settings = load(sys.argv[1])
    outbox = Outbox(settings.outbox_path)
    if sys.argv[2] == "add":
        for number in range(10**6):
            outbox.enqueue(replace(DIVERGENCE, id=f"n-{number}", incident_id=f"inc-{number}"), "t")
            print(number, flush=True)  # noqa: T201

    def fault(point: str) -> None:
        if point == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)

    delivery = Delivery(settings, "t", outbox, fault=fault)
    while delivery.turn():
        pass


if __name__ == "__main__":
    main()
