"""Alerts: whether people are reached, what they were told, what did not arrive, and what is silenced."""

import streamlit as st

from pages._shared.components import Column, Record, record_table
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
PICKED = "tv_alert_message"
STATES = {"waiting": "… waiting", "sent": "✓ delivered", "dead": "✗ not delivered", "overtaken": "– over before it was told"}
TARGET_STATES = {
    "works": "✓ works",
    "not used yet": "– not used yet",
    "failing": "✗ failing",
    "switched off": "✗ switched off",
}


LIST_HEIGHT = 420


def targets_table(view: AlertsView, seen: Look) -> None:
    record_table(
        [Column("state", "short"), Column("target", "name"), Column("told of", "short"), Column("wakes people", "short"), Column("runs"),
         Column("kind", "short"), Column("last delivered", "short"), Column("waiting", "number"), Column("not delivered", "number"),
         Column("last error")],
        [
            Record(
                one.name,
                (_state(one, seen), one.name, ", ".join(one.severities), "yes" if one.pages else "no", "all" if one.runs == ("*",) else ", ".join(one.runs), one.kind,
                 _when(one.health.last_ok_ns, seen), fmt.count(one.health.waiting), fmt.count(one.health.dead), one.health.error),
                "critical" if one.state in ("failing", "switched off") else "",
            )
            for one in view.targets
        ],
        key="tv_alert_targets", label="targets",
    )  # fmt: skip


def _state(target: TargetView, seen: Look) -> str:
    mark = TARGET_STATES.get(target.state, target.state).split()[0]
    return f"{mark} {state_words(target, the_poller().settings.alert_targets.get(target.name), seen.now_ns)}"


def pick(message_id: str) -> None:
    st.session_state[PICKED] = message_id


def messages_table(shown: list, picked: str, seen: Look) -> None:
    record_table(
        [Column("state", "short"), Column("what", "lead"), Column("when", "short"), Column("target", "short"), Column("severity", "short"),
         Column("kind", "short"), Column("run", "short"), Column("tries", "number"), Column("error")],
        [
            Record(
                one.id,
                (STATES.get(one.state, one.state), one.what, _when(one.created_ns, seen), one.target, one.severity,
                 one.kind.replace("_", " "), one.run, fmt.count(one.tries), one.error),
                "critical" if one.state == "dead" else "",
            )
            for one in shown
        ],
        key="tv_alert_messages", label="messages", max_height=LIST_HEIGHT, picked=picked, on_pick=pick,
    )  # fmt: skip


def _when(time_ns: int | None, seen: Look) -> str:
    return fmt.moment(time_ns, seen.zone, now_ns=seen.now_ns) if time_ns is not None else fmt.UNKNOWN


def targets(view: AlertsView, seen: Look) -> None:
    with st.container(key="tv-head-targets"):
        st.text("Targets")
    if not view.targets:
        st.text("No target is configured, so nobody is told anything. docs/alerts.md shows one of each kind.")
        return
    targets_table(view, seen)
    st.text("Try one: python -m trainvitals alert test NAME")


def messages(view: AlertsView, seen: Look) -> None:
    names = set(visible_runs())
    shown = [one for one in view.messages if one.run in names or not one.run]
    with st.container(key="tv-head-messages"):
        st.text("Messages, the newest first")
    if view.lost:
        st.text(f"⚠ {view.lost:,} messages were dropped undelivered because too many waited.")
    if not shown:
        st.text("None yet. Each message to each target stands here, also what did not arrive.")
        return
    messages_table(shown, str(st.session_state.get(PICKED, "")), seen)
    picked = next((one for one in shown if one.id == st.session_state.get(PICKED)), None)
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
    with st.container(key="tv-head-silences"):
        st.text("Silences of this run")
    if not held:
        st.text("None. Whoever silences something says until when and why; that is done on the page Incidents.")
        return
    record_table(
        [Column("what", "lead"), Column("until", "short"), Column("by", "short"), Column("why")],
        [Record(str(number), (one.what, _when(one.until_ns, seen), one.by, one.comment)) for number, one in enumerate(held)],
        key="tv_silences", label="silences",
    )  # fmt: skip


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
