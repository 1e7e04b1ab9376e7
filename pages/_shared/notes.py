"""Noting what was changed on purpose: a dialog that sends, and a line that says what became of it."""

from functools import partial

import streamlit as st

from pages._shared.dialog_host import press
from pages._shared.state import Look, the_poller
from pages._shared.text import plain
from pages._shared.who import asked_by, is_operator, keep_name, who_field
from trainvitals.web.actions import Outcome, annotate
from trainvitals.web.annotations import CHANGES, Sent, fate

SENT_KEY = "tv_note_sent"
OUTCOME_KEY = "tv_note_outcome"


def add_note(seen: Look, step: int | None) -> None:
    """The button; ``step``: what the form begins with."""
    if step is not None and is_operator(seen):
        st.button("Add a note…", key="tv_note", on_click=press, args=(partial(_open, step),))


def _open(step: int, seen: Look) -> None:
    if is_operator(seen):
        st.session_state.pop(OUTCOME_KEY, None)
        _dialog(seen, step)


def sent_note(seen: Look) -> None:
    """What became of the note that was sent last; only the watchdog's own event makes it "applied"."""
    sent: Sent | None = st.session_state.get(SENT_KEY)
    if sent is not None and sent.run == seen.run.name:
        st.text(fate(seen.run, sent, seen.now_ns))


@st.dialog("Add a note")
def _dialog(seen: Look, step: int) -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and outcome.is_done:
        st.session_state.pop(OUTCOME_KEY, None)
        st.rerun()
    nonce = f"{seen.run.name}/{seen.now_ns}"
    st.text("What was changed on purpose is no alarm: the rules that it explains stay silent from this step on, for 500 points.")
    with st.form("tv_note_form", border=False):
        st.number_input("Step", min_value=0, max_value=1_000_000_000_000_000, value=step, step=1, key="tv_note_step")
        st.selectbox("What changed", list(CHANGES), key="tv_note_change", format_func=lambda change: plain(CHANGES[change]))
        st.text_area("In a few words", key="tv_note_text", max_chars=2000, height=80, placeholder="old → new, a ticket number")
        who_field("Who notes it", "tv_note_who")
        st.form_submit_button("Send", type="primary", on_click=_send, args=(seen.run.name, nonce))
    if outcome is not None:
        st.error(plain(outcome.sentence))


def _send(run_name: str, nonce: str) -> None:
    """The button's callback. A press that was carried out is not carried out again, whatever is run again."""
    if st.session_state.get("tv_note_nonce") == nonce:
        return
    by, text = asked_by("tv_note_who"), str(st.session_state.get("tv_note_text", ""))
    if not by.name or not text.strip():
        st.session_state[OUTCOME_KEY] = Outcome(False, "Say who you are and what there is to know: both are kept with the note.")
        return
    poller = the_poller()
    outcome = annotate(
        poller.settings, run_name, step=int(st.session_state.get("tv_note_step") or 0),
        change=str(st.session_state.get("tv_note_change")), text=text, by=by,
    )  # fmt: skip
    st.session_state[OUTCOME_KEY] = outcome
    if outcome.is_done:
        keep_name(by)
        st.session_state["tv_note_nonce"] = nonce
        st.session_state[SENT_KEY] = Sent(run_name, outcome.request_id, poller.now_ns())
