"""Checkpoints on the step axis, and the short strip of the newest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trainvitals.charts.layout import layout_base
from trainvitals.charts.palette import palette
from trainvitals.charts.text import escape, plain
from trainvitals.charts.typed import to_json, typed
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

STRIP_CELLS = 16
#: state -> (palette role, glyph): a shape for each, so that the colour never speaks alone.
LOOKS: Mapping[CheckpointState, tuple[str, str]] = {
    CheckpointState.VERIFIED: ("ok", "✓"),
    CheckpointState.COMPLETE: ("ok", "·"),
    CheckpointState.VERIFYING: ("info", "…"),
    CheckpointState.WRITING: ("faint", "↓"),
    CheckpointState.STAGED: ("faint", "↓"),
    CheckpointState.INCOMPLETE: ("warning", "!"),
    CheckpointState.CORRUPT: ("critical", "✕"),
    CheckpointState.UNKNOWN_FORMAT: ("warning", "?"),
    CheckpointState.DELETING: ("faint", "–"),
    CheckpointState.DELETED: ("faint", "–"),
}
#: A checkpoint that may be whole and still hold damaged weights: it must not look like a good one.
SUSPECT_LOOK = ("warning", "!")
_WHOLE = frozenset({CheckpointState.VERIFIED, CheckpointState.COMPLETE, CheckpointState.VERIFYING})
_NONE_SUSPECT: Mapping[str, int] = {}
DAMAGED = frozenset({CheckpointState.CORRUPT, CheckpointState.INCOMPLETE})
_GOING = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})
_STRONG = (VerificationLevel.CONTENT, VerificationLevel.LOAD)


class Attempt(Protocol):
    """What is needed of an attempt (``AttemptView`` has it)."""

    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def attempt_of(checkpoint: CheckpointReport, attempts: Sequence[Attempt]) -> int:
    """Number of the attempt that wrote it: the last one started before it was written, else the last that had begun by
    its step, else 0 (not known)."""
    ordered = sorted(attempts, key=lambda attempt: attempt.number)
    if checkpoint.modified_at_ns is not None:
        before = [a.number for a in ordered if a.started_ns <= checkpoint.modified_at_ns]
        if before:
            return before[-1]
    if checkpoint.step is not None:
        before = [a.number for a in ordered if a.first_step is not None and a.first_step <= checkpoint.step]
        if before:
            return before[-1]
    return ordered[0].number if ordered else 0


def suspicion(onset: int | None) -> str:
    """Why a checkpoint that verifies may not be gone back to; empty for None."""
    return "" if onset is None else f"suspect: saved at or after the onset of an incident, step {onset:,}"


def describe(checkpoint: CheckpointReport, onset: int | None = None) -> str:
    """One line: step, state with its level, size, first reason. onset: step of the incident that makes it suspect."""
    step = f"step {checkpoint.step:,}" if checkpoint.step is not None else "step unknown"
    state = checkpoint.state.value.replace("_", " ")
    level = f" ({checkpoint.level.value})" if checkpoint.level is not None else ""
    size = f" · {checkpoint.bytes / 1e9:.3g} GB" if checkpoint.bytes >= 1e8 else f" · {checkpoint.bytes / 1e6:.3g} MB"
    optimizer = " · no optimizer state" if checkpoint.has_optimizer is False else ""
    reason = f" · {'; '.join(checkpoint.reasons[:3])}" if checkpoint.reasons else ""
    doubt = f" · {suspicion(onset)}" if onset is not None else ""
    return plain(f"{step} · {state}{level}{doubt}{size}{optimizer}{reason}", 240)


def lanes_of(history: Sequence[tuple[int, CheckpointReport]], attempts: Sequence[Attempt]) -> list[tuple[int, CheckpointReport]]:
    """(attempt that wrote it, report): what each attempt left at each path. ``history``: (attempt that ran when it was
    reported, 0 = not known; report), of a path in the order of attempts.

    A report is of the attempt that wrote the files, which may have ended before they were verified or deleted. A damaged
    checkpoint stays damaged here when it goes away.
    """
    placed: dict[tuple[str, int], CheckpointReport] = {}
    lane_of: dict[str, int] = {}
    for reported_in, report in history:
        if report.state in _GOING and report.path in lane_of:
            lane = lane_of[report.path]
        elif report.modified_at_ns is not None or not reported_in:
            lane = attempt_of(report, attempts)
        else:
            lane = reported_in
        known = placed.get((report.path, lane))
        if known is None or known.state not in DAMAGED or report.state not in _GOING:
            placed[report.path, lane] = report
        lane_of[report.path] = lane
    return [(lane, report) for (_, lane), report in placed.items()]


def timeline_json(
    checkpoints: Sequence[CheckpointReport],
    attempts: Sequence[Attempt],
    theme: str,
    history: Sequence[tuple[int, CheckpointReport]] = (),
    suspects: Mapping[str, int] = _NONE_SUSPECT,
) -> str:
    """Figure JSON for ``live_chart``: steps along x, one lane an attempt; a click gives kind "checkpoint" and the path.

    checkpoints: what is there now. history: what each attempt left (``lanes_of``); without it only the present is drawn.
    suspects: path -> onset of the incident that makes what is there now suspect.
    """
    colours = palette(theme)
    drawn = lanes_of(history or [(0, checkpoint) for checkpoint in checkpoints], attempts)
    lane_of = {id(checkpoint): lane for lane, checkpoint in drawn}
    placed = [checkpoint for _, checkpoint in drawn if checkpoint.step is not None]
    steps = [checkpoint.step or 0 for checkpoint in placed]
    x_range = (min(steps), max(steps)) if steps else (0, 1)
    air = max((x_range[1] - x_range[0]) * 0.03, 1.0)
    layout = layout_base(colours, uirevision="checkpoints", by="step", x_range=(x_range[0] - air, x_range[1] + air), compact=True)
    lanes = sorted({lane_of[id(checkpoint)] for checkpoint in placed})
    layout["hovermode"] = "closest"
    layout["xaxis"]["showspikes"] = False
    layout["yaxis"] = {
        "fixedrange": True,
        "range": [-0.6, max(len(lanes) - 0.4, 0.6)],
        "tickvals": list(range(len(lanes))),
        "ticktext": [f"#{number}" if number else "" for number in lanes],
        "gridcolor": colours["line"],
        "zeroline": False,
        "tickfont": {"color": colours["dim"], "size": 11},
        "title": {"text": "attempt", "font": {"color": colours["dim"], "size": 11}, "standoff": 4},
    }
    now_ns = {checkpoint.path: checkpoint.modified_at_ns for checkpoint in checkpoints}
    onset_of = {
        id(one): suspects[one.path]
        for one in placed
        if one.path in suspects and one.state in _WHOLE and one.modified_at_ns == now_ns.get(one.path)
    }
    traces = []
    looks = [(state, look, False) for state, look in LOOKS.items()] + [(state, SUSPECT_LOOK, True) for state in LOOKS]
    for state, (role, glyph), is_suspect in looks:
        found = [one for one in placed if one.state is state and (id(one) in onset_of) is is_suspect]
        if not found:
            continue
        is_solid = state is CheckpointState.VERIFIED or role in ("critical", "warning")
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "x": typed(np.array([checkpoint.step for checkpoint in found], dtype=np.int64)),
                "y": typed(np.array([lanes.index(lane_of[id(checkpoint)]) for checkpoint in found], dtype=np.int64)),
                "customdata": [checkpoint.path for checkpoint in found],
                "meta": {"kind": "checkpoint", "metric": state.value},
                "text": [glyph] * len(found),
                "hovertext": [escape(describe(checkpoint, onset_of.get(id(checkpoint))), 240) for checkpoint in found],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "textfont": {"color": colours["card"] if is_solid else colours[role], "size": 11},
                "marker": {
                    "symbol": "square" if is_solid else "square-open",
                    "size": 16,
                    "color": colours[role],
                    "line": {"width": 1.5, "color": colours[role]},
                },
                "name": "suspect" if is_suspect else state.value.replace("_", " "),
            }
        )
    notes = []
    without_step = sum(checkpoint.step is None for _, checkpoint in drawn)
    if not drawn:
        notes.append("no checkpoint seen yet")
    elif without_step:
        notes.append(f"{without_step} without a known step: see the table")
    layout["annotations"] = [
        {"text": escape(note), "xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom",
         "showarrow": False, "font": {"color": colours["dim"], "size": 11.5}, "name": "title"}
        for note in notes
    ]  # fmt: skip
    return to_json({"data": traces, "layout": layout})


def strip(
    checkpoints: Sequence[CheckpointReport], recommended: CheckpointReport | None, suspects: Mapping[str, int] = _NONE_SUSPECT
) -> list[dict[str, Any]]:
    """Cells for ``checkpoint_strip``: the newest 16 by step, oldest first; the recommended one is always among them.
    suspects: path -> onset of the incident that makes it suspect."""
    order = sorted(checkpoints, key=lambda one: (one.step if one.step is not None else -1, one.modified_at_ns or 0))
    shown = order[-STRIP_CELLS:]
    safe_path = recommended.path if recommended is not None else None
    if safe_path is not None and all(one.path != safe_path for one in shown):
        older = [one for one in order if one.path == safe_path]
        shown = [*older[:1], *shown[-(STRIP_CELLS - 1) :]] if older else shown
    return [_cell(one, suspects.get(one.path), is_recommended=one.path == safe_path) for one in shown]


def _cell(checkpoint: CheckpointReport, onset: int | None, *, is_recommended: bool) -> dict[str, Any]:
    onset = onset if checkpoint.state in _WHOLE else None
    role, glyph = LOOKS[checkpoint.state] if onset is None else SUSPECT_LOOK
    return {
        "path": checkpoint.path,
        "step": checkpoint.step,
        "label": f"{checkpoint.step:,}" if checkpoint.step is not None else "?",
        "state": checkpoint.state.value,
        "level": checkpoint.level.value if checkpoint.level is not None else None,
        "tone": role,
        "glyph": glyph,
        "is_strong": onset is None and checkpoint.state is CheckpointState.VERIFIED and checkpoint.level in _STRONG,
        "is_recommended": is_recommended,
        "title": describe(checkpoint, onset),
    }
