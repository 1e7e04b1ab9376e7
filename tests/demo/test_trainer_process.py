"""The demo's trainer as a process: it obeys the control file, and its supervisor picks a checkpoint that verifies."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainvitals import control
from trainvitals.checkpoints.hash_store import HashStore
from trainvitals.clock import StopSignal, SystemClock
from trainvitals.demo.command import trainer_command
from trainvitals.incidents.rollback import RollbackInputs
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor.choice import choose
from trainvitals.supervisor.loop import Supervisor

SMALL = ["--batch", "16", "--hidden", "8", "--text-bytes", "20000", "--step-time-s", "0.005", "--checkpoint-every", "20"]
DEADLINE_S = 60.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        if is_so():
            return
        pause.wait(0.05)
    pytest.fail(f"Waited {DEADLINE_S:g} s in vain for: {what}")


def records(run_dir: Path) -> list[dict[str, object]]:
    path = run_dir / "metrics.rank00000.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def newest_verified(directory: Path) -> Path | None:
    """What a supervisor would go on from."""
    report = choose([str(directory)], RollbackInputs(()), HashStore(None), SystemClock(), 30).report
    return None if report is None else Path(report.path)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def start(tmp_path: Path, run_dir: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(*more: str) -> subprocess.Popen[bytes]:
        command = trainer_command(run_dir, tmp_path / "checkpoints", "demo", "none", [*SMALL, *more])
        with (tmp_path / "out.txt").open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def ask(run_dir: Path, action: str) -> None:
    control.submit(run_dir, "demo", action=action, by="a person", source="cli", reason="a test")


def state(run_dir: Path) -> str:
    try:
        status = control.read_status(run_dir)
    except FileNotFoundError:
        return ""
    return "" if status is None else status.state


def test_a_short_training_ends_well_and_logs_every_step(start: Callable[..., subprocess.Popen[bytes]], run_dir: Path) -> None:
    assert start("--steps", "40").wait(DEADLINE_S) == 0
    assert [r["step"] for r in records(run_dir) if "loss" in json.dumps(r) and "step" in r and r.get("kind") is None][-1] == 40
    assert [r["data"]["reason"] for r in records(run_dir) if r.get("kind") == "attempt_end"] == ["finished"]
    assert "iter 40: loss " in (run_dir.parent / "out.txt").read_text()
    assert newest_verified(run_dir.parent / "checkpoints") == run_dir.parent / "checkpoints" / "checkpoint-40"


def test_it_pauses_with_a_checkpoint_goes_on_and_stops_when_asked(
    start: Callable[..., subprocess.Popen[bytes]], run_dir: Path, tmp_path: Path
) -> None:
    process = start("--steps", "1000000")
    wait_until(lambda: len(records(run_dir)) > 10, "the first steps")
    ask(run_dir, "pause")
    wait_until(lambda: state(run_dir) == "paused", "the pause")
    status = control.read_status(run_dir)
    assert status is not None
    paused_at = max(int(r["step"]) for r in records(run_dir) if isinstance(r.get("step"), int))  # type: ignore[call-overload]
    assert newest_verified(tmp_path / "checkpoints") == tmp_path / "checkpoints" / f"checkpoint-{paused_at}"
    ask(run_dir, "resume")
    wait_until(
        lambda: any(isinstance(r.get("step"), int) and int(r["step"]) > paused_at for r in records(run_dir)),  # type: ignore[call-overload]
        "steps after the pause",
    )
    ask(run_dir, "stop")
    assert process.wait(DEADLINE_S) == 0
    assert state(run_dir) == "stopped"


def test_a_stopped_run_does_not_start_again(start: Callable[..., subprocess.Popen[bytes]], run_dir: Path, tmp_path: Path) -> None:
    ask(run_dir, "stop")
    assert start("--steps", "40").wait(DEADLINE_S) == 0
    assert "a person" in (tmp_path / "out.txt").read_text()
    assert not (tmp_path / "checkpoints").exists() or not list((tmp_path / "checkpoints").iterdir())


def test_sigterm_ends_it_at_once_also_in_a_pause(start: Callable[..., subprocess.Popen[bytes]], run_dir: Path) -> None:
    process = start("--steps", "1000000")
    wait_until(lambda: len(records(run_dir)) > 10, "the first steps")
    ask(run_dir, "pause")
    wait_until(lambda: state(run_dir) == "paused", "the pause")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 143


def test_the_supervisor_goes_on_from_the_verified_checkpoint_not_from_the_truncated_one(tmp_path: Path, run_dir: Path) -> None:
    schedule = tmp_path / "schedule.json"
    schedule.write_text(
        json.dumps(
            [
                {"name": "c", "kind": "truncate_checkpoint", "at_s": 1.5, "duration_s": 0},
                {"name": "n", "kind": "poison_weights", "at_s": 1.5, "after": "c"},
            ]
        )
    )
    checkpoints = tmp_path / "checkpoints"
    # Slow enough that whole checkpoints exist before the truncated one, whatever the machine does meanwhile.
    more = [*SMALL, "--steps", "400", "--step-time-s", "0.01", "--resume-from", "{resume_from}"]
    run = RunSettings(name="demo", dir=str(run_dir), checkpoints=(str(checkpoints),))
    command = trainer_command(run_dir, checkpoints, "demo", str(schedule), more)
    supervisor = Supervisor(run, SupervisorSettings(back_off_s=0.01), command, SystemClock(), StopSignal(), poll_s=0.05)
    assert supervisor.run() == 0
    first, second = ((run_dir / "logs" / f"attempt-{n:05d}.log").read_text() for n in (1, 2))
    assert "FloatingPointError" in first
    truncated = json.loads((run_dir / "demo_faults.json").read_text())["begun"]["c"]["step"]
    assert f"checkpoint-{truncated - 20} at step {truncated - 20}" in second
    assert "iter 400:" in second
