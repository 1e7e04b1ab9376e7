"""The node wall: one tile a node on a canvas, pale where all is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._shared.components.assets import script, style

_mount = st.components.v2.component(
    "trainvitals_node_wall",
    html="<div class='tv-wall'></div>",
    css=style("wall.css"),
    js=script("wall.js"),
    isolate_styles=False,
)


def node_wall(
    payload: Mapping[str, Any],
    *,
    key: str,
    height: int | None = None,
    compact: bool = False,
    is_static: bool = False,
    state_words: Mapping[str, str] | None = None,
) -> str | None:
    """Draw ``trainvitals.charts.nodes.wall_payload(…)``; returns the name of the node picked, in the one run after the pick.

    height: pixels at most (None = as many as needed). compact: a strip without labels and legend, for the overview.
    is_static: to look at only, with a legend and without a button. state_words: state, or ``simulated``, in another language than
    English. Names travel only while the browser does not have them.
    """
    state = st.session_state.get(key)
    held = state.get("names") if isinstance(state, Mapping) else None
    words = {"states": dict(state_words or {})}
    data = {**payload, "max_height": height, "compact": compact, "is_static": is_static, "words": words}
    if held == payload.get("names_hash"):
        data.pop("names", None)
        data.pop("groups", None)
    result = _mount(key=key, data=data, on_names_change=_nothing, on_pick_change=_nothing)
    picked = result.get("pick")
    return picked if isinstance(picked, str) and picked else None


def _nothing() -> None:
    """Streamlit returns only the values that have a callback."""
