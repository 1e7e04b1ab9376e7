"""What is told of a finding, wherever one is picked."""

import streamlit as st

from pages._shared.components import Column, Record, fact_list, record_table
from pages._shared.state import Look
from trainvitals.records import Event, Finding
from trainvitals.web import format as fmt
from trainvitals.web.annotations import headline, silences
from trainvitals.web.changes import Changes, changes_of, lines_of, title

#: Changed keys that are shown at once; the others are one click away.
SHOWN_CHANGES = 8
GLYPHS = {"critical": "▲ critical", "warning": "△ warning", "info": "○ info"}


def table_height(rows: int, most: int = 420) -> int:
    """Pixels that a table of so many rows needs, at most ``most``."""
    return min(most, 35 + 31 * max(1, rows))


def tell_finding(finding: Finding, seen: Look) -> None:
    """Rule, extent and message of one finding, and the way to its incident."""
    until = "still open" if finding.is_open else f"to {fmt.step(finding.last_step)}"
    has_numbers = finding.value is not None and finding.expected is not None
    numbers = f" · {fmt.number(finding.value)} against {fmt.number(finding.expected)}" if has_numbers else ""
    changes = changes_of(finding)
    if changes is None or not changes.keys:
        with st.container(key="tv-strong-finding"):
            st.text(f"{GLYPHS[finding.severity.value]} · {finding.message}")
    else:
        tell_changes(changes, key="tv_finding_changes", most=0)
    when = f"{fmt.moment(finding.time_ns, seen.zone, now_ns=seen.now_ns)} · " if finding.time_ns is not None else ""
    st.text(f"{when}attempt {finding.attempt} · from step {fmt.step(finding.first_step)} {until}{numbers} · rule {finding.rule}")
    incident = next((incident for incident in seen.run.incidents if finding.id in incident.finding_ids), None)
    if incident is not None:
        st.page_link(
            "incidents.py", label="Open the incident", icon=":material/arrow_forward:",
            query_params={"run": seen.run.name, "incident": incident.id},
        )  # fmt: skip


def tell_note(event: Event, seen: Look) -> None:
    """A person's note: what, who, when, and what is silent because of it."""
    at = f"step {fmt.step(event.step)} · " if event.step is not None else ""
    st.text(f"✎ {at}{headline(event)}")
    st.text(
        " ".join(part for part in (silences(event), f"Noted {fmt.moment(event.time_ns, seen.zone, now_ns=seen.now_ns)}.") if part)
    )


def tell_changes(changes: Changes, *, key: str, most: int = SHOWN_CHANGES) -> None:
    """Old → new of each key, what matters most first; ``most`` of them at once (0 = all), the others behind a click."""
    st.text(title(changes))
    fact_list(lines_of(changes, most), key=key)
    if most and len(changes.keys) > most:
        with st.expander("All changes that are known", key=f"{key}_more"):
            fact_list(lines_of(changes), key=f"{key}_all")


def steps_of(first: int | None, last: int | None, *, is_open: bool) -> str:
    """From which step to which, in one cell."""
    if is_open:
        return f"{fmt.step(first)} – open"
    return fmt.step(first) if last is None or last == first else f"{fmt.step(first)} – {fmt.step(last)}"


def tone_of(severity: str, *, is_open: bool = True) -> str:
    """Colour of a row: what is over is no alarm any more."""
    return severity if is_open and severity in ("critical", "warning") else ""


def findings_table(findings: list[Finding], seen: Look, *, key: str) -> None:
    """Findings, what each says first."""
    record_table(
        [Column("severity", "short"), Column("what", "lead"), Column("steps", "short"), Column("attempt", "number"),
         Column("time"), Column("rule", "short")],
        [
            Record(
                one.id,
                (GLYPHS[one.severity.value], one.message, steps_of(one.first_step, one.last_step, is_open=one.is_open),
                 str(one.attempt), fmt.moment(one.time_ns, seen.zone, now_ns=seen.now_ns), one.rule),
                tone_of(one.severity.value, is_open=one.is_open),
            )
            for one in findings
        ],
        key=key, label="findings",
    )  # fmt: skip


def event_text(event: Event) -> str:
    """What an event says: its own text, else what its kind carries."""
    if event.kind == "annotation":
        return headline(event)
    if event.text:
        return event.text
    told = event.data
    if event.kind == "control":
        parts = [told.get("state"), f"by {told['by']}" if told.get("by") else "", told.get("reason")]
        return ", ".join(str(part) for part in parts if part)
    if event.kind == "resume" and event.step is not None:
        return f"from step {event.step:,}"
    return str(told.get("reason") or told.get("source") or told.get("state") or "")


def events_table(events: list[Event], seen: Look, *, key: str, max_height: int | None = None) -> None:
    """Events, newest first."""
    newest = sorted(events, key=lambda event: event.time_ns or 0, reverse=True)
    record_table(
        [Column("time", "short"), Column("what", "short"), Column("step", "number"), Column("said", "lead")],
        [
            Record(
                event.id or str(number),
                (fmt.moment(event.time_ns, seen.zone, now_ns=seen.now_ns), event.kind.replace("_", " "), fmt.step(event.step),
                 event_text(event)),
            )
            for number, event in enumerate(newest)
        ],
        key=key, label="what happened", max_height=max_height,
    )  # fmt: skip
