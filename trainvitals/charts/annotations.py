"""What people changed on purpose → a thin line through all rows, a mark with its words, and an entry in the legend. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.labels import Label
from trainvitals.charts.palette import with_alpha
from trainvitals.charts.text import escape, plain, wrapped
from trainvitals.charts.typed import typed
from trainvitals.incidents.current_attempt import in_order
from trainvitals.records import Event

if TYPE_CHECKING:
    from trainvitals.charts.curves import By, CurveAnnotation, CurveData

KIND = "annotation"
COLOUR = "note"
GLYPH = "✎"
NAME = "note"
#: More only hide the curve: the newest stay.
MAX_SHOWN = 60
#: Where the mark stands in the first row, as a share of its height: below the curve's usual place, off the top edge's marks.
MARK_AT = 0.05
LONGEST_LABEL = 24
#: Rules named when one points at a note.
SHOWN_RULES = 4


class Attempt(Protocol):
    """What is needed of an attempt."""

    @property
    def number(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def curve_annotations(events: Sequence[Event], attempts: Sequence[Attempt], axis: By, times: StepTimes) -> list[CurveAnnotation]:
    """Notes at their steps (a note without one at its time), oldest first; one about a step still to come is not drawn yet."""
    from trainvitals.charts.curves import CurveAnnotation

    notes = []
    for event in events:
        if event.kind != KIND:
            continue
        x = _place(event, attempts, axis, times)
        if x is not None:
            notes.append(
                CurveAnnotation(
                    x=x, title=_title(event), text=event.text, by=str(event.data.get("by") or ""), annotation_id=event.id,
                    step=event.step, silenced=_rules(event),
                )
            )  # fmt: skip
    return sorted(notes, key=lambda note: note.x)


def annotation_shapes(data: CurveData, colours: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[Label]]:
    """Lines through all rows, and their labels above the chart."""
    shown = data.annotations[-MAX_SHOWN:]
    shapes = [
        {
            "type": "line", "xref": "x", "yref": "paper", "x0": note.x, "x1": note.x, "y0": 0, "y1": 1, "layer": "below",
            "line": {"color": with_alpha(colours[COLOUR], 0.85), "width": 1, "dash": "6px,2px,1px,2px"},
        }
        for note in shown
    ]  # fmt: skip
    return shapes, [Label(note.x, f"{GLYPH} {plain(note.title, LONGEST_LABEL)}", "top", 2, colours[COLOUR]) for note in shown]


def annotation_trace(data: CurveData, axis: str, colours: Mapping[str, str]) -> dict[str, Any] | None:
    """A mark on each line, to point at and to click; ``customdata`` holds the events' ids. axis: an invisible one from 0 to 1."""
    shown = data.annotations[-MAX_SHOWN:]
    if not shown:
        return None
    return {
        "type": "scatter", "mode": "markers", "xaxis": "x", "yaxis": axis, "cliponaxis": False,
        "x": typed(np.array([note.x for note in shown], dtype=np.float64)),
        "y": typed(np.full(len(shown), MARK_AT, dtype=np.float32)),
        "customdata": [note.annotation_id for note in shown], "text": [_hover(note) for note in shown],
        "hovertemplate": "%{text}<extra></extra>", "name": NAME, "meta": {"kind": KIND, "metric": ""},
        "marker": {"symbol": "square", "size": 7, "color": colours[COLOUR], "line": {"width": 1, "color": colours["card"]}},
    }  # fmt: skip


def legend(data: CurveData, colours: Mapping[str, str]) -> str:
    """What the marks are, beside the title of the first row; Plotly's own small markup, our own words."""
    return f'  <span style="color:{colours[COLOUR]}">■</span> {NAME}' if data.annotations else ""


def _place(event: Event, attempts: Sequence[Attempt], axis: By, times: StepTimes) -> float | None:
    if event.step is None:
        return times.x(axis, None, event.time_ns, event.attempt)
    if axis == "step":
        return float(event.step)
    # A person names a step, not an attempt: the newest that passed it is meant. When it was written says nothing of when it was.
    began = [one.number for one in in_order(attempts) if one.first_step is not None and one.first_step <= event.step]
    attempt = event.attempt if event.attempt is not None else began[-1] if began else 0
    steps, _ = times.known.get(attempt) or times.known.get(0) or (np.empty(0), np.empty(0))
    if not len(steps) or not steps[0] <= event.step <= steps[-1]:
        return None
    return times.x(axis, event.step, None, attempt)


def _title(event: Event) -> str:
    change = str(event.data.get("change") or "")
    return change.replace("_", " ") if change and change != NAME else event.text or NAME


def _rules(event: Event) -> tuple[str, ...]:
    rules = event.data.get("silenced", event.data.get("rules"))
    return tuple(str(rule) for rule in rules) if isinstance(rules, (list, tuple)) else ()


def _hover(note: CurveAnnotation) -> str:
    where = f" · step {note.step:,}" if note.step is not None else ""
    by = f" · {escape(note.by, 40)}" if note.by else ""
    lines = [f"<b>{GLYPH} {escape(note.title, 48)}</b>{where}{by}"]
    if note.text and note.text != note.title:
        lines += [escape(line) for line in wrapped(note.text)]
    if note.silenced:
        more = f" and {len(note.silenced) - SHOWN_RULES} more" if len(note.silenced) > SHOWN_RULES else ""
        lines.append(escape(f"silences {', '.join(rule.replace('_', ' ') for rule in note.silenced[:SHOWN_RULES])}{more}"))
    return "<br>".join(lines)
