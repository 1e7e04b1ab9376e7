"""What a message may cite of a run: from what was read alone, bounded, and the same after a restart."""

from __future__ import annotations

import json
from dataclasses import replace

from trainvitals.alerts.compose import suspects
from trainvitals.control.view import ControlState, unreadable
from trainvitals.incidents.rollback import Rollback
from trainvitals.records import Event, Finding, Incident, Severity, Step
from trainvitals.settings import parse
from trainvitals.watch.alert_facts import KINDS, MAX_FINDINGS, MAX_OF_KIND, AlertFacts, Seen

S = 10**9
SETTINGS = parse(
    {"runs": [{"name": "r", "dir": "/nowhere", "gpus": 8, "gpu_hour_price": 2.5}], "alerts": {"runbook_url": "https://w/{rule}"}}
)
FINDING = Finding(
    "f1", "loss_divergence", "loss", Severity.CRITICAL, 300, 330, None, 1, 300 * S, 2.9, 2.0, "loss 2.00 → 2.90 since step 300", True
)  # fmt: skip
INCIDENT = Incident(
    "i1", "r", "loss", Severity.CRITICAL, ("loss_divergence",), ("f1",), 300, None, 300 * S, 300 * S, None, FINDING.message, FINDING.message
)  # fmt: skip


def facts(state: str = "running") -> AlertFacts:
    control = ControlState(state, f"It is {state}.", can_act=True)
    return AlertFacts(SETTINGS, SETTINGS.runs[0], lambda run_dir, now_ns: control)


def trained(made: AlertFacts, *, lr_after: float = 1e-4) -> AlertFacts:
    made.take(Event("attempt_start", S, attempt=1, id="s", data={"attempt": 1}))
    for step in range(1, 340):
        lr = 1e-4 if step < 300 else lr_after
        made.take(Step(step, 1, step * S, {"loss": 2.0, "lr": lr, "grad_norm": 1.0}))
    made.found(FINDING)
    return made


def groups(made: AlertFacts, seen: Seen | None = None) -> dict[str, str]:
    known = made.known(INCIDENT, seen or Seen(339, 339 * S, 1.0, Rollback(None, ""), "armed"), 340 * S)
    return {one.group: one.evidence for one in suspects("loss_divergence", known.checks)}


def test_a_learning_rate_that_ran_away_is_evidence_in_the_code():
    assert "0.002 now, 0.0001 before" in groups(trained(facts(), lr_after=2e-3))["code"]
    assert groups(trained(facts()))["code"] == ""


def test_new_data_before_the_onset_is_evidence_and_routine_positions_are_not_even_kept():
    made = trained(facts())
    for step in range(0, 290, 10):
        made.take(Event("data", step * S, step=step, attempt=1, id=f"d{step}", data={"source": "web", "sample_first": step}))
    assert groups(made)["data"] == ""
    made.take(Event("data", 295 * S, step=295, attempt=1, id="new", data={"source": "code"}))
    assert groups(made)["data"].startswith("5 steps before the onset. Source code.")


def test_breaker_and_control_are_said_as_they_are():
    made = trained(facts("paused"))
    known = made.known(INCIDENT, Seen(339, None, None, None, "armed"), 0)
    assert (known.breaker, known.control, known.is_paused) == ("It is armed and has not tripped.", "It is paused.", True)
    made.take(
        Event("breaker", 320 * S, step=320, attempt=1, id="b", text="asked the trainer to pause", data={"decision": "paused"})
    )
    assert made.known(INCIDENT, Seen(339), 0).breaker == "asked the trainer to pause."
    assert (
        made.known(replace(INCIDENT, rules=("checkpoint_corrupt",), finding_ids=()), Seen(339, breaker="armed"), 0).breaker == ""
    )


def test_after_a_restart_the_same_events_are_cited_and_it_is_known_what_is_not_known():
    made = trained(facts())
    made.take(Event("data", S, step=1, attempt=1, id="old", data={"source": "web"}))
    made.take(Event("data", 295 * S, step=295, attempt=1, id="new", data={"source": "code"}))
    made.take(Event("audit", S, id="a", data={"n": 7, "hash": "ab" * 32}))
    other = facts()
    other.restore(json.loads(json.dumps(made.to_state())))
    assert not other.knows(INCIDENT)
    other.found(FINDING)
    assert groups(other)["data"] == groups(made)["data"]
    assert other.known(INCIDENT, Seen(), 0).audit_head == "7 " + "ab" * 32


def test_memory_and_state_are_bounded_whatever_a_log_says():
    made = facts()
    for number in range(3_000):
        for kind in KINDS:
            made.take(
                Event(
                    kind,
                    number,
                    step=number,
                    attempt=number,
                    id=f"{kind}{number}",
                    text="overflow " * 500,
                    data={"source": "x" * 10, "junk": "y" * 10_000},
                )
            )
        made.found(replace(FINDING, id=f"f{number}"))
    state = made.to_state()
    assert len(state["events"]) == MAX_OF_KIND * len(KINDS)
    assert len(json.dumps(state)) < 100_000
    assert len(made._findings) == MAX_FINDINGS


def test_control_files_that_cannot_be_read_are_said():
    made = AlertFacts(SETTINGS, SETTINGS.runs[0], lambda run_dir, now_ns: unreadable("The control files cannot be read."))
    assert made.known(INCIDENT, Seen(), 0).control == "The control files cannot be read."


def test_a_trainer_that_is_gone_is_not_said_to_be_running():
    made = trained(facts())
    death = replace(FINDING, id="d", rule="run_dead", family="liveness", is_open=True)
    made.found(death)
    incident = replace(INCIDENT, family="time", rules=("run_dead",), finding_ids=("d",))
    assert made.known(incident, Seen(339), 0).control == "The trainer has ended; it last said: it is running."
    made.found(replace(death, is_open=False))
    assert made.known(incident, Seen(339), 0).control == "It is running."
