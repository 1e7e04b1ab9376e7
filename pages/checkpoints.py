"""Checkpoints: which one is safe, which ones are not and why, what a restart would load, and how well the run saves."""

import streamlit as st

from pages._shared.components import Column, Record, fact_list, judgement_list, live_chart, record_table
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s, theme
from trainvitals.charts.checkpoint_timeline import timeline_height, timeline_json
from trainvitals.charts.checkpoints import GOING, LOOKS, lanes_of
from trainvitals.records import CheckpointReport, CheckpointState
from trainvitals.web import checkpoint_words as words
from trainvitals.web import format as fmt

PICKED = "tv_checkpoint"
LIST_HEIGHT = 420
OPTIMIZER = {True: "yes", False: "NO", None: "not known"}


def nothing_yet(seen: Look) -> None:
    where = ", ".join(seen.run.settings.checkpoints)
    st.text(
        f"No checkpoint seen yet. Looked in: {where}."
        if where
        else 'No checkpoint directory is set: name one with checkpoints = ["DIR"] in the settings of this run.'
    )


def way_back(seen: Look) -> None:
    """The checkpoint to go back to, why that one, what it costs, and the command."""
    run, back = seen.run, seen.run.rollback
    with st.container(key="tv-card-way-back"):
        with st.container(key="tv-safe" if run.recommended is not None else "tv-trouble-safe"):
            st.text(words.safe_sentence(run))
        fact_list(words.way_back_lines(run), key="tv_way_back")
        if run.recommended is None:
            newer = words.rejected_lines(run)
            if newer:
                fact_list(newer, key="tv_rejected")
            return
        if back.needs_load and (command := words.verify_command(run.recommended, "load")):
            st.text("Another checkpoint of this run holds damaged numbers. Load this one before a restart:")
            st.code(command, language=None, wrap_lines=True)
        elif back.needs_content and (command := words.verify_command(run.recommended)):
            st.text("Nothing has compared its bytes yet. Do that before a restart:")
            st.code(command, language=None, wrap_lines=True)
        if back.command.text:
            st.text(
                "Only if that finds it sound, start the trainer again with:"
                if back.needs_load
                else "Start the trainer again with:"
            )
            st.code(back.command.text, language=None, wrap_lines=True)
        newer = words.rejected_lines(run)
        if newer:
            with st.expander("Why not a newer one", key="tv_why_not"):
                fact_list(newer, key="tv_rejected")


def starts(seen: Look) -> None:
    lines = words.start_lines(seen.run)
    if not lines:
        return
    with st.container(key="tv-card-starts"):
        with st.container(key="tv-head-starts"):
            st.text("Who went on from what")
        fact_list(lines, key="tv_starts")


def judgements(seen: Look) -> None:
    if not seen.run.card:
        return
    with st.container(key="tv-card-judgements"):
        with st.container(key="tv-head-judgements"):
            st.text("How well this run saves")
        judgement_list(seen.run.card, key="tv_judgements")


def timeline(seen: Look) -> None:
    run = seen.run
    around = words.around_of(run)
    lanes = {lane for lane, _ in lanes_of(run.checkpoint_history, run.attempts)} | {start.attempt for start in run.starts}
    has_saves = any(save.longest_s is not None for save in run.saves)
    with st.container(key="tv-card-timeline"):
        with st.container(key="tv-head-timeline"):
            st.text("Checkpoints by step · click one for its story")
        events = live_chart(
            timeline_json(run.checkpoints, run.attempts, theme(), run.checkpoint_history, run.suspects, around),
            key="tv_timeline",
            height=timeline_height(len(lanes), has_saves),
            label="checkpoints and saves by step",
        )
    if events.click and events.click.get("kind") == "checkpoint":
        st.session_state[PICKED] = str(events.click.get("id", ""))


def tone(report: CheckpointReport, seen: Look) -> str:
    look_tone = LOOKS[report.state][0]
    if report.state is CheckpointState.DELETED:
        return "faint"
    return "warning" if report.path in seen.run.suspects and look_tone != "critical" else look_tone


def table(seen: Look) -> None:
    """All checkpoints, the newest step first; a click tells one's story."""
    run, around = seen.run, words.around_of(seen.run)
    reports = words.table_reports(run)
    record_table(
        [Column("state", "short"), Column("step", "name"), Column("mark"), Column("notes", "lead"), Column("verified by", "short"),
         Column("optimizer", "short"), Column("training waited"), Column("size", "number"), Column("age", "short")],
        [
            Record(
                report.path,
                (f"{LOOKS[report.state][1]} {report.state.value.replace('_', ' ')}", fmt.step(report.step),
                 words.marks_of(report, run, around), "; ".join(report.reasons),
                 words.level_of(report) if report.level is not None else fmt.UNKNOWN,
                 fmt.UNKNOWN if report.state in GOING else OPTIMIZER[report.has_optimizer],
                 words.took(words.save_for(report, run.saves)), fmt.size(report.bytes) if report.bytes else fmt.UNKNOWN,
                 fmt.span((seen.now_ns - report.modified_at_ns) / 1e9) if report.modified_at_ns is not None else fmt.UNKNOWN),
                tone(report, seen),
            )
            for report in reports
        ],
        key="tv_checkpoint_table", label="checkpoints", max_height=LIST_HEIGHT, picked=str(st.session_state.get(PICKED, "")),
        on_pick=pick,
    )  # fmt: skip
    left = len(run.checkpoints) - len(reports)
    if left:
        st.text(f"{left:,} older ones are not shown; python -m trainvitals checkpoint list DIR shows all that are on disk.")


def pick(path: str) -> None:
    st.session_state[PICKED] = path


def detail(seen: Look) -> None:
    path = st.session_state.get(PICKED)
    report = next((report for report in seen.run.checkpoints if report.path == path), None)
    if report is None:
        return
    with st.container(key="tv-card-checkpoint"):
        with st.container(key="tv-head-checkpoint"):
            st.text(f"Step {fmt.step(report.step)}")
        fact_list(words.detail_lines(report, seen.run, seen.now_ns), key="tv_checkpoint_detail")
        st.code(report.path, language=None, wrap_lines=True)


def body() -> None:
    seen = look()
    if seen is None:
        return
    if sentence := words.look_sentence(seen.run):
        with st.container(key="tv-trouble-look"):
            st.text(sentence)
    if not seen.run.checkpoints:
        nothing_yet(seen)
        return
    way_back(seen)
    timeline(seen)
    left, right = st.columns([1.6, 1])
    with left:
        detail(seen)
        table(seen)
        starts(seen)
    with right:
        judgements(seen)


head_fragment()
st.fragment(body, run_every=max(5.0, refresh_s()))()
