"""Which runs somebody may see, and which of them the page shows. The address carries the run."""

import time

import streamlit as st

from pages._shared.state import RUN_KEY, the_poller
from pages._shared.who import identity
from trainvitals.web.present import most_urgent
from trainvitals.web.roles import may_look

FIRST_LOOK_S = 3.0


def visible_runs() -> list[str]:
    """Names of the runs that this visitor may see, in the order of the settings."""
    settings = the_poller().settings
    return [run.name for run in settings.runs if may_look(settings, run.name, identity())]


def choose_run() -> str:
    """Name of the run that the address names, else this visit's, else the one that must be acted upon first; kept in the address."""
    names = visible_runs()
    if not names and the_poller().settings.runs:
        st.text("You may see none of the runs here: the tables [access.runs] of the settings name who may.")
        st.stop()
    if not names:
        st.text("No run in the settings yet. Add a [[runs]] table to trainvitals.toml, or try: python -m trainvitals demo")
        st.stop()
    asked = st.query_params.get("run")
    chosen = asked if asked in names else st.session_state.get(RUN_KEY)
    chosen = chosen if chosen in names else _first(names)
    if asked is not None and asked not in names:
        st.text(f"This dashboard knows no run {asked[:200]!r}; it shows {chosen!r} instead.")
    st.session_state[RUN_KEY] = chosen
    if asked != chosen:
        st.query_params["run"] = chosen
    return chosen


def _first(names: list[str]) -> str:
    """Without a wish. A dashboard that has just been started is given a moment to read how the runs are."""
    held = the_poller()
    until_s = time.monotonic() + FIRST_LOOK_S
    while len(names) > 1 and not held.snapshot().runs and not held.snapshot().error and time.monotonic() < until_s:
        time.sleep(0.1)
    return most_urgent(held.snapshot(), names, held.now_ns())
