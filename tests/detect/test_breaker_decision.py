"""The circuit breaker: the pure decision, and where the engine would have paused."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from made_up import curve, event, feed, find, of_rule

from trainvitals.detect.breaker import (
    DAY_NS,
    BreakerState,
    Decision,
    DefaultLimits,
    IncidentSeen,
    Seen,
    decide,
    handled_by_person,
    started,
)
from trainvitals.detect.engine import Engine
from trainvitals.records import Severity
from trainvitals.settings import BreakerSettings

LIMITS = DefaultLimits()
SETTLED = BreakerState(since_start=1000)
BAD = Seen("nonfinite")
MISSING = Seen("missing")
FINE = Seen("finite")


def high(share: float = 1.0, lost: float | None = 0.1) -> Seen:
    """A point of an open incident at ``share`` of its peak."""
    return Seen("finite", None, IncidentSeen(level=2.0, value=2.0 + share, peak=3.0, lost_progress=lost, first_step=500))


def drive(state: BreakerState, *seen: Seen) -> tuple[BreakerState, list[Decision]]:
    decisions = []
    for item in seen:
        state, decision = decide(state, item, LIMITS)
        decisions.append(decision)
    return state, decisions


def test_the_defaults_are_those_of_the_settings():
    assert asdict(LIMITS) == asdict(BreakerSettings())


def test_three_nonfinite_points_in_a_row_pause():
    _, decisions = drive(SETTLED, BAD, BAD, BAD)
    assert [d.decision for d in decisions] == ["count", "count", "pause"]
    assert decisions[0].reason == "1 of 3 non-finite points in a row"
    assert "3 points in a row" in decisions[2].reason


def test_a_finite_point_starts_the_count_anew_and_a_missing_one_does_not():
    _, decisions = drive(SETTLED, BAD, BAD, FINE, BAD, MISSING, BAD)
    assert "pause" not in [d.decision for d in decisions]
    _, decisions = drive(SETTLED, BAD, MISSING, BAD, MISSING, BAD)
    assert decisions[-1].decision == "pause"


def test_a_hundred_points_near_the_peak_pause_and_ninety_nine_do_not():
    _, decisions = drive(SETTLED, *[high()] * 99)
    assert {d.decision for d in decisions} == {"count"}
    _, decisions = drive(SETTLED, *[high()] * 100)
    assert decisions[-1].decision == "pause" and "has not come back since step 500" in decisions[-1].reason


def test_a_healing_spike_below_its_share_of_the_peak_does_not_pause():
    _, decisions = drive(SETTLED, *[high()] * 60, *[high(0.2)] * 60, *[high(0.01, lost=0.001)] * 60)
    assert "pause" not in [d.decision for d in decisions]


def test_twice_as_many_points_pause_at_any_share_of_the_peak():
    _, decisions = drive(SETTLED, *[high(0.2)] * 200)
    assert [d.decision for d in decisions].index("pause") == 199


def test_little_lost_progress_never_counts():
    _, decisions = drive(SETTLED, *[high(lost=0.01)] * 500)
    assert {d.decision for d in decisions} == {"none"}


def test_a_run_without_any_progress_counts_a_rise_of_a_tenth():
    _, decisions = drive(SETTLED, *[high(lost=None)] * 100)
    assert decisions[-1].decision == "pause"


def test_the_quiet_start_holds_incidents_but_not_nonfinite():
    _, decisions = drive(started(SETTLED), *[high()] * 150)
    assert decisions[-1].decision == "hold" and "quiet points" in decisions[-1].reason
    _, decisions = drive(started(SETTLED), BAD, BAD, BAD)
    assert decisions[-1].decision == "pause"


def test_nothing_pauses_while_the_learning_rate_warms_up():
    _, decisions = drive(SETTLED, *[replace(high(), is_lr_rising=True)] * 120)
    assert decisions[-1].decision == "hold" and "warmed up" in decisions[-1].reason


def test_one_incident_trips_once():
    _, decisions = drive(SETTLED, *[BAD] * 50)
    assert [d.decision for d in decisions].count("pause") == 1
    assert "already tripped" in decisions[-1].reason


def test_after_a_person_paused_or_resumed_it_stays_away_for_500_points():
    state = handled_by_person(SETTLED, LIMITS)
    _, decisions = drive(state, *[BAD] * 499)
    assert "pause" not in [d.decision for d in decisions] and "a person" in decisions[10].reason
    _, decisions = drive(state, *[FINE] * 497, BAD, BAD, BAD)
    assert decisions[-1].decision == "pause"


def test_two_pauses_a_day_are_the_limit_and_the_next_day_is_a_new_one():
    trouble = [replace(BAD, time_ns=1)] * 3
    state, _ = drive(SETTLED, *trouble, FINE, *trouble, FINE)
    state, decisions = drive(state, *trouble)
    assert decisions[-1].decision == "hold" and "2 of 2 automatic pauses of the last 24 h" in decisions[-1].reason
    _, decisions = drive(state, FINE, *[replace(BAD, time_ns=1 + DAY_NS)] * 3)
    assert decisions[-1].decision == "pause"


def test_the_state_survives_json():
    state, _ = drive(SETTLED, *[replace(BAD, time_ns=7)] * 3)
    assert BreakerState.from_state(state.to_state()) == state


# -- in the engine ------------------------------------------------------------------------------------------------------


def test_the_engine_marks_where_it_would_pause():
    def change(k, values):
        if k >= 600:
            values["loss"] += 1.5

    (trip,) = of_rule(find(curve(900, first=20_001, change=change)), "breaker_trip")
    assert trip.family == "breaker" and trip.severity is Severity.CRITICAL and not trip.is_open
    assert trip.first_step == 20_601 and 20_700 <= trip.detected_step <= 20_710
    assert trip.data["decision"] == "pause" and "has not come back" in trip.data["reason"]


def test_spikes_that_heal_do_not_trip():
    def change(k, values):
        if k >= 600:
            values["loss"] += 5.0 * math.exp(-(k - 600) / 40)

    assert not of_rule(find(curve(1200, change=change)), "breaker_trip")


def test_a_wild_grad_norm_or_a_slow_run_never_trips():
    def change(k, values):
        if k >= 600:
            values["grad_norm"] *= 50
            values["tokens_per_s"] *= 0.3

    assert not of_rule(find(curve(1200, change=change)), "breaker_trip")


def test_the_newest_evaluation_can_be_explained():
    engine = Engine("run")

    def change(k, values):
        if k >= 600:
            values["loss"] = math.nan

    feed(engine, curve(602, change=change))
    assert engine.breaker_decision == Decision("count", "2 of 3 non-finite points in a row")


def test_a_person_at_the_controls_disarms_it_and_its_own_request_does_not():
    def change(k, values):
        if k >= 310:
            values["loss"] = math.nan

    steps = curve(400, change=change)
    for by, expected in (("ana", 0), ("breaker", 1)):
        engine = Engine("run")
        feed(engine, steps[:300])
        feed(engine, [event("control", 3000, desired="running", state="running", by=by)])
        assert len(of_rule(feed(engine, steps[300:]), "breaker_trip")) == expected


def test_leaving_a_pause_disarms_it():
    def change(k, values):
        if k >= 310:
            values["loss"] = math.nan

    steps = curve(400, change=change)
    engine = Engine("run")
    feed(
        engine,
        [*steps[:300], event("phase", 2995, phase="paused", state="begin"), event("phase", 2996, phase="paused", state="end")],
    )
    assert not of_rule(feed(engine, steps[300:]), "breaker_trip")


def test_a_learning_rate_that_grows_after_the_warm_up_does_not_hold_the_breaker():
    def change(k, values):
        values["lr"] = 1e-6 * min(k + 1, 100) if k < 600 else 1e-4 * 1.05 ** min(k - 600, 150)
        if k >= 600:
            values["loss"] += 1.5

    (trip,) = of_rule(find(curve(900, first=20_001, change=change)), "breaker_trip")
    assert trip.detected_step <= 20_710


def test_other_limits_are_taken_from_the_settings():
    def change(k, values):
        if k >= 600:
            values["loss"] = math.nan

    engine = Engine("run", breaker=BreakerSettings(nonfinite_in_a_row=20))
    (trip,) = of_rule(feed(engine, curve(700, change=change)), "breaker_trip")
    assert trip.detected_step == 620


# -- N anomalous points in a row ----------------------------------------------------------------------------------------

ODD = Seen("finite", is_anomalous=True)


def test_ten_anomalous_points_in_a_row_are_told_once_and_pause_nothing():
    _, decisions = drive(SETTLED, *[ODD] * 60)
    kinds = [d.decision for d in decisions]
    assert kinds.index("alert") == 9 and kinds.count("alert") == 1 and "pause" not in kinds


def test_one_usual_point_starts_that_count_anew_and_a_missing_one_does_not():
    _, decisions = drive(SETTLED, *[ODD] * 9, FINE, *[ODD] * 9)
    assert {d.decision for d in decisions} == {"none"}
    _, decisions = drive(SETTLED, *[ODD] * 5, MISSING, *[ODD] * 5)
    assert decisions[-1].decision == "alert"


def test_it_can_be_made_to_pause_and_is_held_by_the_same_things():
    limits = replace(LIMITS, anomalous_action="pause", anomalous_in_a_row=4)
    state = SETTLED
    kinds = []
    for _ in range(8):
        state, decision = decide(state, ODD, limits)
        kinds.append(decision.decision)
    assert kinds == ["none"] * 3 + ["pause"] + ["hold"] * 4
    state = started(SETTLED)
    for _ in range(4):
        state, decision = decide(state, ODD, limits)
    assert decision.decision == "hold" and "quiet points" in decision.reason


def test_it_can_be_switched_off():
    state = SETTLED
    for _ in range(50):
        state, decision = decide(state, ODD, replace(LIMITS, anomalous_action="off"))
        assert decision.decision == "none"


def heals(k, values):
    if k >= 600:
        values["loss"] += 5.0 * math.exp(-(k - 600) / 40)


def test_the_engine_tells_ten_in_a_row_and_pauses_only_when_that_was_chosen():
    (alert,) = of_rule(find(curve(1200, change=heals)), "breaker_alert")
    assert alert.severity is Severity.WARNING and alert.detected_step == 610 and not alert.is_open
    engine = Engine("run", breaker=BreakerSettings(anomalous_action="pause"))
    found = feed(engine, curve(1200, change=heals))
    (trip,) = of_rule(found, "breaker_trip")
    assert trip.detected_step == 610 and not of_rule(found, "breaker_alert")


def test_a_note_that_silences_spikes_silences_the_count():
    steps = curve(1200, change=heals)
    found = find([*steps[:590], event("annotation", rules=["loss_*"]), *steps[590:]])
    assert not of_rule(found, "breaker_alert")


def test_every_change_of_the_decision_is_logged_with_its_reason():
    def change(k, values):
        if 600 <= k < 900:
            values["loss"] += 1.5

    engine = Engine("run")
    feed(engine, curve(1200, first=20_001, change=change))
    log = engine.take_breaker_log()
    kinds = [entry["decision"] for entry in log]
    assert [kind for n, kind in enumerate(kinds) if kinds[n - 1 : n] != [kind]] == ["count", "alert", "count", "pause", "none"]
    assert all(entry["reason"] for entry in log) and log[kinds.index("pause")]["step"] >= 20_700
    assert engine.take_breaker_log() == []


def test_the_log_of_a_flickering_run_is_bounded():
    def change(k, values):
        if k >= 300 and k % 2:
            values["loss"] = math.nan

    engine = Engine("run")
    feed(engine, curve(3000, change=change))
    assert len(engine.take_breaker_log()) <= 50
