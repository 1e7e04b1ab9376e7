"""All components on one page, with data of our own making; the query chooses what is shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages._shared.components import check_list, checkpoint_strip, kpi_row, live_chart, node_wall, verdict_band
from trainvitals.charts.build import curve_data
from trainvitals.charts.checkpoint_timeline import timeline_json
from trainvitals.charts.checkpoints import strip
from trainvitals.charts.curves import figure_json, overview_figure_json
from trainvitals.charts.nodes import wall_payload
from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    Event,
    Finding,
    GpuSample,
    NodeSample,
    Severity,
    VerificationLevel,
)  # fmt: skip
from trainvitals.web.view import AttemptView

st.set_page_config(layout="wide", initial_sidebar_state="collapsed")
HOSTILE = '<img src=x onerror="fetch(\'/stolen\')"> ![](http://evil.example/p.png) <a href="http://evil.example">click</a> $x$'
BASE_NS = 1_767_323_000_000_000_000
is_hostile, is_calm = st.query_params.get("hostile") == "1", st.query_params.get("calm") == "1"
every = float(st.query_params.get("every", "0")) or None
by = st.query_params.get("by", "step")
theme = "dark" if st.context.theme.type == "dark" else "light"
text = HOSTILE if is_hostile else ""


def frame(last: int) -> pd.DataFrame:
    """600 buckets of 4 steps up to ``last``; loss rises from step 48,210 on, one spike at 47,200."""
    rng = np.random.default_rng(3)
    step = np.arange(last - 2400, last, 4)
    noise = rng.normal(0, 0.012, len(step))
    late = np.zeros(len(step)) if is_calm else np.clip((step - 48210) / 60, 0, 1)
    loss = 2.31 + noise + 0.63 * late * (1 + 0.08 * rng.normal(size=len(step)))
    norm = np.exp(rng.normal(-1.55, 0.12, len(step)) + 4.2 * (0 if is_calm else np.clip((step - 48206) / 20, 0, 1)))
    tokens = 2.61e6 * (1 + 0.01 * rng.normal(size=len(step))) - np.where(step % 500 < 8, 9e5, 0)
    columns = {"bucket": step, "run": "llama-70b", "attempt": "7", "time_ns": BASE_NS + step * 750_000_000, "step": step,
               "n": 4, "nonfinite": np.where(step == 47600, 1, 0)}  # fmt: skip
    for name, values, wide in (("loss", loss, 0.02), ("grad_norm", norm, 0.03), ("tokens_per_s", tokens, 3e4),
                               ("lr", 3e-4 * np.cos(step / 90000), 0), ("gpu_utilization", 96 + 2 * rng.normal(size=len(step)), 0.5)):  # fmt: skip
        top = values + wide * rng.random(len(step))
        if name == "loss":
            top = np.where(step == 47200, 2.62, top)
        columns |= {
            f"{name}_min": values - wide * rng.random(len(step)),
            f"{name}_max": top,
            f"{name}_mean": values,
            f"{name}_last": values,
        }
    made = pd.DataFrame(columns)
    made.loc[made["step"] == 47600, ["grad_norm_min", "grad_norm_max", "grad_norm_mean"]] = np.nan
    older = made[(made["step"] > last - 2100) & (made["step"] < last - 1700)].assign(
        attempt="6", loss_mean=lambda f: f["loss_mean"] + 0.06
    )
    older = older.assign(loss_min=older["loss_mean"] - 0.02, loss_max=older["loss_mean"] + 0.02)
    newer = made[made["step"] >= last - 1900]
    return pd.concat([made[made["step"] < last - 2096].assign(attempt="6"), older, newer], ignore_index=True)


def finding(rule: str, severity: Severity, step: int, message: str, is_open: bool = False) -> Finding:
    return Finding(f"{rule}/{step}", rule, rule.split("_")[0], severity, step, step, None if is_open else step + 5, 7,
                   BASE_NS + step * 750_000_000, 2.9, 2.3, text or message, is_open)  # fmt: skip


def checkpoints() -> list[CheckpointReport]:
    made = []
    for number in range(18):
        step = 40_500 + number * 500
        state = (
            CheckpointState.VERIFIED if step <= 48_000 else CheckpointState.COMPLETE if step < 49_000 else CheckpointState.WRITING
        )
        level = VerificationLevel.CONTENT if 46_500 <= step <= 48_000 else VerificationLevel.STRUCTURE if step < 46_500 else None
        if step == 44_000:
            state, level = CheckpointState.CORRUPT, None
        if step == 45_500:
            state, level = CheckpointState.INCOMPLETE, None
        made.append(CheckpointReport(f"/ckpt/{text}iter_{step:07d}", step, "torch_dist", state, level, True, 34, 812_000_000_000,
                                     (text,) if text else (), BASE_NS + step * 750_000_000))  # fmt: skip
    return made


def nodes() -> tuple[list[NodeSample], list[GpuSample]]:
    made, gpus = [], []
    for rack in range(int(st.query_params.get("racks", "40"))):
        for slot in range(16):
            name = f"rack{rack:02d}-node{slot:02d}" + (f" {text}" if text and not rack else "")
            index = rack * 16 + slot
            state = {17: "warm", 40: "warn", 99: "fail", 140: "silent", 200: "drained"}.get(index, "ok")
            made.append(NodeSample(name, BASE_NS, state, 8, is_simulated=rack >= 36, text="Xid 79" if state == "fail" else ""))
            gpus += [
                GpuSample(name, f"GPU-{index}-{g}", g, BASE_NS, "lost" if state == "fail" and g == 5 else "ok") for g in range(8)
            ]
    return made, gpus


def body() -> None:
    ticks = st.session_state["ticks"] = st.session_state.get("ticks", 0) + 1
    if is_calm:
        view = {"word": "healthy", "tone": "ok", "since": "02:11", "facts": ["step 48,310"], "data_age_s": 1.0}
    else:
        view = {
            "word": "TRAINING-SICK", "tone": "critical", "headline": text or "loss 2.31 → 2.94 since step 48,210, not coming back",
            "automatic": text or "Paused at step 48,310 by the breaker, 4 min 12 s ago, acknowledged by the trainer.",
            "decision": "roll back redoes 310 steps = 2,650 GPU-h; holding costs 85 GPU-h a minute. Decide before 03:38 (hold ends).",
            "facts": ["step 48,310"], "data_age_s": 1.0,
            "actions": [{"id": "rollback", "label": text or "Roll back to 48,000…", "is_primary": True},
                        {"id": "resume", "label": "Resume…"}, {"id": "acknowledge", "label": "Acknowledge"}],
        }  # fmt: skip
    verdict_band(view, key="band", on_action=lambda action: st.session_state.update(action=action))
    kpi_row(
        [{"label": "Step", "value": "48,310", "context": "of 120,000"},
         {"label": "Loss", "value": "2.94", "context": text or "usual 2.31", "tone": "" if is_calm else "critical"},
         {"label": "Grad norm", "value": "14.2", "context": "66× usual", "tone": "" if is_calm else "warning"},
         {"label": "Tokens/s", "value": "0", "context": "paused, was 2.61 M"},
         {"label": "MFU", "value": "41.8 %", "context": "before pause"},
         {"label": "Newest verified checkpoint", "value": "48,000", "context": "content"},
         {"label": "Nodes", "value": "640", "context": "0 failed · 1 warm"}],
        key="kpi",
    )  # fmt: skip
    found = [finding("loss_outlier", Severity.INFO, 47_200, "one step far above, back at once")]
    if not is_calm:
        found += [finding("loss_divergence", Severity.CRITICAL, 48_210, "loss 2.31 → 2.94 since step 48,210, not coming back", True),
                  finding("grad_norm_spike", Severity.WARNING, 48_206, "grad norm 66× usual")]  # fmt: skip
    events = [Event("phase", BASE_NS + 48_310 * 750_000_000, 48_310, 7, "p", source="breaker",
                    data={"phase": "paused", "state": "begin", "source": "breaker"})] if not is_calm else []  # fmt: skip
    attempts = [AttemptView(6, BASE_NS, 1, 46_600), AttemptView(7, BASE_NS + 46_410 * 750_000_000, 46_410, None)]
    last = min(48_306, 47_900 + ticks * 4) if every else 48_312
    end = 49_000 if by == "step" else (BASE_NS + 49_000 * 750_000_000) / 1e6
    begin = 45_900 if by == "step" else (BASE_NS + 45_900 * 750_000_000) / 1e6
    window = (begin, 48_330 if by == "step" and is_calm else end)
    data = curve_data(frame(last), found, events, checkpoints(), attempts, ("loss", "grad_norm", "throughput", "lr", "gpu_utilization"),
                      by, x_range=window, uirevision="llama-70b")  # fmt: skip
    left, right = st.columns([2.7, 1])
    with left.container(border=True):
        drawn = overview_figure_json(data, theme) if st.query_params.get("overview") == "1" else figure_json(data, theme)
        chart = live_chart(drawn, key="chart", height=520)
    with right.container(border=True):
        check_list(
            [{"layer": "data", "mark": "!", "title": text or "New shard mix began at step 48,190", "evidence": "20 steps before the onset; longest repeat 41 % (run usual 0.3 %)"},
             {"layer": "code", "mark": "–", "title": "No resume, config and script unchanged", "evidence": "since attempt 7 began, 31 h ago"},
             {"layer": "numerics", "mark": "–", "title": "bf16, clipping hit on 96 of 100 steps", "evidence": "usual 4 %; no loss-scale skips"},
             {"layer": "cluster", "mark": "?", "title": "No node reports", "evidence": "no collector runs here"}],
            key="checks",
        )  # fmt: skip
    found_checkpoints = checkpoints()
    safe = next(one for one in found_checkpoints if one.step == 48_000)
    left, right = st.columns(2)
    with left.container(border=True):
        path = checkpoint_strip(strip(found_checkpoints, safe), key="strip")
    payload = wall_payload(*nodes())
    with right.container(border=True):
        node_wall(payload, key="small-wall", compact=True)
    with st.container(border=True):
        node = node_wall(payload, key="wall")
    with st.container(border=True):
        timeline = live_chart(timeline_json(found_checkpoints, attempts, theme), key="timeline", height=150)
    for name, value in (("path", path), ("node", node), ("click", chart.click or timeline.click)):
        if value:
            st.session_state[name] = value
    shown = {name: st.session_state.get(name) for name in ("action", "path", "node", "click")}
    st.code(
        f"ticks={ticks} live={chart.live} range={chart.range}\n" + "\n".join(f"{name}={value}" for name, value in shown.items()),
        language=None,
    )


st.fragment(run_every=every)(body)()
