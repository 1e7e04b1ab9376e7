"""What the control file asks of the trainer, as events for the detectors: they must know of a pause that does not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import read_request, read_status
from trainvitals.errors import ControlError, InputError
from trainvitals.records import Event

LOOK_EVERY_S = 1.0


class PauseRequests:
    """Of one run directory. Each request is told once; one that was carried out before it was seen here is not told."""

    def __init__(
        self,
        run_dir: str,
        read: Callable[[str], ControlRequest] = read_request,
        status: Callable[[str], ControlStatus | None] = read_status,
    ) -> None:
        self._dir, self._read, self._status = run_dir, read, status
        self._seq = 0
        self._due_s = float("-inf")
        #: Why the files could not be read, "" when they could.
        self.trouble = ""

    def poll(self, now_s: float) -> list[Event]:
        """New requests to pause or to go on; looks at most once a second. now_s: monotonic."""
        if now_s < self._due_s or not self._dir:
            return []
        self._due_s = now_s + LOOK_EVERY_S
        try:
            request = self._read(self._dir)
            self.trouble = ""
            if request.seq <= self._seq or request.desired not in ("paused", "running"):
                return []
            status = self._status(self._dir)
        except (ControlError, InputError, OSError) as error:
            self.trouble = f"the control files cannot be read: {error}"
            return []
        self._seq = request.seq
        if status is not None and max(status.applied_seq, status.refused_seq) >= request.seq:
            return []
        data: dict[str, Any] = {
            "state": "requested", "seq": request.seq, "desired": request.desired, "by": request.by, "source": request.source,
        }  # fmt: skip
        return [Event("control", request.issued_at_ns or None, source="watch", text=request.reason[:300], data=data)]

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"seq": self._seq}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._seq = int(state.get("seq", 0))
