"""What is told of a finding, wherever one is picked."""

import pandas as pd
import streamlit as st

from pages._shared.components import fact_list
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
    st.text(
        f"{GLYPHS[finding.severity.value]} · {finding.rule} · attempt {finding.attempt} · "
        f"from step {fmt.step(finding.first_step)} {until}{numbers}"
    )
    changes = changes_of(finding)
    if changes is None or not changes.keys:
        st.text(finding.message)
    else:
        tell_changes(changes, key="tv_finding_changes", most=0)
    if finding.time_ns is not None:
        st.text(fmt.moment(finding.time_ns, seen.zone, now_ns=seen.now_ns))
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


def findings_frame(findings: list[Finding], seen: Look) -> pd.DataFrame:
    """Findings as a table."""
    return pd.DataFrame(
        {
            "severity": [GLYPHS[finding.severity.value] for finding in findings],
            "rule": [finding.rule for finding in findings],
            "from step": [finding.first_step for finding in findings],
            "to step": [("open" if finding.is_open else fmt.step(finding.last_step)) for finding in findings],
            "attempt": [finding.attempt for finding in findings],
            "message": [finding.message for finding in findings],
            "time": [fmt.moment(finding.time_ns, seen.zone, now_ns=seen.now_ns) for finding in findings],
        }
    )


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


def events_frame(events: list[Event], seen: Look) -> pd.DataFrame:
    """Events as a table, newest first."""
    newest = sorted(events, key=lambda event: event.time_ns or 0, reverse=True)
    return pd.DataFrame(
        {
            "time": [fmt.moment(event.time_ns, seen.zone, now_ns=seen.now_ns) for event in newest],
            "what": [event.kind.replace("_", " ") for event in newest],
            "step": [fmt.step(event.step) for event in newest],
            "text": [event_text(event) for event in newest],
        }
    )
