"""Grad norm, throughput, stall, dead run, resume: each fires on its fault and not on its healthy look-alike."""

from __future__ import annotations

import math
import random

from made_up import SECOND, alarms, at, curve, event, feed, find, last_states, of_rule

from trainvitals.clock import ManualClock
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity, Step

# -- grad norm ----------------------------------------------------------------------------------------------------------


def norm_times(first: int, last: int, factor: float):
    def change(k, values):
        if first <= k <= last:
            values["grad_norm"] *= factor

    return change


def test_a_grad_norm_that_stays_high_for_three_points_is_a_warning():
    (spike,) = of_rule(find(curve(600, change=norm_times(400, 410, 5.0))), "grad_norm_spike")
    assert spike.severity is Severity.WARNING and spike.first_step == 401 and spike.detected_step == 403
    assert "times the usual" in spike.message and not spike.is_open


def test_one_lone_high_grad_norm_is_a_mark():
    (spike,) = of_rule(find(curve(600, change=norm_times(400, 400, 20.0))), "grad_norm_spike")
    assert spike.severity is Severity.INFO


def test_a_hundredfold_grad_norm_is_a_warning_at_once():
    (spike,) = of_rule(find(curve(600, change=norm_times(400, 400, 200.0))), "grad_norm_spike")
    assert spike.severity is Severity.WARNING and spike.detected_step == 401


def test_an_exploding_grad_norm_with_a_rising_loss_is_critical():
    def change(k, values):
        if 400 <= k < 420:
            values["grad_norm"] *= 30
            values["loss"] += 0.5 if k > 401 else 0.0

    (spike,) = of_rule(find(curve(600, change=change)), "grad_norm_spike")
    assert spike.severity is Severity.CRITICAL and "loss rises" in spike.message


def test_a_long_tailed_grad_norm_is_its_own_yardstick():
    rng = random.Random(2)

    def change(k, values):
        values["grad_norm"] = 0.1 * math.exp(rng.gauss(0, 1.0))

    assert alarms(find(curve(3000, change=change))) == []


def test_a_column_of_zeros_and_a_stale_value_are_no_evidence():
    def zeros(k, values):
        values["grad_norm"] = 0.0

    def stale(k, values):
        if 400 <= k < 420:
            values["grad_norm"] = 9.0

    assert alarms(find(curve(600, change=zeros))) == []
    assert alarms(find(curve(600, change=stale))) == []


def test_a_nan_grad_norm_beside_a_finite_loss_is_one_warning():
    def change(k, values):
        if k in (300, 305, 320):
            values["grad_norm"] = math.nan

    (finding,) = alarms(find(curve(600, change=change)))
    assert finding.rule == "grad_norm_nonfinite" and finding.severity is Severity.WARNING and not finding.is_open


# -- throughput ---------------------------------------------------------------------------------------------------------


def slower(first: int, last: int, share: float):
    def change(k, values):
        if first <= k <= last:
            values["tokens_per_s"] *= 1 - share

    return change


def test_a_lasting_drop_of_a_fifth_is_found_within_ten_buckets_and_closes_when_it_is_over():
    (drop,) = of_rule(find(curve(1200, change=slower(700, 900, 0.2))), "throughput_drop")
    assert drop.severity is Severity.WARNING
    assert 700 <= drop.first_step <= 702 and drop.detected_step <= 712
    assert 901 <= drop.last_step <= 915
    assert drop.message.startswith("throughput 19 % below usual (808,") and "tokens/s" in drop.message


def test_half_the_throughput_for_long_is_critical():
    (drop,) = of_rule(find(curve(1200, change=slower(700, 1200, 0.5))), "throughput_drop")
    assert drop.severity is Severity.CRITICAL and drop.is_open


def test_a_small_drop_is_found_by_the_long_look():
    (drop,) = of_rule(find(curve(2000, change=slower(1200, 2000, 0.055))), "throughput_drop")
    assert drop.detected_step <= 1201 + 70


def test_regular_evaluations_are_no_drop():
    def change(k, values):
        if k % 25 < 2:
            values["tokens_per_s"] /= 40

    assert alarms(find(curve(3000, change=change))) == []


def test_no_tokens_in_no_time_is_no_number_and_no_alarm():
    def change(k, values):
        values["tokens_per_s"] = 0.0 if k % 2 else math.nan

    assert alarms(find(curve(500, change=change))) == []


def test_step_time_is_used_when_there_is_nothing_better():
    def change(k, values):
        values["step_time_s"] = 10.0 * (1 + 0.005 * math.sin(k)) * (1.5 if k >= 700 else 1.0)

    (drop,) = of_rule(find(curve(800, change=change, keep=("loss", "step_time_s"))), "throughput_drop")
    assert "s per step" in drop.message and 0.3 < drop.data["share"] < 0.36


def test_without_any_metric_the_time_between_steps_is_judged():
    steps = curve(800, keep=("loss",))
    slow = [Step(s.step, 1, at(k * 10 + max(0, k - 600) * 5), s.values) for k, s in enumerate(steps)]
    (drop,) = of_rule(find(slow), "throughput_drop")
    assert "steps/s" in drop.message
    assert not of_rule(find(curve(800, keep=("loss",), seconds=None)), "throughput_drop")


def test_short_buckets_find_a_slow_down_of_a_fast_demo_within_ten_seconds():
    quick = {"throughput_drop": {"bucket_s": 1.0, "min_points": 15, "recent_points": 5, "slow_points": 15, "window": 60}}
    steps = curve(1000, seconds=0.1, keep=("loss", "tokens_per_s"), change=slower(600, 1000, 0.5))
    (drop,) = of_rule(find(steps, tunables=quick), "throughput_drop")
    assert drop.detected_step <= 601 + 60


# -- stall and pause ----------------------------------------------------------------------------------------------------


def test_a_stall_warns_at_the_deadline_and_is_critical_at_twice_that():
    engine = Engine("run")
    feed(engine, curve(100))
    clock = ManualClock(at(990))
    assert engine.stall_deadline_s() == 100.0
    clock.advance(99)
    assert engine.tick(clock.time_ns()) == []
    clock.advance(1)
    (stall,) = engine.tick(clock.time_ns())
    assert stall.rule == "stall" and stall.severity is Severity.WARNING and stall.is_open
    assert stall.message == "no step for 1 min 40 s (usual 10 s, deadline 1 min 40 s)"
    clock.advance(50)
    assert engine.tick(clock.time_ns()) == []
    clock.advance(50)
    (worse,) = engine.tick(clock.time_ns())
    assert worse.id == stall.id and worse.severity is Severity.CRITICAL
    closed = engine.update(Step(101, 1, at(1300), {"loss": 3.0}))
    assert [f.id for f in closed if not f.is_open] == [stall.id]


def test_an_old_log_tells_the_same_stall_as_the_watch_would_have():
    steps = curve(100)
    late = Step(101, 1, at(990 + 150), {"loss": 3.0})
    live = Engine("run")
    feed(live, steps)
    (opened,) = live.tick(at(990 + 100))
    (read,) = of_rule(find([*steps, late]), "stall")
    assert (opened.id, opened.time_ns) == (read.id, read.time_ns)


def test_regular_long_evaluations_teach_the_deadline():
    steps, second = [], 0.0
    for k in range(1, 1200):
        second += 300.0 if k % 250 == 0 else 10.0
        steps.append(Step(k, 1, at(second), {"loss": 3.0}))
    stalls = of_rule(find(steps), "stall")
    assert len(stalls) == 1 and stalls[0].first_step == 249


def test_the_first_step_may_take_half_an_hour():
    engine = Engine("run")
    engine.update(event("attempt_start", 0, attempt=1))
    assert engine.stall_deadline_s() == 1800.0
    assert engine.tick(at(1799)) == []
    assert engine.tick(at(1800))


def test_an_announced_checkpoint_moves_the_deadline():
    engine = Engine("run")
    feed(engine, curve(100))
    engine.update(event("phase", 995, phase="checkpoint", state="begin"))
    assert engine.tick(at(995 + 1000)) == []
    engine.update(event("phase", 995 + 1000, phase="checkpoint", state="end"))
    assert engine.stall_deadline_s() == 100.0
    engine.update(Step(101, 1, at(2000), {"loss": 3.0}))
    engine.update(event("phase", 2001, phase="checkpoint", state="begin"))
    assert engine.stall_deadline_s() == 3000.0


def test_a_pause_suspends_stall_and_throughput_until_training_goes_on():
    engine = Engine("run")
    feed(engine, curve(400))
    engine.update(event("phase", 3995, phase="paused", state="begin"))
    assert engine.stall_deadline_s() is None
    assert engine.tick(at(100_000)) == []
    engine.update(event("phase", 100_000, phase="paused", state="end"))
    assert engine.stall_deadline_s() == 1800.0
    going_on = [Step(400 + k, 1, at(100_010 + 10 * k), {"loss": 4.0, "tokens_per_s": 3e5}) for k in range(1, 19)]
    assert not of_rule(feed(engine, going_on), "throughput_drop")
    assert engine.stall_deadline_s() == 100.0


def test_an_acknowledged_pause_request_is_a_pause_and_steps_end_it_by_themselves():
    engine = Engine("run")
    feed(engine, curve(100))
    engine.update(event("control", 991, desired="paused", state="paused", by="ana"))
    assert engine.stall_deadline_s() is None
    feed(engine, [Step(100 + k, 1, at(1000 + 10 * k), {"loss": 4.0}) for k in range(1, 5)])
    assert engine.stall_deadline_s() is not None


def test_sources_without_times_use_the_time_of_the_last_tick():
    engine = Engine("run")
    for k, step in enumerate(curve(50, seconds=None)):
        engine.tick(at(10 * k))
        engine.update(step)
    assert engine.tick(at(490 + 1700)) == []
    assert engine.tick(at(490 + 1800))


def test_a_trainer_clock_that_runs_ahead_does_not_hide_a_stall():
    engine = Engine("run")
    feed(engine, [Step(s.step, 1, s.time_ns + 3600 * SECOND, s.values) for s in curve(100)])
    engine.tick(at(991))
    assert engine.tick(at(991 + 100))


def test_short_time_scales_can_be_asked_for():
    quick = {"stall": {"floor_s": 3.0, "first_step_s": 20.0}}
    engine = Engine("run", quick)
    feed(engine, curve(100, seconds=0.1))
    assert engine.stall_deadline_s() == 3.0
    assert engine.tick(at(9.9 + 3.1))


# -- the run is gone ----------------------------------------------------------------------------------------------------


def test_a_vanished_process_is_a_dead_run_and_not_a_stall():
    engine = Engine("run")
    feed(engine, curve(100))
    (dead,) = engine.update(event("attempt_end", 995, attempt=1, reason="process gone"))
    assert dead.rule == "run_dead" and dead.severity is Severity.CRITICAL and dead.is_open
    assert dead.message == "the trainer ended after step 100: process gone"
    assert engine.tick(at(50_000)) == []
    closed = engine.update(event("attempt_start", 60_000, attempt=2))
    assert [f.id for f in closed] == [dead.id] and not closed[0].is_open


def test_a_finished_run_is_no_finding():
    for reason in ("finished", "stopped by request"):
        found = find([*curve(100), event("attempt_end", 995, attempt=1, reason=reason, exit_code=0)])
        assert alarms(found) == []


def test_the_end_of_the_allocation_is_a_warning():
    (dead,) = find([*curve(100), event("attempt_end", 995, attempt=1, reason="time limit")])
    assert dead.severity is Severity.WARNING


def fault(second: float) -> Event:
    return Event("fault", at(second), text="CUDA out of memory. Tried to allocate 2 GiB", data={"class": "out_of_memory"})


def test_a_deadly_line_counts_when_no_step_follows():
    engine = Engine("run")
    feed(engine, curve(100))
    assert engine.update(fault(991)) == []
    assert engine.tick(at(1000)) == []
    dead, memory = engine.tick(at(1052))
    assert dead.rule == "run_dead" and "out of memory" in dead.message
    assert memory.rule == "out_of_memory" and memory.severity is Severity.CRITICAL


def test_a_deadly_line_that_the_run_survives_is_forgotten():
    steps = curve(200)
    assert alarms(find([*steps[:100], fault(991), *steps[100:]])) == []


def test_a_deadly_last_line_of_a_file_is_told_at_the_end():
    assert of_rule(find([*curve(100), fault(991)]), "run_dead")


# -- order, attempts, resumes -------------------------------------------------------------------------------------------


def test_a_clean_resume_that_repeats_steps_raises_nothing():
    first = curve(800)
    again = [Step(s.step, 2, s.time_ns + 3600 * SECOND, s.values) for s in curve(1200)[600:]]
    assert alarms(find([*first, event("attempt_start", 4000, attempt=2), *again])) == []


def test_the_baseline_goes_back_to_the_history_before_the_resumed_step():
    first = curve(1200)
    again = [Step(s.step, 2, s.time_ns, s.values) for s in curve(400)[300:]]
    engine = Engine("run")
    feed(engine, first)
    assert engine.metric_usual("loss") < 3.8
    assert alarms(feed(engine, again)) == []
    assert engine.metric_usual("loss") > 4.5


def test_a_run_that_starts_from_nothing_again_warms_up_again():
    engine = Engine("run")
    feed(engine, curve(2000))
    assert alarms(feed(engine, [event("attempt_start", 20_000, attempt=2), *curve(2000, attempt=2, seed=9)])) == []


def test_a_rebound_on_the_same_steps_is_found_at_one_percent():
    first = curve(2000, noise=0.03)
    again = [Step(s.step, 2, s.time_ns, {**s.values, "loss": s.values["loss"] * 1.01}) for s in curve(2400, noise=0.03)[1800:]]
    (rebound,) = of_rule(find([*first, *again]), "resume_rebound")
    assert rebound.first_step == 1801 and rebound.data["is_paired"] and "1.0 % higher" in rebound.message


def test_a_few_late_points_are_ignored():
    steps = curve(600)
    assert alarms(find([*steps[:400], *steps[396:399], *steps[400:]])) == []


def test_more_than_five_backward_points_are_a_resume_nobody_announced():
    engine = Engine("run")
    feed(engine, curve(1200))
    feed(engine, curve(306)[299:305])
    assert engine.metric_usual("loss") > 4.5
    assert engine.update(curve(306)[305]) == []


def test_points_of_an_older_attempt_are_ignored():
    engine = Engine("run")
    feed(engine, curve(300, attempt=2))
    before = engine.to_state()
    assert engine.update(Step(301, 1, None, {"loss": 99.0})) == []
    assert engine.to_state() == before


def test_an_incident_ends_when_the_run_goes_back_before_it_and_goes_on_when_it_does_not():
    def change(k, values):
        if k >= 700:
            values["loss"] += 1.0

    engine = Engine("run")
    feed(engine, curve(740, change=change))
    assert engine.open_findings
    onward = Engine("run")
    onward.restore(engine.to_state())
    feed(engine, [Step(s.step, 2, None, s.values) for s in curve(760)[600:]])
    assert not engine.open_findings
    feed(onward, [Step(s.step, 2, None, s.values) for s in curve(800, change=change)[730:]])
    assert of_rule(onward.open_findings, "loss_divergence")


def test_ids_are_run_attempt_rule_and_step():
    def change(k, values):
        if 400 <= k < 420:
            values["loss"] += 2.0

    (spike,) = of_rule(find(curve(500, attempt=3, change=change)), "loss_spike")
    assert spike.id == "run/3/loss_spike/403"


def test_usual_values_are_medians_of_accepted_points():
    engine = Engine("run")
    assert engine.metric_usual("loss") is None and engine.stall_deadline_s() is None
    feed(engine, curve(500, change=slower(480, 500, 0.5)))
    assert abs(engine.metric_usual("grad_norm") - 0.3) < 0.02
    assert abs(engine.metric_usual("tokens_per_s") - 1e6) < 2e4
    assert engine.metric_usual("lr") == 1e-4
    assert engine.metric_usual("no_such_metric") is None


def test_the_same_records_twice_give_the_same_findings():
    def change(k, values):
        if k >= 400:
            values["loss"] += 2.0

    records = curve(600, change=change)
    assert last_states(find(records)) == last_states(find(records))
