"""How long each save took, as bars on the step axis: until the training went on, until all was copied, until all was on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from trainvitals.charts.layout import row_title
from trainvitals.charts.palette import with_alpha
from trainvitals.charts.text import escape
from trainvitals.incidents.amounts import span
from trainvitals.incidents.saves import SaveTime

#: (attribute of a save, what it says, role of its colour, alpha), the longest first: each is drawn over the one before.
SEGMENTS: tuple[tuple[str, str, str, float], ...] = (
    ("persisted_s", "on disk", "faint", 0.55),
    ("staged_s", "copied", "info", 0.75),
    ("blocked_s", "training waits", "warning", 1.0),
)


def save_bars(colours: Mapping[str, str], saves: Sequence[SaveTime], x_range: tuple[float, float]) -> list[dict[str, Any]]:
    """Bars on the axis ``y2``, the longest first, each drawn over the one before."""
    if not saves:
        return []
    steps = sorted({save.step for save in saves})
    gaps = [later - one for one, later in pairwise(steps)]
    width = max(0.45 * median(gaps) if gaps else 0.0, (x_range[1] - x_range[0]) / 400)
    width = min(width, (x_range[1] - x_range[0]) / 30)
    hover = [escape(save_sentence(save), 280) for save in saves]
    traces = []
    for attribute, name, role, alpha in SEGMENTS:
        values = [getattr(save, attribute) for save in saves]
        if all(value is None for value in values):
            continue
        traces.append({
            "type": "bar", "x": [save.step for save in saves], "y": values, "width": width, "yaxis": "y2", "name": name,
            "meta": {"kind": "save", "metric": attribute}, "hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"color": with_alpha(colours[role], alpha), "line": {"width": 0}},
        })  # fmt: skip
    return traces


def save_sentence(save: SaveTime) -> str:
    """``step 500, attempt 1: the training waited 0.4 s, copied after 2 s, on disk after 48 s (in the background)``."""
    parts = [f"the training waited {span(save.blocked_s)}" if save.blocked_s is not None else ""]
    if save.staged_s is not None and save.staged_s != save.blocked_s:
        parts.append(f"copied after {span(save.staged_s)}")
    if save.persisted_s is not None:
        parts.append(f"on disk after {span(save.persisted_s)}")
    kind = {True: " (in the background)", False: " (synchronous)", None: ""}[save.is_async]
    source = "" if save.is_from_hook else ", as its log tells"
    failed = f"; {save.problem}" if save.problem else ""
    return f"step {save.step:,}, attempt {save.attempt}: {', '.join(part for part in parts if part)}{kind}{source}{failed}"


def save_legend(colours: Mapping[str, str], saves: Sequence[SaveTime], layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The row's name and what its colours say; colours and words of our own only."""
    if not saves:
        return []
    told = [one for one in reversed(SEGMENTS) if any(getattr(save, one[0]) is not None for save in saves)]
    legend = "".join(f'  <span style="color:{with_alpha(colours[role], alpha)}">■</span> {name}' for _, name, role, alpha in told)
    return [row_title(colours, "Save time", layout["yaxis2"]["domain"][1], has_data=True, more=legend)]
