"""Curves: every metric by step or by time; drag to zoom asks for that window in full resolution."""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from pages._shared.components import fact_list, live_chart
from pages._shared.frame import head_fragment
from pages._shared.notes import add_note, sent_note
from pages._shared.state import Look, look, refresh_s, the_poller, theme, waiting
from pages._shared.story import tell_finding, tell_note
from pages._shared.text import plain
from trainvitals.charts.checkpoints import describe
from trainvitals.charts.legend import MARKS
from trainvitals.web import format as fmt
from trainvitals.web import window
from trainvitals.web.view import CurveQuery, RunView

CHART_HEIGHT = 600
ROWS = ("loss", "grad_norm", "throughput", "lr", "gpu_utilization")
SHOWN_BY_CHOICE = ("mfu", "loss_scale", "skipped", "loss_rank_min", "loss_rank_max", "loss_rank_std", "samples", "tokens")
MORE_KEY = "tv_more"


def forget_window() -> None:
    """Back to the live range: the address no longer names a window."""
    for name in ("from", "to", "attempt"):
        if name in st.query_params:
            del st.query_params[name]
    st.session_state.pop("tv_zoomed", None)
    st.session_state["tv_chart_turn"] = st.session_state.get("tv_chart_turn", 0) + 1


def asked_window(by: str) -> tuple[int | None, int | None] | None:
    """The window that the address names, for this axis."""
    if st.query_params.get("by", "step") != by:
        return None
    return window.read(by, st.query_params.get("from"), st.query_params.get("to"))


def asked_attempt(run: RunView) -> int | None:
    """The start up to which the address asks for the curves; None where no later one is."""
    asked = window.attempt(st.query_params.get("attempt"))
    return asked if asked is not None and run.later_than(asked) else None


def offered(run: RunView) -> list[str]:
    """Rows to choose from: what this run logs, and what is chosen already."""
    known = [name for name in SHOWN_BY_CHOICE if name in run.metrics]
    chosen = [str(name) for name in st.session_state.get(MORE_KEY) or ()]
    return list(dict.fromkeys([*known, *run.extra_metrics, *chosen]))


@dataclass(frozen=True)
class Choice:
    """What is chosen above the chart."""

    by: str
    span: str
    rows: tuple[str, ...]
    log_loss: bool
    smooth: bool


def controls(run: RunView) -> Choice:
    """Axis, range, how the lines are drawn, and which rows; the address keeps all of it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        by_in_address = "time" if st.query_params.get("by") == "time" else "step"
        by = st.segmented_control(
            "Axis", ["step", "time"], default=by_in_address, key="tv_by", required=True, on_change=forget_window,
            format_func=lambda axis: f"by {axis}", label_visibility="collapsed",
        )  # fmt: skip
        span = st.segmented_control(
            "Range",
            list(window.RANGES),
            default="run",
            key="tv_range",
            required=True,
            on_change=forget_window,
            label_visibility="collapsed",
        )
        log_loss = st.toggle(
            "log loss",
            value=st.query_params.get("log") == "1",
            key="tv_log_loss",
            help="The loss on a logarithmic axis, where all of it is above zero",
        )
        smooth = st.toggle(
            "smooth",
            value=st.query_params.get("smooth") == "1",
            key="tv_smooth",
            help="The running median over each line; the line itself stays, faint",
        )
    st.session_state.setdefault(MORE_KEY, asked_rows(run))
    names = offered(run)
    more = (
        st.pills(
            "More rows", names, selection_mode="multi", key=MORE_KEY, label_visibility="collapsed",
            format_func=lambda name: plain(name.replace("_", " ")),
        )
        if names
        else []
    )  # fmt: skip
    chosen = Choice(by or "step", span or "run", (*ROWS, *(more or ())), log_loss, smooth)
    keep_in_address({"log": "1" if log_loss else "", "smooth": "1" if smooth else "", "rows": ",".join(more or ())})
    return chosen


def asked_rows(run: RunView) -> list[str]:
    """Further rows that the address names, as far as this run logs them."""
    known = {*SHOWN_BY_CHOICE, *run.extra_metrics}
    return [name for name in dict.fromkeys(st.query_params.get("rows", "")[:2000].split(",")) if name in known]


def keep_in_address(choices: Mapping[str, str]) -> None:
    """Whoever gets the address sees the same; what is as usual is left out of it."""
    for name, value in choices.items():
        if value and st.query_params.get(name) != value:
            st.query_params[name] = value
        elif not value and name in st.query_params:
            del st.query_params[name]


def tools(seen: Look) -> None:
    """Beside the chart: note something, read what the marks mean."""
    add_note(seen, seen.run.last_step)
    with st.popover("Marks"):
        fact_list(MARKS, key="tv_marks")


def chart(seen: Look) -> None:
    if seen.run.last_step is None:
        st.text(waiting(seen.run))
        return
    choice = controls(seen.run)
    by, span = choice.by, choice.span
    turn = st.session_state.get("tv_chart_turn", 0)
    linked = asked_window(by)
    zoomed = st.session_state.get("tv_zoomed")
    start, end = zoomed or linked or (None, None)
    last_s = window.RANGES[span] if start is None and end is None else 0.0
    until = asked_attempt(seen.run) if last_s <= 0 else None
    query = CurveQuery(
        seen.run.name, choice.rows, by=by, start=start, end=end, theme=theme(), last_s=last_s, until_attempt=until,
        log_loss=choice.log_loss, smooth=choice.smooth,
    )  # fmt: skip
    result = the_poller().curves(query)
    key = f"tv_curves_{turn}"
    uirevision = f"{seen.run.name}/{by}/{span}/{turn}"
    if result is None or (not result.figure_json and not result.error):
        # Another window is being drawn: the one before stays on screen until it is there.
        held_run, held = st.session_state.get("tv_last_figure", ("", ""))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text("Drawing …")
            tools(seen)
        sent_note(seen)
        if held and held_run == seen.run.name:
            live_chart(held, key=key, height=CHART_HEIGHT, uirevision=uirevision, offers_csv=True)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if start is not None or end is not None:
            later = f" As seen in attempt {until}: what later starts made is left out." if until is not None else ""
            st.text(f"{window_text(by, start, end, seen)}{later}")
            if zoomed is None:  # a zoomed chart brings its own button
                st.button("Leave this window", key="tv_live", on_click=forget_window)
        elif not result.error:
            note = f" {fmt.zone_note(seen.zone, seen.now_ns).capitalize().replace('utc', 'UTC')}." if by == "time" else ""
            st.text(f"Live.{note} Drag to zoom; click a mark for its story.")
        if result.error:
            old = f"{fmt.span((seen.now_ns - result.taken_at_ns) / 1e9)} old" if result.taken_at_ns else "missing"
            # The head of the page says why already.
            st.text(f"⚠ This curve is {old}" + ("." if result.error == seen.snapshot.error else f": {result.error}"))
        tools(seen)
    sent_note(seen)
    if not result.figure_json:
        return
    st.session_state["tv_last_figure"] = (seen.run.name, result.figure_json)
    events = live_chart(result.figure_json, key=key, height=CHART_HEIGHT, uirevision=uirevision, offers_csv=True)
    follow(events.range, by)
    if events.click:
        st.session_state["tv_picked"] = (str(events.click.get("kind", "")), str(events.click.get("id", "")))


def follow(shown: tuple[float, float] | None, by: str) -> None:
    """Take over what the viewer zoomed to: into the address, and into the next query."""
    zoomed = window.from_chart(by, shown) if shown is not None else None
    if zoomed == st.session_state.get("tv_zoomed"):
        return
    if zoomed is None:
        forget_window()
    else:
        st.session_state["tv_zoomed"] = zoomed
        for name, value in window.write(by, *zoomed).items():
            st.query_params[name] = value
    st.rerun(scope="fragment")


def window_text(by: str, start: int | None, end: int | None, seen: Look) -> str:
    """The window in words."""
    if by == "step":
        return f"Steps {fmt.step(start) if start is not None else 'first'} to {fmt.step(end) if end is not None else 'now'}."
    first = fmt.moment(start, seen.zone, now_ns=seen.now_ns) if start is not None else "the beginning"
    return f"{first} to {fmt.moment(end, seen.zone, now_ns=seen.now_ns) if end is not None else 'now'}."


def story(seen: Look) -> None:
    """What the viewer clicked on."""
    kind, identifier = st.session_state.get("tv_picked", ("", ""))
    if asked := st.session_state.pop("tv_finding", None):
        kind, identifier = st.session_state["tv_picked"] = ("finding", str(asked))
    if kind == "finding":
        finding = next((finding for finding in seen.run.findings if finding.id == identifier), None)
        if finding is not None:
            with st.container(key="tv-card-story"):
                tell_finding(finding, seen)
    elif kind == "annotation":
        note = next((event for event in seen.run.events if event.kind == kind and event.id == identifier), None)
        if note is not None:
            with st.container(key="tv-card-story"):
                tell_note(note, seen)
    elif kind == "checkpoint":
        checkpoint = next((report for report in seen.run.checkpoints if report.path == identifier), None)
        if checkpoint is not None:
            with st.container(key="tv-card-story"):
                st.text(f"Checkpoint: {describe(checkpoint)}")
                st.code(checkpoint.path, language=None, wrap_lines=True)


def body() -> None:
    seen = look()
    if seen is not None:
        chart(seen)
        story(seen)


head_fragment()
st.fragment(body, run_every=max(2.0, refresh_s()))()
