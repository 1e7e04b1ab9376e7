"""What an incident's JSON page told before a restart, read back. Who may write into the run directory could have written it: what has
not the types that it must have is left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.incidents.grouping import finding_from_mapping, incident_from_mapping
from trainvitals.incidents.silences import Silence
from trainvitals.records import Event, Finding, Incident, Severity

MAX_LISTED = 1_000
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a page; curves as they stand in the file."""

    incident: Incident | None = None
    findings: tuple[Finding, ...] = ()
    near: tuple[Event, ...] = ()
    curves: tuple[Mapping[str, object], ...] = ()


def page_of(told: Mapping[str, Any]) -> Kept:
    """Of the JSON object of a page; empty where it is none."""
    incident = _incident(told.get("incident"))
    findings = [found for data in _list(told, "findings") if (found := _finding(data)) is not None]
    near = [event for data in _list(told, "near") if (event := _event(data)) is not None]
    curves = [curve for curve in _list(told, "curves") if isinstance(curve, dict)]
    return Kept(incident, tuple(findings), tuple(near), tuple(curves))


def incidents_of(told: Mapping[str, Any]) -> Iterator[Incident]:
    """Of the JSON object of the index."""
    for data in _list(told, "incidents"):
        incident = _incident(data)
        if incident is not None:
            yield incident


def silences_of(told: Mapping[str, Any]) -> Iterator[Silence]:
    """Of the JSON object of the index."""
    for data in _list(told, "silences"):
        try:
            one = Silence.from_mapping(data)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if _are_texts((one.id, one.by, one.comment)) and _are_numbers((one.begin_ns, one.until_ns)):
            yield one


def _list(told: Mapping[str, Any], name: str) -> list[Any]:
    found = told.get(name)
    return found[:MAX_LISTED] if isinstance(found, list) else []


def _incident(data: Any) -> Incident | None:
    try:
        one = incident_from_mapping(data)
    except (KeyError, TypeError, ValueError):
        return None
    texts = (
        one.id,
        one.run,
        one.family,
        one.title,
        one.message,
        one.acknowledged_by,
        one.acknowledged_note,
        *one.rules,
        *one.finding_ids,
    )
    numbers = (one.opened_at_ns, one.updated_at_ns)
    maybe = (one.first_step, one.last_step, one.closed_at_ns, one.acknowledged_at_ns, one.silenced_until_ns)
    return one if _are_texts(texts) and _are_numbers(numbers) and _are_numbers(n for n in maybe if n is not None) else None


def _finding(data: Any) -> Finding | None:
    try:
        one = finding_from_mapping(data)
    except (KeyError, TypeError, ValueError):
        return None
    maybe = (one.last_step, one.time_ns)
    is_whole = (
        _are_texts((one.id, one.rule, one.family, one.message))
        and _are_numbers((one.first_step, one.detected_step, one.attempt))
        and _are_numbers(n for n in maybe if n is not None)
        and all(value is None or type(value) in (int, float) for value in (one.value, one.expected))
        and isinstance(one.data, dict)
        and type(one.is_open) is bool
    )
    return one if is_whole else None


def _event(data: Any) -> Event | None:
    try:
        one = Event(**{**data, "severity": Severity(data["severity"])})
    except (KeyError, TypeError, ValueError):
        return None
    maybe = (one.time_ns, one.step, one.attempt)
    is_whole = _are_texts((one.kind, one.id, one.source, one.text)) and _are_numbers(n for n in maybe if n is not None)
    return one if is_whole and isinstance(one.data, dict) else None


def _are_texts(values: Any) -> bool:
    return all(type(value) is str for value in values)


def _are_numbers(values: Any) -> bool:
    return all(type(value) is int and -_MOST < value < _MOST for value in values)
