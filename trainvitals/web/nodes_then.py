"""What the nodes looked like when an incident opened, and what another monitoring said then: read once from what is stored, and kept
with the incident. The newest alerts alone are read at each look, and one that flaps pushes all others out of them.

Single samples are kept for days, ten-minute summaries for ever; what is older than the former is told by the worst of its ten minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from trainvitals.incidents.outside import each_once
from trainvitals.incidents.triage import BAD_NODE_STATES
from trainvitals.records import Event, Incident, NodeSample
from trainvitals.schema import NODE_ROLLUP, NODE_ROLLUP_NS
from trainvitals.store.protocol import Store
from trainvitals.store.rollup import NODE_STATES

#: Samples this long before and after it opened tell how the nodes were; a node that was there before and has none of them was silent.
BEFORE_NS, AFTER_NS = 120 * 10**9, 120 * 10**9
THERE_NS = 3 * NODE_ROLLUP_NS
DAY_NS, OUTSIDE_AFTER_NS, MAX_OUTSIDE, MAX_OUTSIDE_ROWS = 86_400 * 10**9, 30 * 60 * 10**9, 100, 2_000
MAX_ROWS = 30_000
MAX_NODES = 2_000
#: Incidents that are looked at, the newest; of these so many new ones a look.
MAX_INCIDENTS, MAX_NEW = 40, 1
#: Nodes named in a sentence, and the longest piece of what one of them said.
NAMED, QUOTE_LIMIT = 4, 120
_FIELDS = ["state", "gpus", "text", "run", "is_simulated"]


@dataclass
class NodesThenReader:
    """One for each poller: what is past is read once."""

    _known: dict[tuple[str, str], tuple[tuple[NodeSample, ...], tuple[Event, ...]]] = field(default_factory=dict)

    def of(
        self, store: Store, run: str, incidents: Sequence[Incident], now_ns: int
    ) -> dict[str, tuple[tuple[NodeSample, ...], tuple[Event, ...]]]:  # fmt: skip
        """Incident id -> (the nodes then, by name; alerts from outside); none while samples may still come. Raises what the store raises."""
        newest = sorted(incidents, key=lambda one: (one.is_open, one.opened_at_ns), reverse=True)[:MAX_INCIDENTS]
        found, left = {}, MAX_NEW
        for incident in newest:
            kept = self._known.get((run, incident.id))
            if kept is None and left > 0 and now_ns > incident.opened_at_ns + AFTER_NS:
                left -= 1
                at_ns = incident.opened_at_ns
                kept = self._known[run, incident.id] = nodes_at(store, at_ns), outside_at(store, run, at_ns)
            if kept is not None and any(kept):
                found[incident.id] = kept
        wanted = {(run, incident.id) for incident in newest}
        for key in [key for key in self._known if key[0] == run and key not in wanted]:
            del self._known[key]
        return found


def nodes_at(store: Store, time_ns: int) -> tuple[NodeSample, ...]:
    """The worst that each node said around ``time_ns``, by name; silent are those that had reported before. Raises what the store raises."""
    rows = store.raw("node", _FIELDS, {}, time_ns - BEFORE_NS, time_ns + AFTER_NS, limit=MAX_ROWS, newest_first=True)
    before = store.raw(
        NODE_ROLLUP, ["state", "worst_state", "gpus", "run", "is_simulated"], {}, time_ns - THERE_NS, time_ns + 1,
        limit=MAX_ROWS, newest_first=True,
    )  # fmt: skip
    found = _worst(rows, "state")
    if not found:
        within = before[before["time_ns"] > time_ns - NODE_ROLLUP_NS] if len(before) else before
        found = _worst(within, "worst_state")
    for name, one in _worst(before, "state").items():
        if name not in found:
            found[name] = NodeSample(name, one.time_ns, "silent", one.gpus, run=one.run, is_simulated=one.is_simulated)
    ordered = sorted(found.values(), key=lambda one: (one.state not in BAD_NODE_STATES, one.node))[:MAX_NODES]
    return tuple(sorted(ordered, key=lambda one: one.node))


def outside_at(store: Store, run: str, time_ns: int) -> tuple[Event, ...]:
    """Alerts of another monitoring that began within a day before, of the run and of the cluster. Raises what the store raises."""
    found: list[Event] = []
    for owner in (run, ""):
        found += store.events(
            owner, ("external",), time_ns - DAY_NS, time_ns + OUTSIDE_AFTER_NS, limit=MAX_OUTSIDE_ROWS, newest_first=True
        )
    once = sorted(each_once(found), key=lambda event: (-event.severity.rank, -(event.time_ns or 0)))
    return tuple(once[:MAX_OUTSIDE])


def _worst(rows: pd.DataFrame, state: str) -> dict[str, NodeSample]:
    found: dict[str, NodeSample] = {}
    for row in rows.to_dict("records"):
        name, told = str(row["node"]), row.get(state)
        one = NodeSample(
            name, int(row["time_ns"]), told if isinstance(told, str) and told else "unknown", _whole(row.get("gpus")),
            run=_text(row.get("run")), is_simulated=row.get("is_simulated") == 1, text=_text(row.get("text")),
        )  # fmt: skip
        if name not in found or _gravity(one) > _gravity(found[name]):
            found[name] = one
    return found


def _gravity(node: NodeSample) -> int:
    return NODE_STATES.index(node.state) if node.state in NODE_STATES else -1


def _whole(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) and not pd.isna(value) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def then_words(nodes: Sequence[NodeSample]) -> str:
    """``62 of 64 reported; node17 fail (GPU 3 is lost), node18 silent``; "" when none is known."""
    if not nodes or all(node.state == "no_gpu" for node in nodes):
        return ""
    silent = sum(node.state == "silent" for node in nodes)
    bad = sorted((node for node in nodes if node.state in BAD_NODE_STATES), key=lambda one: (-_gravity(one), one.node))
    named = [
        f"{node.node} {node.state}{' (simulated)' if node.is_simulated else ''}"
        + (f" ({node.text[:QUOTE_LIMIT]})" if node.text and not node.is_simulated else "")
        for node in bad[:NAMED]
    ]
    more = f" and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    return f"{len(nodes) - silent:,} of {len(nodes):,} reported; {', '.join(named) + more if bad else 'all of them well'}"
