"""Attempts as lines on the step axis, and arrows from the checkpoint to the start of the trainer that went on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainvitals.charts.checkpoints import Attempt
from trainvitals.charts.palette import with_alpha
from trainvitals.charts.text import escape
from trainvitals.records import CheckpointReport


class ResumedStart(Protocol):
    """What is needed of a start that went on from a checkpoint (``Start`` of the views has it)."""

    @property
    def attempt(self) -> int: ...
    @property
    def from_step(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...
    @property
    def path(self) -> str: ...
    @property
    def loss_before(self) -> float | None: ...
    @property
    def loss_after(self) -> float | None: ...
    @property
    def settings(self) -> str: ...


def attempt_lines(colours: Mapping[str, str], lanes: Sequence[int], attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """The steps of each attempt; faint from where a later one ran them again."""
    own: list[tuple[list[float | None], list[float | None]]] = [([], []), ([], [])]
    for attempt in attempts:
        last = getattr(attempt, "last_step", None)
        if attempt.number not in lanes or attempt.first_step is None or last is None:
            continue
        again = getattr(attempt, "superseded_from", None)
        y = lanes.index(attempt.number)
        end = last if again is None else min(again, last)
        for (x_values, y_values), (start, stop) in zip(own, ((attempt.first_step, end), (end, last)), strict=True):
            if stop > start:
                x_values += [start, stop, None]
                y_values += [y, y, None]
    styles = ((with_alpha(colours["dim"], 0.55), "solid"), (with_alpha(colours["dim"], 0.4), "dot"))
    return [
        {"type": "scatter", "mode": "lines", "x": x_values, "y": y_values, "hoverinfo": "skip", "meta": {"kind": "attempt"},
         "name": "steps", "line": {"color": colour, "width": 2, "dash": dash}}
        for (x_values, y_values), (colour, dash) in zip(own, styles, strict=True) if x_values
    ]  # fmt: skip


def start_marks(colours: Mapping[str, str], lanes: Sequence[int], starts: Sequence[ResumedStart]) -> list[dict[str, Any]]:
    """A mark where each begins, with its sentence; a click leads to the checkpoint it went on from."""
    shown = [one for one in starts if one.attempt in lanes]
    if not shown:
        return []
    return [{
        "type": "scatter", "mode": "markers", "x": [_first(one) for one in shown], "y": [lanes.index(one.attempt) for one in shown],
        "customdata": [one.path for one in shown], "meta": {"kind": "checkpoint", "metric": "start"}, "name": "start",
        "hovertext": [escape(start_sentence(one), 280) for one in shown], "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False, "marker": {"symbol": "triangle-right", "size": 11, "color": colours["ink"]},
    }]  # fmt: skip


def _first(start: ResumedStart) -> int:
    return start.first_step if start.first_step is not None else start.from_step


def start_sentence(start: ResumedStart) -> str:
    """``attempt 2 went on from step 1,200 · loss 2.10 → 2.11 · settings: as when it was saved``."""
    losses = f"loss {_loss(start.loss_before)} → {_loss(start.loss_after)}"
    return f"attempt {start.attempt} went on from step {start.from_step:,} · {losses} · settings {start.settings}"


def _loss(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


def start_arrows(
    colours: Mapping[str, str], lanes: Sequence[int], placed: Sequence[tuple[int, CheckpointReport]], starts: Sequence[ResumedStart]
) -> list[dict[str, Any]]:  # fmt: skip
    """From the checkpoint to the lane that went on from it."""
    arrows = []
    for start in starts:
        before = [
            lane for lane, one in placed if one.path == start.path and start.path and lane < start.attempt and lane in lanes
        ]
        older = [lane for lane in lanes if 0 < lane < start.attempt]
        source = before[-1] if before else older[-1] if older else None
        if source is None or start.attempt not in lanes:
            continue
        arrows.append(
            {
                "x": _first(start), "y": lanes.index(start.attempt) - 0.12, "ax": start.from_step, "ay": lanes.index(source) + 0.2,
                "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1,
                "arrowwidth": 1.5, "arrowcolor": colours["dim"], "name": "arrow", "opacity": 0.8,
            }
        )  # fmt: skip
    return arrows
