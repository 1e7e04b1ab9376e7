"""A curve as inline SVG, for a page that stands alone: no script, no library, nothing loaded. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 6, 6, 24, 26
_SMALL = 1e-290
#: Columns that are drawn: of more points each column shows its lowest and highest.
COLUMNS = 360
#: A size that is noise around a level as long as all is well: drawn from zero, or its noise fills the picture as a fault does.
FROM_ZERO = frozenset({"grad_norm"})


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (step, value), by step; a value that is no finite number is no point, its step stands in ``bad_steps``."""

    name: str
    points: tuple[tuple[int, float], ...]
    bad_steps: tuple[int, ...] = ()


def svg(curve: Curve, first_step: int | None, last_step: int | None) -> str:
    """One chart; "" without points. first_step, last_step: of the incident, shaded; None = not known, or still going on."""
    points = [(step, value) for step, value in curve.points if math.isfinite(value)]
    if not points:
        return ""
    steps = [step for step, _ in points] + list(curve.bad_steps)
    low_step, high_step = min(steps), max(steps)
    low, high = _range([value for _, value in points], from_zero=curve.name in FROM_ZERO)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(step: float) -> float:
        return _LEFT + width * (step - low_step) / max(1, high_step - low_step)

    def y(value: float) -> float:
        # Halved first: the difference of two extreme numbers is no number.
        return _TOP + height * (1 - (value / 2 - low / 2) / (high / 2 - low / 2))

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="curve of {_name(curve.name)}">']
    if first_step is not None and first_step <= high_step:
        begin = x(max(first_step, low_step))
        end = x(min(last_step, high_step)) if last_step is not None and last_step >= low_step else x(high_step)
        parts.append(f'<rect class="span" x="{begin:.1f}" y="{_TOP}" width="{max(1.5, end - begin):.1f}" height="{height}"/>')
    levels = (low, (low / 2 + high / 2), high)
    parts += [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>' for value in levels
    ]
    parts.append(f'<text x="{_LEFT}" y="{HEIGHT - 8}">step {low_step:,}</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{high_step:,}</text>')
    parts.append(f'<polyline class="line" points="{" ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in _thinned(points))}"/>')
    parts += [
        f'<line class="bad" x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{_TOP}" y2="{_TOP + 8}"/>'
        for step in _spread(curve.bad_steps, low_step, high_step)
    ]
    # After the curve and with a rim of the paper's colour, so that a label on the curve can be read.
    parts += [f'<text x="{_LEFT}" y="{y(value) - 4:.1f}">{_number(value)}</text>' for value in levels]
    parts.append("</svg>")
    return "".join(parts)


def _range(values: Sequence[float], *, from_zero: bool = False) -> tuple[float, float]:
    low, high = min(values), max(values)
    low = min(0.0, low) if from_zero else low
    if low / 2 == high / 2:  # also of two numbers so small that half of them is nothing
        pad = abs(low) * 0.05 if abs(low) > _SMALL else 1.0
        return max(low - pad, -sys.float_info.max), min(high + pad, sys.float_info.max)
    return low, high


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Of each column the lowest and the highest, in their order."""
    if len(points) <= 2 * COLUMNS:
        return list(points)
    kept: list[tuple[int, float]] = []
    size = -(-len(points) // COLUMNS)
    for begin in range(0, len(points), size):
        column = points[begin : begin + size]
        ends = {min(column, key=lambda point: point[1]), max(column, key=lambda point: point[1])}
        kept += sorted(ends)
    return kept


def _spread(steps: Sequence[int], low: int, high: int) -> list[int]:
    """At most one mark a column."""
    return sorted({low + round((step - low) * COLUMNS / max(1, high - low)) * max(1, high - low) // COLUMNS for step in steps})


def _number(value: float) -> str:
    """As the dashboard writes it: 10,030 and not 1e+04, where that is short."""
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e9 else f"{value:.3g}"


def _name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_ ") else "?" for c in text)[:64]
