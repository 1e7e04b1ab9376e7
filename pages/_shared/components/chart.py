"""Curves that keep the viewer's zoom and hover over refreshes, which ``st.plotly_chart`` does not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages._shared.components.assets import plotly_url, script, style

_mount = st.components.v2.component(
    "trainvitals_live_chart",
    html="<div class='tv-chart'></div>",
    css=style("chart.css"),
    js=script("chart.js"),
    isolate_styles=False,
)


@dataclass(frozen=True)
class ChartEvents:
    """What the viewer did.

    range: (first, last) x on screen after a zoom, steps or UTC milliseconds as in the figure; None while following live.
    click: in the one run after a click on a marker: ``{"kind": "finding" | "checkpoint" | "annotation", "id": of the finding or event, or path,
    "metric": str, "x": float}``. live: nothing is zoomed, the chart follows the newest data.
    """

    range: tuple[float, float] | None
    click: dict[str, Any] | None
    live: bool


def live_chart(
    figure_json: str,
    *,
    key: str,
    height: int = 420,
    uirevision: str = "",
    label: str = "training curves",
    is_static: bool = False,
    offers_csv: bool = False,
) -> ChartEvents:
    """Draw a figure from ``trainvitals.charts``; an unchanged one is not drawn again.

    height: pixels. uirevision: replaces the figure's own when given; a new value forgets the viewer's zoom.
    label: what a screen reader says. Double click, the Live button or the key L go back to live. is_static: to look at only, no
    zoom, no clicks, no button. offers_csv: a button below saves the points on screen; the browser writes the file by itself.
    """
    held = st.session_state.get(key)
    result = _mount(
        key=key,
        data={
            "figure": figure_json,
            "hash": hashlib.blake2b(figure_json.encode(), digest_size=8).hexdigest(),
            "url": plotly_url(),
            "height": height,
            "uirevision": uirevision,
            "label": label,
            "is_static": is_static,
            "offers_csv": offers_csv,
            "range": _range(held.get("range")) if isinstance(held, Mapping) and not is_static else None,
        },
        on_range_change=_nothing,
        on_click_change=_nothing,
    )
    shown = _range(result.get("range"))
    click = result.get("click")
    return ChartEvents(range=shown, click=dict(click) if isinstance(click, Mapping) else None, live=shown is None)


def _nothing() -> None:
    """Streamlit returns only the values that have a callback."""


def _range(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(isinstance(part, (int, float)) for part in value):
        return None
    first, last = sorted(map(float, value))
    return (first, last) if first < last else None
