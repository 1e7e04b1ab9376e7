"""Alerts: whether people are reached, what they were told, what did not arrive, and what is silenced."""

import pandas as pd
import streamlit as st

from pages._shared.frame import head_fragment
from pages._shared.runs import visible_runs
from pages._shared.state import Look, alerts_now, look, refresh_s, the_poller
from pages._shared.text import plain
from pages._shared.who import identity, is_operator
from trainvitals.web import format as fmt
from trainvitals.web.actions import Outcome
from trainvitals.web.alert_actions import send_again
from trainvitals.web.alerts_view import AlertsView, TargetView, silences_now, state_words
from trainvitals.web.process import alert_peer

OUTCOME_KEY = "tv_alerts_outcome"
STATES = {"waiting": "… waiting", "sent": "✓ delivered", "dead": "✗ not delivered", "overtaken": "– over before it was told"}
TARGET_STATES = {
    "works": "✓ works",
    "not used yet": "– not used yet",
    "failing": "✗ failing",
    "switched off": "✗ switched off",
}


def targets_frame(view: AlertsView, seen: Look) -> pd.DataFrame:
    shown = [(one, one.health) for one in view.targets]
    return pd.DataFrame(
        {
            "target": [one.name for one, _ in shown],
            "state": [_state(one, seen) for one, _ in shown],
            "pages": ["yes" if one.pages else "no" for one, _ in shown],
            "kind": [one.kind for one, _ in shown],
            "severities": [", ".join(one.severities) for one, _ in shown],
            "runs": [", ".join(one.runs) for one, _ in shown],
            "last delivered": [_when(health.last_ok_ns, seen) for _, health in shown],
            "waiting": [health.waiting for _, health in shown],
            "not delivered": [health.dead for _, health in shown],
            "last error": [health.error for _, health in shown],
        }
    )


def _state(target: TargetView, seen: Look) -> str:
    mark = TARGET_STATES.get(target.state, target.state).split()[0]
    return f"{mark} {state_words(target, the_poller().settings.alert_targets.get(target.name), seen.now_ns)}"


def messages_frame(messages: list, seen: Look) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "when": [_when(one.created_ns, seen) for one in messages],
            "state": [STATES.get(one.state, one.state) for one in messages],
            "what": [one.what for one in messages],
            "target": [one.target for one in messages],
            "severity": [one.severity for one in messages],
            "kind": [one.kind.replace("_", " ") for one in messages],
            "run": [one.run for one in messages],
            "tries": [one.tries for one in messages],
            "error": [one.error for one in messages],
        }
    )


def _when(time_ns: int | None, seen: Look) -> str:
    return fmt.moment(time_ns, seen.zone, now_ns=seen.now_ns) if time_ns is not None else fmt.UNKNOWN


def targets(view: AlertsView, seen: Look) -> None:
    st.text("Targets")
    if not view.targets:
        st.text("No target is configured, so nobody is told anything. docs/alerts.md shows one of each kind.")
        return
    st.dataframe(targets_frame(view, seen), hide_index=True, key="tv_alert_targets")
    st.text("Try one: python -m trainvitals alert test NAME")


def messages(view: AlertsView, seen: Look) -> None:
    names = set(visible_runs())
    shown = [one for one in view.messages if one.run in names or not one.run]
    st.text("Messages, the newest first")
    if view.lost:
        st.text(f"⚠ {view.lost:,} messages were dropped undelivered because too many waited.")
    if not shown:
        st.text("None yet. Each message to each target stands here, also what did not arrive.")
        return
    event = st.dataframe(
        messages_frame(shown, seen), hide_index=True, key="tv_alert_messages", on_select="rerun", selection_mode="single-row",
        height=min(420, 38 + 35 * len(shown)),
    )  # fmt: skip
    rows = event["selection"]["rows"]
    picked = shown[rows[0]] if rows and rows[0] < len(shown) else None
    dead = picked if picked is not None and picked.state == "dead" else None
    if dead is None:
        dead = next((one for one in shown if one.state == "dead"), None) if picked is None else None
    if dead is not None and is_operator(seen):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Not delivered to {dead.target}: {dead.what[:120]}")
            st.button("Send again", key=f"tv_again_{dead.id}", on_click=_again, args=(dead.id,))
    outcome: Outcome | None = st.session_state.get(OUTCOME_KEY)
    if outcome is not None:
        (st.success if outcome.is_done else st.error)(plain(outcome.sentence))


def _again(message_id: str) -> None:
    """The button's callback; who may do it is asked again there."""
    peer = alert_peer()
    st.session_state[OUTCOME_KEY] = send_again(the_poller().settings, peer.view(), message_id, identity(), peer.send_again)


def silences(seen: Look) -> None:
    held = silences_now(seen.run.events, seen.now_ns)
    st.text("Silences of this run")
    if not held:
        st.text("None. Whoever silences something says until when and why; that is done on the page Incidents.")
        return
    st.dataframe(
        pd.DataFrame(
            {
                "what": [one.what for one in held],
                "until": [_when(one.until_ns, seen) for one in held],
                "by": [one.by for one in held],
                "why": [one.comment for one in held],
            }
        ),
        hide_index=True,
        key="tv_silences",
    )


def body() -> None:
    seen = look()
    if seen is None:
        return
    view = alerts_now()
    for sentence in (view.trouble, *view.sentences):
        if sentence:
            with st.container(key=f"tv-alarm-alerts-{abs(hash(sentence))}"):
                st.text(f"⚠ {sentence}")
    targets(view, seen)
    messages(view, seen)
    silences(seen)


head_fragment()
st.fragment(body, run_every=max(3.0, refresh_s()))()
