"""Control: what the trainer says it does, what was asked of it, by whom and why."""

import pandas as pd
import streamlit as st

from pages._shared.dialogs import open_dialog
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s
from pages._shared.story import table_height
from trainvitals.records import Event
from trainvitals.web import format as fmt
from trainvitals.web.present import breaker_sentence, possible_actions

LABELS = {"pause": "Pause…", "resume": "Resume…", "checkpoint": "Checkpoint now…"}


def state(seen: Look) -> None:
    control = seen.run.control
    st.text(control.sentence)
    parts = [f"state: {control.state.replace('_', ' ')}", f"asked for: {control.desired}"]
    if control.seq:
        parts.append(f"request {control.seq}, answered up to {control.ack_seq}")
    if control.heartbeat_age_s is not None:
        parts.append(f"last heartbeat {fmt.age(control.heartbeat_age_s)}")
    if control.since_ns is not None:
        parts.append(f"since {fmt.moment(control.since_ns, seen.zone, now_ns=seen.now_ns)}")
    st.text(" · ".join(parts))
    if control.is_pending:
        st.text("Sent; waiting for the trainer's answer. What you see above is what the trainer says, not what was asked.")


def buttons(seen: Look) -> None:
    possible = possible_actions(seen.run.control, seen.run.verdict.word)
    with st.container(horizontal=True, vertical_alignment="center"):
        for action, label in LABELS.items():
            if st.button(label, key=f"tv_control_{action}", disabled=action not in possible):
                open_dialog(action, seen)
    if not possible and not seen.run.control.can_act:
        st.text("Nothing can be asked from here: no trainer listens to this run's control file.")
    st.text(breaker_sentence(seen.run.settings.breaker))


def audit_frame(events: list[Event], seen: Look) -> pd.DataFrame:
    """Requests, answers and the breaker's decisions, newest first."""
    newest = sorted(events, key=lambda event: event.time_ns or 0, reverse=True)

    def of(event: Event, key: str) -> str:
        value = event.data.get(key)
        return "" if value is None else str(value)

    return pd.DataFrame(
        {
            "time": [fmt.moment(event.time_ns, seen.zone, now_ns=seen.now_ns) for event in newest],
            "kind": [event.kind for event in newest],
            "number": [of(event, "seq") for event in newest],
            "what": [
                of(event, "action") or of(event, "state") or of(event, "decision") or of(event, "desired") for event in newest
            ],
            "by": [of(event, "by") for event in newest],
            "from": [of(event, "source") or event.source for event in newest],
            "why": [of(event, "reason") for event in newest],
            "step": [fmt.step(event.step) for event in newest],
            "text": [event.text for event in newest],
        }
    )


def audit(seen: Look) -> None:
    events = [*seen.run.control_history, *(event for event in seen.run.events if event.kind == "breaker")]
    st.text("Who asked for what, and what came of it")
    if events:
        st.dataframe(audit_frame(events, seen), hide_index=True, key="tv_audit", height=table_height(len(events)))
    else:
        st.text("Nothing has been asked of this run yet.")


def body() -> None:
    seen = look()
    if seen is None:
        return
    with st.container(key="tv-card-control"):
        state(seen)
        buttons(seen)
    audit(seen)


head_fragment()
st.fragment(body, run_every=refresh_s())()
