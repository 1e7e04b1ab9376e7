"""What runs inside the trainer: an append-only record of its steps, and the client that obeys the control file.

Standard library only. Nothing in here raises into the trainer; what goes wrong is counted and written down.
"""

from trainvitals.control.client import ControlClient
from trainvitals.hook.recorder import Recorder

__all__ = ["ControlClient", "Recorder"]
