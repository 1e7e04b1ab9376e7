"""What people did about incidents, as the pages tell it: who has one, what is silent and until when, what became of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trainvitals.incidents.amounts import span
from trainvitals.incidents.silences import Silence
from trainvitals.records import Event, Incident, Severity
from trainvitals.web import format as fmt
from trainvitals.web.view import RunView

KINDS = ("acknowledgement", "silence")
#: ``Sent.what`` of one kind of request.
ACKNOWLEDGEMENT = "Acknowledgement"
#: A watchdog looks every second, pages every second or two; after this something is wrong.
LATE_AFTER_S = 15.0
#: What a form offers: words -> seconds.
DURATIONS: Mapping[str, int] = MappingProxyType(
    {"30 minutes": 1_800, "2 hours": 7_200, "8 hours": 28_800, "1 day": 86_400, "7 days": 7 * 86_400}
)
UP_TO: Mapping[str, str] = MappingProxyType(
    {"warning": "warnings; critical ones still page", "critical": "everything, critical ones too", "info": "marks only"}
)


@dataclass(frozen=True)
class Sent:
    """What this visitor asked for. what: in words, "Acknowledgement". request_id: the event that answers it carries it."""

    run: str
    request_id: str
    sent_at_ns: int
    what: str


def words(incident: Incident, zone: str, now_ns: int, silences: Sequence[Silence] = ()) -> list[str]:
    """Who has it, and until when it is silent, by whom and why (silences: of the run), a sentence each; empty when nobody did anything."""
    said = []
    if incident.acknowledged_by:
        note = f": {incident.acknowledged_note}" if incident.acknowledged_note else ""
        when = fmt.moment(incident.acknowledged_at_ns, zone, now_ns=now_ns)
        said.append(f"{incident.acknowledged_by} has it since {when}{note}" + ("" if note.endswith((".", "!", "?")) else "."))
    elif incident.is_open and incident.severity is not Severity.INFO:
        said.append("Nobody has it yet.")
    if incident.silenced_until_ns is not None and incident.is_open and now_ns < incident.silenced_until_ns:
        own = next((one for one in silences if one.until_ns == incident.silenced_until_ns and one.covers(incident, now_ns)), None)
        why = f" {own.by} says why: {own.comment}" if own is not None else ""
        said.append(f"Silenced until {fmt.moment(incident.silenced_until_ns, zone, now_ns=now_ns)}: nobody is told of it.{why}")
    return said


def silences_of(events: Sequence[Event], now_ns: int) -> list[Silence]:
    """Those that last, the newest first, from the watchdog's own events."""
    found: dict[str, Silence] = {}
    for event in sorted((one for one in events if one.kind == "silence"), key=lambda one: one.time_ns or 0):
        ended = event.data.get("end")
        if ended is not None:
            found.pop(str(ended), None)
        elif (silence := _silence(event.data, event.time_ns or 0)) is not None:
            found[silence.id] = silence
    return [silence for silence in reversed(found.values()) if now_ns < silence.until_ns]


def silence_line(silence: Silence, zone: str, now_ns: int) -> str:
    """``loss_* up to warning until 05:12, ana: planned data change``"""
    return f"{silence.words()} until {fmt.moment(silence.until_ns, zone, now_ns=now_ns)}, {silence.by}: {silence.comment}"


def fate(run: RunView, sent: Sent, now_ns: int) -> str:
    """What became of a request, from the watchdog's events alone: what was sent is not applied yet."""
    for event in reversed(run.events):
        if event.data.get("request") == sent.request_id:
            is_refused = event.kind == "watch" and event.data.get("outcome") == "refused"
            return f"{sent.what} refused. {event.text}" if is_refused else f"{sent.what} applied: {event.text}"
    age_s = (now_ns - sent.sent_at_ns) / 1e9
    if age_s <= LATE_AFTER_S:
        return f"{sent.what} sent; waiting for the watchdog."
    return f"{sent.what} sent {span(age_s)} ago and not applied yet: does the watchdog of this run still run?"


def acknowledgement_told(run: RunView, incident: Incident, sent: Sent | None, now_ns: int) -> tuple[str, bool]:
    """(what became of this visitor's acknowledgement of ``incident``, which nobody has yet; whether the answer is still awaited).

    Nothing for another kind of request, or one from before the incident began. After ``LATE_AFTER_S`` it may be sent again.
    """
    if sent is None or sent.run != run.name or sent.what != ACKNOWLEDGEMENT or sent.sent_at_ns < incident.opened_at_ns:
        return "", False
    answer = fate(run, sent, now_ns)
    is_answered = any(event.data.get("request") == sent.request_id for event in run.events)
    if is_answered and not answer.startswith(f"{sent.what} refused"):
        return "", False
    return answer, not is_answered and (now_ns - sent.sent_at_ns) / 1e9 <= LATE_AFTER_S


def _silence(data: Mapping[str, Any], begin_ns: int) -> Silence | None:
    """None for an event of another version."""
    try:
        told = {name: data[name] for name in ("by", "comment", "until_ns", "rules", "families", "runs", "up_to")}
        return Silence.from_mapping({**told, "id": str(data["silence"]), "begin_ns": begin_ns, "until_ns": int(data["until_ns"])})
    except (KeyError, TypeError, ValueError):
        return None
