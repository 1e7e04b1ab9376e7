"""What people did about incidents, in words; and what the dashboard thinks of rows of other versions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainvitals.records import Event, Incident, Severity
from trainvitals.web.incident_people import Sent, fate, silence_line, silences_of, words

NOW = 1_764_000_000 * 10**9
HOUR_NS = 3600 * 10**9


def an_incident(**changes):
    told = {
        "id": "i", "run": "r", "family": "loss", "severity": Severity.CRITICAL, "rules": ("loss_spike",), "finding_ids": (), "first_step": 1,
        "last_step": None, "opened_at_ns": NOW, "updated_at_ns": NOW, "closed_at_ns": None, "title": "t", "message": "t",
    }  # fmt: skip
    return Incident(**{**told, **changes})


def asked(silence="s1", at_ns=NOW, **changes):
    data = {
        "silence": silence, "until_ns": NOW + HOUR_NS, "rules": ["loss_*"], "families": [], "runs": [], "up_to": "warning", "comment": "planned",
        "by": "ana", "request": silence,
    }  # fmt: skip
    return Event("silence", at_ns, id=silence, data={**data, **changes})


def test_who_has_it_and_how_long_it_is_silent_are_sentences():
    assert words(an_incident(), "UTC", NOW) == ["Nobody has it yet."]
    assert words(an_incident(closed_at_ns=NOW), "UTC", NOW) == []
    (has,) = words(an_incident(acknowledged_by="ana", acknowledged_at_ns=NOW, acknowledged_note="shard 7"), "UTC", NOW)
    assert has.startswith("ana has it since") and has.endswith(": shard 7.")
    both = words(an_incident(silenced_until_ns=NOW + HOUR_NS), "UTC", NOW)
    assert len(both) == 2 and "nobody is told of it" in both[1]
    assert len(words(an_incident(silenced_until_ns=NOW - 1), "UTC", NOW)) == 1


def test_a_silenced_incident_says_who_silenced_it_and_why():
    silent = an_incident(silenced_until_ns=NOW + HOUR_NS, severity=Severity.WARNING)
    assert words(silent, "UTC", NOW, silences_of([asked()], NOW))[1].endswith("nobody is told of it. ana says why: planned")
    other = silences_of([asked(rules=["straggler"])], NOW)
    assert words(silent, "UTC", NOW, other)[1].endswith("nobody is told of it."), "one of another rule says nothing of this"


def test_silences_are_those_that_last_and_were_not_ended():
    ended = Event("silence", NOW + 2, data={"silence": "s1", "end": "s1"})
    other = asked("s2", NOW + 1)
    assert [one.id for one in silences_of([asked(), other], NOW)] == ["s2", "s1"]
    assert [one.id for one in silences_of([ended, other, asked()], NOW + 5)] == ["s2"]
    assert silences_of([asked()], NOW + HOUR_NS) == []
    assert "loss_* up to warning until" in silence_line(silences_of([asked()], NOW)[0], "UTC", NOW)


@pytest.mark.parametrize("changes", [{"until_ns": "soon"}, {"up_to": "page"}, {"rules": 5}, {"families": None}])
def test_a_silence_of_another_version_is_left_out(changes):
    assert silences_of([asked(**changes)], NOW) == []


def test_what_was_sent_is_applied_only_when_the_watchdog_says_so():
    sent = Sent("r", "q1", NOW, "Acknowledgement")
    applied = Event("acknowledgement", NOW, text="ana has it: t", data={"request": "q1"})
    refused = Event("watch", NOW, text="A request of ana was refused: no incident.", data={"request": "q1", "outcome": "refused"})
    assert fate(SimpleNamespace(events=()), sent, NOW + 5 * 10**9) == "Acknowledgement sent; waiting for the watchdog."
    assert "does the watchdog" in fate(SimpleNamespace(events=()), sent, NOW + 60 * 10**9)
    assert fate(SimpleNamespace(events=(applied,)), sent, NOW) == "Acknowledgement applied: ana has it: t"
    assert fate(SimpleNamespace(events=(refused,)), sent, NOW).startswith("Acknowledgement refused.")
