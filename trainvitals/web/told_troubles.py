"""What the watchdog says that it cannot do now: look at the checkpoints, understand the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event

CHECKPOINTS, LOG = "checkpoints", "log"
STARTED = "the watchdog started"
SHOWN = frozenset({CHECKPOINTS, LOG})
MAX_TEXT = 600


def told_troubles(events: Sequence[Event]) -> Mapping[str, str]:
    """What it is about -> sentence, of those that the watchdog of now told last and did not take back."""
    found: dict[str, str] = {}
    for note in sorted((event for event in events if event.kind == "watch"), key=lambda event: event.time_ns or 0):
        about = note.data.get("trouble")
        if note.text == STARTED:
            found.clear()  # the one before it may have been right; this one looks for itself
        elif isinstance(about, str) and about in SHOWN:
            found[about] = "" if note.data.get("is_over") is True else note.text[:MAX_TEXT]
    return {about: text for about, text in found.items() if text}


def with_unread_log(found: Verdict, troubles: Mapping[str, str], last_step: int | None, *, is_watched: bool) -> Verdict:
    """In place of "waiting for the first step", when the log is there and grows and nothing of it is understood."""
    text = troubles.get(LOG)
    if text is None or found.word is not VerdictWord.UNKNOWN or last_step is not None or not is_watched:
        return found
    headline, _, todo = text.partition(". If ")  # a path may hold a full stop, too
    return replace(found, headline=headline, decision=f"If {todo}." if todo else found.decision)
