"""What the watchdog keeps of findings and incidents: their stored events, each always at the same time, and what was said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.incidents.grouping import Grouper
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.watch.finding_events import finding_event, incident_event

#: Findings kept in mind so that their later states fall on the same stored event.
MAX_REMEMBERED = 2_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What one finding led to. events: to store. announcement: "" = nothing new to say. event_ns: of the finding's event."""

    events: tuple[Event, ...]
    event_ns: int
    incident: Incident | None = None
    announcement: str = ""


class IncidentKeeper:
    """Of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._grouper = Grouper(run)
        self._event_times: dict[str, int] = {}
        self._told: dict[str, Severity] = {}

    def take(self, finding: Finding, now_ns: int) -> Taken:
        """A new or changed finding. now_ns: UTC ns."""
        event_ns = self._event_times.setdefault(finding.id, finding.time_ns if finding.time_ns is not None else now_ns)
        told = self._told.get(finding.id, Severity.INFO)
        self._told[finding.id] = max(told, finding.severity, key=lambda severity: severity.rank)
        is_news = finding.severity.rank > told.rank
        announcement = f"{finding.severity.value} {finding.rule} {finding.id}: {finding.message}" if is_news else ""
        events = [finding_event(finding, event_ns)]
        incident = self._grouper.add(finding, now_ns)
        if incident is not None:
            incident_ns = self._event_times.setdefault(incident.id + "#incident", incident.opened_at_ns)
            events.append(incident_event(incident, finding.attempt, incident_ns))
        for remembered in (self._event_times, self._told):
            while len(remembered) > MAX_REMEMBERED:
                remembered.pop(next(iter(remembered)))
        return Taken(tuple(events), event_ns, incident, announcement)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"incidents": self._grouper.to_state(), "event_times": self._event_times, "told": self._told}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        self._grouper.restore(state["incidents"])
        self._event_times = dict(state["event_times"])
        self._told = {identifier: Severity(value) for identifier, value in state["told"].items()}
