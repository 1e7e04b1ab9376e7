"""A message says what holds an armed breaker now, and names the note that an operator wrote about the data."""

from __future__ import annotations

from test_alert_facts import INCIDENT, S, facts, groups, trained

from trainvitals.records import Event
from trainvitals.watch.alert_facts import Seen


def test_a_held_breaker_says_what_holds_it() -> None:
    known = trained(facts()).known(INCIDENT, Seen(339, breaker="armed", breaker_hold="120 of 200 quiet points"), 0)
    assert known.breaker == "It is armed and has not tripped. It is held now: 120 of 200 quiet points."


def test_a_note_about_the_data_is_evidence_in_the_message() -> None:
    made = trained(facts())
    made.take(
        Event("annotation", 290 * S, step=290, id="n", text="more code", data={"change": "data_mix", "by": "ana", "points": 500})
    )
    assert "more code" in groups(made)["data"]
