"""Alerts of another monitoring system are evidence about the cluster when they fired around the onset."""

from __future__ import annotations

import pytest

from trainvitals.incidents.outside import outside_alerts
from trainvitals.incidents.triage import CLUSTER_WINDOW_NS, Evidence, triage
from trainvitals.records import Event, Severity

ONSET_NS = 1_767_323_045 * 10**9
MINUTE_NS = 60 * 10**9


def outside(minutes, severity=Severity.WARNING, ended=None, text="LinkFlaps on n1: port 3"):
    ended_ns = None if ended is None else ONSET_NS + ended * MINUTE_NS
    return Event("external", ONSET_NS + minutes * MINUTE_NS, severity=severity, text=text, data={"ended_ns": ended_ns})


def cluster(*events):
    evidence = Evidence(onset_step=100, onset_ns=ONSET_NS, events=events)
    return next(check for check in triage("throughput_drop", evidence) if check.layer == "cluster")


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (outside(-5), True), (outside(10), True), (outside(-2_000), True), (outside(-2_000, ended=-20), True),
        (outside(-2_000, ended=-40), False), (outside(40), False), (outside(-5, Severity.INFO), False),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_fired_around_the_onset_counts(event, counts):
    check = cluster(event)
    assert (check.mark == "!") is counts
    assert ("your monitoring: LinkFlaps on n1" in check.evidence) is counts


def test_the_worst_are_named_and_the_others_counted():
    events = [outside(-number, text=f"Alert{number}") for number in range(5)] + [
        outside(-9, Severity.CRITICAL, text="GpuLost on n7")
    ]
    said = outside_alerts(events, ONSET_NS, CLUSTER_WINDOW_NS)
    assert said == "your monitoring: GpuLost on n7, Alert0, Alert1 and 3 more"
    assert outside_alerts([], ONSET_NS, CLUSTER_WINDOW_NS) == ""


def test_an_alert_that_flaps_is_named_once_and_hides_no_other():
    flaps = [
        Event("external", 10**9 + n, id=f"f{n}", severity=Severity.WARNING, source="a", text="FanSlow on node1")
        for n in range(200)
    ]
    other = Event("external", 1, id="o", severity=Severity.WARNING, source="a", text="LinkDown on node2")
    told = outside_alerts([*flaps, other], 10**9, 30 * 60 * 10**9)
    assert told == "your monitoring: FanSlow on node1, LinkDown on node2"
