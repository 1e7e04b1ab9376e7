"""Which checkpoints may hold damaged weights: from incidents, attempts and when the files were written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from trainvitals.incidents.suspect import suspect_checkpoints
from trainvitals.records import CheckpointReport, CheckpointState, Finding, Incident, Severity, VerificationLevel

SECOND_NS = 10**9


@dataclass(frozen=True)
class Start:
    number: int
    started_ns: int
    first_step: int | None
    last_step: int | None
    resumed_from_step: int | None = None


def checkpoint(step: int | None, modified_s: int | None = None) -> CheckpointReport:
    modified_ns = (step or 0) * SECOND_NS if modified_s is None else modified_s * SECOND_NS
    return CheckpointReport(
        f"/c/{step}", step, "hf", CheckpointState.VERIFIED, VerificationLevel.STRUCTURE, True, 4, 1, modified_at_ns=modified_ns
    )


def finding(first_step: int, attempt: int = 1, rule: str = "loss_divergence") -> Finding:
    return Finding(
        f"{attempt}/{rule}/{first_step}", rule, "loss", Severity.CRITICAL, first_step, first_step + 20, None, attempt,
        first_step * SECOND_NS, 3.0, 2.0, "worse", True,
    )  # fmt: skip


def incident(of: Finding, last_step: int | None = None, severity: Severity = Severity.CRITICAL) -> Incident:
    opened_ns = (of.first_step + 20) * SECOND_NS
    closed_ns = None if last_step is None else last_step * SECOND_NS
    return Incident(
        f"i/{of.id}",
        "r",
        "loss",
        severity,
        (of.rule,),
        (of.id,),
        of.first_step,
        last_step,
        opened_ns,
        opened_ns,
        closed_ns,
        "",
        "",
    )


def suspect_steps(
    steps: list[CheckpointReport], incidents: list[Incident], findings: list[Finding], attempts: list[Start]
) -> list[int]:
    found = suspect_checkpoints(steps, incidents, findings, attempts)
    return [report.step for report in steps if report.path in found and report.step is not None]


FIRST = Start(1, 0, 1, 1930)
BACK = Start(2, 2500 * SECOND_NS, 1801, 2000, 1800)
SAVED = [checkpoint(step) for step in (1500, 1800, 1870, 1930)]
SICK = finding(1860)


def test_while_the_loss_is_sick_what_was_saved_since_the_onset_is_suspect() -> None:
    assert suspect_steps(SAVED, [incident(SICK)], [SICK], [FIRST]) == [1870, 1930]
    assert suspect_checkpoints(SAVED, [incident(SICK)], [SICK], [FIRST])["/c/1930"] == 1860


def test_a_checkpoint_of_the_onset_itself_is_suspect_and_one_before_it_is_not() -> None:
    assert suspect_steps([checkpoint(1859), checkpoint(1860)], [incident(SICK)], [SICK], [FIRST]) == [1860]


def test_going_back_closes_the_incident_and_the_damaged_checkpoint_stays_suspect() -> None:
    assert suspect_steps(SAVED, [incident(SICK, last_step=1930)], [SICK], [FIRST, BACK]) == [1870, 1930]


def test_between_the_restart_and_the_end_of_the_incident_nothing_changes() -> None:
    assert suspect_steps(SAVED, [incident(SICK)], [SICK], [FIRST, BACK]) == [1870, 1930]


def test_what_the_newer_attempt_writes_again_is_its_own() -> None:
    again = [checkpoint(1870, modified_s=2600), checkpoint(1930), checkpoint(2000, modified_s=2700)]
    assert suspect_steps(again, [incident(SICK, last_step=1930)], [SICK], [FIRST, BACK]) == [1930]


def test_a_time_that_is_not_known_does_not_clear_a_checkpoint() -> None:
    unknown = replace(checkpoint(1930), modified_at_ns=None)
    assert suspect_steps([unknown], [incident(SICK, last_step=1930)], [SICK], [FIRST, BACK]) == [1930]


def test_a_later_attempt_that_goes_on_from_the_damaged_checkpoint_clears_nothing() -> None:
    going_on = Start(2, 2500 * SECOND_NS, 1931, 2400, 1930)
    saved = [*SAVED, checkpoint(2100, modified_s=2600)]
    assert suspect_steps(saved, [incident(SICK)], [SICK], [FIRST, going_on]) == [1870, 1930, 2100]
    third = Start(3, 3000 * SECOND_NS, 1801, 1850, 1800)
    assert suspect_steps(saved, [incident(SICK, last_step=2400)], [SICK], [FIRST, going_on, third]) == [1870, 1930, 2100]


def test_after_a_recovery_only_what_was_saved_in_between_is_suspect() -> None:
    longer = replace(FIRST, last_step=2400)
    saved = [*SAVED, checkpoint(2100)]
    assert suspect_steps(saved, [incident(SICK, last_step=1900)], [SICK], [longer]) == [1870]
    went_back_later = Start(2, 3000 * SECOND_NS, 1801, 1850, 1800)
    assert suspect_steps(saved, [incident(SICK, last_step=1900)], [SICK], [longer, went_back_later]) == [1870]


@pytest.mark.parametrize("rule", ["checkpoint_corrupt", "throughput_drop", "stall", "run_dead"])
def test_an_incident_that_says_nothing_of_the_weights_makes_nothing_suspect(rule: str) -> None:
    other = finding(1860, rule=rule)
    assert suspect_steps(SAVED, [incident(other)], [other], [FIRST]) == []


def test_an_incident_of_info_makes_nothing_suspect() -> None:
    assert suspect_steps(SAVED, [incident(SICK, severity=Severity.INFO)], [SICK], [FIRST]) == []


def test_an_incident_whose_findings_are_not_known_any_more_belongs_to_the_attempt_of_its_time() -> None:
    assert suspect_steps(SAVED, [incident(SICK, last_step=1930)], [], [FIRST, BACK]) == [1870, 1930]
    assert suspect_steps(SAVED, [incident(SICK)], [], []) == [1870, 1930]


def test_of_two_incidents_the_earlier_onset_is_named_and_a_checkpoint_without_a_step_is_left_out() -> None:
    second = finding(1700)
    found = suspect_checkpoints([*SAVED, checkpoint(None)], [incident(SICK), incident(second)], [SICK, second], [FIRST])
    assert found == {"/c/1800": 1700, "/c/1870": 1700, "/c/1930": 1700}


def test_what_a_note_says_was_meant_makes_nothing_suspect() -> None:
    meant = replace(finding(100), is_open=False, last_step=300, data={"is_expected": True})
    ended = replace(incident(meant), closed_at_ns=300 * SECOND_NS, last_step=300)
    assert suspect_checkpoints([checkpoint(200)], [ended], [meant], []) == {}
    healed = replace(meant, data={})
    assert suspect_checkpoints([checkpoint(200)], [ended], [healed], []) == {"/c/200": 100}
