"""Loss rules: each fires on its fault and stays silent on the healthy curve that looks like it."""

from __future__ import annotations

import math
import random

import pytest
from made_up import alarms, curve, event, feed, find, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.records import Severity, Step


def bump(first: int, last: int, height: float):
    def change(k, values):
        if first <= k <= last:
            values["loss"] += height

    return change


def test_a_healthy_curve_raises_no_alarm():
    assert alarms(find(curve(3000))) == []


def test_a_spike_opens_within_three_points_and_closes_when_the_loss_is_back():
    found = of_rule(find(curve(1000, change=bump(600, 630, 0.4))), "loss_spike")
    (spike,) = found
    assert spike.severity is Severity.WARNING
    assert spike.first_step == 601
    assert spike.detected_step == 603
    assert 631 <= spike.last_step <= 636
    assert not spike.is_open
    assert spike.message.startswith("loss 4.") and "since step 601" in spike.message and "back to" in spike.message


def test_a_single_high_point_is_a_mark_and_no_alarm():
    found = find(curve(1000, change=bump(600, 600, 2.0)))
    assert alarms(found) == []
    (outlier,) = of_rule(found, "loss_outlier")
    assert outlier.severity is Severity.INFO and outlier.last_step == 601 and not outlier.is_open


def test_frequent_outliers_are_counted_in_one_finding():
    rng = random.Random(3)
    odd = {rng.randrange(250, 2000) for _ in range(120)}
    odd = {k for k in odd if k - 1 not in odd and k - 2 not in odd}

    def change(k, values):
        if k in odd:
            values["loss"] += 0.5

    outliers = of_rule(find(curve(2200, change=change)), "loss_outlier")
    assert len(outliers) < 50
    assert any(finding.message.startswith("more than 20") for finding in outliers)


def test_giving_back_much_of_the_progress_is_critical_at_once():
    (spike,) = of_rule(find(curve(1000, change=bump(600, 620, 3.0))), "loss_spike")
    assert spike.severity is Severity.CRITICAL
    assert "given back" in spike.message


def test_a_loss_that_does_not_come_back_diverges():
    found = find(curve(900, first=20_001, change=bump(600, 10_000, 0.4)))
    (divergence,) = of_rule(found, "loss_divergence")
    assert divergence.severity is Severity.CRITICAL and divergence.is_open and divergence.last_step is None
    assert divergence.first_step == 20_601
    assert divergence.detected_step <= 20_601 + 60
    assert divergence.message == "loss 2.39 → 2.81 since step 20,601, not coming back"


def test_a_slowly_healing_spike_is_no_divergence():
    def change(k, values):
        if k >= 600:
            values["loss"] += 2.0 * math.exp(-(k - 600) / 40)

    found = find(curve(1200, change=change))
    assert of_rule(found, "loss_spike") and not of_rule(found, "loss_divergence")


def test_a_small_unrecovered_step_is_a_level_shift_and_is_accepted_later():
    found = find(curve(2600, change=bump(1500, 10_000, 0.075)))
    shifts = of_rule(found, "loss_level_shift")
    assert shifts and all(not shift.is_open for shift in shifts)
    assert not of_rule(found, "loss_divergence")
    assert {finding.severity for finding in found} <= {Severity.INFO, Severity.WARNING}


def test_a_creeping_rise_is_found_without_any_spike():
    def change(k, values):
        if k >= 2000:
            values["loss"] += 0.00005 * (k - 2000)

    found = alarms(find(curve(5000, first=20_000, change=change, noise=0.02)))
    assert {finding.rule for finding in found} & {"loss_drift", "loss_level_shift"}


def test_loss_that_falls_again_after_a_plateau_is_only_marked_late_and_never_pages():
    def change(k, values):
        values["loss"] = 7.0 + random.Random(k).gauss(0, 0.01) - (0.001 * (k - 6000) if k > 6000 else 0.0)

    found = find(curve(8000, change=change))
    (plateau,) = of_rule(found, "loss_plateau")
    assert plateau.severity.rank < Severity.CRITICAL.rank and not plateau.is_open


def test_a_run_that_never_learns_is_told_once():
    def change(k, values):
        values["loss"] = 10.8 + random.Random(k).gauss(0, 0.02)

    (finding,) = of_rule(find(curve(400, spacing=20, change=change)), "loss_not_learning")
    assert finding.severity is Severity.WARNING


def test_a_collapse_of_the_loss_is_too_fast_to_be_learning():
    def change(k, values):
        if k >= 700:
            values["loss"] = 0.02

    (drop,) = of_rule(find(curve(800, change=change)), "loss_implausible_drop")
    assert drop.severity is Severity.WARNING and drop.first_step == 701


def test_the_end_of_an_implausible_drop_is_no_spike():
    def change(k, values):
        if 700 <= k < 800:
            values["loss"] = 0.02

    found = alarms(find(curve(1000, change=change)))
    assert [finding.rule for finding in found] == ["loss_implausible_drop"] and found[0].last_step == 801


def test_stairs_at_epoch_boundaries_are_learning():
    def change(k, values):
        values["loss"] *= 0.75 ** (k // 500)

    assert alarms(find(curve(2000, change=change))) == []


def test_logs_of_every_tenth_step_need_only_one_very_high_point():
    found = of_rule(find(curve(500, spacing=10, change=bump(300, 300, 1.5))), "loss_spike")
    assert len(found) == 1 and found[0].first_step == 3001


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0, 0.0, 0.0003, -0.0004, 0.0001], [-3.0], [0.5, 0.5078125]])
def test_zero_negative_and_quantised_losses_are_healthy(values):
    rng = random.Random(5)

    def change(k, v):
        v["loss"] = rng.choice(values)

    assert alarms(find(curve(3000, change=change))) == []


def test_a_negative_loss_that_jumps_is_a_spike():
    rng = random.Random(5)

    def change(k, v):
        v["loss"] = -3.0 + rng.gauss(0, 0.01) + (0.5 if 500 <= k < 520 else 0.0)

    assert of_rule(find(curve(600, change=change)), "loss_spike")


def test_nothing_but_nonfinite_rises_above_info_in_the_warm_up():
    assert alarms(find(curve(150, change=bump(100, 140, 1.0)))) == []


def test_short_runs_can_ask_for_a_quicker_start():
    quick = {"loss_spike": {"min_points": 30, "warmup_points": 60, "window": 60}, "loss_divergence": {"page_after_points": 20}}
    found = find(curve(200, change=bump(100, 300, 3.0)), tunables=quick)
    (divergence,) = of_rule(found, "loss_divergence")
    assert divergence.detected_step <= 101 + 40


def test_twice_the_sensitivity_finds_a_spike_of_half_the_height():
    records = curve(1000, first=20_000, change=bump(600, 620, 0.035), noise=0.01)
    assert not of_rule(find(records), "loss_spike")
    assert of_rule(find(records, tunables={"loss_spike": {"sensitivity": 2.0}}), "loss_spike")


def test_a_rising_learning_rate_warm_up_with_a_falling_loss_is_healthy():
    def change(k, values):
        values["lr"] = min(1e-3, 1e-6 * (k + 1))

    assert alarms(find(curve(2500, change=change))) == []


# -- not a number -------------------------------------------------------------------------------------------------------


def nan_at(*bad: int, value: float = math.nan):
    def change(k, values):
        if k in bad:
            values["loss"] = value

    return change


def test_one_nan_is_a_warning_even_in_the_first_points():
    (finding,) = of_rule(find(curve(30, change=nan_at(10))), "loss_nonfinite")
    assert finding.severity is Severity.WARNING
    assert finding.message == "loss is NaN at step 11"
    assert finding.value is None


def test_two_nan_in_a_row_are_critical_and_are_not_a_spike_too():
    found = find(curve(500, change=nan_at(*range(400, 500))))
    (finding,) = of_rule(found, "loss_nonfinite")
    assert finding.severity is Severity.CRITICAL and finding.is_open and finding.first_step == 401
    assert not of_rule(found, "loss_spike")


def test_infinite_losses_count_as_not_a_number():
    (finding,) = of_rule(find(curve(100, change=nan_at(50, value=math.inf))), "loss_nonfinite")
    assert "infinite" in finding.message


def test_sporadic_nan_becomes_critical_by_their_number():
    found = of_rule(find(curve(1500, change=nan_at(*range(300, 1300, 60)))), "loss_nonfinite")
    assert max(finding.severity.rank for finding in found) == Severity.CRITICAL.rank


def test_a_nonfinite_finding_closes_after_fifty_finite_points():
    (finding,) = of_rule(find(curve(500, change=nan_at(300))), "loss_nonfinite")
    assert not finding.is_open and finding.last_step == 351


def test_a_skipped_step_of_the_loss_scaler_is_no_fault():
    def change(k, values):
        if k == 300:
            values.update(loss=math.inf, grad_norm=math.inf, skipped=1.0)

    keep = ("loss", "grad_norm", "lr", "skipped")
    assert alarms(find(curve(400, change=change, keep=keep))) == []


def test_zero_loss_with_a_nan_grad_norm_is_a_masked_nan():
    def change(k, values):
        if k >= 20:
            values.update(loss=0.0, grad_norm=math.nan)

    found = alarms(find(curve(40, change=change)))
    assert {finding.rule for finding in found} == {"loss_nonfinite", "breaker_trip"}
    assert of_rule(found, "loss_nonfinite")[0].severity is Severity.CRITICAL


def test_three_sudden_zeros_without_a_grad_norm_are_a_masked_nan():
    def change(k, values):
        if k >= 300:
            values["loss"] = 0.0

    found = find(curve(400, change=change, keep=("loss", "lr")))
    assert of_rule(found, "loss_nonfinite")


def test_sudden_zeros_with_a_finite_grad_norm_are_no_nan():
    def change(k, values):
        if k >= 300:
            values["loss"] = 0.0

    assert not of_rule(find(curve(400, change=change)), "loss_nonfinite")


def test_a_loss_that_was_always_logged_and_goes_missing_counts_as_nan():
    def change(k, values):
        if k >= 200:
            del values["loss"]

    (finding,) = of_rule(find(curve(220, change=change)), "loss_nonfinite")
    assert "missing" in finding.message and finding.detected_step == 203


def test_a_loss_logged_at_every_tenth_step_is_not_missing():
    def change(k, values):
        if k % 10:
            del values["loss"]

    assert alarms(find(curve(2000, change=change))) == []


# -- annotations --------------------------------------------------------------------------------------------------------


def with_annotation(rules: list[str], points: int | None = None) -> list:
    steps = curve(1200, change=bump(600, 2000, 1.0))
    data = {"rules": rules, "by": "ana", **({} if points is None else {"points": points})}
    return [*steps[:590], event("annotation", 5900, **data), *steps[590:]]


def test_an_annotated_data_change_raises_nothing():
    assert alarms(find(with_annotation(["loss_spike", "loss_divergence", "loss_level_shift", "loss_drift"]))) == []


def test_a_pattern_silences_a_family():
    assert alarms(find(with_annotation(["loss_*"]))) == []


def test_an_annotation_of_another_rule_or_of_none_silences_nothing():
    assert of_rule(find(with_annotation(["stall"])), "loss_spike")
    assert of_rule(find(with_annotation([])), "loss_spike")


def test_silence_ends_after_its_points():
    found = find(with_annotation(["loss_*"], points=5))
    assert of_rule(found, "loss_spike")


def test_an_annotation_after_the_fact_closes_the_incident_and_takes_the_level_as_usual():
    steps = curve(1200, change=bump(600, 2000, 0.5))
    engine = Engine("run")
    feed(engine, steps[:640])
    assert engine.open_findings
    closed = feed(engine, [event("annotation", 6400, rules=["loss_*"], by="ana"), *steps[640:]])
    assert [finding for finding in closed if finding.rule == "loss_spike" and not finding.is_open]
    assert not engine.open_findings


def test_values_without_any_loss_are_fine():
    assert find([Step(k, 1, None, {"lr": 1e-4}) for k in range(1, 300)]) == []
