"""The two control files of a run: what people want (``control.json``) and what the trainer does (``control_status.json``).

One writer each, no locks. Standard library only, because the trainer imports it.
"""

from trainvitals.control.client import ControlClient
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import history, init, look, read_request, read_status, submit
from trainvitals.control.view import ControlState, describe

__all__ = [
    "ControlClient",
    "ControlRequest",
    "ControlState",
    "ControlStatus",
    "describe",
    "history",
    "init",
    "look",
    "read_request",
    "read_status",
    "submit",
]
