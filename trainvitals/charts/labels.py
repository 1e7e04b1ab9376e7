"""Which small labels fit on a line without touching: a pure greedy choice by importance.

The browser repeats the same choice with its real width after a zoom or a resize (the names of the annotations carry lane
and priority); here it is made for a typical width, so that the figure is right without a script, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHARACTER_PX = 6.2
GAP_PX = 8.0


@dataclass(frozen=True)
class Label:
    """text at x; lane "top" or "bottom"; priority: smaller is more important; anchor: the text's side that stands at x."""

    x: float
    text: str
    lane: str
    priority: int
    colour: str
    anchor: str = "left"


def fitting(labels: Sequence[Label], x_range: tuple[float, float], width_px: float, reserved_px: float = 70.0) -> list[bool]:
    """For each label whether it is shown; ``reserved_px`` at the left of the top lane belong to the row's title."""
    first, last = x_range
    taken: dict[str, list[tuple[float, float]]] = {"top": [(0.0, reserved_px)], "bottom": []}
    shown = [False] * len(labels)
    for index in sorted(range(len(labels)), key=lambda i: (labels[i].priority, -labels[i].x)):
        label = labels[index]
        at = (label.x - first) / ((last - first) or 1.0) * width_px
        size = len(label.text) * CHARACTER_PX
        start, end = (at - size, at) if label.anchor == "right" else (at, at + size)
        lane = taken.setdefault(label.lane, [])
        if start < 0 or end > width_px or any(start < e + GAP_PX and s - GAP_PX < end for s, e in lane):
            continue
        lane.append((start, end))
        shown[index] = True
    return shown
