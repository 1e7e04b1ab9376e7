"""The supervisor on the control page: who starts the trainer, how a restart goes, why it holds and what lets it go on."""

from dataclasses import dataclass

import streamlit as st

from pages._shared.state import Look
from trainvitals.web.control_words import go_back_fate
from trainvitals.web.supervisor_words import phase_lines, recovery_words, supervisor_head, supervisor_state

SENT_BACK_KEY = "tv_sent_back"


@dataclass(frozen=True)
class SentBack:
    """A way back that was asked for in this visit."""

    run: str
    request_id: str
    sent_at_ns: int


def supervisor_card(seen: Look) -> None:
    """Nothing for a run that nobody supervises; else what its supervisor says, and the seconds so far."""
    head = supervisor_head(seen.run, seen.now_ns)
    if not head:
        return
    with st.container(key="tv-card-supervisor"):
        st.text(head)
        state = supervisor_state(seen.run, seen.now_ns)
        if state:
            with st.container(key="tv-alarm-supervisor" if seen.run.supervisor.state == "held" else "tv-state-supervisor"):
                st.text(state)
        sent: SentBack | None = st.session_state.get(SENT_BACK_KEY)
        if sent is not None and sent.run == seen.run.name:
            fate = go_back_fate(seen.run, sent.request_id, sent.sent_at_ns, seen.now_ns)
            if fate:
                st.text(fate)
        lines = phase_lines(seen.run.supervisor, seen.now_ns)
        if lines:
            st.text("\n".join(lines))
        recovery = recovery_words(seen.run, seen.now_ns)
        if recovery:
            with st.container(key="tv-strong-supervisor"):
                st.text(recovery)
