"""Alerts of another monitoring system around an onset, as evidence about the cluster. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.records import Event, Severity

#: Alerts that one sentence names.
_SHOWN = 3
_MAX_TEXT = 120


#: Alertmanager repeats what fires (every 4 h by default). One that it does not repeat is over, and its end got lost on the way.
FORGOTTEN_NS = 13 * 3600 * 10**9


def last_heard_ns(event: Event) -> int | None:
    """When the other system last told of it; None = not known (rows of before)."""
    heard_ns = event.data.get("heard_ns")
    return heard_ns if isinstance(heard_ns, int) else None


def outside_alerts(events: Sequence[Event], onset_ns: int | None, window_ns: int) -> str:
    """The alerts (kind ``external``, warning or worse) that fired within ``window_ns`` of the onset, as one sentence; "" for none.

    One that began long before and was still firing then counts: a link may have been bad for a day.
    """
    found = [
        event
        for event in events
        if event.kind == "external" and event.severity is not Severity.INFO and _fired(event, onset_ns, window_ns)
    ]
    if not found:
        return ""
    found = each_once(found)
    found.sort(key=lambda event: (-event.severity.rank, -(event.time_ns or 0)))
    shown = ", ".join(f"{event.text[:_MAX_TEXT]}" for event in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"your monitoring: {shown}{more}"


def each_once(events: Sequence[Event]) -> list[Event]:
    """Of an alert that comes and goes the newest time: a flapping one must not stand in front of all others."""
    newest: dict[tuple[str, ...], Event] = {}
    for event in events:
        data = event.data
        named = tuple(str(data.get(key) or "") for key in ("name", "node", "gpu"))
        key = (event.source, *named) if any(named) else (event.source, event.text)
        if key not in newest or (newest[key].time_ns or 0) < (event.time_ns or 0):
            newest[key] = event
    return list(newest.values())


def _fired(event: Event, onset_ns: int | None, window_ns: int) -> bool:
    if onset_ns is None or event.time_ns is None:
        return True
    ended_ns, heard_ns = event.data.get("ended_ns"), last_heard_ns(event)
    if ended_ns is None and heard_ns is not None:
        ended_ns = heard_ns + FORGOTTEN_NS
    has_ended_before = isinstance(ended_ns, int) and ended_ns < onset_ns - window_ns
    return event.time_ns <= onset_ns + window_ns and not has_ended_before
