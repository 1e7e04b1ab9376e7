"""Checkpoints: which one is safe, which ones are not and why, on the run's own step axis."""

import pandas as pd
import streamlit as st

from pages._shared.components import live_chart
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s, theme
from pages._shared.story import table_height
from trainvitals.charts.checkpoints import DAMAGED, LOOKS, lanes_of, suspicion, timeline_json
from trainvitals.records import CheckpointReport
from trainvitals.web import format as fmt
from trainvitals.web.present import rollback_cost

PICKED = "tv_checkpoint"


def summary(seen: Look) -> None:
    run = seen.run
    if not run.checkpoints:
        where = ", ".join(run.settings.checkpoints)
        st.text(
            f"No checkpoint seen yet. Looked in: {where}."
            if where
            else 'No checkpoint directory is set: name one with checkpoints = ["DIR"] in the settings of this run.'
        )
        return
    safe = run.recommended
    if safe is None:
        st.text(
            "No checkpoint is safe: those that verify were saved while the loss was not well."
            if run.newest_verified is not None and run.newest_verified.path in run.suspects
            else "No checkpoint is verified yet: none can be called safe."
        )
    else:
        newest = run.newest_verified
        onset = run.suspects.get(newest.path) if newest is not None else None
        why = f" (before the onset at step {fmt.step(onset)})" if onset is not None else ""
        st.text(f"Safe: step {fmt.step(safe.step)}{why}, verified by {level(safe)}. {rollback_cost(run)}")


def level(report: CheckpointReport) -> str:
    return report.level.value if report.level is not None else "nothing"


def optimizer(report: CheckpointReport) -> str:
    return {True: "yes", False: "NO", None: "not known"}[report.has_optimizer]


def frame(seen: Look) -> pd.DataFrame:
    """The table, newest step first."""
    reports = list(reversed(seen.run.checkpoints))
    safe = seen.run.recommended.path if seen.run.recommended is not None else None
    return pd.DataFrame(
        {
            "step": [fmt.step(report.step) for report in reports],
            "state": [f"{LOOKS[report.state][1]} {report.state.value.replace('_', ' ')}" for report in reports],
            "verified by": [level(report) if report.level is not None else "–" for report in reports],
            "safe": [
                "◀ safe" if report.path == safe else f"! suspect since {fmt.step(onset)}" if onset is not None else ""
                for report, onset in ((report, seen.run.suspects.get(report.path)) for report in reports)
            ],
            "optimizer": [optimizer(report) for report in reports],
            "size": [fmt.size(report.bytes) for report in reports],
            "age": [
                fmt.span((seen.now_ns - report.modified_at_ns) / 1e9) if report.modified_at_ns is not None else fmt.UNKNOWN
                for report in reports
            ],
            "reasons": ["; ".join(report.reasons) for report in reports],
            "path": [report.path for report in reports],
        }
    )


def detail(seen: Look) -> None:
    path = st.session_state.get(PICKED)
    report = next((report for report in seen.run.checkpoints if report.path == path), None)
    if report is None:
        return
    with st.container(key="tv-card-checkpoint"):
        state = report.state.value.replace("_", " ")
        st.text(
            f"Step {fmt.step(report.step)} · {state} · verified by {level(report)} · optimizer state: {optimizer(report)} · "
            f"{report.files:,} files, {fmt.size(report.bytes)} · {report.format}"
            + (f" · loss {fmt.number(report.loss)}" if report.loss is not None else "")
        )
        st.text(f"Written {fmt.moment(report.modified_at_ns, seen.zone, now_ns=seen.now_ns)}.")
        if report.path in seen.run.suspects:
            st.text(f"! {suspicion(seen.run.suspects[report.path])}. Its files may be whole; its weights may not be.")
        for reason in report.reasons[:20]:
            st.text(f"• {reason}")
        for lane, earlier in lanes_of(seen.run.checkpoint_history, seen.run.attempts):
            if earlier.path == report.path and earlier.state in DAMAGED and earlier.modified_at_ns != report.modified_at_ns:
                reasons = "; ".join(earlier.reasons[:5])
                st.text(
                    f"{LOOKS[earlier.state][1]} Attempt {lane} left it {earlier.state.value}"
                    + (f": {reasons}" if reasons else "")
                    + "."
                )
        st.code(report.path, language=None, wrap_lines=True)


def body() -> None:
    seen = look()
    if seen is None:
        return
    summary(seen)
    if not seen.run.checkpoints:
        return
    lanes = len({lane for lane, _ in lanes_of(seen.run.checkpoint_history, seen.run.attempts)})
    with st.container(key="tv-card-timeline"):
        events = live_chart(
            timeline_json(seen.run.checkpoints, seen.run.attempts, theme(), seen.run.checkpoint_history, seen.run.suspects),
            key="tv_timeline",
            height=max(110, 70 + 34 * max(1, lanes)),
            label="checkpoints by step",
        )
    if events.click and events.click.get("kind") == "checkpoint":
        st.session_state[PICKED] = str(events.click.get("id", ""))
    table = frame(seen)
    event = st.dataframe(
        table, hide_index=True, key="tv_checkpoint_table", on_select="rerun", selection_mode="single-row",
        height=table_height(len(table), 360),
    )  # fmt: skip
    rows = event["selection"]["rows"]
    chosen = str(table["path"].iloc[rows[0]]) if rows and rows[0] < len(table) else None
    if chosen is not None and chosen != st.session_state.get("tv_checkpoint_row"):
        st.session_state[PICKED] = chosen
    st.session_state["tv_checkpoint_row"] = chosen
    detail(seen)


head_fragment()
st.fragment(body, run_every=max(5.0, refresh_s()))()
