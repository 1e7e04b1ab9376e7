"""What stands on top of every page: run, liveness, time, and why the data are old when they are."""

from pathlib import Path

import streamlit as st

from pages._shared.components import verdict_band
from pages._shared.incident_people import act_in_band, with_people
from pages._shared.runs import visible_runs
from pages._shared.state import RUN_KEY, Look, alerts_now, look, refresh_s, the_poller, theme
from trainvitals.charts.palette import palette
from trainvitals.web import format as fmt
from trainvitals.web.present import band, run_label
from trainvitals.web.stale import data_age_s

_SWITCHED = "tv_run_switched"
_CSS = Path(__file__).parent / "style.css"


def style() -> None:
    """Our few rules on top of Streamlit's theme; all of it our own text."""
    colours = "".join(
        f"--tv-{role}:{palette(theme())[role]};" for role in ("line", "card", "ink", "dim", "warning_text", "critical_text")
    )
    st.html(f"<style>:root{{{colours}}}\n{_CSS.read_text(encoding='utf-8')}</style>")


def _switch_run() -> None:
    chosen = st.session_state.get("tv_run_select")
    if chosen:
        st.session_state[RUN_KEY] = chosen
        st.session_state[_SWITCHED] = True
        st.query_params.from_dict({"run": chosen})


def run_selector(current: str) -> None:
    """A select box with each run's state when there is more than one run to choose from."""
    if len(visible_runs()) > 1:
        st.session_state[RUN_KEY] = current
        st.fragment(_selector, run_every=max(3.0, refresh_s()))()


def _selector() -> None:
    if st.session_state.pop(_SWITCHED, False):
        st.rerun()  # the whole page is another run's
    held = the_poller()
    # A link may have changed the run since the box was touched: it says what the page shows.
    st.session_state["tv_run_select"] = st.session_state[RUN_KEY]
    snapshot, now_ns = held.snapshot(), held.now_ns()
    st.selectbox(
        "Run", visible_runs(), key="tv_run_select", on_change=_switch_run, label_visibility="collapsed", width=420,
        format_func=lambda name: run_label(snapshot, name, now_ns),
    )  # fmt: skip


def bar(seen: Look) -> None:
    """One line: which run, how live, what time it is there."""
    with st.container(key="tv-bar", horizontal=True, gap="medium"):
        st.text(seen.run.name)
        parts = []
        if seen.run.attempt:
            parts.append(f"attempt {seen.run.attempt.number}")
        if seen.run.settings.gpus:
            parts.append(f"{seen.run.settings.gpus:,} GPU{'s' if seen.run.settings.gpus > 1 else ''}")
        age_s = data_age_s(seen.run, seen.now_ns)
        is_live = age_s is not None and age_s <= 30 and not seen.snapshot.error
        parts.append("● live" if is_live else "○ not live")
        is_held = seen.run.breaker_hold and seen.run.settings.breaker == "armed"
        parts.append(f"breaker {seen.run.settings.breaker}" + (", held now" if is_held else ""))
        parts.append(f"control {seen.run.control.state.replace('_', ' ')}")
        st.text("   ·   ".join(parts))
        st.text(fmt.moment(seen.now_ns, seen.zone, now_ns=seen.now_ns))


def trouble(seen: Look) -> None:
    """Why the page is older than it should be; nothing when it is not."""
    if not seen.snapshot.error:
        return
    since = fmt.moment(seen.snapshot.error_since_ns, seen.zone, now_ns=seen.now_ns)
    age_s = (seen.now_ns - seen.snapshot.taken_at_ns) / 1e9
    with st.container(key="tv-trouble"):
        st.text(
            f"⚠ {seen.snapshot.error} Since {since}. What you see is {fmt.span(age_s)} old; it goes on by itself when the store answers."
        )


def nobody_paged() -> None:
    """In red, on every page, while a critical incident would reach nobody; nothing when it would."""
    sentence = alerts_now().banner
    if sentence:
        with st.container(key="tv-nobody-paged"):
            st.text(f"⚠ {sentence}")


def head(*, offers_acknowledge: bool = True) -> Look | None:
    """Bar, trouble and verdict band, for the top of every page's first fragment; None before the first snapshot.
    offers_acknowledge: False where the incident stands on the page with a button of its own."""
    seen = look(speaks=True)
    if seen is None:
        return None
    bar(seen)
    nobody_paged()
    trouble(seen)
    shown = band(seen.snapshot, seen.run, seen.now_ns, refresh_s())
    verdict_band(with_people(shown, seen, offers_acknowledge=offers_acknowledge), key="tv_band", on_action=act_in_band)
    return seen


def head_fragment(*, offers_acknowledge: bool = True) -> None:
    """The head alone, for pages whose other parts refresh at their own pace."""
    st.fragment(head, run_every=refresh_s())(offers_acknowledge=offers_acknowledge)
