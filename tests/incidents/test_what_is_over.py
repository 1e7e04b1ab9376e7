"""What was worse and is over stands beside what is open; what the breaker only counted is told as of then, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainvitals.incidents.verdict import ControlFacts, VerdictInputs, VerdictWord, verdict
from trainvitals.records import Event, Finding, Incident, Severity

NOW = 1_795_000_000 * 10**9
S = 10**9
DEATH = "the trainer ended after step 1,653: FloatingPointError (21:00:18 UTC); the trainer was started again"
DAMAGE = "checkpoint checkpoint-1500 is corrupt: model.safetensors: truncated"


def incident(rule: str, severity: Severity, title: str, opened_s_ago: float, closed_s_ago: float | None = None) -> Incident:
    closed_ns = None if closed_s_ago is None else NOW - round(closed_s_ago * S)
    return Incident(
        f"i/{rule}/{opened_s_ago}", "r", "f", severity, (rule,), (f"f/{rule}",), 1_500, None, NOW - round(opened_s_ago * S), NOW, closed_ns,
        title, title,
    )  # fmt: skip


def run(*incidents: Incident, **changes: object) -> VerdictInputs:
    base = VerdictInputs(
        now_ns=NOW, incidents=incidents, control=ControlFacts("running"), attempt=2, attempt_started_ns=NOW - 4 * S, resumed_from_step=1_200,
        last_step=1_203, last_step_time_ns=NOW - S, typical_step_s=0.08, typical_gap_s=0.08, watch_seen_ns=NOW, breaker_mode="armed",
    )  # fmt: skip
    return replace(base, **changes)


def dead(closed_s_ago: float = 3) -> Incident:
    return incident("run_dead", Severity.CRITICAL, DEATH, closed_s_ago + 2, closed_s_ago)


def damaged(closed_s_ago: float | None = None) -> Incident:
    return incident("checkpoint_corrupt", Severity.WARNING, DAMAGE, 10, closed_s_ago)


def counted(text: str = "1 of 20 non-finite points in a row", s_ago: float = 6, attempt: int = 1) -> Event:
    return Event("breaker", NOW - round(s_ago * S), step=1_649, attempt=attempt, text=text, data={"decision": "count"})


def test_a_warning_never_hides_the_death_seconds_ago() -> None:
    found = verdict(run(damaged(), dead(), attempt_started_ns=NOW - 3 * S))
    assert found.word is VerdictWord.ATTENTION and found.incident_id == damaged().id
    assert found.headline == (
        f"{DAMAGE}. Over: the trainer ended after step 1,653: FloatingPointError (21:00:18 UTC); attempt 2 started from step 1,200"
    )
    assert "Training itself is fine" not in found.decision and "before you need it" in found.decision


def test_minutes_later_the_warning_leads_and_the_death_stands_beside_it() -> None:
    found = verdict(run(damaged(), dead(300), attempt_started_ns=NOW - 300 * S))
    assert found.headline == DAMAGE
    assert found.automatic.startswith("Over for 5 min") and "attempt 2 started from step 1,200" in found.automatic


def test_a_loss_that_came_back_by_itself_stands_beside_what_is_open_at_once() -> None:
    slow = incident("throughput_drop", Severity.WARNING, "throughput 37 % below usual", 10)
    spike = incident("loss_spike", Severity.CRITICAL, "loss 1.85 → 6.35; back to 1.95", 90, 60)
    found = verdict(run(slow, spike, attempt=1, attempt_started_ns=NOW - 600 * S))
    assert (found.word, found.headline) == (VerdictWord.SLOW, "throughput 37 % below usual")
    assert found.automatic == "Over for 1 min 0 s: loss 1.85 → 6.35; back to 1.95."


def test_a_loss_that_is_sick_now_leads_and_the_death_stands_beside_it() -> None:
    sick = incident("loss_spike", Severity.WARNING, "loss 1.54 → 1.79", 10)
    found = verdict(run(sick, dead(80), attempt_started_ns=NOW - 80 * S))
    assert (found.word, found.headline) == (VerdictWord.SICK, "loss 1.54 → 1.79")
    assert "attempt 2 started from step 1,200" in found.automatic


def test_what_is_worse_than_all_that_is_over_speaks_alone() -> None:
    sick = incident("loss_divergence", Severity.CRITICAL, "loss 1.53 → 2.20", 20)
    assert verdict(run(sick, damaged(3), dead())).headline == "loss 1.53 → 2.20"


def test_recovered_speaks_of_the_gravest_that_is_over_and_counts_the_others() -> None:
    nan = incident("loss_nonfinite", Severity.CRITICAL, "loss is NaN", 8, 2)
    found = verdict(run(dead(40), damaged(1), nan, attempt_started_ns=NOW - 40 * S))
    assert found.word is VerdictWord.RECOVERED
    assert found.headline.startswith("the trainer ended after step 1,653")
    assert found.headline.endswith("; attempt 2 started from step 1,200 (and 2 more, over too)")
    assert verdict(run(dead(40), damaged(1))).headline.endswith("(and 1 more, over too)")


def test_a_count_of_the_breaker_is_not_told_when_nothing_is_counted_any_more() -> None:
    nan = incident("loss_nonfinite", Severity.CRITICAL, "loss is NaN", 8, 2)
    for inputs in (run(damaged()), run(damaged(1)), run(nan), run(damaged(), nan), run(dead(1))):
        found = verdict(replace(inputs, breaker_events=[counted(), counted(s_ago=0, attempt=2)]))
        assert "non-finite points" not in found.automatic


def test_a_count_of_an_open_incident_says_when_it_was_counted() -> None:
    sick = incident("loss_spike", Severity.CRITICAL, "loss 1.53 → 2.20", 20)
    event = counted("28 of 60 points of an incident that has not come back", attempt=2)
    assert verdict(run(sick, breaker_events=[event])).automatic == (
        "Breaker: 28 of 60 points of an incident that has not come back (at step 1,649)."
    )
    assert "(at step" not in verdict(run(sick, breaker_events=[event], last_step=1_649)).automatic
    assert verdict(run(sick, breaker_events=[replace(event, attempt=1)])).automatic.startswith("The breaker is armed")


@pytest.mark.parametrize("decision", ["paused", "would_pause", "not_wired", "refused"])
def test_what_the_breaker_did_is_told_of_an_incident_of_the_loss_only(decision: str) -> None:
    done = Event("breaker", NOW - 6 * S, step=1_649, attempt=2, text="asked the trainer to pause", data={"decision": decision})
    sick = incident("loss_spike", Severity.CRITICAL, "loss 1.53 → 2.20", 20)
    assert verdict(run(sick, breaker_events=[done])).automatic == "Breaker: asked the trainer to pause."
    assert verdict(run(damaged(), breaker_events=[done])).automatic == ""


def test_a_planned_end_does_not_hide_what_is_open_at_it() -> None:
    sick = incident("loss_divergence", Severity.CRITICAL, "loss 2.00 → 8.00 since step 2,051, not coming back", 20)
    over = {"attempt_ended_ns": NOW - S, "end_reason": "done", "recommended_step": 1_000}
    found = verdict(run(sick, **over))
    assert (found.word, found.tone, found.incident_id) == (VerdictWord.FINISHED, "critical", sick.id)
    assert "ended as planned at step 1,203, but open at its end: loss 2.00 → 8.00" in found.headline
    assert "Going back to step 1,000" in found.decision
    broken = verdict(run(damaged(), **over))
    assert (broken.word, broken.tone) == (VerdictWord.FINISHED, "warning") and DAMAGE in broken.headline


@pytest.mark.parametrize("rule", ["throughput_drop", "stall"])
def test_that_a_run_was_slow_or_silent_when_it_ended_is_no_news(rule: str) -> None:
    slow = incident(rule, Severity.WARNING, "throughput 37 % below usual", 20)
    found = verdict(run(slow, attempt_ended_ns=NOW - S, end_reason="done"))
    assert (found.word, found.tone, found.headline) == (VerdictWord.FINISHED, "ok", "the run ended as planned at step 1,203")


def test_a_dead_trainer_is_not_told_that_nothing_paused_it() -> None:
    died = incident("run_dead", Severity.CRITICAL, "the trainer was killed", 5)
    assert verdict(run(died, attempt_ended_ns=NOW - S, end_reason="killed")).automatic == ""


def test_rules_that_are_over_in_an_open_incident_ask_nothing_of_the_breaker() -> None:
    both = replace(incident("stall", Severity.WARNING, "no step", 20), rules=("stall", "loss_spike"), finding_ids=("a", "b"))
    findings = [
        Finding(name, rule, "f", Severity.WARNING, 1, 1, None, 2, NOW, None, None, rule, is_open)
        for name, rule, is_open in (("a", "stall", True), ("b", "loss_spike", False))
    ]
    assert verdict(run(both, findings=findings, breaker_events=[counted(attempt=2)])).automatic == ""


def test_a_death_that_is_one_incident_with_a_slow_node_is_over_when_only_the_node_is_still_slow() -> None:
    both = replace(dead(), closed_at_ns=None, rules=("throughput_drop", "run_dead"), finding_ids=("slow", "dead"))
    findings = [
        Finding("slow", "throughput_drop", "f", Severity.WARNING, 986, 990, None, 1, NOW - 40 * S, None, None, "throughput 37 % below usual", True),
        Finding("dead", "run_dead", "f", Severity.CRITICAL, 1_301, 1_301, 1_301, 1, NOW - 5 * S, None, None, DEATH, False),
    ]  # fmt: skip
    found = verdict(run(both, findings=findings, attempt_started_ns=NOW - 3 * S))
    assert (found.word, found.tone) == (VerdictWord.ATTENTION, "warning"), "a word of its own sentence"
    assert found.headline == (
        "throughput 37 % below usual. Over: the trainer ended after step 1,653: FloatingPointError (21:00:18 UTC); attempt 2 started from step "
        "1,200"
    )
    nothing_grave = [replace(findings[0], severity=Severity.INFO), findings[1]]
    assert verdict(run(both, findings=nothing_grave, attempt_started_ns=NOW - 3 * S)).word is VerdictWord.RECOVERED


def test_without_a_checkpoint_to_go_back_to_the_reason_is_the_real_one() -> None:
    sick = incident("loss_divergence", Severity.CRITICAL, "loss 1.53 → 2.20", 20)
    why = "None of 4 can be recommended: all were saved after the onset."
    assert (
        "None of 4 can be recommended: all were saved after the onset; look" in verdict(run(sick, none_recommended=why)).decision
    )
    assert "no checkpoint is verified; look" in verdict(run(sick)).decision
