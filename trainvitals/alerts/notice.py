"""What is told of an incident: facts, not words. Each target puts them into its own language and form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from trainvitals.records import Severity

#: Rules of a supervisor that starts the trainer no more: why that is says more than the step, which is told below it.
REFUSALS = frozenset({"restart_failed", "restart_loop"})


class NoticeKind(StrEnum):
    """Why something is told. ``recovered``: the trouble is over; ``reopened``: the same trouble is back; ``watch_silent``: nobody
    watches the run any more; ``summary``: what was not told one by one (quiet hours, a flood, restarts that healed); ``paused``: the breaker
    paused the trainer after the trouble was told: a word more of it, no second page."""

    OPENED = "opened"
    ESCALATED = "escalated"
    REOPENED = "reopened"
    REMINDER = "reminder"
    ACKNOWLEDGED = "acknowledged"
    PAUSED = "paused"
    RECOVERED = "recovered"
    WATCH_SILENT = "watch_silent"
    NOT_DELIVERED = "not_delivered"
    SUMMARY = "summary"
    TEST = "test"


class Verb(StrEnum):
    """The first word on the lock screen. ``STILL-OPEN``: one incident is over, a critical one of the same run is not."""

    STOPPED = "STOPPED"
    HUNG = "HUNG"
    PAUSED = "PAUSED"
    TRAINING_SICK = "TRAINING-SICK"
    TRAINING_SLOW = "TRAINING-SLOW"
    CHECK = "CHECK"
    RECOVERED = "RECOVERED"
    STILL_OPEN = "STILL-OPEN"
    SUMMARY = "SUMMARY"
    TEST = "TEST"


@dataclass(frozen=True, slots=True)
class Suspect:
    """What to look at. group: data, code or cluster, in the order of the triage table. evidence: "" when there is none."""

    group: str
    text: str
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a summary: of an incident what a person needs to decide whether to look at it."""

    kind: NoticeKind
    verb: Verb
    severity: Severity
    rule: str
    what: str
    at_ns: int
    step: int | None = None
    value: float | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell, the same however often it is composed: ``id`` is a function of the incident, the kind and ``number``.

    number: of this kind within the incident, from 1. rule: the one whose words are ``what``; rules: all of the incident.
    what: one English sentence; a target in another language puts its own in place from rule, step, value and expected.
    lost_steps, lost_gpu_hours: what going back to the safe checkpoint repeats. cost: in the currency of gpu_hour_price.
    breaker, control: one sentence each on their state, "" = nothing to tell. link: to the incident's page, "" without public_url.
    items: what a summary sums up, oldest first; more: how many others there were. Its incident_id is its own.
    still_open: of a ``recovered``, what else of the run is not over, the gravest first.
    """

    id: str
    kind: NoticeKind
    number: int
    run: str
    incident_id: str
    family: str
    severity: Severity
    verb: Verb
    rule: str
    rules: tuple[str, ...]
    what: str
    at_ns: int
    opened_at_ns: int
    step: int | None = None
    metric: str = ""
    value: float | None = None
    expected: float | None = None
    safe_step: int | None = None
    safe_level: str = ""
    lost_steps: int | None = None
    lost_gpu_hours: float | None = None
    cost: float | None = None
    gpus: int = 0
    suspects: tuple[Suspect, ...] = ()
    breaker: str = ""
    control: str = ""
    acknowledged_by: str = ""
    runbook_url: str = ""
    link: str = ""
    audit_head: str = ""
    items: tuple[Item, ...] = ()
    more: int = 0
    still_open: tuple[Item, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Notice:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        return cls(
            **{
                **data,
                "kind": NoticeKind(data["kind"]), "severity": Severity(data["severity"]), "verb": Verb(data["verb"]),
                "rules": tuple(data["rules"]),
                "suspects": tuple(Suspect(**suspect) for suspect in data.get("suspects", ())),
                "items": tuple(_item(item) for item in data.get("items", ())),
                "still_open": tuple(_item(item) for item in data.get("still_open", ())),
            }
        )  # fmt: skip


def notice_id(incident_id: str, kind: str, number: int) -> str:
    """The name of a notice for good: the same trouble told again for the same reason is the same notice. incident_id: with when it
    began, where a run of that name may begin anew with the outbox kept. Letters, digits and ``-``
    only: an incident's id holds the run's name, which is anybody's text, and a header takes not all of that."""
    digest = hashlib.sha256(incident_id.encode("utf-8", "replace")).hexdigest()[:24]
    return f"{digest}-{kind}-{number}"


def _item(data: Mapping[str, Any]) -> Item:
    kind, verb, severity = NoticeKind(data["kind"]), Verb(data["verb"]), Severity(data["severity"])
    return Item(**{**data, "kind": kind, "verb": verb, "severity": severity})
