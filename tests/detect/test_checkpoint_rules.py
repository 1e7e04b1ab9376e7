"""Rules on checkpoints and starts: each one fires, ends, and goes on exactly from its saved state."""

from __future__ import annotations

import json

import pytest
from checkpoint_runs import (
    alarms,
    at,
    findings,
    live_run,
    of,
    pointer,
    report,
    start,
    step,
    steps,
    troubles,
    without,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.detect.checkpoint_book import CheckpointBook
from trainvitals.detect.engine import Engine
from trainvitals.records import Event, Severity

SLOW = {"min_window_s": 100.0}

# -- checkpoint_corrupt ---------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_told_and_closes_when_it_is_gone():
    run = live_run(500, 100)
    bad = report(500, "corrupt", 600, reasons=["model.safetensors: cut short"])
    (found,) = findings([*run, bad, at(600)])
    assert (found.rule, found.severity, found.is_open, found.first_step) == ("checkpoint_corrupt", Severity.WARNING, True, 500)
    assert found.message == "checkpoint checkpoint-500 is corrupt: model.safetensors: cut short; newest verified: step 400"
    assert found.data["path"] == "/c/checkpoint-500"
    (gone,) = findings([*run, bad, at(600), report(500, "deleted", 700), at(700)])
    assert not gone.is_open
    assert gone.message == "checkpoint checkpoint-500 was corrupt: model.safetensors: cut short; it was deleted"
    (again,) = findings([*run, bad, at(600), report(500, "writing", 700), at(700)])
    assert again.message.endswith("was corrupt: model.safetensors: cut short; it is written again")
    (whole,) = findings([*run, bad, at(600), report(500, "verified", 700), at(700)])
    assert whole.message.endswith("; now it is verified")


def test_a_damaged_checkpoint_that_a_restart_would_load_is_critical_after_half_an_hour():
    run = [*live_run(500, 100), report(500, "corrupt", 600), pointer("/c/checkpoint-500", 500, 600), at(600)]
    assert {f.severity for f in of(findings(run), "checkpoint_corrupt")} == {Severity.WARNING}
    (found,) = of(findings([*run, at(2500)]), "checkpoint_corrupt")
    assert found.severity is Severity.CRITICAL
    assert "a restart would load it" in found.message
    assert of(findings([*run, at(2500)]), "resume_behind") == [], "one finding says it"


def test_the_last_checkpoint_that_breaks_is_critical():
    run = [step(1, 0), report(1, "complete", 1), at(2), report(1, "corrupt", 50), at(51)]
    (found,) = findings(run)
    assert found.severity is Severity.CRITICAL
    assert "no complete checkpoint is left" in found.message


def test_what_an_old_start_left_half_written_is_no_alarm():
    run = [step(1, 0), *(report(n, "verified", 10, written=n) for n in (3, 4, 5)), report(2, "incomplete", 10, written=2), at(11)]
    (found,) = findings(run)
    assert (found.rule, found.severity) == ("checkpoint_corrupt", Severity.INFO)


def test_a_thousand_damaged_checkpoints_are_told_in_bounded_findings():
    run = [step(1, 0), *(report(n, "corrupt", 10, written=n) for n in range(1, 1001)), at(11)]
    found = findings(run)
    assert len(found) == 11
    assert any("more checkpoints are incomplete or corrupt" in f.message for f in found)


def test_a_damaged_checkpoint_is_not_forgotten_among_hundreds_of_good_ones():
    run = [step(1, 0), report(1, "corrupt", 1), *(report(n, "verified", n, written=n) for n in range(2, 400)), at(401)]
    run += [*(report(n, "verifying", 500 + n, written=n) for n in range(2, 50)), at(600)]
    run += [*(report(n, "verified", 600 + n, written=n) for n in range(2, 50)), at(700)]
    (found,) = findings(run)
    assert (found.rule, found.is_open) == ("checkpoint_corrupt", True)


def test_a_pinned_copy_is_no_save_of_its_own():
    book = CheckpointBook()
    for number in (1, 2):
        saved = report(number, "verified", number)
        book.take(saved.data, saved.time_ns)
        pinned = report(number, "verified", 50 + number, written=number, path=f"/c/.trainvitals-pinned/checkpoint-{number}")
        book.take(pinned.data, pinned.time_ns)
    assert (book.completed, len(book.entries)) == (2, 4)


# -- checkpoint_no_optimizer ----------------------------------------------------------------------------------------


def test_a_run_that_no_longer_saves_its_optimizer_is_told():
    run = [i for i in live_run(600, 100) if not (isinstance(i, Event) and i.kind == "checkpoint" and (i.step or 0) > 400)]
    lost = [without(500, 701), without(600, 702), *steps(601, 640, 703), at(750)]
    (found,) = of(findings([*run, *lost]), "checkpoint_no_optimizer")
    assert (found.severity, found.is_open, found.expected) == (Severity.WARNING, True, 400)
    back = [report(700, "verified", 800), at(801)]
    assert not of(findings([*run, *lost, *back]), "checkpoint_no_optimizer")[0].is_open


def test_a_last_save_of_the_weights_alone_is_a_mark():
    run = live_run(605, 100)
    (found,) = findings([*run, without(605, 650), at(651), pointer("/c/checkpoint-605", 605, 652), at(653)])
    assert (found.rule, found.severity) == ("checkpoint_no_optimizer", Severity.INFO)


def test_weights_saved_in_between_are_no_alarm():
    items = []
    for item in live_run(1500, 100):
        items.append(item)
        if isinstance(item, Event) and item.kind == "checkpoint" and item.data["state"] == "verified" and item.time_ns:
            half = Event("checkpoint", item.time_ns + 1, step=item.step + 20, data={
                **item.data, "path": f"/w/weights-{item.step}", "step": item.step + 20, "has_optimizer": False,
                "modified_at_ns": item.data["modified_at_ns"] + 1,
            })  # fmt: skip
            items.append(half)
    assert alarms(findings(items)) == []


def test_an_old_checkpoint_whose_optimizer_is_stripped_is_no_alarm():
    run = live_run(600, 100, keep=9)
    stripped = [report(n, "verified", 700 + n, written=700 + n, has_optimizer=False) for n in (100, 200, 300)]
    assert findings([*run, *stripped, *steps(601, 700, 1100), at(1300)]) == []


def test_a_run_that_would_go_on_from_weights_alone_is_told():
    run = [*steps(1, 200, 0), without(100, 150), at(201), pointer("/c/checkpoint-100", 100, 202), at(203)]
    (found,) = of(findings(run), "checkpoint_no_optimizer")
    assert found.severity is Severity.WARNING
    assert "a restart would load it" in found.message


# -- checkpoint_too_few_verified ------------------------------------------------------------------------------------


def test_a_run_that_keeps_one_checkpoint_is_told():
    run = live_run(3000, 100, keep=1)
    (found,) = of(findings(run), "checkpoint_too_few_verified")
    assert (found.severity, found.expected) == (Severity.WARNING, 2)


def test_two_verified_ones_in_rotation_are_enough():
    assert findings(live_run(4000, 50, keep=2, verify_s=40)) == []


def test_complete_ones_of_a_format_that_cannot_be_verified_are_a_mark():
    items = [i for i in live_run(3000, 100) if not (isinstance(i, Event) and i.data.get("state") == "verified")]
    (found,) = of(findings(items), "checkpoint_too_few_verified")
    assert found.severity is Severity.INFO
    assert "not verified" in found.message


# -- resume_behind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [300, None])
def test_a_start_from_an_older_checkpoint_is_told_until_its_steps_are_passed(resumed):
    run = [*live_run(550, 100), start(2, 700, resumed), *steps(301, 340, 710, attempt=2)]
    (found,) = of(findings(run), "resume_behind")
    assert (found.severity, found.is_open, found.value, found.expected) == (Severity.WARNING, True, 300, 500)
    assert "verified checkpoint checkpoint-500 of step 500 was there" in found.message
    (ended,) = of(findings([*run, *steps(341, 520, 760, attempt=2)]), "resume_behind")
    assert not ended.is_open


def test_a_start_from_scratch_that_costs_hours_is_critical():
    run = [*live_run(550, 100, step_s=60), start(2, 40_000), *steps(1, 20, 40_010, attempt=2)]
    (found,) = of(findings(run), "resume_behind")
    assert found.severity is Severity.CRITICAL
    assert "started from scratch" in found.message


def test_a_start_from_the_newest_checkpoint_is_fine():
    assert findings([*live_run(550, 100), start(2, 700, 500), *steps(501, 600, 710, attempt=2)]) == []
    assert findings([*live_run(550, 100), start(2, 700), *steps(500, 600, 710, attempt=2)]) == []


def test_a_sparse_log_does_not_make_a_start_look_behind():
    items = [i for i in live_run(1000, 100) if not (hasattr(i, "values") and i.step % 10)]
    assert findings([*items, start(2, 1300), *steps(1000, 1100, 1310, attempt=2, every=10)]) == []


def test_a_start_from_scratch_is_found_from_a_log_alone():
    first = live_run(550, 100, says="phase", is_watched=False)
    log = [item for item in first if not isinstance(item, int)]
    (found,) = findings([*log, start(2, 700), *steps(1, 20, 710, attempt=2)])
    assert found.rule == "resume_behind"
    # The last one may not have been durable when it died.
    assert findings([*log, start(2, 700), *steps(401, 420, 710, attempt=2)]) == []


def test_going_back_before_a_loss_incident_is_a_mark():
    engine_run = [*live_run(550, 100)]
    engine = Engine("r")
    for item in engine_run:
        engine.tick(item) if isinstance(item, int) else engine.update(item)
    engine._checkpoints._sick_from = 450
    found = engine.update(start(2, 700, 400))
    found += engine.update(step(401, 710, 2))
    (behind,) = [f for f in found if f.rule == "resume_behind"]
    assert behind.severity is Severity.INFO


def test_checkpoints_counted_in_other_units_are_never_behind():
    tokens = [report(n * 1_000_000, "verified", n, written=n) for n in (1, 2, 3)]
    run = [*steps(1, 500, 0), at(500), *tokens, at(501), start(2, 600), *steps(1, 20, 610, attempt=2)]
    assert of(findings(run), "resume_behind") == []


def test_what_was_written_after_the_start_was_not_missed():
    run = [
        *steps(1, 500, 0),
        at(500),
        start(2, 600),
        report(300, "verified", 605, written=604),
        at(605),
        *steps(1, 9, 610, attempt=2),
    ]
    assert of(findings(run), "resume_behind") == []


def test_a_pointer_that_is_behind_is_told_after_ten_minutes_and_ends_when_it_is_right():
    run = [*live_run(500, 100), pointer("/c/checkpoint-300", 300, 600), at(600), at(900)]
    assert of(findings(run), "resume_behind") == []
    (found,) = of(findings([*run, at(1300)]), "resume_behind")
    assert found.message == "a restart would load checkpoint-300 (latest); newest verified is step 500"
    assert (found.severity, found.value, found.expected) == (Severity.WARNING, 300, 500)
    (ended,) = of(findings([*run, at(1300), pointer("/c/checkpoint-500", 500, 1400), at(1401)]), "resume_behind")
    assert not ended.is_open


def test_no_pointer_means_a_start_from_scratch():
    run = [*live_run(500, 100), pointer(None, None, 600), at(600), at(1300)]
    (found,) = of(findings(run), "resume_behind")
    assert found.message == "a restart would begin from scratch (latest); newest verified is step 500"
    said = "There is no latest, so a restart would begin at step 0, although step 500 is complete here."
    (found,) = of(findings([*live_run(500, 100), pointer(None, None, 600, said), at(600), at(1300)]), "resume_behind")
    assert found.message == said


def test_a_pointer_at_a_save_in_progress_is_waited_for():
    run = [*live_run(500, 100), report(600, "writing", 600), pointer("/c/checkpoint-600", 600, 600), at(600), at(3000)]
    assert of(findings(run), "resume_behind") == []


def test_the_highest_number_may_be_left_behind_by_an_earlier_start():
    run = [*live_run(500, 100), start(2, 600, 300), *steps(301, 420, 600, attempt=2)]
    run += [report(400, "verified", 720, written=715), pointer("/c/checkpoint-500", 500, 730), at(730), at(1400)]
    found = [f for f in of(findings(run), "resume_behind") if f.data["kind"] == "would_load"]
    assert len(found) == 1
    assert "an earlier start left behind" in found[0].message


# -- state, hostile data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 7])
def test_going_on_from_the_state_after_any_record_finds_the_same(each):
    items = troubles()
    expected = findings(items)
    assert {"checkpoint_corrupt", "checkpoint_stuck", "resume_behind"} <= {f.rule for f in expected}
    # A state through JSON at each record of a thousand takes long: the steps in the middle are alike.
    assert findings(items, restart_each=each if each > 1 else 3) == expected


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_within_one_look_does_not_matter(rng):
    look = [report(n, "verified", 600, written=n) for n in (200, 300, 400)] + [without(500, 600), report(450, "corrupt", 600)]
    look.append(pointer("/c/checkpoint-300", 300, 600))
    rng.shuffle(look)
    head, tail = live_run(550, 10_000), [at(601), at(700), at(3000)]

    def told_of(found):
        return sorted((f.rule, f.severity, f.message) for f in found)

    expected = told_of(findings([*head, *sorted(look, key=lambda e: str(e.data)), *tail]))
    assert told_of(findings([*head, *look, *tail])) == expected


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip
names = st.sampled_from(
    ["path", "state", "step", "directory", "how", "problem", "modified_at_ns", "has_optimizer", "reasons", "blocked_s",
     "phase", "section", "values", "resumed_from_step"]
)  # fmt: skip
values = anything | st.sampled_from(
    ["corrupt", "verified", "writing", "begun", "persisted", "checkpoint", "/c/x", "config", 10**30]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Event, kind=st.sampled_from(["checkpoint", "save", "pointer", "phase", "resume", "attempt_start", "metadata"]),
            time_ns=st.none() | st.integers(0, 2**62), step=st.none() | st.integers(0, 2**62), data=st.dictionaries(names, values, max_size=6),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_no_event_of_a_strange_file_breaks_the_rules(events):
    engine = Engine("r")
    for number, event in enumerate(events):
        engine.update(event)
        engine.update(step(number, number))
        engine.tick(at(number + 0.5))
    engine.finish()
    json.dumps(engine.to_state(), allow_nan=False)


def test_the_state_stays_small_with_ten_thousand_checkpoints():
    engine = Engine("r")
    engine.update(step(1, 0))
    for n in range(10_000):
        engine.update(report(n, "corrupt" if n % 3 else "verified", n, path="/x/" + "y" * 3000 + str(n), reasons=["z" * 5000]))
    engine.tick(at(10_001))
    assert len(json.dumps(engine.to_state())) < 200_000


# -- what the hook compared at a resume -----------------------------------------------------------------------------


def resume_check(second: float, **differs) -> Event:
    check = {"path": "/c/checkpoint-500", "step": 500, "config_is_equal": True, "script_is_equal": True, "has_optimizer": True}
    return Event("message", at(second), step=500, text="resumed", data={"resume_check": check | differs})


def settings_findings(items) -> list:
    engine = Engine("r")
    found = [f for item in items for f in (engine.tick(item) if isinstance(item, int) else engine.update(item))]
    found += engine.finish()
    return [f for f in found if f.rule == "resume_config_changed"]


@pytest.mark.parametrize(("attempt", "severity"), [(2, Severity.WARNING), (1, Severity.INFO)])
def test_a_checkpoint_that_other_settings_saved_is_told(attempt, severity):
    head = [*steps(1, 500, 0), start(2, 600, 500)] if attempt == 2 else []
    check = resume_check(605, config_is_equal=False, script_is_equal=False)
    (found,) = settings_findings([*head, check, *steps(501, 540, 610, attempt=attempt)])
    assert found.severity is severity
    assert found.message.startswith("config and script not as when checkpoint-500 was saved")
    assert settings_findings([*head, resume_check(605), *steps(501, 540, 610, attempt=attempt)]) == []


def test_settings_that_were_compared_key_by_key_are_not_told_again():
    def told_settings(attempt, second, value):
        data = {"section": "config", "values": {"lr": value, "run_started_at": f"{second}"}, "part": 0, "parts": 1}
        return Event("metadata", at(second), attempt=attempt, data=data)

    def run(value):
        return [
            told_settings(1, 0, 1), *steps(1, 500, 1), start(2, 600, 500), told_settings(2, 601, value),
            resume_check(605, config_is_equal=False), *steps(501, 540, 610, attempt=2),
        ]  # fmt: skip

    assert len(settings_findings(run(2))) == 1
    assert "goes on from it" not in settings_findings(run(2))[0].message


def test_a_start_from_a_checkpoint_without_optimizer_is_told_until_the_next_start():
    run = [*live_run(550, 100), start(2, 700, 500), resume_check(701, has_optimizer=False), *steps(501, 540, 710, attempt=2)]
    (found,) = of(findings(run), "checkpoint_no_optimizer")
    assert (found.severity, found.is_open) == (Severity.WARNING, True)
    assert "attempt 2 goes on from checkpoint-500, which holds no optimizer state" in found.message
    assert not of(findings([*run, start(3, 800, 500)]), "checkpoint_no_optimizer")[0].is_open


def test_the_phases_of_a_trainer_that_tells_its_saves_are_not_counted_beside_them():
    items = []
    for item in live_run(1000, 100, is_async=True, save_s=40, is_watched=False):
        if isinstance(item, Event) and item.kind == "save" and item.data["state"] in ("begun", "staged"):
            state = "begin" if item.data["state"] == "begun" else "end"
            items.append(Event("phase", item.time_ns, step=item.step, data={"phase": "checkpoint", "state": state}))
        items.append(item)
    lost = [i for i in items if not (isinstance(i, Event) and i.data.get("state") == "persisted" and (i.step or 0) > 600)]
    assert findings(items) == []
    assert {f.rule for f in findings([*lost, *(at(1100 + k) for k in range(800))])} >= {"checkpoint_overdue", "checkpoint_stuck"}
