"""The circuit breaker on the control page: what it may do, and a dialog that asks the watchdog to arm or disarm it."""

from dataclasses import dataclass
from functools import partial

import streamlit as st

from pages._shared.dialog_host import press
from pages._shared.state import Look, the_poller
from pages._shared.text import plain
from pages._shared.who import asked_by, is_operator, keep_name, who_field
from trainvitals.web.actions import Outcome, set_breaker
from trainvitals.web.control_words import breaker_fate, breaker_words

SENT_KEY = "tv_breaker_sent"
OUTCOME_KEY = "tv_breaker_outcome"
LABELS = {"armed": "Arm…", "dry-run": "Dry run…", "off": "Switch off…"}
_TITLES = {"armed": "Arm", "dry-run": "Dry run", "off": "Switch off"}


@dataclass(frozen=True)
class _Sent:
    run: str
    request_id: str
    sent_at_ns: int


def breaker_card(seen: Look) -> None:
    """The mode in force, and its buttons for an operator."""
    is_wired = seen.run.control.state != "not_wired"
    st.text(breaker_words(seen.run.settings.breaker, seen.run.breaker_of_settings, seen.run.breaker_hold, is_wired=is_wired))
    if is_operator(seen):
        with st.container(horizontal=True, vertical_alignment="center"):
            for mode, label in LABELS.items():
                is_now = mode == seen.run.settings.breaker
                st.button(label, key=f"tv_breaker_{mode}", disabled=is_now, on_click=press, args=(partial(_open, mode),))
    sent: _Sent | None = st.session_state.get(SENT_KEY)
    if sent is not None and sent.run == seen.run.name:
        st.text(breaker_fate(seen.run, sent.request_id, sent.sent_at_ns, seen.now_ns))


def _open(mode: str, seen: Look) -> None:
    if is_operator(seen):
        st.session_state.pop(OUTCOME_KEY, None)
        _dialog(seen, mode)


@st.dialog("Circuit breaker")
def _dialog(seen: Look, mode: str) -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and outcome.is_done:
        st.session_state.pop(OUTCOME_KEY, None)
        st.rerun()
    st.text(f"{seen.run.name}\n{breaker_words(seen.run.settings.breaker, seen.run.breaker_of_settings, seen.run.breaker_hold)}")
    nonce = f"{seen.run.name}/{mode}/{seen.now_ns}"
    with st.form("tv_breaker_form", border=False):
        who_field("Who asks", "tv_breaker_who")
        st.text_area("Why", key="tv_breaker_reason", max_chars=2000, height=80, placeholder="what you saw; a ticket number")
        st.form_submit_button(plain(_TITLES[mode]), type="primary", on_click=_send, args=(seen.run.name, mode, nonce))
    if outcome is not None:
        st.error(plain(outcome.sentence))


def _send(run_name: str, mode: str, nonce: str) -> None:
    """The button's callback. A press that was carried out is not carried out again, whatever is run again."""
    if st.session_state.get("tv_breaker_nonce") == nonce:
        return
    by, reason = asked_by("tv_breaker_who"), str(st.session_state.get("tv_breaker_reason", ""))
    if not by.name or not reason.strip():
        st.session_state[OUTCOME_KEY] = Outcome(False, "Say who you are and why: both are kept with the request.")
        return
    poller = the_poller()
    outcome = set_breaker(poller.settings, run_name, mode, by, reason)
    st.session_state[OUTCOME_KEY] = outcome
    if outcome.is_done:
        keep_name(by)
        st.session_state["tv_breaker_nonce"] = nonce
        st.session_state[SENT_KEY] = _Sent(run_name, outcome.request_id, poller.now_ns())
