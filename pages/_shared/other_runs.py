"""What another run needs, on every page: one page shows one run, and somebody woken looks at the wrong one first."""

import streamlit as st

from pages._shared.runs import visible_runs
from pages._shared.state import RUN_KEY, refresh_s, the_poller
from pages._shared.text import plain
from trainvitals.web.present import elsewhere

LONGEST = 160


def other_runs() -> None:
    """A link to each other run that somebody must act upon now; nothing while there is none."""
    st.fragment(_links, run_every=max(3.0, refresh_s()))()


def _links() -> None:
    held = the_poller()
    found = elsewhere(held.snapshot(), visible_runs(), str(st.session_state.get(RUN_KEY, "")), held.now_ns())
    if not found:
        return
    with st.container(key="tv-elsewhere"):
        for name, sentence in found:
            st.page_link("overview.py", label=plain(f"▲ {sentence}", LONGEST), query_params={"run": name})
