"""The checkpoint strip: the last checkpoints in order, the safe one named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._shared.components.assets import script, style

_mount = st.components.v2.component(
    "trainvitals_checkpoint_strip",
    html="<div class='tv-strip'></div>",
    css=style("strip.css"),
    js=script("strip.js"),
    isolate_styles=False,
)


def checkpoint_strip(
    cells: Sequence[Mapping[str, Any]], *, key: str, is_static: bool = False, words: Mapping[str, str] | None = None
) -> str | None:
    """Draw ``trainvitals.charts.checkpoints.strip(…)``; returns the path clicked, in the one run after the click.

    is_static: to look at only, no buttons. words: in place of the English ones: ``none``, ``safe``, ``recommended``.
    """
    data = {"cells": [dict(cell) for cell in cells], "is_static": is_static, "words": dict(words or {})}
    result = _mount(key=key, data=data, on_click_change=_nothing)
    clicked = result.get("click")
    return clicked if isinstance(clicked, str) and clicked else None


def _nothing() -> None:
    """Streamlit returns only the values that have a callback."""
