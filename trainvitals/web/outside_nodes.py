"""What another monitoring system says of machines now: lines for the Nodes page, also of machines on which no collector runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.alerts.text import plain
from trainvitals.incidents.outside import FORGOTTEN_NS, each_once, last_heard_ns
from trainvitals.records import Event, NodeSample, Severity
from trainvitals.web import format as fmt
from trainvitals.web.hosts import Names

MAX_LINES = 8
LINE_LIMIT = 300


def outside_lines(events: Sequence[Event], nodes: Sequence[NodeSample], zone: str, now_ns: int) -> tuple[str, ...]:
    """Alerts that fire now (and are repeated) and name a machine, the gravest first, then the newest; the last line says how many more there are."""
    known = Names(node.node for node in nodes)
    firing = [
        event
        for event in each_once([event for event in events if event.kind == "external"])
        if event.data.get("state") == "firing" and event.data.get("node")
        if event.severity is not Severity.INFO and now_ns - (last_heard_ns(event) or now_ns) <= FORGOTTEN_NS
    ]
    firing.sort(key=lambda event: (-event.severity.rank, -(event.time_ns or 0), event.id))
    lines = []
    for event in firing[:MAX_LINES]:
        node = str(event.data["node"])
        since = f", since {fmt.moment(event.time_ns, zone, now_ns=now_ns)}" if event.time_ns is not None else ""
        own = "" if known.find(node) else "; no collector of ours reports from it"
        lines.append(f"{event.severity.value}: {plain(event.text, LINE_LIMIT)}{since}{own}")
    if len(firing) > MAX_LINES:
        lines.append(f"and {len(firing) - MAX_LINES:,} more")
    return tuple(lines)
