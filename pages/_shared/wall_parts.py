"""The parts of the wall. They draw; nothing here takes a click, opens a link or knows of actions."""

from pathlib import Path

import streamlit as st

from pages._shared.components import checkpoint_strip, kpi_row, live_chart, node_wall, verdict_band
from pages._shared.state import theme
from trainvitals.charts.palette import palette
from trainvitals.web import format as fmt
from trainvitals.web import wall_view
from trainvitals.web.poller import Poller
from trainvitals.web.view import CurveQuery, RunView, Snapshot
from trainvitals.web.wall_chart import figure_zh
from trainvitals.web.wall_words import NODE_STATES, STRIP, TEXTS

CHART_HEIGHT = 340
WINDOW_S = 30 * 60.0
METRICS = ("loss", "grad_norm", "throughput")
_CSS = Path(__file__).parent / "wall.css"
_FIGURE = "tv_wall_figure"


def style() -> None:
    """Our few rules, all of it our own text."""
    colours = palette(theme())
    roles = "".join(f"--tv-{role}:{colours[role]};" for role in ("line", "card", "ink", "dim", "warning_text"))
    st.html(f"<style>:root{{{roles}}}\n{_CSS.read_text(encoding='utf-8')}</style>")


def head(snapshot: Snapshot, run: RunView, now_ns: int, language: str) -> None:
    """Which run, what time it is there; why the page is old, when it is."""
    words = TEXTS[language]
    with st.container(key="tv-wall-head", horizontal=True, gap="small"):
        st.text(run.name)
        if run.attempt:
            st.text(words["attempt"].format(run.attempt.number))
        st.text(fmt.moment(now_ns, run.settings.log_timezone, now_ns=now_ns))
    if snapshot.error:
        age = wall_view.span((now_ns - snapshot.taken_at_ns) / 1e9, language)
        with st.container(key="tv-wall-trouble"):
            st.text(words["store_old"].format(age))


def verdict(snapshot: Snapshot, run: RunView, now_ns: int, refresh_s: float, language: str, shows: tuple[str, ...]) -> None:
    verdict_band(wall_view.band_view(snapshot, run, now_ns, refresh_s, language), key="tv_wall_band")
    kpi_row(wall_view.tile_views(snapshot, run, now_ns, language, shows), key="tv_wall_tiles")


def curves(poller: Poller, run: RunView, now_ns: int, language: str) -> None:
    words = TEXTS[language]
    with st.container(key="tv-wall-card-curves"):
        if run.last_step is None:
            st.text(words["waiting"])
            return
        query = CurveQuery(run.name, METRICS, by="time", theme=theme(), last_s=WINDOW_S, compact=True)
        result = poller.curves(query)
        if result is None or not result.figure_json:
            st.text(words["drawing"])
            return
        if result.error:
            with st.container(key="tv-wall-trouble-curves"):
                st.text(words["curve_old"].format(wall_view.span((now_ns - result.taken_at_ns) / 1e9, language)))
        live_chart(
            _in(language, result.figure_json, run),
            key="tv_wall_chart",
            height=CHART_HEIGHT,
            label=words["curves"],
            is_static=True,
        )


def _in(language: str, figure_json: str, run: RunView) -> str:
    """The figure in the language, translated once as long as it is the same one."""
    if language != "zh":
        return figure_json
    held = st.session_state.get(_FIGURE)
    if held is None or held[0] != figure_json:
        held = st.session_state[_FIGURE] = (figure_json, figure_zh(figure_json, run.findings))
    return str(held[1])


def checkpoints(run: RunView, language: str) -> None:
    words = TEXTS[language]
    with st.container(key="tv-wall-card-checkpoints"):
        with st.container(key="tv-wall-title-checkpoints"):
            st.text(words["checkpoints"].format(f"{len(run.checkpoints):,}"))
        if run.checkpoints:
            checkpoint_strip(wall_view.strip_cells(run, language), key="tv_wall_strip", is_static=True, words=STRIP[language])
        else:
            st.text(words["no_checkpoints"])


def nodes(snapshot: Snapshot, language: str) -> None:
    words = TEXTS[language]
    with st.container(key="tv-wall-card-nodes"):
        if not snapshot.nodes:
            st.text(words["no_nodes"])
            return
        how, payload = wall_view.nodes_view(snapshot, language)
        with st.container(key="tv-wall-title-nodes"):
            st.text(words["nodes"].format(how))
        node_wall(payload, key="tv_wall_nodes", compact=True, is_static=True, state_words=NODE_STATES[language])
