"""What a person does with an incident: to have it, and to silence something for a while."""

from __future__ import annotations

import pytest
from incident_night import CRITICAL, SECOND_NS, START_NS, Night, a_silence

from trainvitals.errors import InputError


def test_who_has_an_incident_stands_in_it_until_it_is_over():
    night = Night()
    opened = night.find()[0]
    night.words()
    taken = night.engine.acknowledge(opened.id[:8], "ana", "looking at the data", night.now_ns)
    assert (taken.acknowledged_by, taken.acknowledged_at_ns) == ("ana", night.now_ns)
    changes = night.told()
    assert [(one.kind.value, one.by, one.number) for one in changes] == [("acknowledged", "ana", 1)]
    assert night.find("loss_divergence", CRITICAL, step=150)[0].acknowledged_by == "ana"
    with pytest.raises(InputError, match="no incident"):
        night.engine.acknowledge("nothing", "ana", "", night.now_ns)
    night.find(is_open=False)
    night.find("loss_divergence", CRITICAL, step=150, is_open=False)
    with pytest.raises(InputError, match="over already"):
        night.engine.acknowledge(opened.id, "ana", "", night.now_ns)


def test_what_is_silenced_is_stored_and_told_to_nobody():
    night = Night()
    night.engine.silence(a_silence(night, rules=["loss_*"]), night.now_ns)
    opened = night.find()[0]
    assert opened.silenced_until_ns == START_NS + 3600 * SECOND_NS
    assert night.words() == []
    night.find(is_open=False)
    assert night.words(200) == [] and night.words(4000) == []


def test_what_is_still_open_when_the_silence_ends_is_told_then():
    night = Night()
    night.engine.silence(a_silence(night, rules=["loss_*"]), night.now_ns)
    night.find()
    assert night.words(3_599) == []
    assert night.words(2) == [("opened", "warning", 1)]
    assert night.engine.open_incidents[0].silenced_until_ns is None


def test_a_silence_ends_early_when_somebody_ends_it():
    night = Night()
    night.engine.silence(a_silence(night), night.now_ns)
    night.find()
    assert night.words(5) == []
    silence, changed = night.engine.unsilence("12345678", night.now_ns)
    assert silence.by == "ana" and changed[0].silenced_until_ns is None
    assert night.words() == [("opened", "warning", 1)]
    with pytest.raises(InputError, match="no silence"):
        night.engine.unsilence("12345678", night.now_ns)


def test_what_is_graver_than_the_silence_or_not_named_by_it_is_told():
    night = Night()
    night.engine.silence(a_silence(night, rules=["loss_spike"]), night.now_ns)
    night.find()
    assert night.words() == []
    night.find("grad_norm_spike", step=110)  # another rule: there is more to it than was silenced
    assert night.words() == [("opened", "warning", 1)]
    other = Night()
    other.engine.silence(a_silence(other, rules=["loss_*"]), other.now_ns)
    other.find("loss_divergence", CRITICAL)
    assert other.words() == [("opened", "critical", 1)]
    third = Night()
    third.engine.silence(a_silence(third, families=["loss"], up_to="critical"), third.now_ns)
    third.find("loss_divergence", CRITICAL)
    assert third.words() == []


@pytest.mark.parametrize(
    "data",
    [
        {"seconds": 0}, {"seconds": -1}, {"seconds": 1e12}, {"seconds": True}, {"seconds": "3600"}, {"seconds": float("nan")},
        {"comment": " "}, {"comment": None}, {"up_to": "page"}, {"rules": "loss_*"}, {"rules": [""]}, {"rules": ["x" * 101]},
        {"rules": ["a\nb"]}, {"rules": ["x"] * 21}, {"rules": [5]}, {"up_to": ["info"]}, {"up_to": {}},
    ],
)  # fmt: skip
def test_what_is_no_silence_is_refused_in_words(data):
    with pytest.raises(InputError):
        a_silence(Night(), **data)
