"""Verdict band, numbers and checks: small panels whose text may come from outside and is therefore always set as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import streamlit as st

from pages._shared.components.assets import script, style

_css = style("panels.css")
_band = st.components.v2.component(
    "trainvitals_verdict_band",
    html="<div class='tv-band'></div>",
    css=_css,
    js=script("alive.js", "band.js"),
    isolate_styles=False,
)
_kpi = st.components.v2.component(
    "trainvitals_kpi_row", html="<div class='tv-kpi'></div>", css=_css, js=script("kpi.js"), isolate_styles=False
)
_checks = st.components.v2.component(
    "trainvitals_check_list", html="<ul class='tv-checks'></ul>", css=_css, js=script("checks.js"), isolate_styles=False
)

_facts = st.components.v2.component(
    "trainvitals_fact_list", html="<div class='tv-facts-list'></div>", css=_css, js=script("facts.js"), isolate_styles=False
)

_judgements = st.components.v2.component(
    "trainvitals_judgements", html="<ul class='tv-judgements'></ul>", css=_css, js=script("judgements.js"), isolate_styles=False
)


def verdict_band(view: Mapping[str, Any], *, key: str, on_action: Callable[[str], None] | None = None) -> None:
    """The one verdict at the top. on_action: called with the id of the action clicked, before anything is run again.

    view: ``word`` ("TRAINING-SICK"), ``tone`` (critical, warning, paused, info, ok), ``headline``, ``automatic`` (what was
    done by itself), ``decision`` (what is yours), ``facts`` (short texts, e.g. "step 48,310"), ``since`` ("02:11"),
    ``data_age_s`` (age of the newest data now, None = never any; the browser counts on by itself), ``stale_after_s``
    (default 30), ``refresh_s`` (default 2; no refresh for long is said, too), ``actions`` (each ``id``, ``label``,
    optional ``is_primary``, ``is_disabled``, ``help``; only the first primary one gets the accent), ``is_thin``
    (default: tone ok or info, no decision and no action), ``tab`` (what the browser's tab says),
    ``is_foldable`` (a headline of many lines is cut, with a button that opens it; default: it stands whole). All but ``word`` and ``tone`` are optional.
    """

    def clicked() -> None:
        action = st.session_state[key].get("action")
        if on_action is not None and isinstance(action, str) and action:
            on_action(action)

    _band(key=key, data=dict(view), on_action_change=clicked)


def kpi_row(tiles: Sequence[Mapping[str, Any]], *, key: str) -> None:
    """Numbers, each against what is usual. A tile: ``label``, ``value``, ``context`` ("usual 2.31"), ``tone`` ("" or
    critical, warning, paused, ok, info) with ``glyph`` for it (default "!" for critical and warning), ``help``."""
    _kpi(key=key, data={"tiles": [dict(tile) for tile in tiles]})


def check_list(checks: Sequence[Any], *, key: str) -> None:
    """Checks in order: mappings or ``Check`` records with ``layer``, ``mark`` ("!", "–", "?"), ``title``, ``evidence``."""
    rows = [asdict(check) if is_dataclass(check) and not isinstance(check, type) else dict(check) for check in checks]
    _checks(key=key, data={"checks": rows})


def fact_list(lines: Sequence[Any], *, key: str) -> None:
    """Named facts below each other: mappings or ``Line`` records with ``label``, ``value``, ``full`` (opened on demand),
    ``is_verbatim`` (text of a log, in type of one width), ``tone`` ("", critical, warning)."""
    rows = [asdict(line) if is_dataclass(line) and not isinstance(line, type) else dict(line) for line in lines]
    _facts(key=key, data={"lines": rows})


def judgement_list(rows: Sequence[Any], *, key: str) -> None:
    """Points with a verdict each: mappings or ``CardRow`` records with ``key`` (unlike each other), ``title``, ``judgement`` ("good",
    "look", "bad", "unknown"), ``value``, ``why``."""
    shown = [asdict(row) if is_dataclass(row) and not isinstance(row, type) else dict(row) for row in rows]
    _judgements(key=key, data={"rows": shown})


def _nothing() -> None:
    """Streamlit returns only the values that have a callback."""
