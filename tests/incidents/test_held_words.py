"""A run that its supervisor starts no more is an emergency, although the supervisor itself asked for the stop."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.incidents.verdict import ControlFacts, VerdictInputs, VerdictWord, verdict
from trainvitals.records import Finding, Incident, Severity

NOW = 1_795_000_000 * 10**9
S = 10**9
HELD = "the supervisor starts it no more: 3 starts in a row died after checkpoint 48,000 without a newer one"


def finding(rule: str, message: str) -> Finding:
    return Finding(
        f"f/{rule}", rule, "liveness", Severity.CRITICAL, 48_210, 48_210, None, 3, NOW - 60 * S, None, None, message, True
    )


def inputs() -> VerdictInputs:
    dead, held = finding("run_dead", "the run died after step 48,210: CUDA out of memory"), finding("restart_loop", HELD)
    incident = Incident(
        "i", "r", "time", Severity.CRITICAL, ("run_dead", "restart_loop"), (dead.id, held.id), 48_210, None, NOW - 90 * S,
        NOW - 60 * S, None, dead.message, held.message,
    )  # fmt: skip
    return VerdictInputs(
        now_ns=NOW, control=ControlFacts("stopped", "stopped", "supervisor", "supervisor", "3 starts in a row died"), attempt=3,
        attempt_started_ns=NOW - 600 * S, attempt_ended_ns=NOW - 90 * S, end_reason="exception", last_step=48_210, last_step_time_ns=NOW - 95 * S,
        watch_seen_ns=NOW - S, recommended_step=48_000, incidents=[incident], findings=[dead, held],
    )  # fmt: skip


def test_what_the_supervisor_decided_stands_first_and_is_critical() -> None:
    found = verdict(inputs())
    assert (found.word, found.tone) == (VerdictWord.STOPPED, "critical")
    assert HELD in found.headline and "CUDA out of memory" in found.headline and "on request of" not in found.headline


def test_a_stop_that_a_person_asked_for_is_still_one() -> None:
    asked = replace(inputs(), incidents=[], findings=[], control=ControlFacts("stopped", "stopped", "ana", "ui", "maintenance"))
    found = verdict(asked)
    assert (found.word, found.tone) == (VerdictWord.STOPPED, "warning") and "on request of ana" in found.headline


def test_a_hold_is_an_emergency_before_the_watchdog_has_read_of_it() -> None:
    found = verdict(replace(inputs(), incidents=[], findings=[]))
    assert (found.word, found.tone) == (VerdictWord.STOPPED, "critical")
    assert "the supervisor starts it no more: 3 starts in a row died" in found.headline
