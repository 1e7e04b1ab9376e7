"""Acknowledge, Silence and Pause beside an incident: large enough for a thumb; nothing is done by opening an address."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from pages._shared.dialog_host import press
from pages._shared.dialogs import ask_for
from pages._shared.state import Look, the_poller
from pages._shared.text import plain
from pages._shared.who import asked_by, is_operator, keep_name, name_line, who, who_field
from trainvitals.control.requests import ACKNOWLEDGE
from trainvitals.records import Incident
from trainvitals.web.actions import Outcome, acknowledge, silence, unsilence
from trainvitals.web.incident_people import (
    ACKNOWLEDGEMENT,
    DURATIONS,
    UP_TO,
    Sent,
    acknowledgement_told,
    fate,
    silence_line,
    silences_of,
    words,
)
from trainvitals.web.present import possible_actions, untaken_incident
from trainvitals.web.stale import verdict_now

#: Why the band has no buttons; the page it names has the field for the name, and the whole reason.
VIEWER_FACT = "only operators may act: see Control"
SENT_KEY = "tv_people_sent"
OUTCOME_KEY = "tv_people_outcome"
_NONCE_KEY = "tv_people_nonce"


def people(incident: Incident, seen: Look) -> None:
    """Who has it, and the buttons for an operator."""
    with st.container(key="tv-strong-people"):
        for sentence in words(incident, seen.zone, seen.now_ns, silences_of(seen.run.events, seen.now_ns)):
            st.text(sentence)
    if incident.is_open:
        name_line(seen)
    if incident.is_open and is_operator(seen):
        with st.container(horizontal=True, vertical_alignment="center", key="tv-thumbs"):
            label = "Take it over…" if incident.acknowledged_by else "Acknowledge…"
            # Nobody takes over what is theirs.
            if incident.acknowledged_by != (who() or None):
                opener = partial(_open, partial(_acknowledge, incident))
                st.button(plain(label), key="tv_acknowledge", type="primary", on_click=press, args=(opener,))
            st.button("Silence…", key="tv_silence", on_click=press, args=(partial(_open, partial(_silence, incident)),))
            if "pause" in possible_actions(seen.run.control, seen.run.verdict.word):
                st.button("Pause…", key="tv_incident_pause", on_click=ask_for, args=("pause",))
    _sent(seen)


def act_in_band(action: str) -> None:
    """Callback of the band's buttons: the incident that it speaks of is acknowledged here, all else is asked of the trainer."""
    if action != ACKNOWLEDGE:
        ask_for(action)
        return
    press(partial(_open, _acknowledge_spoken_of))


def _acknowledge_spoken_of(seen: Look) -> None:
    incident = untaken_incident(seen.run, verdict_now(seen.snapshot, seen.run, seen.now_ns))
    if incident is not None:
        _acknowledge(incident, seen)


def with_people(view: Mapping[str, Any], seen: Look, *, offers_acknowledge: bool) -> dict[str, Any]:
    """The band's view for this visitor: no buttons for a viewer, and what became of an acknowledgement sent in this visit."""
    view = {**view, "is_foldable": True}
    if not is_operator(seen):
        return {**view, "actions": [], "facts": [*view["facts"], VIEWER_FACT] if view["actions"] else view["facts"]}
    told, is_waiting = "", False
    incident = untaken_incident(seen.run, verdict_now(seen.snapshot, seen.run, seen.now_ns))
    if offers_acknowledge and incident is not None:
        told, is_waiting = acknowledgement_told(seen.run, incident, st.session_state.get(SENT_KEY), seen.now_ns)
    actions = [one for one in view["actions"] if one["id"] != ACKNOWLEDGE or (offers_acknowledge and not is_waiting)]
    return {**view, "actions": actions, "facts": [*view["facts"], told] if told else view["facts"]}


def silences(seen: Look) -> None:
    """What nobody is told of now, each with a button that ends it."""
    lasting = silences_of(seen.run.events, seen.now_ns)
    if not lasting:
        return
    with st.container(key="tv-card-silences"):
        with st.container(key="tv-head-silences"):
            st.text("Silent now")
        for number, one in enumerate(lasting):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.text(silence_line(one, seen.zone, seen.now_ns))
                if is_operator(seen):
                    ending = partial(_unsilence, one.id, silence_line(one, seen.zone, seen.now_ns))
                    st.button("End it…", key=f"tv_unsilence_{number}", on_click=press, args=(partial(_open, ending),))


def _open(dialog: Callable[[Look], None], seen: Look) -> None:
    if is_operator(seen):
        st.session_state.pop(OUTCOME_KEY, None)
        dialog(seen)


def _sent(seen: Look) -> None:
    sent: Sent | None = st.session_state.get(SENT_KEY)
    if sent is not None and sent.run == seen.run.name:
        st.text(fate(seen.run, sent, seen.now_ns))


@st.dialog("Acknowledge")
def _acknowledge(incident: Incident, seen: Look) -> None:
    _close_when_done()
    st.text(
        f"{incident.title}\n\nYou have it until it is over: no reminders, no second target. Its end is told, and so is worse."
    )
    with st.form("tv_acknowledge_form", border=False):
        who_field("Who has it", "tv_people_who")
        st.text_input("What you do about it (optional)", key="tv_people_note", max_chars=500)
        asked = (seen.run.name, incident.id, f"{seen.run.name}/acknowledge/{seen.now_ns}")
        st.form_submit_button("Acknowledge", type="primary", on_click=_send_acknowledgement, args=asked)
    _refusal()


@st.dialog("Silence")
def _silence(incident: Incident, seen: Look) -> None:
    _close_when_done()
    st.text("It is stored and shown all the same; nobody is told of it. Any other rule, and what is graver, is told.")
    with st.form("tv_silence_form", border=False):
        # A multiselect and a selectbox show their options as they are: an entity would be read as its letters.
        st.multiselect("Rules", list(incident.rules), default=list(incident.rules), key="tv_people_rules")
        st.selectbox("For", list(DURATIONS), index=1, key="tv_people_for")
        st.selectbox("Silent are", list(UP_TO), key="tv_people_up_to", format_func=lambda name: UP_TO[name])
        st.text_input("Why", key="tv_people_comment", max_chars=500, placeholder="what is going on; a ticket number")
        who_field("Who silences it", "tv_people_who")
        asked = (seen.run.name, f"{seen.run.name}/silence/{seen.now_ns}")
        st.form_submit_button("Silence", type="primary", on_click=_send_silence, args=asked)
    _refusal()


@st.dialog("End a silence")
def _unsilence(silence_id: str, line: str, seen: Look) -> None:
    _close_when_done()
    st.text(f"{line}\n\nWhat is open and was silent is told at once.")
    with st.form("tv_unsilence_form", border=False):
        who_field("Who ends it", "tv_people_who")
        asked = (seen.run.name, silence_id, f"{seen.run.name}/unsilence/{seen.now_ns}")
        st.form_submit_button("End it", type="primary", on_click=_send_end, args=asked)
    _refusal()


def _send_acknowledgement(run_name: str, incident_id: str, nonce: str) -> None:
    if _is_ready(nonce):
        by, note = asked_by("tv_people_who"), str(st.session_state.get("tv_people_note", ""))
        _keep(acknowledge(the_poller().settings, run_name, incident_id, by, note), run_name, nonce, ACKNOWLEDGEMENT)


def _send_silence(run_name: str, nonce: str) -> None:
    if not _is_ready(nonce):
        return
    state = st.session_state
    rules = [str(rule) for rule in state.get("tv_people_rules", [])]
    if not rules:
        state[OUTCOME_KEY] = Outcome(False, "Name at least one rule: without one everything would be silent.")
        return
    wanted = {
        "rules": rules, "seconds": DURATIONS.get(str(state.get("tv_people_for")), 0), "up_to": str(state.get("tv_people_up_to")),
        "comment": str(state.get("tv_people_comment", "")),
    }  # fmt: skip
    _keep(silence(the_poller().settings, run_name, wanted, asked_by("tv_people_who")), run_name, nonce, "Silence")


def _send_end(run_name: str, silence_id: str, nonce: str) -> None:
    if _is_ready(nonce):
        outcome = unsilence(the_poller().settings, run_name, silence_id, asked_by("tv_people_who"))
        _keep(outcome, run_name, nonce, "End of the silence")


def _is_ready(nonce: str) -> bool:
    """A press that was carried out is not carried out again, whatever is run again; and it needs a name."""
    if st.session_state.get(_NONCE_KEY) == nonce:
        return False
    if not asked_by("tv_people_who").name:
        st.session_state[OUTCOME_KEY] = Outcome(False, "Say who you are: whoever comes next asks.")
        return False
    return True


def _keep(outcome: Outcome, run_name: str, nonce: str, what: str) -> None:
    st.session_state[OUTCOME_KEY] = outcome
    if outcome.is_done:
        keep_name(asked_by("tv_people_who"))
        st.session_state[_NONCE_KEY] = nonce
        st.session_state[SENT_KEY] = Sent(run_name, outcome.request_id, the_poller().now_ns(), what)


def _close_when_done() -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and outcome.is_done:
        st.session_state.pop(OUTCOME_KEY, None)
        st.rerun()


def _refusal() -> None:
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None and not outcome.is_done:
        st.error(plain(outcome.sentence))
