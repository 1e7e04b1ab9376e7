"""Newest health of nodes and GPUs, from the store. A source that stopped reporting is a state of its own: silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pandas as pd

from trainvitals.records import GpuSample, NodeSample
from trainvitals.schema import SCHEMA
from trainvitals.settings import Settings
from trainvitals.store.protocol import Store

DAY_NS = 86_400 * 10**9
#: A node is shown this long after it was last heard of.
KEPT_NS = 24 * 3600 * 10**9
#: Missed samples that make a node silent, and the least time for that.
SILENT_PERIODS = 3.0
SILENT_FLOOR_S = 30.0


def nodes(store: Store, now_ns: int, settings: Settings) -> tuple[NodeSample, ...]:
    """Every node heard of in the last day, by name."""
    frame = store.latest(
        "node", [name for name in SCHEMA["node"].fields if name in _NODE_FIELDS], {}, KEPT_NS, now_ns + DAY_NS // 24
    )
    samples = [NodeSample(**_values(record, _NODE_FIELDS, now_ns, settings)) for record in frame.to_dict("records")]
    return tuple(sorted(samples, key=lambda sample: sample.node))


def gpus(store: Store, now_ns: int, settings: Settings) -> tuple[GpuSample, ...]:
    """Every GPU heard of in the last day, by node and index."""
    frame = store.latest(
        "gpu", [name for name in SCHEMA["gpu"].fields if name in _GPU_FIELDS], {}, KEPT_NS, now_ns + DAY_NS // 24
    )
    samples = [GpuSample(**_values(record, _GPU_FIELDS, now_ns, settings)) for record in frame.to_dict("records")]
    return tuple(sorted(samples, key=lambda sample: (sample.node, sample.index)))


_NODE_FIELDS = {declared.name: str(declared.type) for declared in fields(NodeSample)}
_GPU_FIELDS = {declared.name: str(declared.type) for declared in fields(GpuSample)}


def _values(record: Mapping[Any, Any], wanted: Mapping[str, str], now_ns: int, settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, declared in wanted.items():
        value = record.get(name)
        if value is None or pd.isna(value):
            if name == "index":
                values[name] = 0
            elif name == "state":
                values[name] = "silent"
            continue
        if declared.startswith("int"):
            values[name] = int(value)
        elif declared.startswith("float"):
            values[name] = float(value)
        elif declared.startswith("bool"):
            values[name] = bool(value)
        else:
            values[name] = str(value)
    silent_after_s = max(SILENT_FLOOR_S, SILENT_PERIODS * settings.gpu.period_s)
    if now_ns - values["time_ns"] > silent_after_s * 1e9 and values["state"] not in ("drained", "lost"):
        values["state"] = "silent"
    return values
