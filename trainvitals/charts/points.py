"""Losses on held-out data → points of the loss row, and the traces that draw them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trainvitals.charts.axis import StepTimes
from trainvitals.charts.palette import with_alpha
from trainvitals.charts.text import escape, template_text
from trainvitals.charts.typed import single, typed
from trainvitals.records import Severity

if TYPE_CHECKING:
    from trainvitals.charts.curves import By, CurveMarker, CurvePoints

NAME = "validation loss"
COLOUR = "validation"
#: More points than this are drawn small.
MANY = 120


class Validation(Protocol):
    """What is needed of a validation (``web.view.Validation`` has it)."""

    @property
    def time_ns(self) -> int: ...
    @property
    def step(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def value(self) -> float: ...
    @property
    def name(self) -> str: ...


def validation_points(
    validations: Sequence[Validation], restarts: Mapping[int, float], axis: By, times: StepTimes
) -> tuple[list[CurvePoints], list[CurveMarker]]:
    """(points of each attempt and data set, marks of those that are not finite). restarts: attempt -> first step run again later."""
    from trainvitals.charts.curves import CurveMarker, CurvePoints

    groups: dict[tuple[str, int, bool], list[tuple[float, float, int | None]]] = {}
    markers = []
    for one in validations:
        x = times.x(axis, one.step, one.time_ns, one.attempt)
        if x is None:
            continue
        name = f"{NAME} ({one.name})" if one.name else NAME
        if np.isfinite(one.value):
            is_superseded = one.step is not None and one.step >= restarts.get(one.attempt, np.inf)
            groups.setdefault((name, one.attempt, is_superseded), []).append((x, one.value, one.step))
            continue
        at = f"at step {one.step:,}, " if one.step is not None else ""
        markers.append(
            CurveMarker("loss", x, None, "nonfinite", Severity.WARNING, f"{name} is not a finite number",
                        f"{at}attempt {one.attempt}", "", one.step)
        )  # fmt: skip
    points = []
    for (name, attempt, is_superseded), found in sorted(groups.items()):
        found.sort(key=lambda point: point[0])
        xs, ys = np.array([p[0] for p in found], np.float64), single([p[1] for p in found])
        points.append(CurvePoints("loss", name, attempt, is_superseded, xs, ys, tuple(p[2] for p in found)))
    return points, markers


def points_trace(points: CurvePoints, axis: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """Diamonds on the row's own axis; those of steps that were run again later are faint."""
    again = f" · attempt {points.attempt}, run again later" if points.is_superseded else ""
    where = [f" · step {step:,}" if step is not None else "" for step in points.steps]
    return {
        "type": "scatter", "mode": "markers", "xaxis": "x", "yaxis": axis, "cliponaxis": False,
        "x": typed(points.x), "y": typed(points.y), "name": escape(points.name + again), "customdata": where,
        "meta": {"kind": "validation", "metric": points.metric, "attempt": points.attempt},
        "marker": {
            "symbol": "diamond", "size": 5 if len(points.x) > MANY else 7,
            "color": with_alpha(colours["faint"], 0.6) if points.is_superseded else colours[COLOUR],
            "line": {"width": 1, "color": colours["card"]},
        },
        "hovertemplate": f"%{{y:.5~g}}%{{customdata}}<extra>{template_text(points.name + again)}</extra>",
    }  # fmt: skip


def legend(points: Sequence[CurvePoints], colours: Mapping[str, str]) -> str:
    """What the points are, beside the title of their row; Plotly's own small markup, our own words."""
    return f'  <span style="color:{colours[COLOUR]}">◆</span> {NAME}' if points else ""
