"""What people noted, as the pages tell it: in words, and whether the watchdog has taken a note that was sent from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainvitals.incidents.verdict import span
from trainvitals.records import Event
from trainvitals.web.view import RunView

KIND = "annotation"
#: ``data.change`` -> what a person reads; the first is what a form begins with.
CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "note": "nothing, only a note",
        "data_mix": "data mix",
        "learning_rate": "learning rate",
        "batch_size": "batch size",
        "context_length": "context length",
        "nodes": "nodes",
    }
)
#: A watchdog looks every second, pages every second or two; after this something is wrong.
LATE_AFTER_S = 15.0
SHOWN_RULES = 4


@dataclass(frozen=True)
class Sent:
    """A note that this visitor sent. request_id: the event that answers it carries it."""

    run: str
    request_id: str
    sent_at_ns: int


def headline(event: Event) -> str:
    """``data mix · ana: new mix``; the note's words are the person's own."""
    change = str(event.data.get("change") or "")
    what = CHANGES.get(change, change.replace("_", " ")) if change != "note" else ""
    by = str(event.data.get("by") or "")
    lead = " · ".join(part for part in (what, by) if part)
    return f"{lead}: {event.text}" if lead and event.text else lead or event.text


def silences(event: Event) -> str:
    """What a note silences, in a sentence; empty when it silences nothing."""
    rules = event.data.get("silenced", event.data.get("rules"))
    if not isinstance(rules, (list, tuple)) or not rules:
        return ""
    more = f" and {len(rules) - SHOWN_RULES} more" if len(rules) > SHOWN_RULES else ""
    points = event.data.get("points")
    long = f" for {points:,} points" if isinstance(points, int) and not isinstance(points, bool) else ""
    return f"Silences {', '.join(str(rule) for rule in rules[:SHOWN_RULES])}{more}{long}."


def fate(run: RunView, sent: Sent, now_ns: int) -> str:
    """What became of a note, from the watchdog's events alone: a note that was sent is not applied yet."""
    for event in reversed(run.events):
        if event.data.get("request") != sent.request_id:
            continue
        if event.kind == KIND:
            at = f" at step {event.step:,}" if event.step is not None else ""
            return f"Note applied{at}. {silences(event) or 'It silences nothing.'}"
        if event.kind == "watch" and event.data.get("outcome") == "refused":
            return f"Note refused. {event.text}"
    age_s = (now_ns - sent.sent_at_ns) / 1e9
    if age_s <= LATE_AFTER_S:
        return "Note sent; waiting for the watchdog."
    return f"Note sent {span(age_s)} ago and not applied yet: does the watchdog of this run still run?"
