"""Control: what the trainer says it does, what was asked of it, by whom and why, and what it was started with."""

from collections.abc import Mapping, Sequence
from typing import cast

import pandas as pd
import streamlit as st

from pages._shared.breaker import breaker_card
from pages._shared.components import Column, Record, record_table
from pages._shared.dialogs import ask_for
from pages._shared.far import sent_line
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s
from pages._shared.story import table_height
from pages._shared.supervisor import supervisor_card
from pages._shared.text import plain
from pages._shared.who import is_operator, name_line
from trainvitals.records import Event
from trainvitals.web import format as fmt
from trainvitals.web.audit import rows
from trainvitals.web.configuration import ConfigurationRow, rows_of
from trainvitals.web.control_words import holder, idle_cost, state_line, told
from trainvitals.web.present import possible_actions
from trainvitals.web.supervisor_words import needs_eyes
from trainvitals.web.view import Configuration

LABELS = {"pause": "Pause…", "resume": "Resume…", "checkpoint": "Checkpoint now…"}

#: A table of every rank's place says nothing that a filter would not find.
MAX_ROWS = 2_000
LIST_HEIGHT = 420
#: On a phone the name and the beginning of its value are seen at once.
COLUMNS = {"key": st.column_config.TextColumn(width=190), "section": st.column_config.TextColumn(width=100)}


def state(seen: Look) -> None:
    control = seen.run.control
    with st.container(key="tv-strong-control"):
        st.text(told(control))
    if line := state_line(control):
        st.text(line)
    parts = [f"state: {control.state.replace('_', ' ')}", f"asked for: {control.desired}"]
    if control.seq:
        parts.append(f"request {control.seq}, answered up to {control.ack_seq}")
    if control.heartbeat_age_s is not None:
        parts.append(f"last heartbeat {fmt.age(max(1.0, control.heartbeat_age_s))}".replace(" ", "\u00a0"))
    if control.since_ns is not None:
        parts.append(f"since {fmt.moment(control.since_ns, seen.zone, now_ns=seen.now_ns)}")
    st.text(" · ".join(parts))
    now = [holder(seen.run, seen.now_ns), idle_cost(seen.run, seen.now_ns)]
    if any(now):
        st.text(" · ".join(part for part in now if part))
    if seen.run.audit.latency:
        st.text(seen.run.audit.latency)
    sent_line(seen)
    if control.by_hand:
        st.text("The trainer does not answer. On its host, or where you may act on its job, one of:")
        st.code(control.by_hand, language=None, wrap_lines=True)
    elif control.is_pending and control.state != "stopped":
        st.text("Sent; waiting for the trainer's answer. What you see above is what the trainer says, not what was asked.")


def buttons(seen: Look) -> None:
    name_line(seen)
    if not is_operator(seen):
        return
    possible = possible_actions(seen.run.control, seen.run.verdict.word)
    with st.container(horizontal=True, vertical_alignment="center"):
        for action, label in LABELS.items():
            st.button(label, key=f"tv_control_{action}", disabled=action not in possible, on_click=ask_for, args=(action,))
    if not possible and not seen.run.control.can_act:
        st.text("Nothing can be asked from here: no trainer listens to this run's control file.")


#: What the breaker decided, in words.
DECISIONS = {"count": "counts", "alert": "warns", "paused": "pauses"}


def audit_table(events: list[Event], seen: Look) -> None:
    """Requests, answers and the breaker's decisions, newest first."""
    newest = sorted(events, key=lambda event: event.time_ns or 0, reverse=True)

    def of(event: Event, key: str) -> str:
        value = event.data.get(key)
        return "" if value is None else str(value)

    def happened(event: Event) -> str:
        decision = of(event, "decision")
        what = of(event, "action") or of(event, "state") or DECISIONS.get(decision, decision) or of(event, "desired")
        return f"{event.kind}: {what.replace('_', ' ')}".rstrip(": ")

    record_table(
        [Column("time", "short"), Column("what", "short"), Column("why", "lead"), Column("by"), Column("from"), Column("step", "number"),
         Column("request", "number")],
        [
            Record(
                f"{event.kind}/{event.id or number}",
                (fmt.moment(event.time_ns, seen.zone, now_ns=seen.now_ns),
                 happened(event),
                 " · ".join(dict.fromkeys(part for part in (of(event, "reason"), event.text) if part)),
                 of(event, "by"), of(event, "source") or event.source, fmt.step(event.step), of(event, "seq")),
            )
            for number, event in enumerate(newest)
        ],
        key="tv_audit", label="who asked for what", max_height=LIST_HEIGHT,
    )  # fmt: skip


def audit(seen: Look) -> None:
    events = [*seen.run.control_history, *(event for event in seen.run.events if event.kind == "breaker")]
    with st.container(key="tv-head-audit"):
        st.text("Who asked for what, and what came of it")
    if events:
        audit_table(events, seen)
    else:
        st.text("Nothing has been asked of this run yet.")
    kept = seen.run.audit
    st.text(f"Audit · {kept.state}" + (" · check it: python -m trainvitals audit verify RUN_DIR" if kept.is_broken else ""))
    if kept.records:
        chain_table(rows(kept), seen)


def chain_table(shown: Sequence[Mapping[str, object]], seen: Look) -> None:
    """The newest records of the audit, newest first."""
    record_table(
        [Column("record", "number"), Column("time", "short"), Column("kind", "short"), Column("what", "lead"), Column("by"), Column("source")],
        [
            Record(
                str(row["n"]),
                (str(row["n"]), fmt.moment(cast(int, row["time_ns"]), seen.zone, now_ns=seen.now_ns), str(row["kind"]).replace("_", " "),
                 str(row["what"]), str(row["by"]), str(row["source"])),
            )
            for row in shown
        ],
        key="tv_chain", label="records of the audit", max_height=LIST_HEIGHT,
    )  # fmt: skip


def configuration_frame(rows: list[ConfigurationRow], *, is_compared: bool) -> pd.DataFrame:
    """Keys and values, and what was there at the start before."""
    columns = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
    }
    if is_compared:
        columns["at the start before"] = ["" if row.before is None else row.before for row in rows]
    columns["section"] = [row.section for row in rows]
    return pd.DataFrame(columns)


def chosen_start(seen: Look) -> tuple[Configuration, Configuration | None]:
    """(the start that is looked at, the one before it that told its settings)."""
    known = seen.run.configurations
    numbers = [one.attempt for one in known]
    number = st.selectbox(
        "Start", numbers, key="tv_configuration_start", width=220, label_visibility="collapsed",
        format_func=lambda n: f"attempt {n}" + (" (newest)" if n == numbers[0] else ""),
    )  # fmt: skip
    place = numbers.index(number) if number in numbers else 0
    return known[place], known[place + 1] if place + 1 < len(known) else None


def configuration() -> None:
    seen = look()
    if seen is None:
        return
    with st.container(key="tv-card-configuration"):
        with st.container(key="tv-head-configuration"):
            st.text("What this run was started with")
        if not seen.run.configurations:
            st.text(
                "No start of this run has told its settings. recorder.describe(config) in the trainer tells them (docs/metadata.md)."
            )
            return
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            start, before = chosen_start(seen)
            words = st.text_input(
                "Filter", key="tv_configuration_filter", placeholder="filter: lr, nccl, data …", label_visibility="collapsed",
                width=260, max_chars=100,
            )  # fmt: skip
            is_changed = before is not None and st.toggle("changed only", key="tv_configuration_changed")
        section = st.pills(
            "Sections", list(start.sections), key="tv_configuration_section", label_visibility="collapsed", format_func=plain
        )
        rows = rows_of(start, before, section or "", words or "", changed_only=bool(is_changed))
        if start.incomplete:
            st.text(f"Not whole: parts of {', '.join(start.incomplete)} are missing.")
        if rows:
            st.dataframe(
                configuration_frame(rows[:MAX_ROWS], is_compared=before is not None), hide_index=True, key="tv_configuration",
                height=table_height(len(rows)), column_config=COLUMNS,
            )  # fmt: skip
            first = f"The first {MAX_ROWS:,} of " if len(rows) > MAX_ROWS else ""
            st.text(
                f"{first}{len(rows):,} of {sum(map(len, start.sections.values())):,} keys · double-click a cell for all of it · ••• is a secret"
            )
        else:
            st.text("No key like that.")


def body() -> None:
    seen = look()
    if seen is None:
        return
    # Whatever comes and goes around it, a button keeps its place among the elements: one that is drawn anew loses the focus, and a press.
    first, control, last = st.container(), st.container(key="tv-card-control"), st.container()
    with control:
        words, row = st.container(), st.container()
    with words:
        state(seen)
    with row:
        buttons(seen)
    with first if needs_eyes(seen.run.supervisor) else last:
        supervisor_card(seen)
    with st.container(key="tv-card-breaker"):
        breaker_card(seen)
    audit(seen)


head_fragment()
st.fragment(body, run_every=refresh_s())()
st.fragment(configuration, run_every=max(15.0, refresh_s()))()
