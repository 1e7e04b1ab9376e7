"""A person's note, asked for from a page or the command line → the `annotation` event. Pure."""

from __future__ import annotations

from typing import Any

from trainvitals.control.requests import WatchRequest, checked_note_text
from trainvitals.detect.annotations import FREE_NOTE, MAX_TEXT, checked_note, points_of, rules_of
from trainvitals.detect.rules import RULES
from trainvitals.identity import event_id
from trainvitals.masking import mask_cut_text
from trainvitals.records import Event

#: Rules named in the answer; the event has all of them.
SHOWN_RULES = 4


class AnnotationRequests:
    """Of one run."""

    def __init__(self, run: str) -> None:
        self._run = run

    def apply(self, request: WatchRequest, last_step: int | None) -> tuple[Event, str]:
        """(the event, what is answered). A note without a step is one of the newest step. Raises ``InputError`` or ``ControlError``."""
        note = checked_note(request.data, list(RULES))
        step = note.step if note.step is not None else last_step
        data: dict[str, Any] = {**note.to_data(), "by": request.by, "request": request.id}
        silenced = rules_of(data, list(RULES))
        data["silenced"] = silenced
        event = Event(
            "annotation", request.issued_at_ns, step=step, id=event_id(self._run, "request", request.id), source=request.source,
            text=mask_cut_text(checked_note_text(note.text), MAX_TEXT), data=data,
        )  # fmt: skip
        return event, _sentence(note.change, step, silenced, points_of(data))


def _sentence(change: str, step: int | None, silenced: list[str], points: int) -> str:
    where = f"from step {step:,} on" if step is not None else "from now on"
    what = "The note" if change == FREE_NOTE else f"The note about {change.replace('_', ' ')}"
    if not silenced:
        return f"{what} is kept {where.removesuffix(' on').replace('from step', 'at step')}; it silences nothing."
    more = f" and {len(silenced) - SHOWN_RULES} more" if len(silenced) > SHOWN_RULES else ""
    return f"{what} counts {where}: for {points:,} points it silences {', '.join(silenced[:SHOWN_RULES])}{more}."
