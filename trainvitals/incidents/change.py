"""What happened to an incident that somebody may have to be told of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainvitals.records import Incident


class ChangeKind(StrEnum):
    """opened: it reached ``warning``; escalated: it became ``critical``; recovered: it is over (also by a restart that healed it);
    reopened: the same trouble came back; acknowledged: a person has it; paused: the breaker paused the trainer because of it."""

    OPENED = "opened"
    ESCALATED = "escalated"
    RECOVERED = "recovered"
    REOPENED = "reopened"
    ACKNOWLEDGED = "acknowledged"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """number: of this kind within the incident, from 1: (incident.id, kind, number) names the change for good.

    rule: the rule whose finding leads the incident now. by: who acknowledged. is_healed: of a ``recovered``: it was over before
    anybody was told of it (the supervisor mended it, or it was read long afterwards), so it is a line for a summary.
    is_apart: of an ``escalated``: something as grave was told before, and this is another trouble.
    """

    incident: Incident
    kind: ChangeKind
    number: int
    at_ns: int
    rule: str
    by: str = ""
    is_healed: bool = False
    is_apart: bool = False
