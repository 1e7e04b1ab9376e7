"""The detectors of a run as its settings want them: the same live and in an import."""

from __future__ import annotations

from trainvitals.detect.engine import Engine
from trainvitals.detect.lr_schedule import from_settings
from trainvitals.settings import RunSettings, Settings


def engine_for(settings: Settings, run: RunSettings) -> Engine:
    """A fresh one."""
    schedule = from_settings(run.lr_schedule, run.total_steps)
    return Engine(run.name, settings.detect, settings.breaker, schedule, run.checkpoint_every_steps)
