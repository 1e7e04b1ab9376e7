"""Findings and incidents as the events that are stored. ``watch`` and ``import`` write the same, so the rows are the same."""

from __future__ import annotations

from dataclasses import asdict

from trainvitals.records import Event, Finding, Incident


def finding_event(finding: Finding, time_ns: int) -> Event:
    """The stored form of a finding; every later state of it must be given the same time."""
    return Event(
        "finding", time_ns, step=finding.detected_step, attempt=finding.attempt, id=finding.id, severity=finding.severity,
        source="watch", text=finding.message, data=asdict(finding),
    )  # fmt: skip


def incident_event(incident: Incident, attempt: int | None, time_ns: int) -> Event:
    """The stored form of an incident; every later state of it must be given the same time."""
    return Event(
        "incident", time_ns, step=incident.first_step, attempt=attempt, id=incident.id, severity=incident.severity,
        source="watch", text=incident.title, data=asdict(incident),
    )  # fmt: skip
