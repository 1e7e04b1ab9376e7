"""Newest health of nodes and GPUs, from the store. A source that stopped reporting is a state of its own: silent.

Ages count on this machine's clock: one node's clock may be wrong, and a sample that never changes is no life.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pandas as pd

from trainvitals.incidents.amounts import span
from trainvitals.records import GpuSample, NodeSample
from trainvitals.schema import SCHEMA
from trainvitals.settings import Settings
from trainvitals.store.protocol import Store
from trainvitals.web.node_list import listed
from trainvitals.web.view import RunView

DAY_NS = 86_400 * 10**9
#: A node is shown this long after it was last heard of.
KEPT_NS = 24 * 3600 * 10**9
#: Missed samples that make a node silent, and the least time for that.
SILENT_PERIODS = 3.0
SILENT_FLOOR_S = 30.0
#: A difference between two clocks that is said and taken off; less is what delivery takes. Arrivals that it is judged by.
SKEW_S = 15.0
ARRIVALS = 6


def silent_after_s(settings: Settings) -> float:
    """Seconds without a sample that make a node silent."""
    return max(SILENT_FLOOR_S, SILENT_PERIODS * settings.gpu.period_s)


def nodes(store: Store, now_ns: int, settings: Settings) -> tuple[NodeSample, ...]:
    """Every node heard of in the last day, by name, as its own clock has it."""
    samples = _read(store, now_ns)
    return tuple(_silenced(one) if _is_silent(one, now_ns, settings) else one for one in samples)


def gpus(store: Store, now_ns: int, settings: Settings) -> tuple[GpuSample, ...]:
    """Every GPU heard of in the last day, by node and index, as its node's clock has it."""
    samples = _read_gpus(store, now_ns)
    return tuple(replace(one, state="silent") if _is_silent(one, now_ns, settings) else one for one in samples)


def _read(store: Store, now_ns: int) -> list[NodeSample]:
    frame = store.latest(
        "node", [name for name in SCHEMA["node"].fields if name in _NODE_FIELDS], {}, KEPT_NS, now_ns + DAY_NS // 24
    )
    samples = [NodeSample(**_values(record, _NODE_FIELDS)) for record in frame.to_dict("records")]
    return sorted(samples, key=lambda sample: sample.node)


def _read_gpus(store: Store, now_ns: int) -> list[GpuSample]:
    frame = store.latest(
        "gpu", [name for name in SCHEMA["gpu"].fields if name in _GPU_FIELDS], {}, KEPT_NS, now_ns + DAY_NS // 24
    )
    samples = [GpuSample(**_values(record, _GPU_FIELDS)) for record in frame.to_dict("records")]
    return sorted(samples, key=lambda sample: (sample.node, sample.index))


@dataclass
class _Heard:
    """time_ns: the newest sample's own. seen_ns: when it was first seen here. lags_ns: between the two, of the newest samples that were
    seen to arrive."""

    time_ns: int
    seen_ns: int
    lags_ns: deque[int] = field(default_factory=lambda: deque(maxlen=ARRIVALS))


class NodeReader:
    """One for each poller: it sees samples arrive, and so knows by how much each node's clock is off."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}

    def of(
        self, store: Store, now_ns: int, settings: Settings, runs: Sequence[RunView] = ()
    ) -> tuple[tuple[NodeSample, ...], tuple[GpuSample, ...]]:
        """(nodes by name, GPUs by node and index). runs: as last seen; the machines that they run on are missed when they are silent.
        Raises what the store raises."""
        found, devices = _read(store, now_ns), _read_gpus(store, now_ns)
        skews_ns = {one.node: self._skew_ns(one, now_ns) for one in found}
        for node in [node for node in self._heard if node not in skews_ns]:
            del self._heard[node]
        after_s = silent_after_s(settings)
        alive = [self._as_heard(one, skews_ns[one.node], now_ns, settings) for one in found]
        moved = [replace(one, time_ns=_moved(one.time_ns, skews_ns.get(one.node, 0), now_ns)) for one in devices]
        told = [replace(one, state="silent") if _is_silent(one, now_ns, settings) else one for one in moved]
        return listed(alive, told, runs, now_ns, after_s)

    def _skew_ns(self, sample: NodeSample, now_ns: int) -> int:
        """How far the node's clock is behind this one (negative: ahead), as far as that was seen."""
        heard = self._heard.get(sample.node)
        if heard is None:
            heard = self._heard[sample.node] = _Heard(sample.time_ns, now_ns)
        elif heard.time_ns != sample.time_ns:
            heard.time_ns, heard.seen_ns = sample.time_ns, now_ns
            heard.lags_ns.append(now_ns - sample.time_ns)
        # The least one: what is late was delivered late. A sample of which only the end was seen can be old, but not of the future.
        lag_ns = min(heard.lags_ns) if heard.lags_ns else min(0, heard.seen_ns - sample.time_ns)
        return lag_ns if abs(lag_ns) > SKEW_S * 1e9 else 0

    def _as_heard(self, sample: NodeSample, skew_ns: int, now_ns: int, settings: Settings) -> NodeSample:
        one = replace(sample, time_ns=_moved(sample.time_ns, skew_ns, now_ns))
        if skew_ns:
            side = "behind" if skew_ns > 0 else "ahead of"
            told = f"its clock is {span(abs(skew_ns) / 1e9)} {side} this machine's, or its samples come late"
            one = replace(one, text=f"{one.text}; {told}" if one.text else told)
        return _silenced(one) if _is_silent(one, now_ns, settings) else one


def _silenced(node: NodeSample) -> NodeSample:
    """What it said last is how it went: a node that failed and then fell silent did not fall silent out of health."""
    if node.state == "silent":
        return node
    return replace(
        node, state="silent", text=f"it last said {node.state.replace('_', ' ')}{f': {node.text}' if node.text else ''}"
    )


def _moved(time_ns: int, skew_ns: int, now_ns: int) -> int:
    return min(time_ns + skew_ns, now_ns) if skew_ns else time_ns


def _is_silent(sample: NodeSample | GpuSample, now_ns: int, settings: Settings) -> bool:
    return now_ns - sample.time_ns > silent_after_s(settings) * 1e9 and sample.state not in ("drained", "lost")


_NODE_FIELDS = {declared.name: str(declared.type) for declared in fields(NodeSample)}
_GPU_FIELDS = {declared.name: str(declared.type) for declared in fields(GpuSample)}


def _values(record: Mapping[Any, Any], wanted: Mapping[str, str]) -> dict[str, Any]:
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
    return values
