"""Checkpoints and saves on the run's step axis: a lane for each attempt, arrows where one went on from another, a bar for each save."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from trainvitals.charts.checkpoint_lineage import ResumedStart, attempt_lines, start_arrows, start_marks
from trainvitals.charts.checkpoints import (
    DAMAGED,
    GOING,
    LOOKS,
    NONE_SUSPECT,
    SUSPECT_LOOK,
    WHOLE,
    Attempt,
    describe,
    lanes_of,
)
from trainvitals.charts.layout import layout_base, row_title
from trainvitals.charts.palette import palette
from trainvitals.charts.save_bars import save_bars, save_legend
from trainvitals.charts.text import escape
from trainvitals.charts.typed import to_json, typed
from trainvitals.incidents.current_attempt import in_order
from trainvitals.incidents.saves import SaveTime
from trainvitals.records import CheckpointReport, CheckpointState

#: Drawn at most, those that matter first, then the newest.
MOST_CHECKPOINTS = 300
MOST_SAVES = 300
MOST_LANES = 10
LANE_PX, LEAST_LANE_PX, MOST_LANES_PX = 52, 26, 320
SAVES_PX, TITLE_PX = 110, 24
MARGINS_PX = 62
#: (pixels from one marker to the next that a marker needs, its size), for a chart of a usual width; the small ones say their
#: state by their shape alone.
SIZES = ((19.0, 16), (11.0, 10), (7.0, 7), (0.0, 5))
USUAL_WIDTH_PX = 800
LARGE = 16
#: Fewer neighbours than this are no crowd, however close they stand.
FEW_GAPS = 5
_SHAPES: Mapping[str, str] = {"ok": "square", "info": "circle", "warning": "triangle-up", "critical": "x", "faint": "circle-open"}


@dataclass(frozen=True)
class Around:
    """What is drawn around the checkpoints. recommended, picked: paths of the one to go back to and of those that a restart would
    load; pinned: paths kept from deletion."""

    saves: Sequence[SaveTime] = ()
    starts: Sequence[ResumedStart] = ()
    pinned: Collection[str] = ()
    recommended: str = ""
    picked: Collection[str] = field(default_factory=tuple)


NOTHING_AROUND = Around()
Placed = tuple[int, CheckpointReport]


def timeline_json(
    checkpoints: Sequence[CheckpointReport],
    attempts: Sequence[Attempt],
    theme: str,
    history: Sequence[Placed] = (),
    suspects: Mapping[str, int] = NONE_SUSPECT,
    around: Around = NOTHING_AROUND,
) -> str:
    """Figure JSON. checkpoints: what is there now; history: what each attempt left, see ``lanes_of``; suspects: path -> onset of the
    incident that makes it suspect. A click on a marker gives its path."""
    colours = palette(theme)
    everything = lanes_of(history or [(0, one) for one in checkpoints], attempts)
    placed = [(lane, one) for lane, one in everything if one.step is not None]
    drawn = _most_important(placed, around)
    lanes = _lanes(drawn, attempts, around)
    drawn = [(lane, one) for lane, one in drawn if lane in lanes]
    saves = [
        one for one in around.saves if one.longest_s is not None and (not one.attempt or one.attempt >= min(lanes, default=0))
    ][-MOST_SAVES:]
    failed = [one for one in around.saves if one.problem and one.attempt in lanes][-MOST_SAVES:]
    x_range = _x_range(drawn, saves, attempts, lanes)
    layout = _layout(colours, lanes, x_range, bool(saves))
    onsets = _onsets(drawn, checkpoints, suspects)
    traces = [
        *attempt_lines(colours, lanes, attempts),
        *_kept(colours, lanes, _current(drawn, checkpoints), around, _size(lanes, drawn, x_range)),
        *_markers(colours, lanes, drawn, onsets, around, _size(lanes, drawn, x_range)),
        *_failed(colours, lanes, failed),
        *start_marks(colours, lanes, around.starts),
        *save_bars(colours, saves, x_range),
    ]
    titles = [*_notes(colours, len(placed) - len(drawn), everything), *save_legend(colours, saves, layout)]
    layout["annotations"] = [
        *titles,
        *start_arrows(colours, lanes, placed, around.starts),
        *_labels(colours, lanes, drawn, around, x_range, checkpoints),
    ]
    return to_json({"data": traces, "layout": layout})


def timeline_height(lanes: int, has_saves: bool) -> int:
    """Pixels for so many lanes."""
    return MARGINS_PX + _lanes_px(min(MOST_LANES, max(1, lanes))) + (SAVES_PX if has_saves else 0)


def _lanes_px(lanes: int) -> int:
    return round(lanes * max(LEAST_LANE_PX, min(LANE_PX, MOST_LANES_PX / lanes)))


def _most_important(placed: Sequence[Placed], around: Around) -> list[Placed]:
    """Those that a person looks for, then those that are there, then the deleted ones; of each the newest."""
    if len(placed) <= MOST_CHECKPOINTS:
        return list(placed)
    named = {around.recommended, *around.picked, *around.pinned, *(start.path for start in around.starts)}

    def rank(entry: Placed) -> tuple[int, int]:
        _, one = entry
        importance = 0 if one.path in named else 1 if one.state in DAMAGED else 2 if one.state not in GOING else 3
        return importance, -(one.modified_at_ns or one.step or 0)

    chosen = sorted(placed, key=rank)[:MOST_CHECKPOINTS]
    return sorted(chosen, key=lambda entry: (entry[1].step or 0, entry[0]))


def _lanes(drawn: Sequence[Placed], attempts: Sequence[Attempt], around: Around) -> list[int]:
    """Attempts that have something to show, the newest of them; 0 = not known whose."""
    told = {lane for lane, _ in drawn} | {start.attempt for start in around.starts}
    told |= {attempt.number for attempt in in_order(attempts)[-1:] if around.starts}
    return sorted(told)[-MOST_LANES:]


def _x_range(
    drawn: Sequence[Placed], saves: Sequence[SaveTime], attempts: Sequence[Attempt], lanes: Sequence[int]
) -> tuple[float, float]:
    steps = [one.step for _, one in drawn if one.step is not None] + [save.step for save in saves]
    if not steps:
        return (0.0, 1.0)
    first, last = min(steps), max(steps)
    for attempt in attempts:
        end = getattr(attempt, "last_step", None)
        if attempt.number in lanes and end is not None:
            last = max(last, end)
    air = max((last - first) * 0.03, 1.0)
    return (first - air, last + air)


def _layout(colours: Mapping[str, str], lanes: Sequence[int], x_range: tuple[float, float], has_saves: bool) -> dict[str, Any]:
    layout = layout_base(colours, uirevision="checkpoints", by="step", x_range=x_range, compact=True)
    layout |= {"hovermode": "closest", "hoverdistance": 12, "barmode": "overlay"}
    layout["xaxis"]["showspikes"] = False
    total_px = SAVES_PX + _lanes_px(max(1, len(lanes)))
    layout["yaxis"] = {
        "domain": [SAVES_PX / total_px, 1] if has_saves else [0, 1],
        "fixedrange": True,
        "range": [-0.62, max(len(lanes) - 0.38, 0.62)],
        "tickvals": list(range(len(lanes))),
        "ticktext": [f"#{number}" if number else "" for number in lanes],
        "showgrid": False,
        "zeroline": False,
        "tickfont": {"color": colours["dim"], "size": 11},
        "title": {"text": "attempt", "font": {"color": colours["dim"], "size": 11}, "standoff": 4},
    }
    if has_saves:
        layout["xaxis"]["anchor"] = "y2"
        layout["yaxis2"] = {
            "domain": [0, (SAVES_PX - TITLE_PX) / total_px],
            "fixedrange": True,
            "rangemode": "tozero",
            "nticks": 3,
            "ticksuffix": " s",
            "gridcolor": colours["line"],
            "zeroline": False,
            "tickfont": {"color": colours["dim"], "size": 11},
        }
    return layout


def _onsets(
    drawn: Sequence[Placed], checkpoints: Sequence[CheckpointReport], suspects: Mapping[str, int]
) -> dict[int, int]:  # fmt: skip
    """id of each drawn report that is suspect -> onset. What an earlier attempt left at the same path is another checkpoint."""
    now_ns = {one.path: one.modified_at_ns for one in checkpoints if one.path in suspects}
    return {
        id(one): suspects[one.path]
        for _, one in drawn
        if one.path in suspects and one.state in WHOLE and one.modified_at_ns == now_ns.get(one.path)
    }


def _size(lanes: Sequence[int], drawn: Sequence[Placed], x_range: tuple[float, float]) -> int:
    """Of the markers, by the usual distance of neighbours in the lane where they stand closest."""
    step_px = USUAL_WIDTH_PX / (x_range[1] - x_range[0])
    least_px = math.inf
    for number in lanes:
        steps = sorted(one.step or 0 for lane, one in drawn if lane == number)
        gaps = [later - one for one, later in pairwise(steps) if later > one]
        if len(gaps) >= FEW_GAPS:
            least_px = min(least_px, median(gaps) * step_px)
    return next(size for pixels, size in SIZES if least_px >= pixels)


def _current(drawn: Sequence[Placed], checkpoints: Sequence[CheckpointReport]) -> list[Placed]:
    """Without what an earlier attempt left at a path that was written again."""
    now_ns = {one.path: one.modified_at_ns for one in checkpoints}
    return [(lane, one) for lane, one in drawn if one.modified_at_ns == now_ns.get(one.path)]


def _kept(
    colours: Mapping[str, str], lanes: Sequence[int], current: Sequence[Placed], around: Around, size: int
) -> list[dict[str, Any]]:
    kept = [(lane, one) for lane, one in current if one.path in around.pinned]
    if not kept:
        return []
    ring = {"symbol": "circle-open", "size": size + 10, "color": colours["paused"], "line": {"width": 2}}
    return [_at(lanes, kept) | {"mode": "markers", "hoverinfo": "skip", "name": "kept", "meta": {"kind": "kept"}, "marker": ring}]


def _markers(
    colours: Mapping[str, str],
    lanes: Sequence[int],
    drawn: Sequence[Placed],
    onsets: Mapping[int, int],
    around: Around,
    size: int,
) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    looks = [(state, look, False) for state, look in LOOKS.items()] + [(state, SUSPECT_LOOK, True) for state in LOOKS]
    for state, (role, glyph), is_suspect in looks:
        found = [(lane, one) for lane, one in drawn if one.state is state and (id(one) in onsets) is is_suspect]
        if not found:
            continue
        is_solid = state is CheckpointState.VERIFIED or role in ("critical", "warning")
        is_large = size >= LARGE
        symbol = ("square" if is_solid else "square-open") if is_large else _SHAPES.get(role, "square")
        if not is_large and state is CheckpointState.COMPLETE:
            symbol = "square-open"
        traces.append(_at(lanes, found) | {
            "mode": "markers+text" if is_large else "markers",
            "customdata": [one.path for _, one in found],
            "meta": {"kind": "checkpoint", "metric": state.value},
            "text": [glyph] * len(found),
            "hovertext": [_told(one, onsets.get(id(one)), around) for _, one in found],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "textfont": {"color": colours["card"] if is_solid else colours[role], "size": 11},
            "opacity": 0.45 if state in GOING else 1,
            "marker": {"symbol": symbol, "size": size, "color": colours[role], "line": {"width": 1.5, "color": colours[role]}},
            "name": "suspect" if is_suspect else state.value.replace("_", " "),
        })  # fmt: skip
    return traces


def _at(lanes: Sequence[int], entries: Sequence[Placed]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": typed(np.array([one.step for _, one in entries], dtype=np.int64)),
        "y": typed(np.array([lanes.index(lane) for lane, _ in entries], dtype=np.int64)),
        "cliponaxis": False,
    }


def _told(one: CheckpointReport, onset: int | None, around: Around) -> str:
    more = [
        word
        for word, paths in (("a restart loads it", around.picked), ("kept from deletion", around.pinned))
        if one.path in paths
    ]
    if one.path == around.recommended:
        more.insert(0, "safe")
    return escape(" · ".join([describe(one, onset), *more]), 280)


def _failed(colours: Mapping[str, str], lanes: Sequence[int], failed: Sequence[SaveTime]) -> list[dict[str, Any]]:
    if not failed:
        return []
    return [{
        "type": "scatter", "mode": "markers", "x": [save.step for save in failed], "y": [lanes.index(save.attempt) for save in failed],
        "meta": {"kind": "save"}, "name": "save failed", "cliponaxis": False,
        "hovertext": [escape(f"step {save.step:,} · {save.problem}", 280) for save in failed],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"symbol": "x-thin", "size": 12, "color": colours["critical"], "line": {"width": 2.5, "color": colours["critical"]}},
    }]  # fmt: skip


def _labels(
    colours: Mapping[str, str], lanes: Sequence[int], drawn: Sequence[Placed], around: Around, x_range: tuple[float, float],
    checkpoints: Sequence[CheckpointReport],
) -> list[dict[str, Any]]:  # fmt: skip
    """What is safe stands below its marker, what a restart loads above it: often it is one and the same."""
    current = _current(drawn, checkpoints)
    labels = []
    for glyph, text, paths, shift, role in (
        ("▲", "safe", (around.recommended,), -19, "ok_text"),
        ("▼", "a restart loads", around.picked, 19, "ink"),
    ):
        for lane, one in current:
            if one.path not in paths or one.step is None:
                continue
            is_right = one.step - x_range[0] > 0.6 * (x_range[1] - x_range[0])
            named = f"{text} {one.step:,}"
            labels.append(
                {
                    "x": one.step, "y": lanes.index(lane), "xref": "x", "yref": "y", "yshift": shift, "showarrow": False, "name": "named",
                    "text": f"{named} {glyph}" if is_right else f"{glyph} {named}", "xanchor": "right" if is_right else "left",
                    "xshift": 8 if is_right else -8, "font": {"color": colours[role], "size": 11.5},
                }
            )  # fmt: skip
    return labels


def _notes(colours: Mapping[str, str], left_out: int, everything: Sequence[Placed]) -> list[dict[str, Any]]:
    notes = []
    without_step = sum(one.step is None for _, one in everything)
    if not everything:
        notes.append("no checkpoint seen yet")
    if without_step:
        notes.append(f"{without_step:,} without a known step: see the table")
    if left_out:
        notes.append(f"{left_out:,} older ones are not drawn")
    if not notes:
        return []
    return [row_title(colours, "", 1, has_data=True) | {"text": escape(" · ".join(notes))}]
