"""A request that went out through the store: what became of it, until the trainer's own state says so."""

from dataclasses import dataclass

import streamlit as st

from pages._shared.state import Look
from trainvitals.web.actions import Outcome
from trainvitals.web.remote import APPLIED, fate

SENT_FAR_KEY = "tv_sent_far"


@dataclass(frozen=True)
class SentFar:
    """What was asked of a run on another host in this visit."""

    run: str
    request_id: str
    sent_at_ns: int


def keep_sent(run_name: str, outcome: Outcome, now_ns: int) -> None:
    """Remember it; on this host the control file says at once what stands, so nothing is kept."""
    if outcome.request_id:
        st.session_state[SENT_FAR_KEY] = SentFar(run_name, outcome.request_id, now_ns)


def sent_line(seen: Look) -> None:
    """On its way, late or refused; nothing once it is applied."""
    sent: SentFar | None = st.session_state.get(SENT_FAR_KEY)
    if sent is None or sent.run != seen.run.name:
        return
    words = fate(seen.run, sent.request_id, sent.sent_at_ns, seen.now_ns)
    if not words.startswith(APPLIED):
        st.text(words)
