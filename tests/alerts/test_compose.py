"""From a change of an incident to a notice."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.alerts.compose import Known, compose, incident_link, runbook, suspects, verb
from trainvitals.alerts.costs import going_back
from trainvitals.alerts.notice import Notice, NoticeKind, Verb, notice_id
from trainvitals.alerts.words import headline
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.incidents.rollback import Rollback
from trainvitals.incidents.symptoms import symptom
from trainvitals.incidents.triage import Check
from trainvitals.records import CheckpointReport, CheckpointState, Finding, Incident, Severity, VerificationLevel

T_NS = 1_800_000_000 * 10**9
SPIKE = Finding(
    "f1", "loss_spike", "loss", Severity.WARNING, 48_208, 48_212, None, 1, T_NS, 2.7, 2.31, "loss 2.31 → 2.70 since step 48,208", True
)  # fmt: skip
DIVERGED = Finding(
    "f2", "loss_divergence", "loss", Severity.CRITICAL, 48_210, 48_260, None, 1, T_NS, 2.94, 2.31,
    "loss 2.31 → 2.94 since step 48,210, not coming back", True,
)  # fmt: skip
INCIDENT = Incident(
    "llama-70b/loss/1", "llama-70b", "loss", Severity.CRITICAL, ("loss_spike", "loss_divergence"), ("f1", "f2"), 48_208, None, T_NS,
    T_NS, None, DIVERGED.message, DIVERGED.message,
)  # fmt: skip
SAFE = CheckpointReport("/c/48000", 48_000, "dcp", CheckpointState.VERIFIED, VerificationLevel.CONTENT, True, 1, 1)
KNOWN = Known(
    findings=(SPIKE, DIVERGED), rollback=Rollback(SAFE, ""), last_step=48_310, step_s=6.0, gpus=5_120, gpu_hour_price=2.0,
    public_url="https://health.example.org/tv/", runbook_url="https://wiki/{rule}", breaker="dry run", control="The trainer is running.",
)  # fmt: skip
CHANGE = IncidentChange(INCIDENT, ChangeKind.ESCALATED, 1, T_NS + 5, "loss_divergence")


def of(rule: str, severity: Severity = Severity.CRITICAL, **more) -> Incident:
    return replace(INCIDENT, rules=(rule,), finding_ids=(), severity=severity, **more)


def test_a_notice_says_what_leads_the_incident_and_what_going_back_costs():
    told = compose(CHANGE, KNOWN)
    assert (told.rule, told.step, told.value, told.expected) == ("loss_divergence", 48_210, 2.94, 2.31)
    assert (told.safe_step, told.safe_level, told.lost_steps) == (48_000, "content", 310)
    assert told.lost_gpu_hours == pytest.approx(310 * 6 * 5_120 / 3_600)
    assert told.cost == pytest.approx(2 * 310 * 6 * 5_120 / 3_600)
    assert told.runbook_url == "https://wiki/loss_divergence"
    assert told.verb is Verb.TRAINING_SICK
    assert Notice.from_mapping(told.to_mapping()) == told


def test_that_nothing_is_mended_any_more_is_said_first_with_the_cause_behind_it():
    death = replace(
        SPIKE,
        id="d",
        rule="run_dead",
        family="liveness",
        severity=Severity.CRITICAL,
        value=None,
        expected=None,
        message="the trainer ended after step 204: killed",
    )
    held = replace(death, id="h", rule="restart_failed", message="the supervisor starts it no more: no checkpoint can be used")
    incident = replace(INCIDENT, rules=("run_dead", "restart_failed"), finding_ids=("d", "h"), title=death.message, family="time")
    told = compose(replace(CHANGE, incident=incident, rule="run_dead"), replace(KNOWN, findings=(death, held)))
    assert told.what == f"{held.message}; {death.message}" and told.rule == "restart_failed" and told.verb is Verb.STOPPED
    assert "the supervisor starts it no more: no checkpoint can be used" in headline(told)
    again = compose(
        replace(CHANGE, incident=incident, rule="run_dead"), replace(KNOWN, findings=(death, replace(held, is_open=False)))
    )
    assert again.what == death.message


def test_the_id_is_of_incident_kind_and_number_alone():
    other = compose(replace(CHANGE, at_ns=T_NS + 10**12), replace(KNOWN, last_step=60_000, breaker="x"))
    assert other.id == compose(CHANGE, KNOWN).id == notice_id(f"{INCIDENT.id}@{INCIDENT.opened_at_ns}", "escalated", 1)
    assert compose(replace(CHANGE, number=2), KNOWN).id != other.id
    assert notice_id("a\r\nX-Evil: 1/é\udcff", "opened", 1).replace("-", "").isalnum()


def test_the_link_has_run_window_and_incident_and_comes_from_public_url_alone():
    told = urlsplit(compose(CHANGE, KNOWN).link)
    query = parse_qs(told.query)
    assert (told.scheme, told.netloc, told.path) == ("https", "health.example.org", "/tv/incidents")
    assert query["run"] == ["llama-70b"]
    assert query["incident"] == [INCIDENT.id]
    assert int(query["from"][0]) < 48_208 < 48_310 < int(query["to"][0])
    assert compose(CHANGE, replace(KNOWN, public_url="")).link == ""


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_name_breaks_out_of_the_link(run, identifier):
    link = incident_link("https://h", replace(INCIDENT, run=run, id=identifier), 5)
    query = parse_qs(urlsplit(link).query, keep_blank_values=True, strict_parsing=True)
    assert set(query) == {"run", "by", "from", "to", "incident"}
    assert link.isascii() and link.isprintable() and " " not in link


@pytest.mark.parametrize(
    ("rule", "severity", "expected"),
    [
        ("run_dead", Severity.CRITICAL, Verb.STOPPED), ("restart_loop", Severity.CRITICAL, Verb.STOPPED),
        ("out_of_memory", Severity.CRITICAL, Verb.STOPPED), ("nccl_timeout", Severity.CRITICAL, Verb.HUNG),
        ("stall", Severity.CRITICAL, Verb.HUNG), ("stall", Severity.WARNING, Verb.CHECK), ("pause_not_honoured", Severity.CRITICAL, Verb.HUNG),
        ("loss_nonfinite", Severity.CRITICAL, Verb.TRAINING_SICK), ("lr_schedule_mismatch", Severity.WARNING, Verb.TRAINING_SICK),
        ("rank_loss_mismatch", Severity.WARNING, Verb.TRAINING_SICK), ("throughput_drop", Severity.WARNING, Verb.TRAINING_SLOW),
        ("straggler", Severity.WARNING, Verb.TRAINING_SLOW), ("checkpoint_corrupt", Severity.WARNING, Verb.CHECK),
        ("resume_config_changed", Severity.WARNING, Verb.TRAINING_SICK), ("gpu_lost", Severity.CRITICAL, Verb.CHECK),
    ],
)  # fmt: skip
def test_the_verb_of_a_rule(rule, severity, expected):
    assert verb(of(rule, severity), ()) is expected


def test_a_pause_is_the_verb_of_trouble_with_the_training_and_of_nothing_else():
    assert verb(INCIDENT, KNOWN.findings, is_paused=True) is Verb.PAUSED
    assert verb(of("run_dead"), (), is_paused=True) is Verb.STOPPED
    assert verb(of("checkpoint_corrupt"), (), is_paused=True) is Verb.CHECK
    assert verb(INCIDENT, (), is_paused=True, is_over=True) is Verb.RECOVERED


def test_what_is_over_names_no_checkpoint_to_go_back_to():
    closed = replace(INCIDENT, closed_at_ns=T_NS + 9, last_step=48_300)
    told = compose(IncidentChange(closed, ChangeKind.RECOVERED, 1, T_NS + 9, "loss_divergence"), KNOWN)
    assert (told.kind, told.verb, told.safe_step, told.suspects) == (NoticeKind.RECOVERED, Verb.RECOVERED, None, ())


def test_suspects_stand_in_the_order_data_code_cluster_and_numbers_with_the_code_when_there_is_evidence():
    checks = (
        Check("data", "?", "Data position not reported", "Look at the batches."), Check("code", "–", "No restart", "see the curves"),
        Check("numerics", "!", "Grad norm rose 3 steps before the loss", "grad norm 1.0 → 90."), Check("cluster", "–", "No fault", "8 nodes"),
    )  # fmt: skip
    told = suspects("loss_divergence", checks)
    assert [one.group for one in told] == ["data", "code", "code", "cluster"]
    assert [bool(one.evidence) for one in told] == [False, False, True, False]
    quiet = suspects("loss_divergence", [replace(check, mark="–") for check in checks])
    assert [one.group for one in quiet] == ["data", "code", "cluster"]


def test_secrets_and_line_breaks_of_a_log_do_not_get_into_a_notice():
    secret = "hf_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7"
    told = compose(replace(CHANGE, incident=replace(INCIDENT, title=f"died:\n401 token={secret}\x1b[31m")), KNOWN)
    assert secret not in str(told.to_mapping())
    assert "\n" not in told.what and "\x1b" not in told.what


def test_nothing_is_guessed_of_costs():
    assert going_back(None, 5, 1.0, 8, 1.0).steps is None
    assert going_back(100, 90, None, 8, 1.0) == replace(going_back(100, 90, None, 0, 0.0), steps=10)
    assert going_back(100, 90, 3600.0, 2, 0.0).money is None
    assert going_back(100, 90, 3600.0, 2, 1.5).money == 30.0
    assert going_back(80, 90, 1.0, 1, 1.0).steps == 0


def test_a_rule_cannot_leave_its_place_in_the_runbooks_address():
    assert runbook("https://wiki/{rule}?x=1", "../../etc?a=b") == "https://wiki/..%2F..%2Fetc%3Fa%3Db?x=1"
    assert runbook("", "loss_spike") == ""


def test_a_death_that_joins_a_slow_run_tells_its_own_time_and_a_recovery_is_as_long_as_the_trouble_was():
    slow = replace(SPIKE, id="s", rule="throughput_drop", family="throughput", first_step=12_275)
    death = replace(
        slow,
        id="d",
        rule="run_dead",
        family="liveness",
        severity=Severity.CRITICAL,
        first_step=14_330,
        time_ns=T_NS + 184 * 10**9,
    )
    incident = replace(INCIDENT, rules=(slow.rule, death.rule), finding_ids=("s", "d"), family="time", first_step=12_275)
    told = compose(replace(CHANGE, incident=incident, rule="run_dead"), replace(KNOWN, findings=(slow, death)))
    assert (told.verb, told.step, told.opened_at_ns) == (Verb.STOPPED, 14_330, T_NS + 184 * 10**9)
    over = replace(INCIDENT, closed_at_ns=T_NS + 3 * 10**9)
    told = compose(replace(CHANGE, incident=over, kind=ChangeKind.RECOVERED, at_ns=T_NS + 123 * 10**9), KNOWN)
    assert "(after 3 s)" in headline(told)


def test_a_death_sends_nobody_looking_for_a_rank_that_is_behind():
    for rule in ("run_dead", "out_of_memory", "restart_loop", "restart_failed"):
        assert symptom(rule).name == "the trainer ended" and "behind" not in symptom(rule).action
    assert "behind" in symptom("throughput_drop").action and "behind" in symptom("nccl_timeout").action
