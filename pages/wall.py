"""The wall: one run to look at, in a frame of a wiki or on a screen. Read-only by construction: it imports nothing that acts."""

import streamlit as st

from pages._shared import wall_parts as parts
from pages._shared.wall_session import admitted, language
from trainvitals.web.process import StartError, poller
from trainvitals.web.wall_words import REFUSALS, TEXTS


def wall() -> None:
    words = TEXTS[language()]
    try:
        held = poller()
    except StartError:
        st.text(words["cannot_start"])
        return
    now_ns = held.now_ns()
    door = admitted(held.settings, now_ns)
    if door.refusal:
        st.text(REFUSALS[language()][door.refusal])
        return
    snapshot = held.snapshot()
    run = snapshot.run(door.run)
    if run is None:
        st.text(words["no_store"] if snapshot.error else words["reading"])
        return
    parts.head(snapshot, run, now_ns, language())
    if "verdict" in door.shows:
        parts.verdict(snapshot, run, now_ns, held.settings.dashboard.refresh_s, language(), door.shows)
    if "curves" in door.shows:
        parts.curves(held, run, now_ns, language())
    if "nodes" in door.shows:
        parts.nodes(snapshot, language())
    if "checkpoints" in door.shows:
        parts.checkpoints(run, language())


def refresh_s() -> float:
    try:
        return max(2.0, poller().settings.dashboard.refresh_s)
    except StartError:
        return 5.0


parts.style()
st.fragment(wall, run_every=refresh_s())()
