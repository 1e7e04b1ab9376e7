"""The learning rate after a resume, and against a declared schedule."""

from __future__ import annotations

import json
import math

import pytest
from made_up import alarms, at, curve, event, feed, find, of_rule

from trainvitals.detect.engine import Engine
from trainvitals.detect.lr_schedule import Schedule, declared, from_settings
from trainvitals.records import Event, Severity, Step
from trainvitals.settings import parse

COSINE = Schedule(3e-4, 3e-5, 200, 2000, "cosine")
MEGATRON = {
    "lr": 3e-4, "min_lr": 3e-5, "lr_decay_style": "cosine", "lr_warmup_iters": 200, "lr_decay_iters": 2000, "train_iters": 2000,
    "lr_warmup_samples": 0, "rampup_batch_size": "None", "seed": 1,
}  # fmt: skip


def steps(first: int, last: int, lr_at=COSINE.lr_at, attempt: int = 1, every: int = 1) -> list[Step]:
    return [
        Step(s.step, attempt, s.time_ns, {**s.values, "lr": lr_at(s.step)})
        for s in curve(last)[first - 1 :]
        if s.step % every == 0
    ]


def settings_told(values: dict[str, object], attempt: int = 1) -> Event:
    return Event("metadata", at(0), attempt=attempt, data={"section": "config", "values": values, "part": 0, "parts": 1})


# -- after a resume -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("back_to", [1000, 980, 700, 150])
@pytest.mark.parametrize("every", [1, 10])
def test_a_resume_that_goes_on_with_the_schedule_is_no_finding(back_to, every):
    found = find([*steps(1, 1000, every=every), *steps(back_to + 1, 1400, attempt=2, every=every)])
    assert not of_rule(found, "resume_lr_mismatch")


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_learning_rate_logged_one_step_earlier_or_later_is_no_finding(off_by):
    found = find([*steps(1, 150), *steps(101, 400, lr_at=lambda s: COSINE.lr_at(s + off_by), attempt=2)])
    assert not of_rule(found, "resume_lr_mismatch")


@pytest.mark.parametrize("back_to", [1000, 800])
def test_a_schedule_that_begins_anew_after_a_resume_is_a_warning(back_to):
    found = find([*steps(1, 1000), *steps(back_to + 1, 1400, lr_at=lambda s: COSINE.lr_at(s - back_to), attempt=2)])
    (mismatch,) = of_rule(found, "resume_lr_mismatch")
    assert mismatch.severity is Severity.WARNING and mismatch.detected_step == back_to + 3 and mismatch.first_step == back_to + 1
    assert f"after the resume from step {back_to:,}; before it was" in mismatch.message
    assert not mismatch.is_open and mismatch.value < mismatch.expected


def test_another_constant_learning_rate_after_a_resume_is_a_warning_unless_a_note_says_so():
    before, after = steps(1, 500, lambda s: 3e-4), steps(501, 700, lambda s: 2.9e-4, attempt=2)
    assert len(of_rule(alarms(find([*before, *after])), "resume_lr_mismatch")) == 1
    note = event("annotation", rules=["resume_lr_mismatch"], by="ana")
    assert not of_rule(find([*before, note, *after]), "resume_lr_mismatch")


def test_a_run_that_starts_from_nothing_again_may_take_any_learning_rate():
    assert not of_rule(find([*steps(1, 500), *steps(1, 500, lambda s: 1e-3, attempt=2)]), "resume_lr_mismatch")


def test_a_part_that_the_log_lacks_is_not_guessed():
    assert not of_rule(find([*steps(1, 300), *steps(1500, 1900, attempt=2)]), "resume_lr_mismatch")


# -- declared schedules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (MEGATRON, COSINE),
        ({"lr": "3e-4", "lr_decay_style": "WSD", "lr_wsd_decay_iters": 100, "lr_wsd_decay_style": "minus_sqrt", "train_iters": 1000,
          "min_lr": 0.0, "lr_warmup_fraction": 0.1},
         Schedule(3e-4, 0.0, 100, 1000, "wsd", tail_steps=100, tail="minus_sqrt")),
        ({"learning_rate": 2e-5, "lr_scheduler_type": "SchedulerType.LINEAR", "max_steps": 500, "warmup_steps": 0, "warmup_ratio": 0.03},
         Schedule(2e-5, 0.0, 15, 500, "linear")),
        ({"learning_rate": 6e-4, "min_lr": 6e-5, "warmup_iters": 10, "lr_decay_iters": 100, "max_iters": 100, "decay_lr": True},
         Schedule(6e-4, 6e-5, 10, 100, "cosine")),
        ({"lr": 1e-3, "warmup_steps": 20, "steps": 1000, "decay_type": "cosine", "decay_ratio": 0.2, "min_lr_factor": 0.1},
         Schedule(1e-3, 1e-4, 20, 1000, "wsd", tail_steps=200, tail="cosine")),
        ({"lr": 1.5e-4, "lr_decay_style": "cosine", "lr_decay_iters": 800, "warmup": 0.01, "min_lr": 1e-5},
         Schedule(1.5e-4, 1e-5, 8, 800, "cosine")),
        ({"learning_rate": 1e-4, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 5}, Schedule(1e-4, 0.0, 5, 0, "constant")),
    ],
)  # fmt: skip
def test_the_settings_of_the_usual_trainers_declare_a_schedule(settings, expected):
    assert declared(settings) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lr": 3e-4},
        {"lr": "auto", "lr_decay_style": "cosine", "train_iters": 100},
        {**MEGATRON, "rampup_batch_size": "16 16 1000"},
        {**MEGATRON, "lr_warmup_samples": 1000},
        {**MEGATRON, "lr_decay_style": "made up"},
        {**MEGATRON, "lr_warmup_iters": 3000},
        {"learning_rate": 2e-5, "lr_scheduler_type": "cosine", "max_steps": -1},
        {"lr": 1e-3, "lr_decay_style": "WSD", "train_iters": 100},
        {"lr": float("nan"), "lr_decay_style": "constant"},
    ],
)
def test_what_is_not_wholly_declared_is_no_schedule(settings):
    assert declared(settings) is None


def test_schedules_go_where_they_should():
    assert COSINE.lr_at(0) == 0.0 and COSINE.lr_at(100) == pytest.approx(1.5e-4) and COSINE.lr_at(200) == pytest.approx(3e-4)
    assert COSINE.lr_at(1100) == pytest.approx(1.65e-4) and COSINE.lr_at(9999) == 3e-5
    tail = Schedule(1.0, 0.0, 10, 100, "wsd", tail_steps=50)
    assert [tail.lr_at(s) for s in (10, 50, 75, 100)] == [1.0, 1.0, 0.5, 0.0]
    assert Schedule(1.0, 0.0, 100, 0, "inverse_sqrt").lr_at(400) == pytest.approx(0.5)


def test_steps_of_other_sections_are_not_those_of_the_schedule_and_two_of_a_name_are_none():
    titan = {
        "optimizer.lr": 3e-4, "lr_scheduler.warmup_steps": 200, "lr_scheduler.decay_type": "linear", "lr_scheduler.decay_ratio": 0.2,
        "training.steps": 2000, "validation.steps": 10,
    }  # fmt: skip
    half = steps(1, 600, lambda s: 1.5e-4 if s > 300 else Schedule(3e-4, 0.0, 200, 2000, "wsd", tail_steps=400).lr_at(s))
    assert of_rule(find([settings_told(titan), *half]), "lr_schedule_mismatch")
    assert not of_rule(find([settings_told({**titan, "critic.lr": 1e-5}), *half]), "lr_schedule_mismatch")


@pytest.mark.parametrize("every", [1, 10])
def test_a_run_that_follows_its_schedule_is_no_finding(every):
    records = [settings_told(MEGATRON), *steps(1, 2200, every=every)]
    assert not of_rule(find(records), "lr_schedule_mismatch")


def test_leaving_a_declared_schedule_is_a_warning_until_it_is_followed_again():
    def lr_at(step):
        return COSINE.lr_at(step) * (0.9 if 1000 <= step < 1100 else 1.0)

    (mismatch,) = of_rule(find([settings_told(MEGATRON), *steps(1, 1500, lr_at)]), "lr_schedule_mismatch")
    assert mismatch.severity is Severity.WARNING and mismatch.detected_step == 1009 and mismatch.last_step == 1100
    assert "cosine, 0.0003 to 3e-05, warm-up 200 of 2,000 steps" in mismatch.message


def test_a_schedule_that_was_never_followed_is_a_mark_told_once():
    (mark,) = of_rule(find([settings_told(MEGATRON), *steps(1, 800, lambda s: 1e-4)]), "lr_schedule_mismatch")
    assert mark.severity is Severity.INFO


def test_new_settings_at_a_restart_that_the_checkpoint_overrides_are_a_warning():
    new = {**MEGATRON, "lr": 1e-4, "min_lr": 1e-5}
    records = [settings_told(MEGATRON), *steps(1, 600), event("attempt_start", 7000, attempt=2), settings_told(new, 2)]
    found = find([*records, *steps(601, 800, attempt=2)])
    (mismatch,) = of_rule(found, "lr_schedule_mismatch")
    assert mismatch.severity is Severity.WARNING and mismatch.detected_step == 610


def test_a_lowered_learning_rate_that_a_note_explains_is_silent_and_stays_so():
    note = event("annotation", rules=["lr_*", "loss_*"], by="ana")
    records = [settings_told(MEGATRON), *steps(1, 800), note, *steps(801, 2000, lambda s: COSINE.lr_at(s) / 2)]
    assert not of_rule(find(records), "lr_schedule_mismatch")
    engine = Engine("run")
    feed(engine, [settings_told(MEGATRON), *steps(1, 800), *steps(801, 850, lambda s: COSINE.lr_at(s) / 2)])
    closed = engine.update(note)
    assert [(f.rule, f.is_open) for f in closed] == [("lr_schedule_mismatch", False)]
    engine.restore(json.loads(json.dumps(engine.to_state())))
    again = [settings_told(MEGATRON, 2), *steps(851, 900, lambda s: COSINE.lr_at(s) / 2, attempt=2)]
    assert not of_rule(feed(engine, again), "lr_schedule_mismatch")


# -- schedules of the settings --------------------------------------------------------------------------------------------


def _meant(run_steps: int = 2000, **told: object) -> Schedule | None:
    table = {"kind": "cosine", "peak": 3e-4, "min_lr": 3e-5, "warmup_steps": 200, **told}
    (run,) = parse({"runs": [{"name": "r", "dir": "/r", "total_steps": run_steps, "lr_schedule": table}]}).runs
    return from_settings(run.lr_schedule, run.total_steps)


def test_a_schedule_of_the_settings_is_that_of_the_same_words_elsewhere():
    assert _meant() == COSINE == _meant(5000, total_steps=2000)
    assert _meant(1000, kind="wsd", decay_steps=100) == Schedule(3e-4, 3e-5, 200, 1000, "wsd", tail_steps=100)
    (run,) = parse({"runs": [{"name": "r", "dir": "/r"}]}).runs
    assert from_settings(run.lr_schedule, 100) is None


def test_leaving_a_schedule_of_the_settings_is_a_warning_whatever_the_trainer_tells():
    def lr_at(step):
        return COSINE.lr_at(step) * (0.9 if step >= 1000 else 1.0)

    for told in ([], [settings_told({**MEGATRON, "lr": 1e-4, "min_lr": 1e-5})]):
        engine = Engine("run", lr_schedule=_meant())
        (opened,) = of_rule(feed(engine, [*told, *steps(1, 1200, lr_at)]), "lr_schedule_mismatch")
        assert (opened.severity, opened.detected_step) == (Severity.WARNING, 1009)


def test_a_note_waives_a_schedule_of_the_settings_until_another_one_stands_there():
    note = event("annotation", rules=["lr_*"], by="ana")
    engine = Engine("run", lr_schedule=_meant())
    feed(engine, [*steps(1, 800), note, *steps(801, 900, lambda s: COSINE.lr_at(s) / 2)])
    state = json.loads(json.dumps(engine.to_state()))
    again = Engine("run", lr_schedule=_meant())
    again.restore(state)
    assert not of_rule(feed(again, steps(901, 1500, lambda s: COSINE.lr_at(s) / 2)), "lr_schedule_mismatch")
    other = Engine("run", lr_schedule=_meant(peak=2e-4, min_lr=2e-5))
    other.restore(state)
    assert of_rule(feed(other, steps(901, 1500, lambda s: COSINE.lr_at(s) / 2)), "lr_schedule_mismatch")


def test_a_schedule_mended_in_the_settings_is_judged_after_the_wrong_one_was_marked():
    engine = Engine("run", lr_schedule=_meant(peak=1e-3))
    (mark,) = of_rule(feed(engine, steps(1, 500)), "lr_schedule_mismatch")
    assert mark.severity is Severity.INFO
    mended = Engine("run", lr_schedule=_meant())
    mended.restore(json.loads(json.dumps(engine.to_state())))
    found = feed(mended, [*steps(501, 600), *steps(601, 700, lambda s: COSINE.lr_at(s) / 2)])
    assert [f.severity for f in of_rule(found, "lr_schedule_mismatch")] == [Severity.WARNING]


HUGGING_FACE = {
    "learning_rate": 3e-4, "lr_scheduler_type": "linear", "max_steps": -1, "num_train_epochs": 3.0, "warmup_steps": 0, "warmup_ratio": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("total", [None, 0, -1, True, "2000", float("inf"), 10**400])
def test_epochs_are_no_schedule_while_nobody_says_how_many_steps_they_are(total):
    training = Event("metadata", at(0), attempt=1, data={"section": "training", "values": {"max_steps": total}})
    found = find([settings_told(HUGGING_FACE), training, *steps(1, 600, lambda s: 1e-4)])
    assert not of_rule(found, "lr_schedule_mismatch")


def test_epochs_are_a_schedule_once_the_trainer_says_how_many_steps_they_are():
    linear = Schedule(3e-4, 0.0, 200, 2000, "linear")
    training = Event("metadata", at(0), attempt=1, data={"section": "training", "values": {"max_steps": 2000}})
    told = [settings_told(HUGGING_FACE), training]
    assert not of_rule(find([*told, *steps(1, 1900, linear.lr_at)]), "lr_schedule_mismatch")
    left = steps(1, 1200, lambda s: linear.lr_at(s) * (0.8 if s > 1000 else 1.0))
    assert [f.severity for f in of_rule(find([*told, *left]), "lr_schedule_mismatch")] == [Severity.WARNING]


def test_the_history_is_bounded_and_survives_a_restart():
    engine = Engine("run")
    feed(engine, [settings_told(MEGATRON), *steps(1, 1900)])
    state = json.loads(json.dumps(engine.to_state()))
    assert len(json.dumps(state["_lr"])) < 20_000
    again = Engine("run")
    again.restore(state)
    rest = [*steps(1501, 1700, attempt=2), *steps(1701, 1800, lambda s: math.pi * 1e-4, attempt=2)]
    assert feed(again, rest) == feed(engine, rest) != []
