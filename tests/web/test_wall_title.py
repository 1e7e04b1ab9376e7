"""Both languages of the wall tell an open incident by the same finding, whatever joins it."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.incidents.grouping import Grouper
from trainvitals.records import Finding, Severity
from trainvitals.web.wall_zh import incident_sentence

S = 10**9
SPIKE = Finding(
    id="s", rule="loss_spike", family="loss", severity=Severity.CRITICAL, first_step=400, last_step=None, detected_step=405, value=5.0,
    expected=2.0, message="loss 2.00 → 5.00 since step 400", attempt=1, time_ns=1 * S, is_open=True,
)  # fmt: skip
DIVERGENCE = replace(
    SPIKE,
    id="d",
    rule="loss_divergence",
    first_step=401,
    detected_step=480,
    value=4.0,
    message="loss 2.00 → 4.00, not coming back",
)


def test_a_divergence_that_joins_a_spike_changes_neither_title() -> None:
    grouping = Grouper("r")
    grouping.add(SPIKE, 2 * S)
    incident = grouping.add(DIVERGENCE, 90 * S)
    assert incident is not None
    assert incident.title == SPIKE.message
    assert incident_sentence(incident, (SPIKE, DIVERGENCE)) == "第 400 步起 loss 突增，2.00 → 5.00"


def test_a_graver_one_that_joins_changes_both() -> None:
    grouping = Grouper("r")
    mild = replace(SPIKE, severity=Severity.WARNING)
    grouping.add(mild, 2 * S)
    incident = grouping.add(DIVERGENCE, 90 * S)
    assert incident is not None
    assert incident.title == DIVERGENCE.message
    assert "loss 发散" in incident_sentence(incident, (mild, DIVERGENCE))
