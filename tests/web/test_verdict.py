"""The one sentence at the top: every word, and what must never read as healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.incidents.verdict import (
    ControlFacts,
    Verdict,
    VerdictInputs,
    VerdictWord,
    gpu_hours,
    hung_after_s,
    main_incident,
    span,
    verdict,
)
from trainvitals.records import Event, Finding, Incident, Severity

NOW = 1_795_000_000 * 10**9
S = 10**9


def well(**changes: object) -> VerdictInputs:
    base = VerdictInputs(
        now_ns=NOW, control=ControlFacts("running"), attempt=3, attempt_started_ns=NOW - 7200 * S, last_step=48_310,
        last_step_time_ns=NOW - 2 * S, typical_step_s=3.0, typical_gap_s=3.0, watch_seen_ns=NOW - S, recommended_step=48_000,
        recommended_level="content", gpus=5120,
    )  # fmt: skip
    return replace(base, **changes)


def incident(
    rule: str, severity: Severity = Severity.CRITICAL, *, closed_s_ago: float | None = None, opened_s_ago: float = 300
) -> Incident:
    closed = None if closed_s_ago is None else NOW - round(closed_s_ago * S)
    return Incident(
        f"i/{rule}", "r", "loss", severity, (rule,), (f"f/{rule}",), 48_210, None, NOW - round(opened_s_ago * S), NOW, closed,
        "loss 2.31 → 2.94 since step 48,210, not coming back", "message",
    )  # fmt: skip


def finding(rule: str, *, is_open: bool = True, identifier: str = "") -> Finding:
    return Finding(
        identifier or f"f/{rule}", rule, "loss", Severity.CRITICAL, 48_210, 48_220, None, 3, NOW, 2.9, 2.3, "m", is_open
    )


def test_a_quiet_run_is_healthy_since_its_attempt_began() -> None:
    found = verdict(well())
    assert (found.word, found.tone, found.since_ns) == (VerdictWord.HEALTHY, "ok", NOW - 7200 * S)


def test_an_open_loss_incident_is_sick_and_prices_the_way_back() -> None:
    found = verdict(well(incidents=[incident("loss_divergence")]))
    assert found.word is VerdictWord.SICK and found.tone == "critical"
    assert "2.31 → 2.94" in found.headline
    assert "step 48,000 (content verified) redoes 310 steps = 1,320 GPU-h" in found.decision
    assert found.incident_id == "i/loss_divergence"


def test_a_paused_sick_run_stays_sick_and_says_who_paused_it() -> None:
    control = ControlFacts("paused", "paused", "breaker", "breaker", "loss", 48_310, NOW - 252 * S)
    found = verdict(well(incidents=[incident("loss_divergence")], control=control, last_step_time_ns=NOW - 250 * S))
    assert found.word is VerdictWord.SICK
    assert found.automatic == "Paused at step 48,310 by the breaker, 4 min 12 s ago, acknowledged by the trainer."
    assert "GPU-h a minute" in found.decision


def test_a_pause_without_trouble_is_just_paused() -> None:
    control = ControlFacts("paused", "paused", "alice", "ui", "moving racks", 48_310, NOW - 600 * S)
    found = verdict(well(control=control, last_step_time_ns=NOW - 600 * S))
    assert found.word is VerdictWord.PAUSED and "alice" in found.headline and "moving racks" in found.headline


def test_a_dry_run_breaker_says_what_it_would_have_done() -> None:
    told = Event(
        "breaker", NOW - 60 * S, step=48_300, text="dry run: would have paused at step 48,300: loss", data={"mode": "dry-run"}
    )
    found = verdict(well(incidents=[incident("loss_divergence")], breaker_events=[told]))
    assert found.automatic == "Breaker: dry run: would have paused at step 48,300: loss."


@pytest.mark.parametrize(
    ("mode", "state", "words"),
    [("off", "running", "breaker is off"), ("dry-run", "running", "dry-run"), ("armed", "not_wired", "no hook")],
)
def test_when_nothing_was_done_by_itself_it_says_why(mode: str, state: str, words: str) -> None:
    found = verdict(well(incidents=[incident("loss_divergence")], breaker_mode=mode, control=ControlFacts(state)))
    assert words in found.automatic


def test_no_step_for_long_is_a_hang_however_busy_the_machines_look() -> None:
    found = verdict(well(last_step_time_ns=NOW - 1800 * S))
    assert found.word is VerdictWord.HUNG and "30 min" in found.headline and "Busy GPUs prove nothing" in found.decision


@pytest.mark.parametrize("phase", ["checkpoint", "eval", "start"])
def test_a_long_checkpoint_or_evaluation_is_no_hang(phase: str) -> None:
    assert verdict(well(last_step_time_ns=NOW - 1800 * S, phase=phase)).word is VerdictWord.HEALTHY


def test_a_new_attempt_that_loads_is_not_judged_by_the_step_of_the_old_one() -> None:
    assert verdict(well(last_step_time_ns=NOW - 1800 * S, attempt_started_ns=NOW - 20 * S)).word is VerdictWord.HEALTHY


def test_a_log_of_every_tenth_step_is_given_five_of_its_own_gaps() -> None:
    assert verdict(well(last_step_time_ns=NOW - 200 * S, typical_step_s=10.0, typical_gap_s=100.0)).word is VerdictWord.HEALTHY
    assert hung_after_s(None) == 60.0


def test_an_open_stall_is_a_hang_until_its_finding_closes() -> None:
    both = replace(
        incident("stall", Severity.WARNING), rules=("stall", "throughput_drop"), finding_ids=("f/stall", "f/throughput_drop")
    )
    opened = [finding("stall"), finding("throughput_drop")]
    assert verdict(well(incidents=[both], findings=opened)).word is VerdictWord.HUNG
    closed = [finding("stall", is_open=False), finding("throughput_drop")]
    assert verdict(well(incidents=[both], findings=closed)).word is VerdictWord.SLOW


def test_a_broken_checkpoint_asks_for_attention_and_is_not_called_sick_training() -> None:
    found = verdict(well(incidents=[incident("checkpoint_corrupt", Severity.WARNING)]))
    assert (found.word, found.tone) == (VerdictWord.ATTENTION, "warning")


def test_a_silent_watchdog_is_no_data_and_never_healthy() -> None:
    found = verdict(well(watch_seen_ns=NOW - 300 * S))
    assert found.word is VerdictWord.UNKNOWN and "silent for 5 min" in found.headline
    assert verdict(well(watch_seen_ns=None)).word is VerdictWord.UNKNOWN
    assert verdict(well(last_step=None, last_step_time_ns=None)).word is VerdictWord.UNKNOWN


def test_what_was_sick_when_the_watchdog_fell_silent_stays_sick_and_says_how_old_that_is() -> None:
    found = verdict(well(incidents=[incident("loss_divergence")], watch_seen_ns=NOW - 720 * S))
    assert found.word is VerdictWord.SICK and "as known 12 min ago" in found.headline


def test_a_dead_trainer_is_stopped_and_the_reason_is_named() -> None:
    found = verdict(well(attempt_ended_ns=NOW - 60 * S, end_reason="process gone"))
    assert found.word is VerdictWord.STOPPED and "process gone" in found.headline and found.tone == "critical"
    assert found.decision.startswith("Restart from step 48,000")


def test_a_stop_that_somebody_asked_for_is_no_alarm() -> None:
    control = ControlFacts("stopped", "stopped", "alice", "cli", "maintenance", 48_310, NOW - 60 * S)
    found = verdict(well(control=control, attempt_ended_ns=NOW - 60 * S, end_reason="stopped"))
    assert found.word is VerdictWord.STOPPED and found.tone == "warning" and "alice" in found.headline


def test_a_resume_after_a_wished_stop_does_not_make_it_an_alarm() -> None:
    control = ControlFacts("stopped", "running", "alice", "cli", "going back", 48_310, NOW - 60 * S)
    found = verdict(well(control=control, attempt_ended_ns=NOW - 60 * S, end_reason="stopped"))
    assert found.word is VerdictWord.STOPPED and found.tone == "warning" and "alice: going back" in found.headline


def test_reaching_the_planned_end_is_finished() -> None:
    assert verdict(well(attempt_ended_ns=NOW, total_steps=48_310, end_reason="exit")).word is VerdictWord.FINISHED
    assert verdict(well(attempt_ended_ns=NOW, end_reason="finished")).word is VerdictWord.FINISHED


def test_a_closed_incident_is_the_headline_for_half_an_hour() -> None:
    assert verdict(well(incidents=[incident("loss_spike", closed_s_ago=600)])).word is VerdictWord.RECOVERED
    later = verdict(well(incidents=[incident("loss_spike", closed_s_ago=1900)]))
    assert later.word is VerdictWord.HEALTHY and later.since_ns == NOW - 1900 * S


def test_marks_are_no_headline() -> None:
    assert main_incident([incident("loss_outlier", Severity.INFO)]) is None


def test_without_a_verified_checkpoint_it_says_so_instead_of_naming_one() -> None:
    found = verdict(well(incidents=[incident("loss_divergence")], recommended_step=None))
    assert "no checkpoint is verified" in found.decision


@given(st.floats(0, 1e8))
def test_a_duration_is_short_and_never_negative(seconds: float) -> None:
    text = span(seconds)
    assert len(text) <= 14 and "-" not in text


_TIMES = st.none() | st.integers(0, 2 * NOW)


@given(
    st.lists(st.sampled_from(["loss_divergence", "stall", "run_dead", "throughput_drop", "checkpoint_corrupt", "made_up"]), max_size=3),
    st.sampled_from(["running", "paused", "pausing", "stopped", "silent", "not_wired", "unreadable", "checkpointing"]),
    _TIMES, _TIMES, _TIMES, st.none() | st.integers(0, 10**9), st.sampled_from(["", "finished", "signal 9"]),
)  # fmt: skip
def test_any_mixture_gives_one_verdict_and_old_data_never_read_as_healthy(
    rules: list[str], state: str, seen: int | None, stepped: int | None, ended: int | None, last: int | None, reason: str
) -> None:
    found = verdict(
        VerdictInputs(
            now_ns=NOW, incidents=[incident(rule) for rule in rules], control=ControlFacts(state), watch_seen_ns=seen,
            last_step=last, last_step_time_ns=stepped if last is not None else None, attempt_ended_ns=ended, end_reason=reason,
        )
    )  # fmt: skip
    assert isinstance(found, Verdict) and found.headline
    assert found.tone in ("critical", "warning", "paused", "info", "ok")
    if found.word in (VerdictWord.HEALTHY, VerdictWord.RECOVERED):
        assert seen is not None and NOW - seen <= 30 * S and last is not None
    if found.tone == "critical" and found.word is not VerdictWord.STOPPED:
        assert found.decision


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (2_653.0, "2,650 GPU-h"),
        (85.3, "85 GPU-h"),
        (9.96, "10 GPU-h"),
        (2.0, "2 GPU-h"),
        (0.42, "0.4 GPU-h"),
        (0.03, ""),
        (0.0, ""),
    ],
)
def test_a_price_in_gpu_hours_is_rounded_as_people_read_it_and_never_zero(amount: float, text: str) -> None:
    assert gpu_hours(amount) == text


def test_a_way_back_without_a_price_names_none() -> None:
    control = ControlFacts("paused", "paused", "breaker", "breaker", "loss", 48_310, NOW - 252 * S)
    for gpus in (0, 1):
        found = verdict(well(incidents=[incident("loss_divergence")], control=control, gpus=gpus, typical_step_s=0.08))
        assert "redoes 310 steps" in found.decision and "0 GPU-h" not in found.decision and "holding" not in found.decision


def test_a_recovered_run_is_quiet_after_two_minutes() -> None:
    fresh = verdict(well(incidents=[incident("loss_spike", closed_s_ago=30)]))
    assert "without anybody's help" in fresh.automatic
    later = verdict(well(incidents=[incident("loss_spike", closed_s_ago=300)]))
    assert (later.word, later.automatic, later.decision) == (VerdictWord.RECOVERED, "", "")
