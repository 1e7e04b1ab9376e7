"""Alerts of another monitoring system around an onset, as evidence about the cluster. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.records import Event, Severity

#: Alerts that one sentence names.
_SHOWN = 3
_MAX_TEXT = 120


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
    found.sort(key=lambda event: (-event.severity.rank, -(event.time_ns or 0)))
    shown = ", ".join(f"{event.text[:_MAX_TEXT]}" for event in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"your monitoring: {shown}{more}"


def _fired(event: Event, onset_ns: int | None, window_ns: int) -> bool:
    if onset_ns is None or event.time_ns is None:
        return True
    ended_ns = event.data.get("ended_ns")
    has_ended_before = isinstance(ended_ns, int) and ended_ns < onset_ns - window_ns
    return event.time_ns <= onset_ns + window_ns and not has_ended_before
