"""Incidents: what belongs together, the first suspect, and the checks in the order data, code, numerics, cluster."""

import streamlit as st

from pages._shared.components import Column, Record, check_list, fact_list, live_chart, record_table
from pages._shared.frame import head_fragment
from pages._shared.incident_people import people, silences
from pages._shared.notes import add_note, sent_note
from pages._shared.state import Look, look, refresh_s, the_poller, theme
from pages._shared.story import GLYPHS, events_table, findings_table, steps_of, tell_changes, tone_of
from trainvitals.records import Incident
from trainvitals.web import format as fmt
from trainvitals.web import window
from trainvitals.web.death import lines_of
from trainvitals.web.incident import NEAR_NS, IncidentStory, began_at, incident_story
from trainvitals.web.incident_then import attempts_in
from trainvitals.web.view import CurveQuery

PICKED = "tv_incident"
#: The incident that the address named when this visit began.
LINKED = "tv_incident_linked"
CURVE_HEIGHT = 300
#: A long list scrolls by itself, so that what is below it stays in reach.
LIST_HEIGHT = 300


def chosen(seen: Look) -> Incident | None:
    """The incident of the address, else the one picked in the table, else the most urgent one."""
    asked = st.query_params.get("incident") or st.session_state.get(PICKED)
    found = next((incident for incident in seen.run.incidents if incident.id == asked), None)
    return found or next(iter(seen.run.incidents), None)


def table(seen: Look, shown: Incident | None) -> None:
    """All incidents; a click shows another one below."""
    record_table(
        [Column("severity", "short"), Column("what", "lead"), Column("state", "short"), Column("steps", "short"),
         Column("began", "short"), Column("lasted", "short"), Column("who has it")],
        [
            Record(
                one.id,
                (GLYPHS[one.severity.value], one.title, "open" if one.is_open else "over",
                 steps_of(began_at(seen.run, one), one.last_step, is_open=one.is_open),
                 fmt.moment(one.opened_at_ns, seen.zone, now_ns=seen.now_ns),
                 fmt.span(((one.closed_at_ns or seen.now_ns) - one.opened_at_ns) / 1e9), one.acknowledged_by),
                tone_of(one.severity.value, is_open=one.is_open),
            )
            for one in seen.run.incidents
        ],
        key="tv_incident_table", label="incidents", max_height=LIST_HEIGHT, picked=shown.id if shown is not None else "",
        on_pick=pick,
    )  # fmt: skip


def pick(identifier: str) -> None:
    st.session_state[PICKED] = identifier
    st.query_params["incident"] = identifier


def curve(incident: Incident, seen: Look) -> None:
    """The curves around the moment: what the loss did, and what moved before it."""
    if incident.first_step is None or seen.run.last_step is None:
        return
    first, last = window.around(incident.first_step, incident.last_step)
    own = seen.run.last_of(attempts_in(incident, seen.run.findings))
    is_later = own is not None and bool(seen.run.later_than(own))
    query = CurveQuery(
        seen.run.name, ("loss", "grad_norm", "throughput"), by="step", start=first, end=min(last, max(seen.run.last_step, first + 1)),
        theme=theme(), compact=True, until_attempt=own if is_later else None,
    )  # fmt: skip
    with st.container(key="tv-card-incident-curve"):
        with st.container(horizontal=True, vertical_alignment="center", key="tv-head-incident-curve"):
            st.text(f"Around the onset: steps {fmt.step(first)} to {fmt.step(query.end)}")
            st.page_link(
                "curves.py", label="All curves", icon=":material/show_chart:",
                query_params={
                    "run": seen.run.name, **window.write("step", first, last), **({"attempt": str(own)} if is_later else {}),
                },
            )  # fmt: skip
        result = the_poller().curves(query)
        if result is None:
            st.text("Drawing …")
            return
        if result.error:
            st.text(f"⚠ {result.error}")
        if result.figure_json:
            live_chart(
                result.figure_json, key="tv_incident_curve", height=CURVE_HEIGHT, uirevision=incident.id,
                label="loss, grad norm and throughput around the onset",
            )  # fmt: skip


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
    with st.container(key=f"tv-title-{incident.severity.value if incident.is_open else 'over'}"):
        st.text(f"{GLYPHS[incident.severity.value]} · {incident.title}")
    st.text(
        f"Began {fmt.moment(incident.opened_at_ns, seen.zone, now_ns=seen.now_ns)} at step {fmt.step(began_at(seen.run, incident))}; {until}."
    )
    people(incident, seen)
    death(story, seen)
    curve(incident, seen)
    left, right = st.columns([1, 1.3])
    with left, st.container(key="tv-card-incident-checks"):
        with st.container(key="tv-strong-suspect"):
            st.text(f"Seen: {story.symptom.name}. First suspect: {story.suspect}")
        st.text(story.action)
        check_list(story.checks, key="tv_incident_checks")
        if story.nodes_then:
            st.text(f"Nodes when it began: {story.nodes_then}.")
    with right:
        changes(story)
    with right, st.container(key="tv-card-incident-findings"):
        with st.container(key="tv-head-findings"):
            st.text("Findings")
        findings_table(list(story.findings), seen, key="tv_incident_findings")
        with st.container(key="tv-head-near"):
            st.text(f"What happened within {fmt.span(NEAR_NS / 1e9)} around the onset")
        if story.near:
            events_table(list(story.near), seen, key="tv_incident_near", max_height=LIST_HEIGHT)
        else:
            st.text("Nothing that we know of.")
    add_note(seen, incident.first_step if incident.first_step is not None else seen.run.last_step)
    sent_note(seen)


def body() -> None:
    seen = look()
    if seen is None:
        return
    if not seen.run.incidents:
        st.text("No incident so far.")
        return
    if not any(incident.is_open for incident in seen.run.incidents):
        st.text("No incident is open; what stands here is over.")
    asked = st.query_params.get("incident")
    is_known = any(incident.id == asked for incident in seen.run.incidents)
    if asked and not is_known:
        st.text(f"No incident {asked[:200]!r} in this run.")
    # Who comes by a link out of a message sees that one first; the list of all stands below.
    is_linked = st.session_state.setdefault(LINKED, asked or "") == asked and is_known
    incident = chosen(seen)
    if not is_linked:
        table(seen, incident)
    if incident is not None:
        with st.container(key="tv-card-incident"):
            detail(incident, seen)
    if is_linked:
        table(seen, incident)
    silences(seen)


head_fragment(offers_acknowledge=False)
st.fragment(body, run_every=max(3.0, refresh_s()))()
