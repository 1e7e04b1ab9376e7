"""The demo's restart loop does not go on by itself from what a pause of the breaker saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainvitals import control
from trainvitals.clock import ManualClock
from trainvitals.demo.damage import HOOK_FILE, ONSET_WITHIN_STEPS, Damage, breaker_damage, damage_of, is_suspect
from trainvitals.demo.restart import main, newest_verified
from trainvitals.demo.training import Training, TrainingOptions

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


def test_a_torn_or_foreign_line_is_passed_over(tmp_path: Path) -> None:
    lines = [json.dumps(HEADER), json.dumps(STEP), '{"kind":"control', '["control"]', json.dumps(pause(1000))]
    (tmp_path / HOOK_FILE).write_text("\n".join(lines) + "\n")
    assert breaker_damage(tmp_path) == [Damage(1000 - ONSET_WITHIN_STEPS)]
    assert breaker_damage(tmp_path / "nothing here") == []


def test_the_newest_checkpoint_that_verifies_is_not_chosen_when_the_breaker_saved_it(tmp_path: Path) -> None:
    options = TrainingOptions(run_dir=tmp_path, checkpoints=tmp_path / "c", batch=16, hidden=8, text_bytes=20_000)
    training = Training(options, ManualClock())
    for _ in range(2):
        training.advance()
        training.save()
    assert newest_verified(tmp_path / "c") == tmp_path / "c" / "checkpoint-2"
    assert newest_verified(tmp_path / "c", [Damage(2)]) == tmp_path / "c" / "checkpoint-1"
    assert newest_verified(tmp_path / "c", [Damage(0)]) is None


def test_a_stopped_run_is_not_started_and_it_says_who_stopped_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control.submit(tmp_path, "demo", action="stop", by="nina", source="cli", reason="going back")
    given = ["--run-dir", str(tmp_path), "--checkpoints", str(tmp_path / "c"), "--logs", str(tmp_path / "logs")]
    assert main(given) == 1
    told = capsys.readouterr().err
    assert "stopped by nina: going back" in told and "control resume" in told
    assert not (tmp_path / "logs").exists()
