"""Kills at random moments, of the trainer and of the supervisor: the training finishes, once, and loses no step it need not lose."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.supervisor import small_trainer
from tests.supervisor.tools import DEADLINE_S, Place, wait_until
from trainvitals.checkpoints import inspect
from trainvitals.control.audit_chain import verify as verify_audit
from trainvitals.supervisor import process
from trainvitals.supervisor.history import load

KILLS = 100
#: A machine that is busy with other things takes its time; the number of kills stays.
KILLING_S = 900
STEPS = 6_000
EVERY = 10
ENVIRONMENT = {
    "TRAINVITALS_SUPERVISOR_BACK_OFF_S": "0.01", "TRAINVITALS_SUPERVISOR_BACK_OFF_MAX_S": "0.02", "TRAINVITALS_SUPERVISOR_GRACE_S": "1",
    "TRAINVITALS_SUPERVISOR_RESTARTS_PER_DAY": "1000", "TRAINVITALS_SUPERVISOR_DEATHS_IN_PLACE": "1000",
}  # fmt: skip


def supervise(place: Place) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(root), "XDG_STATE_HOME": str(place.path)}
    with (place.path / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable, "-c", QUICK_MAIN, "run", "--run", "small", "--run-dir", str(place.run_dir), "--checkpoints",
                str(place.checkpoints), "--", *place.command(),
            ],
            env=environment, cwd=place.path, stderr=log,
        )  # fmt: skip


#: The command line as it is, looking more often than a person needs.
QUICK_MAIN = "import sys; from trainvitals.supervisor import loop; loop.POLL_S = 0.02; from trainvitals.__main__ import main; sys.exit(main())"


def trainers(place: Place) -> list[int]:
    """Processes of the small training that run now (its keepers left out)."""
    found = []
    for pid in process.members(process.mark_of(str(place.run_dir))):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if small_trainer.__file__.encode() in line and not any(one.endswith(b"keeper.py") for one in line):
            found.append(pid)
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(KILLING_S + 200)
def test_a_hundred_kills_of_trainer_and_supervisor_lose_no_step_beyond_the_last_checkpoint(tmp_path: Path) -> None:
    generator = random.Random(7)
    place = Place(tmp_path, more=["--steps", str(STEPS), "--every", str(EVERY), "--step-s", "0.002"])
    supervisor = supervise(place)
    killed = {"trainer": 0, "supervisor": 0, "both": 0}
    until = time.monotonic() + KILLING_S
    most_at_once, dying = 0, set[int]()
    while sum(killed.values()) < KILLS and supervisor.poll() is None and time.monotonic() < until:
        time.sleep(generator.uniform(0.05, 0.35))
        running = trainers(place)
        most_at_once = max(most_at_once, len(running))
        whom = generator.choices(["trainer", "supervisor", "both"], [8, 1, 1])[0]
        if whom != "supervisor":
            # On a busy machine one that was killed may be seen again before it is gone.
            running = [pid for pid in running if pid not in dying]
            if not running:
                continue
            dying.update(running)
            for pid in running:
                kill(pid)
        if whom != "trainer":
            supervisor.kill()
            supervisor.wait()
            supervisor = supervise(place)
        killed[whom] += 1
    assert sum(killed.values()) == KILLS, (killed, (tmp_path / "supervisor.log").read_text()[-3000:])
    # What is left goes fast, so that the test ends.
    assert supervisor.wait(DEADLINE_S) == 0, (tmp_path / "supervisor.log").read_text()[-3000:]
    assert most_at_once == 1
    assert trainers(place) == []

    uninterrupted = [0.0] * small_trainer.SIZE
    for step in range(STEPS):
        small_trainer.one_step(uninterrupted, step)
    assert small_trainer.load(place.checkpoints / f"checkpoint-{STEPS}") == (STEPS, uninterrupted)
    every_start_went_on_from_the_newest_whole_checkpoint(place)
    assert len(place.history.starts) > KILLS // 2
    assert verify_audit(str(place.run_dir)).is_intact


def every_start_went_on_from_the_newest_whole_checkpoint(place: Place) -> None:
    """Between two starts no more is done again than what lies behind the newest checkpoint."""
    last = 0
    for record in place.records():
        if record["type"] == "event" and record["kind"] == "resume":
            # One save may have been cut in the middle by the kill: then the one before it counts.
            assert last - record["step"] < 2 * EVERY, (last, record)
        elif record["type"] == "step":
            last = record["step"]


def test_a_killed_supervisor_leaves_the_trainer_alone_and_the_next_one_takes_it_over(tmp_path: Path) -> None:
    place = Place(tmp_path, more=["--steps", "400", "--step-s", "0.01"])
    first = supervise(place)
    wait_until(lambda: place.last_step() > 5, "the first steps")
    (trainer,) = trainers(place)
    first.kill()
    first.wait()
    second = supervise(place)
    wait_until(lambda: "adopted" in place.states(), "the adoption")
    assert trainers(place) == [trainer]
    assert second.wait(DEADLINE_S) == 0
    (start,) = load(str(place.run_dir)).starts
    assert (start.kind, start.code, start.last_step) == ("finished", 0, 400), (
        "its exit code is known although another one started it"
    )


def test_a_trainer_that_ended_while_nobody_looked_is_judged_by_the_next_supervisor(tmp_path: Path) -> None:
    place = Place(tmp_path, more=["--steps", "30000", "--step-s", "0.005", "--faults", "oom@30"])
    first = supervise(place)
    wait_until(lambda: place.last_step() > 5, "the first steps")
    first.kill()
    first.wait()
    wait_until(lambda: not trainers(place), "the death")
    second = supervise(place)
    wait_until(lambda: len(load(str(place.run_dir)).starts) == 2, "the second start")
    second.terminate()
    assert second.wait(DEADLINE_S) == 0
    assert [one.kind for one in load(str(place.run_dir)).starts] == ["out_of_memory", "shutdown"]
    assert trainers(place) == []


def test_a_second_supervisor_of_a_run_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, more=["--steps", "30000", "--step-s", "0.01"])
    first = supervise(place)
    wait_until(lambda: place.last_step() > 0, "the first step")
    second = supervise(place)
    assert second.wait(DEADLINE_S) == 2
    assert "two would start two trainers" in (tmp_path / "supervisor.log").read_text()
    assert len(trainers(place)) == 1
    first.terminate()
    assert first.wait(DEADLINE_S) == 0


def test_a_trainer_that_ignores_sigterm_is_killed_after_the_grace_with_all_it_started(tmp_path: Path) -> None:
    place = Place(tmp_path)
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    script = (
        "import signal, subprocess, sys, time\nsignal.signal(15, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    place.command = lambda: [sys.executable, "-c", script]  # type: ignore[method-assign]
    first = supervise(place)
    log = place.run_dir / "logs" / "attempt-00001.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text(), "the trainer")
    first.terminate()
    assert first.wait(DEADLINE_S) == 0
    assert dict(process.members(process.mark_of(str(place.run_dir)))) == {}


def test_what_is_remembered_but_damaged_starts_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.run_dir / "supervisor.json").write_text('{"schema": 1, "starts": [{"number": ')
    process_ = supervise(place)
    assert process_.wait(DEADLINE_S) == 2
    assert "move it away" in (tmp_path / "supervisor.log").read_text()
    assert place.records() == []


@pytest.mark.parametrize("name", ["checkpoint-10"])
def test_the_small_trainings_checkpoints_verify(tmp_path: Path, name: str) -> None:
    small_trainer.save(tmp_path / name, 10, [1.0] * small_trainer.SIZE)
    assert inspect(str(tmp_path / name)).state.value == "verified"
    assert json.loads((tmp_path / name / "trainer_state.json").read_text())["global_step"] == 10
