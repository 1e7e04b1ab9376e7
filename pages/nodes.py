"""Nodes: the wall, and a plain table of those that are not well."""

import pandas as pd
import streamlit as st

from pages._shared.components import node_wall
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s
from trainvitals.charts.nodes import wall_payload
from trainvitals.records import NodeSample
from trainvitals.web import format as fmt
from trainvitals.web.present import nodes_tile

PICKED = "tv_node"
WELL = frozenset({"ok", "no_gpu"})


def bad_frame(nodes: list[NodeSample], seen: Look) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "node": [node.node for node in nodes],
            "state": [node.state.replace("_", " ") + (" (simulated)" if node.is_simulated else "") for node in nodes],
            "last heard": [fmt.age((seen.now_ns - node.time_ns) / 1e9) for node in nodes],
            "GPUs": [node.gpus for node in nodes],
            "utilization %": [fmt.number(node.utilization_mean_percent) for node in nodes],
            "hottest °C": [fmt.number(node.temperature_max_c) for node in nodes],
            "last Xid": [fmt.count(node.xid_last) for node in nodes],
            "what": [node.text for node in nodes],
        }
    )


def gpu_frame(name: str, seen: Look) -> pd.DataFrame:
    gpus = [gpu for gpu in seen.snapshot.gpus if gpu.node == name]
    return pd.DataFrame(
        {
            "GPU": [gpu.index for gpu in gpus],
            "state": [gpu.state for gpu in gpus],
            "model": [gpu.name or fmt.UNKNOWN for gpu in gpus],
            "utilization %": [fmt.number(gpu.utilization_percent) for gpu in gpus],
            "memory": [f"{fmt.size(gpu.memory_used_bytes)} of {fmt.size(gpu.memory_total_bytes)}" for gpu in gpus],
            "°C": [fmt.number(gpu.temperature_c) for gpu in gpus],
            "W": [fmt.number(gpu.power_w) for gpu in gpus],
            "ECC uncorrected": [fmt.count(gpu.ecc_uncorrected) for gpu in gpus],
            "last Xid": [fmt.count(gpu.xid_last) for gpu in gpus],
            "UUID": [gpu.gpu for gpu in gpus],
        }
    )


def detail(name: str, seen: Look) -> None:
    node = next((node for node in seen.snapshot.nodes if node.node == name), None)
    if node is None:
        return
    with st.container(key="tv-card-node"):
        simulated = " · simulated, no real machine" if node.is_simulated else ""
        st.text(
            f"{node.node} · {node.state.replace('_', ' ')}{simulated} · last heard {fmt.age((seen.now_ns - node.time_ns) / 1e9)}"
        )
        if node.text:
            st.text(node.text)
        gpus = gpu_frame(name, seen)
        if len(gpus):
            st.dataframe(gpus, hide_index=True, key="tv_gpu_table")
        else:
            st.text(
                "No GPU of this node reports by itself." if node.state != "no_gpu" else "No GPU on this host (no NVIDIA driver)."
            )


def body() -> None:
    seen = look()
    if seen is None:
        return
    nodes = seen.snapshot.nodes
    if not nodes:
        st.text("No collector reports node health here. Training curves and checkpoints do not need it.")
        st.text("To add it: [gpu] enabled = true in trainvitals.toml, then python -m trainvitals up; see docs/collectors.md.")
        return
    tile = nodes_tile(nodes)
    st.text(f"{tile['value']} node{'s' if len(nodes) != 1 else ''} · {tile['context']}")
    without = [node.node for node in nodes if node.state == "no_gpu"]
    if without:
        shown = ", ".join(without[:5]) + (f" and {len(without) - 5:,} more" if len(without) > 5 else "")
        st.text(f"{shown}: no GPU on this host (no NVIDIA driver). That is no fault; there is no GPU health to show.")
    if any(node.is_simulated for node in nodes):
        st.text("Simulated nodes are drawn with a dashed edge: they are made up by the demo.")
    with st.container(key="tv-card-wall"):
        picked = node_wall(wall_payload(nodes, seen.snapshot.gpus), key="tv_wall", height=420)
    if picked:
        st.session_state[PICKED] = picked
    bad = [node for node in nodes if node.state not in WELL]
    if bad:
        table = bad_frame(bad, seen)
        event = st.dataframe(table, hide_index=True, key="tv_bad_nodes", on_select="rerun", selection_mode="single-row")
        rows = event["selection"]["rows"]
        chosen = str(table["node"].iloc[rows[0]]) if rows and rows[0] < len(table) else None
        if chosen is not None and chosen != st.session_state.get("tv_node_row"):
            st.session_state[PICKED] = chosen
        st.session_state["tv_node_row"] = chosen
    else:
        st.text("No node needs a look.")
    detail(str(st.session_state.get(PICKED, "")), seen)


head_fragment()
st.fragment(body, run_every=max(3.0, refresh_s()))()
