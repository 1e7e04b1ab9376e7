"""What stands in the control history of a run that a real watchdog looks after."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainvitals.control.audit import AuditRecord, newest

WAIT_S = 60.0


def first_record(run_dir: Path, is_it: Callable[[AuditRecord], bool]) -> AuditRecord:
    """The first such record; waits for it: a page shows the trainer's answer before the watchdog has written it down, or after."""
    end_s = time.monotonic() + WAIT_S
    while True:
        records = newest(run_dir, 200)
        found = next((record for record in records if is_it(record)), None)
        if found is not None:
            return found
        assert time.monotonic() < end_s, f"no such record among {[record.kind for record in records]}"
        time.sleep(0.05)
