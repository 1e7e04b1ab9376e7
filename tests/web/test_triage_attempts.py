"""What an earlier attempt died of, and what came after all was over, is no evidence of what is wrong now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainvitals.incidents.first_suspect import action_words, suspect_words
from trainvitals.incidents.triage import Check, Evidence, triage
from trainvitals.records import Event, Finding, Incident, Severity
from trainvitals.web.assemble import checks_of
from trainvitals.web.view import AttemptView, MetricNow

NOW = 1_795_000_000 * 10**9
S = 10**9
DEATH = Event(
    "postmortem", NOW - 80 * S, attempt=1, text="cause: TypeError (21:00:18 UTC)", data={"cause": {"class": "exception", "name": "TypeError"}}
)  # fmt: skip
RAN_AWAY = Evidence(
    onset_step=2_136, onset_ns=NOW, attempt=2, attempt_first_step=1_201, events=[DEATH], has_grad_norm=True, lr_now=0.273, lr_usual=0.0018,
    attempts=frozenset({2}),
)  # fmt: skip


def by_layer(rule: str, evidence: Evidence) -> dict[str, Check]:
    return {check.layer: check for check in triage(rule, evidence)}


def finding(rule: str, step: int, attempt: int = 2) -> Finding:
    return Finding(f"f/{rule}", rule, "loss", Severity.CRITICAL, step, step, None, attempt, NOW, 2.2, 1.5, f"{rule} told", True)


def test_the_death_of_an_attempt_that_a_restart_healed_does_not_hide_the_learning_rate_of_now() -> None:
    code = by_layer("loss_divergence", RAN_AWAY)["code"]
    assert (code.mark, code.title) == ("!", "Learning rate 152× what it was")
    assert "TypeError" not in code.evidence


@pytest.mark.parametrize("event", [DEATH, replace(DEATH, kind="fault", data={"class": "gpu_error"})])
def test_what_another_attempt_met_marks_no_layer(event: Event) -> None:
    found = by_layer("loss_divergence", replace(RAN_AWAY, lr_now=None, events=[event]))
    assert [layer for layer, check in found.items() if check.mark == "!"] == []
    own = by_layer("loss_divergence", replace(RAN_AWAY, lr_now=None, events=[replace(event, attempt=2)]))
    assert [layer for layer, check in own.items() if check.mark == "!"] != []


def test_a_death_after_all_was_over_does_not_explain_it() -> None:
    late = replace(RAN_AWAY, lr_now=None, events=[replace(DEATH, attempt=2, time_ns=NOW + 60 * S)], ended_ns=NOW + 30 * S)
    assert by_layer("throughput_drop", late)["code"].mark != "!"
    assert by_layer("throughput_drop", replace(late, ended_ns=NOW + 90 * S))["code"].mark == "!"


def test_a_death_after_a_checkpoint_was_found_damaged_does_not_explain_the_damage() -> None:
    after = replace(RAN_AWAY, lr_now=None, events=[replace(DEATH, attempt=2, time_ns=NOW + 6 * S)])
    assert by_layer("checkpoint_corrupt", after)["code"].mark != "!"


def test_everything_that_speaks_against_the_program_is_named_the_measured_first() -> None:
    changed = replace(
        finding("resume_config_changed", 1_201), severity=Severity.WARNING, message="settings differ: lr 3e-4 → 3e-2"
    )
    code = by_layer("loss_divergence", replace(RAN_AWAY, findings=[changed]))["code"]
    assert code.title == "Learning rate 152× what it was"
    assert code.evidence.endswith("Also: Configuration changed with the restart.")


def test_a_program_that_gave_up_on_nan_is_a_matter_of_numbers() -> None:
    gave_up = replace(
        DEATH, attempt=2, text="cause: FloatingPointError", data={"cause": {"class": "exception", "name": "FloatingPointError"}}
    )
    found = by_layer("run_dead", replace(RAN_AWAY, lr_now=None, events=[gave_up], nonfinite=[("loss", "nan")]))
    assert found["code"].mark != "!"
    assert found["numerics"].title == "Not a finite number: loss nan"
    assert found["numerics"].evidence.startswith("The trainer gave up, cause: FloatingPointError. ")
    assert by_layer("run_dead", replace(RAN_AWAY, lr_now=None, events=[gave_up]))["numerics"].mark == "!"


def test_a_death_right_after_nan_says_so_also_when_all_values_are_finite_again() -> None:
    nan, death = finding("loss_nonfinite", 1_649, attempt=1), finding("run_dead", 1_653, attempt=1)
    incident = Incident(
        "i", "r", "time", Severity.CRITICAL, ("run_dead",), (death.id,), 1_653, 1_653, NOW, NOW, NOW, "died", "died"
    )
    attempt = AttemptView(1, NOW - 600 * S, 0, 1_653)
    checks = {c.layer: c for c in checks_of([nan, death], [], [], incident, NOW, attempt, ())}
    assert checks["numerics"].title == "Not a finite number: loss nan"


def test_an_incident_of_the_second_attempt_is_told_without_the_death_of_the_first() -> None:
    members = [finding("loss_divergence", 2_136)]
    incident = Incident(
        "i", "r", "loss", Severity.CRITICAL, ("loss_divergence",), (members[0].id,), 2_136, None, NOW, NOW, None, "t", "m"
    )
    lr = MetricNow("lr", 0.273, None, 0.0018, 2_207)
    attempt = AttemptView(2, NOW - 79 * S, 1_201, 2_207, 1_200)
    checks = checks_of(members, [DEATH], [], incident, NOW, attempt, (), (), True, lr)
    assert [c.title for c in checks if c.mark == "!"] == ["Learning rate 152× what it was"]


def test_a_grad_norm_far_above_the_usual_one_is_evidence_also_when_no_rule_told_it() -> None:
    numerics = by_layer("loss_divergence", replace(RAN_AWAY, grad_norm_now=6.08, grad_norm_usual=1.053))["numerics"]
    assert (numerics.mark, numerics.title) == ("!", "Grad norm 6× what it was")
    assert by_layer("loss_divergence", replace(RAN_AWAY, grad_norm_now=1.6, grad_norm_usual=1.053))["numerics"].mark == "–"


def test_weights_on_the_disk_that_are_no_numbers_are_a_matter_of_numbers() -> None:
    told = replace(
        finding("checkpoint_corrupt", 3_802),
        message="checkpoint a.pt is corrupt: tensor w in a.pt holds NaN (9 of 9 sampled values)",
    )
    numerics = by_layer("checkpoint_corrupt", replace(RAN_AWAY, findings=[told]))["numerics"]
    assert (numerics.mark, numerics.title) == (
        "!",
        "Damaged numbers in the weights on the disk",
    ) and "holds NaN" in numerics.evidence
    cut = replace(told, message="checkpoint a.pt is corrupt: truncated")
    assert by_layer("checkpoint_corrupt", replace(RAN_AWAY, findings=[cut]))["numerics"].mark == "–"


def test_the_first_suspect_says_so_when_the_evidence_is_elsewhere() -> None:
    checks = triage("loss_divergence", RAN_AWAY)
    assert (
        suspect_words("the data", "data", checks)
        == "the data, as a rule. Here the evidence is in code: Learning rate 152× what it was."
    )
    assert suspect_words("the program", "code", checks) == "the program."
    assert action_words("Look at the batches.", "data", checks) == (
        "Begin with the code. Only if that explains nothing: look at the batches."
    )
    assert action_words("Look at the settings.", "code", checks) == "Look at the settings."
    assert suspect_words("the data", "data", triage("loss_divergence", replace(RAN_AWAY, lr_now=None))) == "the data."


def test_one_step_is_one_step() -> None:
    grad, loss = finding("grad_norm_spike", 2_135), finding("loss_spike", 2_136)
    told = by_layer("loss_spike", replace(RAN_AWAY, findings=[grad, loss]))["numerics"]
    assert told.title == "Grad norm rose 1 step before the loss"
