"""What the circuit breaker did about an incident, in a sentence that is true of now: a count of then says when it was. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainvitals.incidents.deciding import STOPPED_RULES, is_about_training
from trainvitals.records import Event, Incident

#: What the breaker only thought on its way; nothing was done, and it holds for the moment in which it was logged.
_THOUGHTS = frozenset({"count", "hold", "alert"})


def breaker_words(
    events: Sequence[Event], incident: Incident, rules: Collection[str], attempt: int | None, last_step: int | None
) -> str:
    """``Breaker: …`` of its newest decision about ``incident``; empty when there is none, or none that still says anything.

    The breaker looks at the loss alone, so other incidents have nothing of it. rules: those of the incident that are still open.
    What was only counted is told of an open incident in the attempt that it was counted in, and with its step.
    """
    if not (is_about_training(rules) or STOPPED_RULES & set(rules)):
        return ""
    told = [event for event in events if _belongs(event, incident, attempt)]
    newest = max(told, key=lambda event: event.time_ns or 0, default=None)
    why = "" if newest is None else str(newest.text or newest.data.get("reason", "")).strip()
    if newest is None or not why:
        return ""
    if newest.data.get("decision") in _THOUGHTS and newest.step is not None and newest.step != last_step:
        why = f"{why.rstrip('.')} (at step {newest.step:,})"
    return f"Breaker: {why}" + ("" if why.endswith((".", "!", "?")) else ".")


def _belongs(event: Event, incident: Incident, attempt: int | None) -> bool:
    if event.time_ns is not None and event.time_ns < incident.opened_at_ns:
        return False
    if incident.closed_at_ns is not None and event.time_ns is not None and event.time_ns > incident.closed_at_ns:
        return False
    if event.data.get("decision") not in _THOUGHTS:
        return True
    return incident.is_open and attempt in (None, event.attempt)
