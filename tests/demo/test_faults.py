"""When the demo breaks: decisions as a function of time, and books that outlive the trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.clock import ManualClock
from trainvitals.demo import faults
from trainvitals.demo.faults import DEFAULT_SCHEDULE, Fault
from trainvitals.demo.training import Training, TrainingOptions
from trainvitals.errors import InputError


def names(found: list[Fault]) -> list[str]:
    return [fault.name for fault in found]


def test_nothing_happens_before_its_time() -> None:
    assert faults.due(DEFAULT_SCHEDULE, 44.9, {}) == []
    assert names(faults.due(DEFAULT_SCHEDULE, 45, {})) == ["data"]


def test_what_has_begun_in_any_attempt_does_not_begin_again() -> None:
    assert faults.due(DEFAULT_SCHEDULE, 60, {"data": 45.0}) == []


def test_the_nan_waits_until_a_checkpoint_was_truncated() -> None:
    begun = {"data": 45.0, "slow-down": 80.0}
    assert names(faults.due(DEFAULT_SCHEDULE, 200, begun)) == ["checkpoint"]
    assert "nan" not in names(faults.due(DEFAULT_SCHEDULE, 200, begun | {"checkpoint": 195.0}))
    assert "nan" in names(faults.due(DEFAULT_SCHEDULE, 207, begun | {"checkpoint": 195.0}))


@pytest.mark.parametrize("truncated_at_s", [130.0, 137.0, 142.5, 154.0])
def test_the_truncated_checkpoint_is_still_the_newest_when_the_nan_comes(truncated_at_s: float) -> None:
    save_period_s = 300 * 0.08
    begun = {"data": 45.0, "slow-down": 80.0, "checkpoint": truncated_at_s}
    elapsed_s = next(t / 10 for t in range(1300, 3000) if "nan" in names(faults.due(DEFAULT_SCHEDULE, t / 10, begun)))
    assert elapsed_s + 1 < truncated_at_s + save_period_s


@given(st.lists(st.floats(0, 400), min_size=1, max_size=60))
def test_every_fault_begins_at_most_once_and_never_early(moments: list[float]) -> None:
    begun: dict[str, float] = {}
    for elapsed_s in sorted(moments):
        for fault in faults.due(DEFAULT_SCHEDULE, elapsed_s, begun):
            assert fault.name not in begun
            assert elapsed_s >= fault.at_s
            begun[fault.name] = elapsed_s


def test_a_fault_lasts_its_time_and_only_in_the_process_in_which_it_began() -> None:
    assert list(faults.active(DEFAULT_SCHEDULE, 119.0, {"slow-down": 80.0})) == ["slow_down"]
    assert faults.active(DEFAULT_SCHEDULE, 120.0, {"slow-down": 80.0}) == {}
    assert faults.active(DEFAULT_SCHEDULE, 1e9, {"learning-rate": 230.0})["grow_learning_rate"].duration_s == math.inf
    assert faults.active(DEFAULT_SCHEDULE, 240.0, {}) == {}


def test_books_outlive_the_trainer_and_leave_pauses_out(tmp_path: Path) -> None:
    books = faults.open_books(tmp_path, 1_000_000_000)
    books.paused_s = 20.0
    books.begun["data"] = {"elapsed_s": 45.0, "step": 540}
    faults.write_books(tmp_path, books)
    again = faults.open_books(tmp_path, 99_000_000_000)
    assert again.times() == {"data": 45.0}
    assert again.elapsed_s(101_000_000_000) == 80.0


def test_damaged_books_are_said(tmp_path: Path) -> None:
    (tmp_path / faults.BOOKS_NAME).write_text("{")
    with pytest.raises(InputError, match="delete it"):
        faults.open_books(tmp_path, 0)


def test_a_schedule_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps([{"name": "a", "kind": "slow_down", "at_s": 1, "factor": 2}]))
    assert faults.load_schedule(str(path)) == (Fault("a", "slow_down", 1, factor=2),)
    assert faults.load_schedule("none") == ()
    assert faults.load_schedule("default") == DEFAULT_SCHEDULE


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '[{"name": "a", "kind": "melt", "at_s": 1}]',
        '[{"name": "a"}]',
        '[{"name": "a", "kind": "slow_down", "at_s": 1, "after": "b"}]',
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(text)
    with pytest.raises(InputError, match="cannot be used"):
        faults.load_schedule(str(path))


class Ear:
    """Takes what the training logs and answers every step with "continue"."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, dict[str, float]]] = []

    def log(self, step: int, **metrics: float) -> None:
        self.steps.append((step, metrics))

    def data(self, step: int, **position: object) -> None: ...

    def phase(self, name: str, state: str = "begin") -> None: ...

    def saving(self, path: Path, step: int, **told: object) -> None: ...

    def deleted(self, path: Path) -> None: ...

    def at_step(self, step: int) -> str:
        return "continue"


def training(directory: Path, schedule: tuple[Fault, ...], clock: ManualClock, **changes: object) -> Training:
    plain = {"steps": 300, "batch": 128, "hidden": 24, "text_bytes": 100_000, "step_time_s": 0.1, "checkpoint_every": 50}
    options = TrainingOptions(run_dir=directory, checkpoints=directory / "checkpoints", schedule=schedule, **(plain | changes))  # type: ignore[arg-type]
    return Training(options, clock)


def run(trained: Training) -> list[tuple[int, dict[str, float]]]:
    ear = Ear()
    trained.run(ear, ear, say=lambda _line: None)  # type: ignore[arg-type]
    return ear.steps


def test_corrupted_data_makes_a_spike_that_heals(tmp_path: Path) -> None:
    losses = [m["loss"] for _, m in run(training(tmp_path, (Fault("d", "corrupt_data", 20, 1.0),), ManualClock()))]
    before, during, after = np.mean(losses[180:200]), np.mean(losses[201:206]), np.mean(losses[280:])
    assert during > before + 1
    assert after < before + 0.2


def test_a_slow_down_changes_the_pace_and_nothing_else(tmp_path: Path) -> None:
    schedule = (Fault("s", "slow_down", 5, 4.0, factor=1.6),)
    steps = run(training(tmp_path / "slow", schedule, ManualClock(), steps=120)) if (tmp_path / "slow").mkdir() is None else []
    (tmp_path / "even").mkdir()
    even = run(training(tmp_path / "even", (), ManualClock(), steps=120))
    assert [m["loss"] for _, m in steps] == [m["loss"] for _, m in even]
    times = [round(m["step_time_s"], 3) for _, m in steps]
    assert set(times[:49] + times[80:]) == {0.1}
    assert set(times[52:72]) == {0.16}


def test_poisoned_weights_give_nan_losses_and_then_the_trainer_gives_up(tmp_path: Path) -> None:
    trained, ear = training(tmp_path, (Fault("n", "poison_weights", 2),), ManualClock()), Ear()
    with pytest.raises(FloatingPointError, match="5 steps in a row, at step 25"):
        trained.run(ear, ear, say=lambda _line: None)  # type: ignore[arg-type]
    assert [math.isnan(m["loss"]) for _, m in ear.steps[-6:]] == [False] + [True] * 5


def test_weights_that_are_no_numbers_are_not_saved_so_that_a_restart_does_not_begin_with_them(tmp_path: Path) -> None:
    trained, ear = training(tmp_path, (Fault("n", "poison_weights", 2),), ManualClock(), checkpoint_every=4), Ear()
    with pytest.raises(FloatingPointError):
        trained.run(ear, ear, say=lambda _line: None)  # type: ignore[arg-type]
    trained._saver.wait()  # the last one is written behind
    assert max(int(path.name.split("-")[1]) for path in (tmp_path / "checkpoints").glob("checkpoint-*")) == 20


def test_a_growing_learning_rate_diverges_with_finite_losses_until_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    schedule = (Fault("lr", "grow_learning_rate", 15, factor=20.0),)
    steps = run(training(tmp_path, schedule, clock, steps=330, hidden=64))
    losses = [m["loss"] for _, m in steps]
    assert all(math.isfinite(loss) for loss in losses)
    assert np.mean(losses[200:]) > np.mean(losses[120:148]) + 0.3
    assert steps[-1][1]["lr"] > 100 * steps[140][1]["lr"]
    restarted = training(tmp_path, schedule, clock, steps=330, hidden=64)
    restarted.resume(tmp_path / "checkpoints" / "checkpoint-150")
    assert run(restarted)[0][1]["lr"] < 0.003


def test_one_checkpoint_is_truncated_and_only_one(tmp_path: Path) -> None:
    run(training(tmp_path, (Fault("c", "truncate_checkpoint", 8, 0.0),), ManualClock(), steps=220))
    sizes = {path.name: (path / "model.safetensors").stat().st_size for path in (tmp_path / "checkpoints").iterdir()}
    whole = max(sizes.values())
    assert {name for name, size in sizes.items() if size != whole} == {"checkpoint-100"}
    assert sizes["checkpoint-100"] == whole // 2
