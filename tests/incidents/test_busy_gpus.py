"""GPUs at 100 % while no step is made are told as what they are: no proof of work."""

from __future__ import annotations

from trainvitals.incidents.busy import busy_words
from trainvitals.incidents.triage import Evidence, triage
from trainvitals.records import NodeSample

NOW = 1_795_000_000 * 10**9


def node(name: str, busy: float | None = 100.0, watts: float | None = 90.0, state: str = "ok") -> NodeSample:
    power = None if watts is None else 8 * watts
    return NodeSample(name, NOW, state, gpus=8, utilization_mean_percent=busy, power_sum_w=power)


def test_a_hang_with_busy_gpus_says_that_they_prove_nothing_and_how_little_they_draw() -> None:
    checks = {check.layer: check for check in triage("stall", Evidence(nodes=[node("a"), node("b")], onset_ns=NOW))}
    assert checks["cluster"].mark == "–"
    assert checks["cluster"].evidence.endswith("; GPUs 100 % busy at 90 W each, which is no proof of work")
    checks = {check.layer: check for check in triage("stall", Evidence(nodes=[node("a"), node("b", state="fail")], onset_ns=NOW))}
    assert "b fail" in checks["cluster"].evidence
    assert "no proof of work" in checks["cluster"].evidence


def test_busy_gpus_say_nothing_of_a_loss() -> None:
    assert all("busy" not in check.evidence for check in triage("loss_spike", Evidence(nodes=[node("a")], onset_ns=NOW)))


def test_what_is_not_busy_or_not_known_is_not_told() -> None:
    assert busy_words([node("a", busy=3.0)]) == busy_words([node("a", busy=None)]) == busy_words([]) == ""
    assert busy_words([node("a", watts=None)]) == "GPUs 100 % busy, which is no proof of work"
    assert busy_words([node("a", state="silent")]) == ""


def test_who_cannot_see_the_nodes_does_not_say_that_nobody_collects_them() -> None:
    told = {check.layer: check.title for check in triage("stall", Evidence())}
    assert told["cluster"] == "No fault in the log; GPU health not collected"
    told = {check.layer: check.title for check in triage("stall", Evidence(sees_nodes=False))}
    assert told["cluster"] == "No fault in the log; GPU health is on the dashboard's Nodes page"
