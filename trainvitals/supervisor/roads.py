"""Which road a supervisor takes: the one that the settings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainvitals.clock import Clock
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor.desk import Desk
from trainvitals.supervisor.road import Road
from trainvitals.supervisor.slurm_allocation import Allocation
from trainvitals.supervisor.slurm_outside import Outside


def road_of(
    run: RunSettings,
    settings: SupervisorSettings,
    clock: Clock,
    desk: Desk,
    environment: Mapping[str, str],
    command: Sequence[str],
) -> Road:
    """Raises ``SettingsError`` where the road cannot be taken with this command, or here."""
    if settings.slurm == "allocation":
        return Allocation(run, settings, clock, desk, environment)
    if settings.slurm in ("resubmit", "requeue"):
        return Outside(run, settings, clock, desk, environment, command)
    return Road()
