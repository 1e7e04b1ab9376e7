"""The demo's restart loop does not go on by itself from damaged weights, and a start by hand changes no setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainvitals import control
from trainvitals.checkpoints import pinning
from trainvitals.clock import ManualClock
from trainvitals.demo import checkpoint
from trainvitals.demo.damage import HOOK_FILE, MARGIN_STEPS, ONSET_WITHIN_STEPS, Damage, damage_of, is_suspect, known_damage
from trainvitals.demo.last_start import LastStart, read_last_start, write_last_start
from trainvitals.demo.restart import main, newest_verified
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.errors import InputError
from trainvitals.incidents import rollback

HEADER = {"type": "header", "started_ns": 100}
STEP = {"type": "step", "step": 1, "values": {"loss": 2.0}}


def pause(step: int, source: str = "breaker") -> dict[str, object]:
    return {"type": "event", "kind": "control", "step": step, "data": {"state": "paused", "by": source, "source": source}}


def resumed(step: int) -> dict[str, object]:
    return {"type": "event", "kind": "resume", "step": step, "data": {}}


def test_a_pause_of_the_breaker_makes_what_was_saved_around_it_suspect() -> None:
    (damage,) = damage_of([HEADER, STEP, pause(1930)])
    assert damage == Damage(1930 - ONSET_WITHIN_STEPS)
    assert is_suspect(damage, 1930, 10**18) and is_suspect(damage, 1800, 10**18) and not is_suspect(damage, 1500, 10**18)


def test_a_pause_by_a_person_makes_nothing_suspect() -> None:
    assert damage_of([HEADER, STEP, pause(1930, "cli")]) == []


def test_what_is_written_after_going_back_is_not_suspect_and_what_lies_there_from_before_stays_so() -> None:
    (damage,) = damage_of([HEADER, STEP, pause(1930), {"type": "header", "started_ns": 500}, resumed(1500), STEP])
    assert damage.until_ns == 500
    assert is_suspect(damage, 1800, 499) and is_suspect(damage, 1800, None) and not is_suspect(damage, 1800, 500)


def test_a_start_from_the_damaged_checkpoint_clears_nothing_and_a_start_from_the_beginning_does() -> None:
    going_on = [HEADER, STEP, pause(1930), {"type": "header", "started_ns": 500}, resumed(1930)]
    assert damage_of(going_on)[0].until_ns is None
    assert damage_of([*going_on, {"type": "header", "started_ns": 900}, STEP])[0].until_ns == 900


def nonfinite(step: int, name: str = "loss") -> dict[str, object]:
    return {"type": "step", "step": step, "values": {}, "nonfinite": {name: "nan"}}


def test_what_was_saved_since_just_before_a_loss_that_is_no_number_is_suspect_until_a_start_from_before() -> None:
    died = [HEADER, STEP, nonfinite(1650), nonfinite(1651), nonfinite(1652)]
    (damage,) = damage_of(died)
    assert damage == Damage(1650 - MARGIN_STEPS) and not is_suspect(damage, 1350, None)
    again = [*died, {"type": "header", "started_ns": 500}, resumed(1650), nonfinite(1651)]
    assert damage_of(again) == [damage], "a start from the damaged one is the same damage"
    (over,) = damage_of([*again, {"type": "header", "started_ns": 900}, resumed(1350), STEP])
    assert over.until_ns == 900


def test_a_gradient_that_overflows_once_makes_nothing_suspect() -> None:
    assert damage_of([HEADER, STEP, nonfinite(1650, "grad_norm")]) == []


def test_the_margin_before_an_onset_is_that_of_the_page() -> None:
    assert rollback.MARGIN_STEPS == MARGIN_STEPS


def test_a_torn_or_foreign_line_is_passed_over(tmp_path: Path) -> None:
    lines = [json.dumps(HEADER), json.dumps(STEP), '{"kind":"control', '["control"]', json.dumps(pause(1000))]
    (tmp_path / HOOK_FILE).write_text("\n".join(lines) + "\n")
    assert known_damage(tmp_path) == [Damage(1000 - ONSET_WITHIN_STEPS)]
    assert known_damage(tmp_path / "nothing here") == []


def test_the_newest_checkpoint_that_verifies_is_not_chosen_when_the_breaker_saved_it(tmp_path: Path) -> None:
    training = small_training(tmp_path)
    for _ in range(2):
        training.advance()
        training.save()
    assert newest_verified(tmp_path / "c") == tmp_path / "c" / "checkpoint-2"
    assert newest_verified(tmp_path / "c", [Damage(2)]) == tmp_path / "c" / "checkpoint-1"
    assert newest_verified(tmp_path / "c", [Damage(0)]) is None


def small_training(tmp_path: Path) -> Training:
    return Training(
        TrainingOptions(run_dir=tmp_path, checkpoints=tmp_path / "c", batch=16, hidden=8, text_bytes=20_000), ManualClock()
    )


def test_weights_that_are_no_numbers_are_not_chosen_although_their_file_is_whole(tmp_path: Path) -> None:
    training = small_training(tmp_path)
    training.advance()
    training.save()
    training.parameters["hidden.1.weight"][0, 0] = float("nan")
    training.advance()
    training.save()
    assert newest_verified(tmp_path / "c") == tmp_path / "c" / "checkpoint-1"


def test_a_pinned_checkpoint_is_chosen_when_the_trainer_deleted_its_own(tmp_path: Path) -> None:
    training = small_training(tmp_path)
    training.advance()
    path = training.save()
    pinned = pinning.pin(str(path)).path
    checkpoint.delete(path)
    assert newest_verified(tmp_path / "c") == Path(pinned)


def test_a_start_by_hand_trains_with_the_arguments_of_the_last_start(tmp_path: Path) -> None:
    small = ["--batch", "16", "--hidden", "8", "--text-bytes", "20000", "--step-time-s", "0", "--steps", "3"]
    given = ["--run-dir", str(tmp_path), "--checkpoints", str(tmp_path / "c"), "--logs", str(tmp_path / "logs")]
    assert main([*given, "--schedule", "none", "--", *small]) == 0
    assert main([*given, "--resume-from", str(tmp_path / "c" / "checkpoint-3")]) == 0
    told = [json.loads(line) for line in (tmp_path / HOOK_FILE).read_text().splitlines()]
    configs = [one["data"]["values"] for one in told if one.get("kind") == "metadata" and one["data"]["section"] == "config"]
    assert len(configs) == 2 and configs[0]["steps"] == configs[1]["steps"] == 3
    assert {key for key in configs[0] if configs[0][key] != configs[1].get(key)} <= {"resume_from"}


def test_what_was_given_at_the_last_start_is_kept_and_damage_to_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_last_start(tmp_path) == LastStart()
    write_last_start(tmp_path, LastStart("none", ("--checkpoint-every", "150")))
    assert read_last_start(tmp_path) == LastStart("none", ("--checkpoint-every", "150"))
    (tmp_path / "demo_start.json").write_text('{"schedule": ')
    with pytest.raises(InputError, match=r"demo_start\.json cannot be read"):
        read_last_start(tmp_path)
    given = ["--run-dir", str(tmp_path), "--checkpoints", str(tmp_path / "c"), "--logs", str(tmp_path / "logs")]
    assert main(given) == InputError.exit_code
    assert "demo_start.json cannot be read" in capsys.readouterr().err


def test_a_stopped_run_is_not_started_and_it_says_who_stopped_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control.submit(tmp_path, "demo", action="stop", by="nina", source="cli", reason="going back")
    given = ["--run-dir", str(tmp_path), "--checkpoints", str(tmp_path / "c"), "--logs", str(tmp_path / "logs")]
    assert main(given) == 1
    told = capsys.readouterr().err
    assert "stopped by nina: going back" in told and "control resume" in told
    assert not (tmp_path / "logs").exists()
