"""What the watchdog keeps of findings and incidents: their stored events, each always at the same time, and what was said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.control.requests import WatchRequest
from trainvitals.incidents.change import IncidentChange
from trainvitals.incidents.engine import IncidentEngine
from trainvitals.incidents.mending import Patience
from trainvitals.incidents.silences import Silence
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.watch import incident_requests
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
    """Of one run. is_supervised: whether a supervisor is there that starts the trainer again."""

    def __init__(self, run: str, patience: Patience | None = None, is_supervised: Callable[[], bool] = bool) -> None:
        self._run, self._patience, self._is_supervised = run, patience, is_supervised
        self._engine = IncidentEngine(run, patience)
        self._event_times: dict[str, int] = {}
        self._told: dict[str, Severity] = {}
        self._rows: list[Event] = []

    def take(self, finding: Finding, now_ns: int, age_ns: int = 0) -> Taken:
        """A new or changed finding. now_ns: UTC ns. age_ns: how long ago it began, where it is only read now."""
        event_ns = self._event_times.setdefault(finding.id, finding.time_ns if finding.time_ns is not None else now_ns)
        told = self._told.get(finding.id, Severity.INFO)
        self._told[finding.id] = max(told, finding.severity, key=lambda severity: severity.rank)
        is_news = finding.severity.rank > told.rank
        announcement = f"{finding.severity.value} {finding.rule} {finding.id}: {finding.message}" if is_news else ""
        incidents = self._engine.add(finding, now_ns, age_ns)
        rows = [self._row(incident, finding.attempt) for incident in incidents]
        for remembered in (self._event_times, self._told):
            while len(remembered) > MAX_REMEMBERED:
                remembered.pop(next(iter(remembered)))
        return Taken((finding_event(finding, event_ns), *rows), event_ns, incidents[0] if incidents else None, announcement)

    def stepped(self, attempt: int, age_ns: int = 0) -> None:
        """A step of ``attempt`` was made, so long ago."""
        self._engine.stepped(attempt, age_ns)

    def hear(self, event: Event, age_ns: int = 0) -> None:
        """What the supervisor says of its restarts, so long ago."""
        self._engine.hear(event, age_ns)

    def poll(self, steady_ns: int, wall_ns: int | None = None) -> list[Event]:
        """Rows of incidents that time or a person changed. steady_ns: a clock that nobody sets while we run. wall_ns: UTC, for silences."""
        self._rows += [self._row(one, self._engine.attempt_of(one.id)) for one in self._engine.advance(steady_ns, wall_ns)]
        rows, self._rows = self._rows, []
        return rows

    def take_changes(self) -> list[IncidentChange]:
        """What somebody may have to hear of, each once."""
        return self._engine.take_changes(is_supervised=self._is_supervised())

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        return self._engine.open_incidents

    @property
    def known(self) -> tuple[Incident, ...]:
        """Those that are open, and those that were lately."""
        return self._engine.known

    @property
    def silences(self) -> tuple[Silence, ...]:
        return self._engine.silences.all

    def acknowledge(self, request: WatchRequest, last_step: int | None) -> tuple[Event, str]:
        """A person has an incident: (the event, what is answered). Raises ``InputError`` or ``ControlError``."""
        wanted = incident_requests.acknowledgement(request)
        incident = self._engine.acknowledge(wanted.incident, request.by, wanted.note, request.issued_at_ns)
        self._keep([incident])
        return incident_requests.acknowledged(self._run, request, incident, wanted.note, last_step)

    def silence(self, request: WatchRequest, last_step: int | None) -> tuple[Event, str]:
        """A person silences something, or ends a silence: as ``acknowledge``."""
        ended = incident_requests.silence_to_end(request)
        if ended:
            silence, changed = self._engine.unsilence(ended, request.issued_at_ns)
            self._keep(changed)
            return incident_requests.unsilenced(self._run, request, silence, last_step)
        silence = incident_requests.silence(self._run, request)
        changed = self._engine.silence(silence, request.issued_at_ns)
        self._keep(changed)
        return incident_requests.silenced(self._run, request, silence, changed, last_step)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"incidents": self._engine.to_state(), "event_times": self._event_times, "told": self._told}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        self._engine = IncidentEngine(self._run, self._patience)
        self._engine.restore(state["incidents"])
        self._event_times = dict(state["event_times"])
        self._told = {identifier: Severity(value) for identifier, value in state["told"].items()}
        self._rows = []

    def start_anew(self) -> None:
        """Forget everything."""
        self._engine = IncidentEngine(self._run, self._patience)
        self._event_times, self._told, self._rows = {}, {}, []

    def _keep(self, incidents: list[Incident]) -> None:
        self._rows += [self._row(one, self._engine.attempt_of(one.id)) for one in incidents]

    def _row(self, incident: Incident, attempt: int | None) -> Event:
        event_ns = self._event_times.setdefault(incident.id + "#incident", incident.opened_at_ns)
        return incident_event(incident, attempt, event_ns)
