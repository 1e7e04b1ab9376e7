"""Machines of which only the Alertmanager speaks stand on the Nodes page, too."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.incidents.outside import FORGOTTEN_NS, outside_alerts
from trainvitals.records import Event, NodeSample, Severity
from trainvitals.web.outside_nodes import MAX_LINES, outside_lines

NOW = 1_795_000_000 * 10**9
UTC = "UTC"


def alert(node: str, severity: Severity = Severity.WARNING, state: str = "firing", age_s: int = 60) -> Event:
    return Event(
        "external", NOW - age_s * 10**9, id=f"a/{node}", severity=severity, source="alertmanager", text=f"NodeDown on {node}",
        data={"state": state, "name": "NodeDown", "node": node},
    )  # fmt: skip


def test_what_fires_is_told_the_gravest_first_and_whether_a_collector_is_there() -> None:
    lines = outside_lines(
        [alert("node15.example"), alert("node17", Severity.CRITICAL), alert("node18", state="resolved"), alert("", Severity.CRITICAL)],
        [NodeSample("node15", NOW, "ok")], UTC, NOW,
    )  # fmt: skip
    assert len(lines) == 2
    assert lines[0].startswith("critical: NodeDown on node17, since ")
    assert lines[0].endswith("; no collector of ours reports from it")
    assert lines[1].startswith("warning: NodeDown on node15.example")
    assert "no collector" not in lines[1]


def test_a_storm_of_alerts_is_a_few_lines_and_a_number() -> None:
    lines = outside_lines([alert(f"node{number}") for number in range(MAX_LINES + 5)], [], UTC, NOW)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "and 5 more"


def test_an_alert_that_nobody_repeats_does_not_fire_for_ever() -> None:
    heard = alert("node1", Severity.CRITICAL, age_s=10**6)
    for age_ns, count in ((FORGOTTEN_NS - 1, 1), (FORGOTTEN_NS + 1, 0)):
        event = replace(heard, data={**heard.data, "heard_ns": NOW - age_ns})
        assert len(outside_lines([event], [], UTC, NOW)) == count
        assert bool(outside_alerts([event], NOW + 30 * 60 * 10**9, 30 * 60 * 10**9)) == bool(count)


def test_what_is_no_matter_is_no_line() -> None:
    assert (
        outside_lines([alert("node1", Severity.INFO), Event("fault", NOW, data={"state": "firing", "node": "n"})], [], UTC, NOW)
        == ()
    )
