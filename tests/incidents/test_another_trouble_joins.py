"""What is told of trouble that joins an incident which somebody has already, and of a pause by the breaker."""

from __future__ import annotations

import pytest
from incident_night import CRITICAL, START_NS, WARNING, Night

from trainvitals.records import Event


def paused(by: str = "breaker") -> Event:
    data = {"state": "paused", "seq": 1, "desired": "paused", "by": by, "source": by}
    return Event("control", START_NS, step=120, attempt=1, id="c", data=data)


def a_spike_that_somebody_has(night: Night) -> None:
    night.find("loss_spike", CRITICAL)
    incident = night.engine.open_incidents[0]
    night.words()
    night.engine.acknowledge(incident.id, "ana", "", night.now_ns)
    assert night.words() == [("acknowledged", "critical", 1)]


def test_a_loss_that_is_no_number_is_told_also_to_whoever_has_the_spike_before_it_and_once():
    night = Night()
    a_spike_that_somebody_has(night)
    night.find("loss_nonfinite", CRITICAL, step=130)
    (change,) = night.told()
    assert (change.kind.value, change.rule, change.incident.title) == ("escalated", "loss_nonfinite", "loss_nonfinite at 130")
    night.find("loss_nonfinite", CRITICAL, step=130, is_open=False)
    night.find("loss_nonfinite", CRITICAL, step=150)
    night.find("loss_divergence", CRITICAL, step=160)
    assert night.words(5) == []
    night.find("loss_spike", CRITICAL)
    assert night.engine.open_incidents[0].title == "loss_nonfinite at 150"


def test_a_loss_that_diverges_after_its_spike_is_the_same_trouble():
    night = Night()
    a_spike_that_somebody_has(night)
    night.find("loss_divergence", CRITICAL, step=130)
    assert night.words() == []


def test_when_it_is_a_number_again_the_loss_that_is_too_high_has_the_title():
    night = Night()
    a_spike_that_somebody_has(night)
    night.find("loss_nonfinite", CRITICAL, step=130)
    night.find("loss_nonfinite", CRITICAL, step=130, is_open=False)
    night.find("loss_spike", CRITICAL)
    assert night.engine.open_incidents[0].title == "loss_spike at 100"


def test_what_is_over_says_that_it_was_no_number():
    night = Night()
    a_spike_that_somebody_has(night)
    night.find("loss_nonfinite", CRITICAL, step=130)
    night.find("loss_nonfinite", CRITICAL, step=130, is_open=False)
    (over,) = night.find("loss_spike", CRITICAL, is_open=False)
    assert over.title == "loss_nonfinite at 130"


@pytest.mark.parametrize("by", ["breaker", "ana"])
def test_a_pause_of_what_was_told_is_no_second_message(by):
    night = Night()
    a_spike_that_somebody_has(night)
    night.find("breaker_trip", CRITICAL, step=110)
    night.engine.hear(paused(by))
    assert night.words(5) == []


def an_incident(night: Night, step: int, *, is_left_open: bool = False) -> list[tuple[str, str]]:
    night.find("loss_spike", WARNING, step=step)
    told = night.words()
    night.find("loss_spike", CRITICAL, step=step)
    told += night.words(1)
    if not is_left_open:
        night.find("loss_spike", CRITICAL, step=step, is_open=False)
        told += night.words(121)
    return [(kind, severity) for kind, severity, _ in told]


ONE = [("opened", "warning"), ("escalated", "critical"), ("recovered", "critical")]


def test_that_an_incident_becomes_critical_is_no_second_coming_of_it():
    night = Night()
    assert an_incident(night, 1_000) == ONE
    assert an_incident(night, 3_000) == ONE
    assert an_incident(night, 5_000, is_left_open=True) == [], "the third one within minutes waits"


def test_where_the_breaker_trips_nothing_waits_however_often_it_came_before():
    night = Night()
    for step in (1_000, 3_000):
        an_incident(night, step)
    assert an_incident(night, 5_000, is_left_open=True) == []
    night.find("breaker_trip", CRITICAL, step=5_010)
    assert night.words(1) == [("opened", "critical", 1)]
