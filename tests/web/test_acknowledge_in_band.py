"""The band offers to take the incident that it speaks of, and says what became of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainvitals.control.requests import ACKNOWLEDGE
from trainvitals.incidents.verdict import Verdict, VerdictWord
from trainvitals.records import Event, Incident, Severity
from trainvitals.settings import RunSettings
from trainvitals.web.incident_people import ACKNOWLEDGEMENT, Sent, acknowledgement_told
from trainvitals.web.present import band
from trainvitals.web.view import ControlView, RunView, Snapshot
from trainvitals.web.wall_view import band_view

NOW = 1_764_000_000 * 10**9
SECOND_NS = 10**9
OPEN = Incident(
    id="i", run="r", family="loss", severity=Severity.CRITICAL, rules=("loss_divergence",), finding_ids=(), first_step=1,
    last_step=None, opened_at_ns=NOW - 60 * SECOND_NS, updated_at_ns=NOW, closed_at_ns=None, title="loss", message="loss",
)  # fmt: skip
SICK = RunView(
    RunSettings(name="r", dir="/r"), NOW, Verdict(VerdictWord.SICK, "critical", "loss", NOW, incident_id="i"),
    ControlView("running", "Running.", True), last_step=10, watch_seen_ns=NOW, incidents=(OPEN,),
)  # fmt: skip


def offered(run: RunView) -> list[str]:
    return [one["id"] for one in band(Snapshot(NOW), run, NOW, 2.0)["actions"]]


def test_what_nobody_has_can_be_taken_in_the_band_beside_the_one_accent() -> None:
    assert offered(SICK) == ["pause", ACKNOWLEDGE]
    accents = [one["id"] for one in band(Snapshot(NOW), SICK, NOW, 2.0)["actions"] if one.get("is_primary")]
    assert accents == ["pause"]


@pytest.mark.parametrize(
    "changes",
    [
        {"acknowledged_by": "ana", "acknowledged_at_ns": NOW},
        {"closed_at_ns": NOW},
        {"severity": Severity.INFO},
        {"id": "another"},
    ],
)
def test_what_somebody_has_or_needs_nobody_is_not_offered(changes: dict[str, object]) -> None:
    assert ACKNOWLEDGE not in offered(replace(SICK, incidents=(replace(OPEN, **changes),)))


def test_the_wall_offers_nothing() -> None:
    for language in ("en", "zh"):
        assert band_view(Snapshot(NOW), SICK, NOW, 2.0, language)["actions"] == []


def test_what_was_sent_is_said_until_it_is_answered_and_may_be_sent_again_when_it_is_late() -> None:
    sent = Sent("r", "q1", NOW, ACKNOWLEDGEMENT)
    assert acknowledgement_told(SICK, OPEN, None, NOW) == ("", False)
    assert acknowledgement_told(SICK, OPEN, sent, NOW + SECOND_NS) == ("Acknowledgement sent; waiting for the watchdog.", True)
    late, is_waiting = acknowledgement_told(SICK, OPEN, sent, NOW + 60 * SECOND_NS)
    assert "not applied yet" in late and not is_waiting
    refused = Event("watch", NOW, text="No such incident.", data={"request": "q1", "outcome": "refused"})
    told, is_waiting = acknowledgement_told(replace(SICK, events=(refused,)), OPEN, sent, NOW + SECOND_NS)
    assert told == "Acknowledgement refused. No such incident." and not is_waiting
    applied = Event("acknowledgement", NOW, text="ana has it", data={"request": "q1"})
    assert acknowledgement_told(replace(SICK, events=(applied,)), OPEN, sent, NOW + SECOND_NS) == ("", False)


def test_another_request_or_one_from_before_this_incident_is_not_told_of_it() -> None:
    for sent in (Sent("r", "q1", NOW, "Silence"), Sent("s", "q1", NOW, ACKNOWLEDGEMENT)):
        assert acknowledgement_told(SICK, OPEN, sent, NOW) == ("", False)
    before = Sent("r", "q1", OPEN.opened_at_ns - 1, ACKNOWLEDGEMENT)
    assert acknowledgement_told(SICK, OPEN, before, NOW) == ("", False)


def test_a_hang_says_how_long_it_has_lasted_until_now_and_not_when_it_became_critical() -> None:
    hung = replace(
        SICK, verdict=Verdict(VerdictWord.HUNG, "critical", "no step for 3 min", NOW, incident_id="i"),
        last_step_time_ns=NOW - 16 * 60 * SECOND_NS,
    )  # fmt: skip
    assert "last step 10, 16 min ago" in band(Snapshot(NOW), hung, NOW, 2.0)["facts"]
    assert "最后一步：第 10 步，16 分钟前" in band_view(Snapshot(NOW), hung, NOW, 2.0, "zh")["facts"]
    assert "last step 10" in band(Snapshot(NOW), SICK, NOW, 2.0)["facts"]
