"""Checkpoints: layouts, verification levels, and the watcher of a run's checkpoint directories. Nothing is ever unpickled."""

from trainvitals.checkpoints.discovery import find
from trainvitals.checkpoints.verification import inspect
from trainvitals.checkpoints.watcher import CheckpointWatcher

__all__ = ["CheckpointWatcher", "find", "inspect"]
