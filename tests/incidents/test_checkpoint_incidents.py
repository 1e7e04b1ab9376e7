"""Findings on checkpoints as incidents: grouped by themselves, the right word at the top, the right first thing to check."""

from __future__ import annotations

import pytest

from trainvitals.detect.rules import RULES
from trainvitals.incidents.grouping import Grouper
from trainvitals.incidents.suspect import WEIGHT_RULES, suspect_checkpoints
from trainvitals.incidents.symptoms import symptom
from trainvitals.incidents.triage import Evidence, triage
from trainvitals.incidents.verdict import VerdictInputs, VerdictWord, verdict
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Incident, Severity, VerificationLevel

NOW = 1_795_000_000 * 10**9
CHECKPOINT_RULES = sorted(name for name, rule in RULES.items() if rule.family == "checkpoint")


def finding(rule: str, severity: Severity = Severity.WARNING, step: int = 100, message: str = "told so") -> Finding:
    return Finding(f"r/1/{rule}/{step}", rule, RULES[rule].family, severity, step, step, None, 1, NOW, None, None, message, True)


def grouped(*findings: Finding) -> list[Incident]:
    grouper = Grouper("r")
    for one in findings:
        grouper.add(one, NOW)
    return list(grouper.open_incidents)


def word(*findings: Finding) -> VerdictWord:
    inputs = VerdictInputs(
        NOW, incidents=grouped(*findings), findings=findings, attempt=1, last_step=200, last_step_time_ns=NOW, watch_seen_ns=NOW
    )
    return verdict(inputs).word


def test_all_rules_of_the_design_are_there() -> None:
    assert {
        "checkpoint_corrupt", "checkpoint_no_optimizer", "checkpoint_stuck", "checkpoint_overdue", "checkpoint_blocking",
        "checkpoint_too_few_verified", "resume_behind",
    } <= set(CHECKPOINT_RULES)  # fmt: skip


@pytest.mark.parametrize("rule", [rule for rule in CHECKPOINT_RULES if rule != "checkpoint_blocking"])
@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_the_word_is_attention_and_never_sick(rule: str, severity: Severity) -> None:
    assert word(finding(rule, severity)) is VerdictWord.ATTENTION


def test_saves_that_block_make_the_run_slow_unless_a_checkpoint_is_broken_too() -> None:
    assert word(finding("checkpoint_blocking")) is VerdictWord.SLOW
    assert word(finding("checkpoint_blocking"), finding("checkpoint_corrupt")) is VerdictWord.ATTENTION


def test_sick_training_comes_before_a_broken_checkpoint() -> None:
    assert word(finding("checkpoint_corrupt"), finding("loss_divergence", Severity.CRITICAL)) is VerdictWord.SICK


@pytest.mark.parametrize("rule", CHECKPOINT_RULES)
def test_they_form_an_incident_of_their_own(rule: str) -> None:
    incidents = grouped(finding(rule), finding("loss_spike"), finding("stall"))
    assert {incident.family for incident in incidents} == {"checkpoint", "loss", "time"}


@pytest.mark.parametrize(
    ("rule", "suspect"),
    [
        ("checkpoint_corrupt", "storage or an interrupted save"), ("checkpoint_too_few_verified", "storage or an interrupted save"),
        ("checkpoint_stuck", "storage"), ("checkpoint_overdue", "storage"), ("checkpoint_blocking", "storage"),
        ("checkpoint_no_optimizer", "settings of the save"),
        ("resume_behind", "the pointer file, or the settings of the restart"),
    ],
)  # fmt: skip
def test_the_first_suspect_is_named(rule: str, suspect: str) -> None:
    assert symptom(rule).suspect == suspect


def test_what_a_start_loaded_is_a_matter_of_the_code_and_not_of_the_data() -> None:
    found = finding("resume_behind", message="the trainer started from scratch although step 500 was there")
    checks = {check.layer: check for check in triage("resume_behind", Evidence(onset_step=100, onset_ns=NOW, findings=[found]))}
    assert checks["code"].mark == "!" and "started from scratch" in checks["code"].evidence
    assert checks["data"].mark == "–"


def test_a_full_disk_is_the_evidence_for_a_save_that_hangs() -> None:
    full = Event("fault", NOW, text="No space left on device", data={"class": "disk_full"})
    checks = {check.layer: check for check in triage("checkpoint_stuck", Evidence(onset_step=100, onset_ns=NOW, events=[full]))}
    assert checks["cluster"].mark == "!" and "disk_full" in checks["cluster"].evidence


def test_a_start_from_an_older_checkpoint_makes_no_checkpoint_suspect() -> None:
    assert "resume_behind".startswith(WEIGHT_RULES), "or this test says nothing"
    found = finding("resume_behind", step=50)
    report = CheckpointReport(
        "/c/100", 100, "huggingface", CheckpointState.VERIFIED, VerificationLevel.STRUCTURE, True, 3, 9, modified_at_ns=NOW
    )
    assert suspect_checkpoints([report], grouped(found), [found], []) == {}
