"""Nodes: the wall, and a list of those that are not well, the gravest first."""

import streamlit as st

from pages._shared.components import Column, Record, node_wall, record_table
from pages._shared.frame import head_fragment
from pages._shared.state import Look, look, refresh_s
from trainvitals.charts.nodes import wall_payload
from trainvitals.records import GpuSample, NodeSample
from trainvitals.web import format as fmt
from trainvitals.web.outside_nodes import outside_lines
from trainvitals.web.present import nodes_tile

PICKED = "tv_node"
WELL = frozenset({"ok", "no_gpu"})


#: The gravest first: with a thousand nodes nobody reads to the end.
GRAVITY = ("fail", "lost", "silent", "warn", "drained", "warm")
LIST_HEIGHT = 360


def gravity(node: NodeSample) -> tuple[int, str]:
    return (GRAVITY.index(node.state) if node.state in GRAVITY else len(GRAVITY), node.node)


def tone(state: str) -> str:
    return "critical" if state in ("fail", "lost") else "warning" if state in ("warn", "silent") else ""


def bad_table(nodes: list[NodeSample], seen: Look) -> None:
    """Nodes that are not well; a click shows one's GPUs."""
    record_table(
        [Column("state", "short"), Column("node", "name"), Column("why", "lead"), Column("last heard", "short"), Column("GPUs", "number"),
         Column("busy", "number"), Column("hottest", "number"), Column("last Xid", "number")],
        [
            Record(
                node.node,
                (node.state.replace("_", " ") + (" (simulated)" if node.is_simulated else ""), node.node, node.text,
                 fmt.age(max(1.0, (seen.now_ns - node.time_ns) / 1e9)), fmt.count(node.gpus), with_unit(node.utilization_mean_percent, "%"),
                 with_unit(node.temperature_max_c, "°C"), fmt.count(node.xid_last)),
                tone(node.state),
            )
            for node in nodes
        ],
        key="tv_bad_nodes", label="nodes that are not well", max_height=LIST_HEIGHT, picked=str(st.session_state.get(PICKED, "")),
        on_pick=pick,
    )  # fmt: skip


def pick(name: str) -> None:
    st.session_state[PICKED] = name


def with_unit(value: float | None, unit: str) -> str:
    return fmt.UNKNOWN if value is None else f"{fmt.number(value)} {unit}"


def gpu_table(gpus: list[GpuSample]) -> None:
    record_table(
        [Column("GPU", "name"), Column("state", "short"), Column("busy", "number"), Column("memory", "short"), Column("temperature", "number"),
         Column("power", "number"), Column("ECC uncorrected", "number"), Column("last Xid", "number"), Column("model", "short"),
         Column("UUID", "short")],
        [
            Record(
                gpu.gpu or str(gpu.index),
                (f"GPU {gpu.index}", gpu.state.replace("_", " "), with_unit(gpu.utilization_percent, "%"),
                 f"{fmt.size(gpu.memory_used_bytes)} of {fmt.size(gpu.memory_total_bytes)}", with_unit(gpu.temperature_c, "°C"),
                 with_unit(gpu.power_w, "W"), fmt.count(gpu.ecc_uncorrected), fmt.count(gpu.xid_last), gpu.name or fmt.UNKNOWN, gpu.gpu),
                tone(gpu.state),
            )
            for gpu in gpus
        ],
        key="tv_gpu_table", label="GPUs of this node",
    )  # fmt: skip


def detail(name: str, seen: Look) -> None:
    node = next((node for node in seen.snapshot.nodes if node.node == name), None)
    if node is None:
        return
    with st.container(key="tv-card-node"):
        simulated = " · simulated, no real machine" if node.is_simulated else ""
        st.text(
            f"{node.node} · {node.state.replace('_', ' ')}{simulated} · last heard {fmt.age(max(1.0, (seen.now_ns - node.time_ns) / 1e9))}"
        )
        if node.text:
            st.text(node.text)
        gpus = [gpu for gpu in seen.snapshot.gpus if gpu.node == name]
        if gpus:
            gpu_table(gpus)
        else:
            st.text(
                "No GPU of this node reports by itself." if node.state != "no_gpu" else "No GPU on this host (no NVIDIA driver)."
            )


def outside(seen: Look) -> None:
    """What the Alertmanager says of machines, also of those on which no collector runs."""
    lines = outside_lines(seen.run.events, seen.snapshot.nodes, seen.zone, seen.now_ns)
    if lines:
        with st.container(key="tv-card-outside"):
            with st.container(key="tv-head-outside"):
                st.text("Told by your Alertmanager")
            for line in lines:
                st.text(line)


def body() -> None:
    seen = look()
    if seen is None:
        return
    nodes = seen.snapshot.nodes
    if not nodes:
        outside(seen)
        st.text("No collector reports node health here. Training curves and checkpoints do not need it.")
        st.text("To add it: [gpu] enabled = true in trainvitals.toml, then python -m trainvitals up; see docs/collectors.md.")
        return
    tile = nodes_tile(nodes, seen.now_ns)
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
        bad_table(sorted(bad, key=gravity), seen)
    else:
        st.text("No node needs a look.")
    outside(seen)
    detail(str(st.session_state.get(PICKED, "")), seen)


head_fragment()
st.fragment(body, run_every=max(3.0, refresh_s()))()
