"""Overview: one screen that says how the run is, what broke, what to check first and which checkpoint is safe."""

import streamlit as st

from pages._shared.components import check_list, checkpoint_strip, kpi_row, live_chart, node_wall
from pages._shared.frame import head
from pages._shared.state import Look, look, refresh_s, the_poller, theme, waiting
from pages._shared.text import plain
from trainvitals.charts.checkpoints import strip
from trainvitals.charts.nodes import wall_payload
from trainvitals.web import format as fmt
from trainvitals.web.checkpoint_words import restart_note
from trainvitals.web.draw import window_title
from trainvitals.web.present import nodes_tile, nothing_to_check, tiles
from trainvitals.web.view import CurveQuery

CHART_HEIGHT = 372
#: Room that the choice of runs takes, where there is one.
SELECTOR_HEIGHT = 52
WINDOW_S = 30 * 60.0


@st.fragment(run_every=refresh_s())
def top() -> None:
    seen = head()
    if seen is not None:
        kpi_row(tiles(seen.snapshot, seen.run, seen.now_ns), key="tv_tiles")


def chart_height() -> int:
    """Pixels of the chart: the page fits one screen with and without a choice of runs."""
    return CHART_HEIGHT - (SELECTOR_HEIGHT if len(the_poller().settings.runs) > 1 else 0)


def chart(seen: Look) -> bool:
    """The curve of the last half hour; False when there is none to look at."""
    if seen.run.last_step is None:
        with st.container(key="tv-head-chart"):
            st.text("Curves")
        st.text(waiting(seen.run))
        return False
    with st.container(key="tv-head-chart"):
        title = window_title(seen.run, WINDOW_S, seen.now_ns)
        st.text(f"{title} · {fmt.zone_note(seen.zone, seen.now_ns)} · click a mark for its story, drag to zoom")
    query = CurveQuery(
        seen.run.name, ("loss", "grad_norm", "throughput"), by="time", theme=theme(), last_s=WINDOW_S, compact=True
    )
    result = the_poller().curves(query)
    if result is None:
        st.text("Drawing …")
        return True
    if result.error:
        age = f"The curve is {fmt.span((seen.now_ns - result.taken_at_ns) / 1e9)} old" if result.taken_at_ns else "No curve yet"
        # The head of the page says why already.
        st.text(f"⚠ {age}" + ("." if result.error == seen.snapshot.error else f": {result.error}"))
    if result.figure_json:
        events = live_chart(
            result.figure_json, key="tv_overview_chart", height=chart_height(), label="loss, grad norm and throughput"
        )
        if events.click and events.click.get("kind") == "finding":
            st.session_state["tv_finding"] = events.click.get("id")
            st.switch_page("curves.py", query_params={"run": seen.run.name})
    return bool(result.figure_json)


def incident_link(seen: Look) -> None:
    """The way to the incident that the verdict speaks of; how many more are open is said there, too."""
    open_ones = [one for one in seen.run.incidents if one.is_open]
    if not open_ones:
        return
    named = next((one for one in open_ones if one.id == seen.run.verdict.incident_id), open_ones[0])
    more = f" · {len(open_ones) - 1} more open" if len(open_ones) > 1 else ""
    st.page_link(
        "incidents.py", label=plain(f"Open the incident{more}"), icon=":material/arrow_forward:",
        query_params={"run": seen.run.name, "incident": named.id},
    )  # fmt: skip


def checks(seen: Look) -> None:
    with st.container(key="tv-head-checks", horizontal=True, vertical_alignment="center"):
        st.text("Check in this order" if seen.run.checks else "Checks")
        incident_link(seen)
    if seen.run.checks:
        check_list(seen.run.checks, key="tv_checks")
        return
    with st.container(key="tv-quiet"):
        st.text(nothing_to_check(seen.snapshot, seen.run, seen.now_ns))
        recent = seen.run.findings[:6]
        if recent:
            st.text("Latest marks:")
        for finding in recent:
            when = fmt.moment(finding.time_ns, seen.zone, now_ns=seen.now_ns)
            st.text(f"{when}\nstep {fmt.step(finding.first_step)} · {finding.message}"[:220])


@st.fragment(run_every=max(2.0, refresh_s()))
def middle() -> None:
    seen = look()
    if seen is None:
        return
    left, right = st.columns([2.7, 1])
    with left, st.container(key="tv-card-chart"):
        is_drawn = chart(seen)
    with right, st.container(key="tv-card-checks", height=chart_height() + 48 if is_drawn else "content", border=False):
        checks(seen)


@st.fragment(run_every=max(5.0, refresh_s()))
def bottom() -> None:
    seen = look()
    if seen is None:
        return
    left, right = st.columns(2)
    with left, st.container(key="tv-card-checkpoints"):
        # What a restart would do wrong takes the place of what is usual: the page still fits one screen.
        note = restart_note(seen.run)
        with st.container(key="tv-alarm-head-checkpoints" if note else "tv-head-checkpoints"):
            every = seen.run.settings.checkpoint_every_steps
            usual = f" · every {every:,} steps" if every else ""
            st.text(f"Checkpoints · {note}" if note else f"Checkpoints · {len(seen.run.checkpoints):,} seen{usual}")
        if seen.run.checkpoints:
            path = checkpoint_strip(strip(seen.run.checkpoints, seen.run.recommended, seen.run.suspects), key="tv_strip")
            if path:
                st.session_state["tv_checkpoint"] = path
                st.switch_page("checkpoints.py", query_params={"run": seen.run.name})
        else:
            st.text(
                "No checkpoint seen yet." if seen.run.settings.checkpoints else "No checkpoint directory is set for this run."
            )
    with right, st.container(key="tv-card-nodes"):
        tile = nodes_tile(seen.snapshot.nodes, seen.now_ns)
        with st.container(key="tv-head-nodes"):
            st.text(f"Nodes · {tile['value']} · {tile['context']}")
        if seen.snapshot.nodes:
            node = node_wall(wall_payload(seen.snapshot.nodes, seen.snapshot.gpus), key="tv_wall_small", height=64, compact=True)
            if node:
                st.session_state["tv_node"] = node
                st.switch_page("nodes.py", query_params={"run": seen.run.name})
        else:
            st.text("No collector reports node health here.")
    with st.container(key="tv-foot"):
        if seen.run.reading:
            st.text(seen.run.reading)
        st.text("Not watched: " + (" · ".join(seen.run.not_watched) if seen.run.not_watched else "nothing we know of") + ".")


top()
middle()
bottom()
