"""Records as a table whose text wraps, can be copied and is read on a phone: what ``st.dataframe`` paints on a canvas can do none of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import streamlit as st

from pages._shared.components.assets import script, style

_mount = st.components.v2.component(
    "trainvitals_records",
    html="<div class='tv-records'></div>",
    css=style("records.css"),
    js=script("records.js"),
    isolate_styles=False,
)
#: More records than this are not put into a page.
MOST = 300


@dataclass(frozen=True)
class Column:
    """label: its head, unlike the others'. kind: "lead" (what the record is about, as a sentence; large on a phone), "name" (the same,
    as a word or a number), "text" (wraps), "short" (stays on one line), "number" (to the right)."""

    label: str
    kind: Literal["lead", "name", "text", "short", "number"] = "text"


@dataclass(frozen=True)
class Record:
    """id: unlike the others'. cells: one a column. tone: "", "critical", "warning" (the first cell), "faint" (all of it)."""

    id: str
    cells: tuple[str, ...]
    tone: str = ""


def record_table(
    columns: Sequence[Column],
    records: Sequence[Record],
    *,
    key: str,
    label: str,
    max_height: int | None = None,
    picked: str = "",
    on_pick: Callable[[str], None] | None = None,
) -> None:
    """Draw the first ``MOST`` records given.

    label: what a screen reader says. max_height: pixels, beyond which it scrolls. picked: id of the record that is looked at.
    on_pick: called with the id of a record that is clicked, before anything is run again; None = none can be.
    """
    shown = records[:MOST]

    def clicked() -> None:
        chosen = st.session_state[key].get("pick")
        if on_pick is not None and isinstance(chosen, str) and chosen:
            on_pick(chosen)

    _mount(
        key=key,
        data={
            "columns": [asdict(column) for column in columns],
            "rows": [{"id": one.id, "cells": list(one.cells), "tone": one.tone} for one in shown],
            "label": label,
            "max_height": max_height,
            "can_pick": on_pick is not None,
            "picked": picked,
        },
        on_pick_change=clicked,
    )
    if len(records) > len(shown):
        st.text(f"{len(records) - len(shown):,} more are not shown.")
