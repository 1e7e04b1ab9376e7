"""Findings become incidents."""

from __future__ import annotations

import json
from dataclasses import replace

from trainvitals.incidents.grouping import MERGE_NS, Grouper, finding_from_mapping, incident_from_mapping
from trainvitals.records import Finding, Severity

SECOND_NS = 1_000_000_000


def a_finding(rule="loss_spike", step=100, severity=Severity.WARNING, *, is_open=True, family="loss", attempt=1, last=None):
    return Finding(
        id=f"r/{attempt}/{rule}/{step}", rule=rule, family=family, severity=severity, first_step=step, detected_step=step,
        last_step=last, attempt=attempt, time_ns=step * SECOND_NS, value=3.0, expected=2.0, message=f"{rule} at {step}", is_open=is_open,
    )  # fmt: skip


def test_an_info_finding_opens_nothing():
    assert Grouper("r").add(a_finding(severity=Severity.INFO), 0) is None


def test_a_warning_opens_an_incident_and_its_end_closes_it():
    grouper = Grouper("r")
    opened = grouper.add(a_finding(), 10)
    assert opened is not None and opened.is_open and opened.title == "loss_spike at 100"
    closed = grouper.add(a_finding(is_open=False, last=120), 20)
    assert closed is not None and closed.id == opened.id and closed.closed_at_ns == 20 and closed.last_step == 120


def test_the_same_finding_again_changes_nothing_but_the_time_of_the_update():
    grouper = Grouper("r")
    grouper.add(a_finding(), 10)
    assert grouper.add(a_finding(), 10) is None


def test_the_worst_finding_gives_the_incident_its_severity_and_title():
    grouper = Grouper("r")
    grouper.add(a_finding(), 10)
    worse = grouper.add(a_finding("loss_divergence", 150, Severity.CRITICAL), 20)
    assert worse is not None and worse.severity is Severity.CRITICAL and worse.title == "loss_divergence at 150"
    assert worse.rules == ("loss_spike", "loss_divergence") and worse.first_step == 100


def test_trouble_that_comes_back_soon_opens_the_same_incident_again():
    grouper = Grouper("r")
    first = grouper.add(a_finding(is_open=False, last=110), 10)
    again = grouper.add(a_finding("loss_spike", 200), 20)
    assert first is not None and again is not None and again.id == first.id and again.is_open


def test_trouble_long_after_is_a_new_incident():
    grouper = Grouper("r")
    first = grouper.add(a_finding(is_open=False, last=110), 10)
    later = grouper.add(a_finding("loss_spike", 150), 10 + MERGE_NS + 1)
    assert first is not None and later is not None and later.id != first.id


def test_another_attempt_is_a_new_incident():
    grouper = Grouper("r")
    first = grouper.add(a_finding(is_open=False, last=110), 10)
    later = grouper.add(a_finding("loss_spike", 120, attempt=2), 20)
    assert first is not None and later is not None and later.id != first.id


def test_grad_norm_and_the_breaker_belong_to_the_loss_incident_and_throughput_does_not():
    grouper = Grouper("r")
    loss = grouper.add(a_finding("grad_norm_spike", 98, family="grad_norm"), 1)
    trip = grouper.add(a_finding("breaker_trip", 200, Severity.CRITICAL, family="breaker", is_open=False), 2)
    slow = grouper.add(a_finding("throughput_drop", 210, family="throughput"), 3)
    assert loss is not None and trip is not None and slow is not None
    assert trip.id == loss.id and trip.is_open and slow.id != loss.id
    assert len(grouper.open_incidents) == 2


def test_state_survives_json_and_goes_on_as_before():
    grouper = Grouper("r")
    grouper.add(a_finding(), 10)
    other = Grouper("r")
    other.restore(json.loads(json.dumps(grouper.to_state())))
    assert other.open_incidents == grouper.open_incidents
    assert other.add(a_finding(is_open=False, last=9), 20) == grouper.add(a_finding(is_open=False, last=9), 20)


def test_records_come_back_from_their_stored_mappings():
    from dataclasses import asdict

    finding = a_finding()
    incident = Grouper("r").add(finding, 1)
    assert finding_from_mapping(json.loads(json.dumps(asdict(finding)))) == finding
    assert incident is not None
    assert incident_from_mapping(json.loads(json.dumps(asdict(incident)))) == incident


def test_the_finding_that_gave_the_title_may_end_it_in_other_words():
    grouper = Grouper("r")
    grouper.add(a_finding("checkpoint_overdue", family="checkpoint"), 10)
    damage = a_finding("checkpoint_corrupt", 150, Severity.CRITICAL, family="checkpoint")
    grouper.add(replace(damage, message="checkpoint x is corrupt"), 20)
    grouper.restore(json.loads(json.dumps(grouper.to_state())))
    over = grouper.add(replace(damage, message="checkpoint x was corrupt; it was deleted", is_open=False, last_step=160), 30)
    assert over is not None and over.title == "checkpoint x was corrupt; it was deleted"
