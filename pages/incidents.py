"""Incidents: what belongs together, the first suspect, and the checks in the order data, code, numerics, cluster."""

import pandas as pd
import streamlit as st

from pages._shared.components import check_list, fact_list
from pages._shared.frame import head_fragment
from pages._shared.incident_people import people, silences
from pages._shared.notes import add_note, sent_note
from pages._shared.state import Look, look, refresh_s
from pages._shared.story import GLYPHS, events_frame, findings_frame, table_height, tell_changes
from trainvitals.records import Incident
from trainvitals.web import format as fmt
from trainvitals.web import window
from trainvitals.web.death import lines_of
from trainvitals.web.incident import NEAR_NS, IncidentStory, began_at, incident_story
from trainvitals.web.incident_then import attempts_in

PICKED = "tv_incident"
#: The incident that the address named when this visit began.
LINKED = "tv_incident_linked"


def frame(seen: Look) -> pd.DataFrame:
    incidents = seen.run.incidents
    return pd.DataFrame(
        {
            "state": ["open" if incident.is_open else "over" for incident in incidents],
            "severity": [GLYPHS[incident.severity.value] for incident in incidents],
            "what": [incident.title for incident in incidents],
            "from step": [fmt.step(began_at(seen.run, incident)) for incident in incidents],
            "to step": [fmt.step(incident.last_step) if not incident.is_open else "…" for incident in incidents],
            "began": [fmt.moment(incident.opened_at_ns, seen.zone, now_ns=seen.now_ns) for incident in incidents],
            "lasted": [
                fmt.span(((incident.closed_at_ns or seen.now_ns) - incident.opened_at_ns) / 1e9) for incident in incidents
            ],
            "who has it": [incident.acknowledged_by for incident in incidents],
            "rules": [", ".join(incident.rules) for incident in incidents],
        }
    )


def chosen(seen: Look) -> Incident | None:
    """The incident of the address, else the one picked in the table, else the most urgent one."""
    asked = st.query_params.get("incident") or st.session_state.get(PICKED)
    found = next((incident for incident in seen.run.incidents if incident.id == asked), None)
    return found or next(iter(seen.run.incidents), None)


def table(seen: Look) -> None:
    event = st.dataframe(
        frame(seen), hide_index=True, key="tv_incident_table", on_select="rerun", selection_mode="single-row",
        height=table_height(len(seen.run.incidents), 220),
    )  # fmt: skip
    rows = event["selection"]["rows"]
    picked = seen.run.incidents[rows[0]].id if rows and rows[0] < len(seen.run.incidents) else None
    if picked is not None and picked != st.session_state.get("tv_incident_row"):
        st.session_state[PICKED] = picked
        st.query_params["incident"] = picked
    st.session_state["tv_incident_row"] = picked


def death(story: IncidentStory, seen: Look) -> None:
    """What the ends of the logs say, when the run died; the first thing that is asked then."""
    if story.death is None and not story.death_note:
        return
    with st.container(key="tv-card-death"):
        with st.container(key="tv-head-death"):
            st.text("What the logs say")
        if story.death is None:
            st.text(story.death_note)
        else:
            fact_list(lines_of(story.death, seen.zone, seen.now_ns), key="tv_death")


def changes(story: IncidentStory) -> None:
    """What the start before the onset changed."""
    if story.changes is None and not story.changes_note:
        return
    with st.container(key="tv-card-changes"):
        with st.container(key="tv-head-changes"):
            st.text("What changed at this start")
        if story.changes is None:
            st.text(story.changes_note)
        else:
            tell_changes(story.changes, key="tv_incident_changes")


def detail(incident: Incident, seen: Look) -> None:
    story = incident_story(seen.run, seen.snapshot.nodes, incident)
    until = (
        f"ended {fmt.moment(incident.closed_at_ns, seen.zone, now_ns=seen.now_ns)}, {fmt.age((seen.now_ns - incident.closed_at_ns) / 1e9)}"
        if incident.closed_at_ns
        else f"still open after {fmt.span((seen.now_ns - incident.opened_at_ns) / 1e9)}"
    )
    st.text(f"{GLYPHS[incident.severity.value]} · {incident.title}")
    st.text(
        f"Began {fmt.moment(incident.opened_at_ns, seen.zone, now_ns=seen.now_ns)} at step {fmt.step(began_at(seen.run, incident))}; {until}."
    )
    people(incident, seen)
    death(story, seen)
    left, right = st.columns([1, 1.3])
    with left, st.container(key="tv-card-incident-checks"):
        st.text(f"Seen: {story.symptom.name}. First suspect: {story.suspect}")
        st.text(story.action)
        check_list(story.checks, key="tv_incident_checks")
    with right:
        changes(story)
    with right, st.container(key="tv-card-incident-findings"):
        st.text("Findings")
        st.dataframe(findings_frame(list(story.findings), seen), hide_index=True, key="tv_incident_findings")
        st.text(f"What happened within {fmt.span(NEAR_NS / 1e9)} around the onset")
        if story.near:
            st.dataframe(events_frame(list(story.near), seen), hide_index=True, key="tv_incident_near")
        else:
            st.text("Nothing that we know of.")
    add_note(seen, incident.first_step if incident.first_step is not None else seen.run.last_step)
    sent_note(seen)
    if incident.first_step is not None:
        first, last = window.around(incident.first_step, incident.last_step)
        own = max(attempts_in(incident, seen.run.findings), default=None)
        is_later = own is not None and any(one.number > own for one in seen.run.attempts)
        st.page_link(
            "curves.py", label="See it on the curves", icon=":material/show_chart:",
            query_params={
                "run": seen.run.name, **window.write("step", first, last), **({"attempt": str(own)} if is_later else {}),
            },
        )  # fmt: skip


def body() -> None:
    seen = look()
    if seen is None:
        return
    if not seen.run.incidents:
        st.text("No incident so far.")
        return
    asked = st.query_params.get("incident")
    is_known = any(incident.id == asked for incident in seen.run.incidents)
    if asked and not is_known:
        st.text(f"No incident {asked[:200]!r} in this run.")
    # Who comes by a link out of a message sees that one first; the list of all stands below.
    is_linked = st.session_state.setdefault(LINKED, asked or "") == asked and is_known
    if not is_linked:
        table(seen)
    incident = chosen(seen)
    if incident is not None:
        with st.container(key="tv-card-incident"):
            detail(incident, seen)
    if is_linked:
        table(seen)
    silences(seen)


head_fragment()
st.fragment(body, run_every=max(3.0, refresh_s()))()
