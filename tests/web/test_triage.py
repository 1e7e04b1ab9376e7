"""The handbook's table: the right first suspect, the fixed order, and evidence only where there is some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.symptoms import leading_rule, symptom
from trainvitals.incidents.triage import LAYERS, Evidence, triage
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, NodeSample, Severity, VerificationLevel

NOW = 1_795_000_000 * 10**9
KNOWN = Evidence(onset_step=2400, onset_ns=NOW, attempt=2, attempt_first_step=1201, has_grad_norm=True)


@pytest.mark.parametrize(
    ("rule", "suspect"),
    [
        ("loss_spike", "the data"),
        ("loss_divergence", "the data"),
        ("loss_plateau", "learning rate or data mix"),
        ("loss_not_learning", "learning rate or data mix"),
        ("resume_rebound", "a checkpoint without optimizer state"),
        ("rank_loss_mismatch", "communication or parallel settings"),
        ("loss_nonfinite", "numerical stability"),
    ],
)
def test_the_five_rows_of_the_article_name_their_first_suspect(rule: str, suspect: str) -> None:
    assert symptom(rule).suspect == suspect


@given(st.text(max_size=30) | st.sampled_from(["loss_spike", "stall", "checkpoint_corrupt", "resume_rebound"]))
def test_the_order_is_always_data_code_numerics_cluster(rule: str) -> None:
    checks = triage(rule, KNOWN)
    assert tuple(check.layer for check in checks) == LAYERS
    assert all(check.mark in ("!", "–", "?") and check.title and check.evidence for check in checks)


def by_layer(rule: str, evidence: Evidence) -> dict[str, tuple[str, str, str]]:
    return {check.layer: (check.mark, check.title, check.evidence) for check in triage(rule, evidence)}


def test_what_is_not_known_here_is_marked_so_and_never_called_fine() -> None:
    marks = {layer: found[0] for layer, found in by_layer("loss_spike", Evidence(onset_step=2400)).items()}
    assert marks == {"data": "?", "code": "?", "numerics": "?", "cluster": "?"}


BOOKS = Event("data", NOW, step=1300, attempt=2, data={"source": "books"})


def test_a_new_source_just_before_the_onset_is_evidence_with_its_shards() -> None:
    event = Event("data", NOW, step=2380, attempt=2, data={"source": "web", "shards": ["a", "b", "c", "d"], "sample_first": 7})
    mark, title, evidence = by_layer("loss_spike", replace(KNOWN, events=[BOOKS, event]))["data"]
    assert mark == "!" and "2,380" in title
    assert evidence.startswith("20 steps before the onset. Source web. Shards a, b, c and 1 more. From sample 7.")


def test_a_source_that_changed_long_before_is_no_evidence() -> None:
    assert (
        by_layer("loss_spike", replace(KNOWN, events=[BOOKS, replace(BOOKS, step=1400, data={"source": "web"})]))["data"][0]
        == "–"
    )


def test_positions_that_are_told_all_the_time_are_no_evidence() -> None:
    same = [replace(BOOKS, step=step) for step in range(2000, 2400, 50)]
    shards = [replace(BOOKS, step=step, data={"shards": [str(step)]}) for step in range(2000, 2400, 50)]
    assert by_layer("loss_spike", replace(KNOWN, events=same))["data"][0] == "–"
    assert by_layer("loss_spike", replace(KNOWN, events=shards))["data"][0] == "–"


def test_a_restart_just_before_the_onset_is_evidence() -> None:
    found = by_layer("loss_spike", replace(KNOWN, attempt_first_step=2390, resumed_from_step=2389))
    assert found["code"][0] == "!" and "Attempt 2 began 10 steps before" in found["code"][1]


@pytest.mark.parametrize(("has_optimizer", "mark"), [(False, "!"), (True, "–"), (None, "?")])
def test_a_rebound_asks_for_the_optimizer_state_of_the_checkpoint(has_optimizer: bool | None, mark: str) -> None:
    report = CheckpointReport("p", 1200, "f", CheckpointState.VERIFIED, VerificationLevel.CONTENT, has_optimizer, 1, 1)
    found = by_layer("resume_rebound", replace(KNOWN, resumed_from_step=1200, resumed_checkpoint=report))
    assert found["code"][0] == mark


def test_a_leading_grad_norm_and_a_nan_are_numerics() -> None:
    grad = Finding(
        "g", "grad_norm_spike", "grad_norm", Severity.WARNING, 2397, 2400, None, 2, NOW, 10.0, 0.2, "grad norm 10", True
    )
    loss = replace(grad, id="l", rule="loss_divergence", first_step=2400)
    assert (
        by_layer("loss_spike", replace(KNOWN, findings=[grad, loss]))["numerics"][1] == "Grad norm rose 3 steps before the loss"
    )
    assert by_layer("loss_nonfinite", replace(KNOWN, nonfinite=[("loss", "nan")]))["numerics"][0] == "!"


def test_a_fault_in_the_log_counts_only_near_the_onset() -> None:
    near = Event("fault", NOW + 60 * 10**9, text="Xid 79", data={"class": "gpu_lost"})
    far = replace(near, time_ns=NOW - 3 * 3600 * 10**9)
    assert by_layer("loss_spike", replace(KNOWN, events=[near]))["cluster"][0] == "!"
    assert by_layer("loss_spike", replace(KNOWN, events=[far], nodes=[NodeSample("n", NOW, "ok")]))["cluster"][0] == "–"


def test_nodes_without_a_gpu_are_no_evidence_of_health() -> None:
    assert by_layer("loss_spike", replace(KNOWN, nodes=[NodeSample("n", NOW, "no_gpu")]))["cluster"][0] == "?"
    assert by_layer("loss_spike", replace(KNOWN, nodes=[NodeSample("n", NOW, "fail")]))["cluster"][0] == "!"


def _finding(rule: str, severity: Severity, step: int) -> Finding:
    return Finding(f"f/{rule}/{step}", rule, rule, severity, step, step, None, 1, NOW, None, None, rule, True)


def test_the_breaker_never_leads_an_incident_that_a_loss_rule_explains() -> None:
    members = [
        _finding("breaker_trip", Severity.CRITICAL, 527),
        _finding("loss_spike", Severity.WARNING, 527),
        _finding("loss_divergence", Severity.CRITICAL, 540),
    ]
    assert leading_rule(members) == "loss_divergence"
    assert symptom(leading_rule(members)).suspect == "the data"
    assert leading_rule(members[:2]) == "loss_spike"


def test_a_trip_whose_findings_are_not_known_is_still_a_loss_surge() -> None:
    assert leading_rule([], ("breaker_trip", "loss_spike")) == "loss_spike"
    assert symptom(leading_rule(members := [_finding("breaker_trip", Severity.CRITICAL, 5)])).name == "loss jumps or diverges"
    assert members and leading_rule([], (), "time") == "time"


def test_a_learning_rate_that_ran_away_is_evidence_and_a_warm_up_is_none() -> None:
    mark, title, evidence = by_layer("loss_divergence", replace(KNOWN, lr_now=0.24, lr_usual=0.002))["code"]
    assert (mark, title) == ("!", "Learning rate 120× what it was") and evidence.startswith("0.24 now, 0.002 before the onset.")
    assert by_layer("loss_divergence", replace(KNOWN, lr_now=4e-3, lr_usual=2e-3))["code"][0] != "!"


def test_a_start_that_told_its_settings_leaves_no_question_about_them() -> None:
    assert by_layer("loss_spike", Evidence(onset_step=5_000, attempt_first_step=0, attempt=1))["code"][0] == "?"
    told = Evidence(onset_step=5_000, attempt_first_step=0, attempt=1, tells_settings=True)
    assert by_layer("loss_spike", told)["code"][0] == "–"


@pytest.mark.parametrize(("heard_s", "mark"), [(-600, "!"), (60, "!"), (300, "–")])
def test_a_node_that_was_heard_of_well_after_the_onset_and_is_silent_now_is_no_evidence(heard_s: int, mark: str) -> None:
    nodes = (NodeSample("n7", NOW + heard_s * 10**9, "silent", 8), NodeSample("n8", NOW, "ok", 8))
    assert by_layer("loss_spike", replace(KNOWN, nodes=nodes))["cluster"][0] == mark
