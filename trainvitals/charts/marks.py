"""Findings, spans and vertical lines on the curves, with labels that never run into each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from trainvitals.charts.annotations import annotation_shapes
from trainvitals.charts.labels import Label, fitting
from trainvitals.charts.palette import with_alpha
from trainvitals.charts.text import escape, plain, wrapped
from trainvitals.charts.typed import typed
from trainvitals.records import Severity

if TYPE_CHECKING:
    from trainvitals.charts.curves import CurveData, CurveLine, CurveMarker, CurveSpan

#: More lines than this only hide the curve: healthy checkpoints are thinned first, everything else stays.
MAX_LINES = 120
MAX_LABELS = 60
_SYMBOLS = {Severity.CRITICAL: "triangle-up", Severity.WARNING: "circle-open", Severity.INFO: "diamond-open"}
_SIZES = {Severity.CRITICAL: 12, Severity.WARNING: 10, Severity.INFO: 8}
_BAD_STATES = {"corrupt": "✕", "incomplete": "!", "unknown_format": "?", "suspect": "!"}
_QUIET_STATES = ("writing", "staged", "verifying", "deleting", "deleted")


def marker_traces(
    markers: Sequence[CurveMarker], axis: str, top_axis: str, colours: Mapping[str, str], *, is_log: bool
) -> list[dict[str, Any]]:
    """One trace for each severity and place; ``customdata`` holds finding ids, ``meta`` what a click means.

    A marker without a value, or with one that a log axis cannot show, stands on the row's top edge: none is lost.
    """

    def place(marker: CurveMarker) -> tuple[int, bool]:
        is_top = marker.y is None or not np.isfinite(marker.y) or (is_log and marker.y <= 0)
        return (marker.severity.rank, is_top)

    traces = []
    for (_, is_top), group in groupby(sorted(markers, key=place), key=place):
        together = sorted(group, key=lambda marker: marker.x)
        severity = together[0].severity
        ys = [0.96 if is_top else float(marker.y or 0.0) for marker in together]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "xaxis": "x",
                "yaxis": top_axis if is_top else axis,
                "cliponaxis": False,
                "x": typed(np.array([marker.x for marker in together], dtype=np.float64)),
                "y": typed(np.array(ys, dtype=np.float32)),
                "customdata": [marker.finding_id for marker in together],
                "text": [_hover(marker) for marker in together],
                "hovertemplate": "%{text}<extra></extra>",
                "name": severity.value,
                "meta": {"kind": "finding", "metric": together[0].metric, "rules": [plain(m.rule, 64) for m in together]},
                "marker": {
                    "symbol": "triangle-down" if is_top else _SYMBOLS[severity],
                    "size": _SIZES[severity],
                    "color": colours[severity.value],
                    "line": {"width": 1.6 if severity is not Severity.CRITICAL and not is_top else 1,
                             "color": colours["card"] if severity is Severity.CRITICAL or is_top else colours[severity.value]},
                },
            }
        )  # fmt: skip
    return traces


def shapes_and_labels(
    data: CurveData, x_range: tuple[float, float], colours: Mapping[str, str], *, width_px: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Shapes under and over the curves, and the annotations that name them."""
    shapes, labels = [], []
    for span in clipped(data.spans):
        shapes.append(_span_shape(span, x_range, colours))
        if span.label:
            labels.append(_span_label(span, x_range, colours))
    for line in thinned(data.lines):
        shapes.append(_line_shape(line, colours))
        if line.label:
            labels.append(_line_label(line, colours))
    of_notes, names_of_notes = annotation_shapes(data, colours)
    shapes += of_notes
    labels += names_of_notes
    labels.sort(key=lambda label: (label.priority, -label.x))
    labels = labels[:MAX_LABELS]
    visible = fitting(labels, x_range, width_px)
    return shapes, [_annotation(label, is_visible) for label, is_visible in zip(labels, visible, strict=True)]


def clipped(spans: Sequence[CurveSpan]) -> list[CurveSpan]:
    """A pause ends what is shaded as sick: two shades on top of each other would read as a third thing."""
    pauses = [span.x0 for span in spans if span.kind == "paused"]
    result = []
    for span in spans:
        cuts = [x for x in pauses if x >= span.x0 and (span.x1 is None or x < span.x1)]
        is_cut = span.kind != "paused" and bool(cuts)
        result.append(replace(span, x1=min(cuts)) if is_cut else span)
    return result


def thinned(lines: Sequence[CurveLine]) -> list[CurveLine]:
    """At most about ``MAX_LINES``: of the checkpoints that are fine every k-th, counted from the newest."""
    plain_ones = [line for line in lines if line.kind == "checkpoint" and line.state not in _BAD_STATES]
    others = [line for line in lines if not (line.kind == "checkpoint" and line.state not in _BAD_STATES)]
    room = max(MAX_LINES - len(others), 20)
    every = -(-len(plain_ones) // room) if plain_ones else 1
    kept = sorted(plain_ones, key=lambda line: -line.x)[::every]
    return sorted((*others, *kept), key=lambda line: line.x)


def _hover(marker: CurveMarker) -> str:
    where = f" · step {marker.step:,}" if marker.step is not None else ""
    lines = [f"<b>{escape(marker.title or marker.rule)}</b> · {marker.severity.value}{where}"]
    if marker.text:
        lines += [escape(line) for line in wrapped(marker.text)]
    return "<br>".join(lines)


def _span_colour(span: CurveSpan, colours: Mapping[str, str]) -> str:
    if span.kind == "paused":
        return colours["paused"]
    return colours["faint"] if span.severity is Severity.INFO else colours[span.severity.value]


def _span_shape(span: CurveSpan, x_range: tuple[float, float], colours: Mapping[str, str]) -> dict[str, Any]:
    end = span.x1 if span.x1 is not None else max(x_range[1], span.x0)
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": span.x0, "x1": end, "y0": 0, "y1": 1, "layer": "below",
        "line": {"width": 0}, "fillcolor": with_alpha(_span_colour(span, colours), 0.1 if span.kind == "paused" else 0.075),
    }  # fmt: skip


def _span_label(span: CurveSpan, x_range: tuple[float, float], colours: Mapping[str, str]) -> Label:
    text = plain(span.label, 48)
    end = span.x1 if span.x1 is not None else x_range[1]
    begin = min(max(span.x0, x_range[0]), end)
    priority = 1 if span.kind == "paused" else 3
    role = "paused_text" if span.kind == "paused" else "dim" if span.severity is Severity.INFO else f"{span.severity.value}_text"
    return Label(begin, text, "top", priority, colours[role], "left")


def _line_shape(line: CurveLine, colours: Mapping[str, str]) -> dict[str, Any]:
    colour, dash, width = {
        "onset": (colours["critical"], "solid", 1.0),
        "restart": (colours["dim"], "dash", 1.0),
        "pause": (colours["paused"], "solid", 1.0),
        "resume": (colours["paused"], "dot", 1.0),
        "checkpoint": (with_alpha(colours["ok"], 0.75), "2px,4px", 1.0),
    }[line.kind]
    if line.kind == "checkpoint" and line.state in _BAD_STATES:
        colour, dash = colours["warning" if line.state == "suspect" else "critical"], "4px,3px"
    elif line.kind == "checkpoint" and line.state in _QUIET_STATES:
        colour = with_alpha(colours["faint"], 0.8)
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": line.x, "x1": line.x, "y0": 0, "y1": 1, "layer": "below",
        "line": {"color": colour, "width": width, "dash": dash},
    }  # fmt: skip


def _line_label(line: CurveLine, colours: Mapping[str, str]) -> Label:
    text = plain(line.label, 32)
    if line.kind == "checkpoint":
        is_bad = line.state in _BAD_STATES
        glyph = _BAD_STATES.get(line.state) or ("✓" if line.state == "verified" else "")
        bad_colour = colours["warning_text" if line.state == "suspect" else "critical_text"]
        colour = bad_colour if is_bad else colours["ok_text"] if glyph else colours["dim"]
        return Label(line.x, f"{text} {glyph}".strip(), "bottom", 1 if is_bad else 4 if glyph else 6, colour)
    priority = {"onset": 0, "pause": 2, "resume": 3, "restart": 4}[line.kind]
    colour = {"onset": colours["critical_text"], "restart": colours["dim"]}.get(line.kind, colours["paused_text"])
    return Label(line.x, text, "top", priority, colour, "right" if line.kind == "onset" else "left")


def _annotation(label: Label, is_visible: bool) -> dict[str, Any]:
    is_top = label.lane == "top"
    return {
        "name": f"label|{label.lane}|{label.priority}",
        "text": escape(label.text),
        "xref": "x",
        "yref": "paper",
        "x": label.x,
        "y": 1 if is_top else 0,
        "xanchor": label.anchor,
        "yanchor": "bottom",
        "xshift": -3 if label.anchor == "right" else 3,
        "showarrow": False,
        "visible": is_visible,
        "font": {"color": label.colour, "size": 11},
    }
