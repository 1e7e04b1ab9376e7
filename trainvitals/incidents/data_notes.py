"""What an operator noted about the data shortly before a jump: the note is the first answer to "is it the data?". Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.records import Event

#: ``data.change`` of a note that speaks of the batches (``trainvitals.detect.annotations``).
DATA_MIX = "data_mix"
MAX_WORDS = 200
MAX_NAME = 60


def noted_mix(events: Sequence[Event], onset_step: int | None, window_steps: int) -> tuple[str, str] | tuple[()]:
    """(title, evidence) of the newest note of a changed data mix at most ``window_steps`` before the onset; empty when nobody noted one.

    A note holds for the step that it names, whichever attempt ran when it was written.
    """
    if onset_step is None:
        return ()
    near = [
        (event.step, event.time_ns or 0, event)
        for event in events
        if event.kind == "annotation" and event.data.get("change") == DATA_MIX and event.step is not None
        if 0 <= onset_step - event.step <= window_steps
    ]
    if not near:
        return ()
    step, _, event = max(near, key=lambda one: one[:2])
    who = str(event.data.get("by") or "").strip()[:MAX_NAME] or "somebody"
    words = " ".join(event.text.split())[:MAX_WORDS]
    told = f"{steps_before(onset_step - step)}" + (f": \u201c{words}\u201d." if words else ".")
    return f"{who} noted a new data mix from step {step:,} on", told


def steps_before(steps: int) -> str:
    """``17 steps before the onset``; the onset itself is named so."""
    return "At the onset" if steps == 0 else f"{steps:,} step{'s' if steps != 1 else ''} before the onset"
