"""A real Slurm loses a node, and a real small training goes on by each of the three roads.

One story for all of them, because Slurm takes its time to notice that a node is gone: four supervisors, one node that dies.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.services.influx_server import stop
from tests.services.slurm import SLURMCTLD, SLURMD, Slurm
from tests.supervisor import small_trainer
from tests.supervisor.tools import wait_until
from trainvitals.control import supervised
from trainvitals.supervisor import history, slurm_job
from trainvitals.supervisor.history import Start

ROOT = Path(__file__).resolve().parents[2]
STEPS = 300
DEADLINE_S = 200.0

SETTINGS = """
[[runs]]
name = "small"
dir = "{run_dir}"
checkpoints = ["{checkpoints}"]
[supervisor]
slurm = "{road}"
slurm_nodes = {nodes}
slurm_poll_s = 0.5
back_off_s = 0.05
verify_s = 20.0
"""

#: One rank trains, the others are there; slowly at first, so that no training is over before Slurm has seen that its node is gone.
TASK = """#!/bin/sh
if [ "$SLURM_PROCID" != 0 ]; then
    while [ ! -e "{place}/done" ]; do sleep 0.2; done
    exit 0
fi
speed=0.7
[ -s "{place}/run/starts" ] && speed=0.002
{python} -I -S {trainer} --run-dir {place}/run --checkpoints {place}/checkpoints --steps {steps} --every 2 --step-s $speed "$@"
code=$?
touch "{place}/done"
exit $code
"""

BATCH = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --time=90
exec srun {place}/task.sh "$@"
"""

REQUEUED = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --time=90 --open-mode=append
from="$(cat {place}/run/next_start/resume_from)"
exec srun {place}/task.sh ${{from:+--resume "$from"}}
"""

INSIDE = """#!/bin/sh
#SBATCH --no-kill --nodes=3 --ntasks-per-node=1 --time=50
cd {root}
srun --overlap --nodes=1 --ntasks=1 --nodelist=n1 sh -c 'while sleep 0.2; do touch {place}/beside; done' &
exec {python} -m trainvitals run --config {place}/settings.toml -- \\
    srun --nodes={{nodes}} --ntasks={{nodes}} --exclude={{exclude}} {place}/task.sh --resume {{resume_from}}
"""


@dataclass
class Training:
    """One run on a road of its own."""

    place: Path
    road: str
    slurm: Slurm
    nodes: int = 2
    supervisor: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        for name in ("run", "checkpoints"):
            (self.place / name).mkdir(parents=True)
        words = {
            "place": self.place, "python": sys.executable, "trainer": small_trainer.__file__, "steps": STEPS, "root": ROOT,
            "run_dir": self.run_dir, "checkpoints": self.place / "checkpoints", "road": self.road, "nodes": self.nodes,
        }  # fmt: skip
        script = {"allocation": INSIDE, "resubmit": BATCH, "requeue": REQUEUED}[self.road]
        for name, text in {"settings.toml": SETTINGS, "task.sh": TASK, "batch.sh": script}.items():
            (self.place / name).write_text(text.format(**words))
            (self.place / name).chmod(0o755)

    @property
    def run_dir(self) -> Path:
        return self.place / "run"

    def begin(self) -> None:
        output = f"--output={self.place}/job-%j.out"
        if self.road == "allocation":
            self.slurm.say("sbatch", output, str(self.place / "batch.sh"))
            return
        more = ["--resume", "{resume_from}"] if self.road == "resubmit" else []
        command = ["sbatch", output, str(self.place / "batch.sh"), *more]
        with (self.place / "supervisor.out").open("ab") as out:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "trainvitals", "run", "--config", str(self.place / "settings.toml"), "--", *command],
                env=self.slurm.environment, stdout=out, stderr=out, cwd=ROOT,
            )  # fmt: skip

    @property
    def starts(self) -> tuple[Start, ...]:
        return history.load(str(self.run_dir)).starts

    @property
    def job(self) -> str:
        record = slurm_job.read(str(self.run_dir))
        return record.job if record is not None else ""

    def events(self, state: str = "") -> list[dict[str, Any]]:
        path = self.run_dir / "supervisor.events.jsonl"
        told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in told if state in ("", event["data"]["state"])]

    def last_step(self) -> int:
        path = self.run_dir / "metrics.rank00000.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return max((json.loads(line).get("step", 0) for line in lines if line.endswith("}")), default=0)

    def weights(self) -> bytes:
        return (self.place / "checkpoints" / f"checkpoint-{STEPS}" / "model.safetensors").read_bytes()

    def said(self) -> str:
        texts = [path.read_text(errors="replace") for path in sorted(self.place.glob("*.out"))]
        texts += [event["data"]["state"] + ": " + event["text"] for event in self.events()]
        return f"{self.road}: " + "\n".join(texts)[-6000:]


@dataclass
class Story:
    """What was seen on the way."""

    slurm: Slurm
    trainings: dict[str, Training]
    jobs: dict[str, str]
    nodes: dict[str, tuple[str, ...]]
    left_with: int | None = None


def slurm_or_skip() -> None:
    if SLURMCTLD is None or SLURMD is None:
        text = "needs Slurm (Debian packages slurmctld, slurmd and slurm-client)"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)


def until(story: Story, holds: Any, what: str) -> None:
    try:
        wait_until(holds, what, DEADLINE_S)
    except AssertionError as error:
        told = "\n\n".join(training.said() for training in story.trainings.values())
        raise AssertionError(f"{error}\n{told}\n{story.slurm.logs()}") from None


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Four trainings begin, a follower and a supervisor are ended, a node dies, and all that can goes on to its end."""
    slurm_or_skip()
    place = tmp_path_factory.mktemp("slurm")
    slurm = Slurm(place / "slurm").start()
    trainings = {road: Training(place / road, road, slurm) for road in ("allocation", "resubmit", "requeue")}
    trainings["short"] = Training(place / "short", "allocation", slurm, nodes=3)
    told = Story(slurm, trainings, {}, {})
    try:
        for training in trainings.values():
            training.begin()
        until(told, lambda: all(one.last_step() >= 3 for one in trainings.values()), "the first steps")
        outside = [trainings["resubmit"], trainings["requeue"]]
        until(told, lambda: all(slurm_job.read(str(one.run_dir)).state == "RUNNING" for one in outside), "what runs")
        for one in outside:
            told.jobs[one.road] = one.job
            told.nodes[one.road] = slurm_job.read(str(one.run_dir)).nodes
        _end_what_follows(told)
        slurm.kill_node("n2")
        until(told, lambda: all(len(one.starts) == 2 and one.starts[-1].is_over for one in _going_on(told)), "the ends")
        until(told, lambda: bool(trainings["short"].events("held")), "the hold")
        until(told, lambda: all(one.supervisor.poll() is not None for one in outside), "the supervisors' ends")
        yield told
    finally:
        for training in trainings.values():
            if training.supervisor is not None:
                stop(training.supervisor)
        slurm.stop()


def _going_on(told: Story) -> list[Training]:
    return [training for name, training in told.trainings.items() if name != "short"]


def _end_what_follows(told: Story) -> None:
    resubmit, requeue = told.trainings["resubmit"], told.trainings["requeue"]
    os.kill(resubmit.starts[-1].pid, signal.SIGKILL)  # the keeper
    for pid in _children_named("slurm_follow", str(resubmit.run_dir)):
        os.kill(pid, signal.SIGKILL)
    requeue.supervisor.send_signal(signal.SIGTERM)
    told.left_with = requeue.supervisor.wait(60)
    for pid in _children_named("slurm_follow", str(requeue.run_dir)):
        os.kill(pid, signal.SIGKILL)  # as a reboot of the host does
    assert told.slurm.say("squeue", "-h", "-j", told.jobs["requeue"], "-o", "%T").strip() == "RUNNING"
    state = requeue.run_dir / history.STATE_FILE
    state.write_text(json.dumps({**json.loads(state.read_text()), "starts": [asdict(replace(requeue.starts[-1], host="gone"))]}))
    requeue.begin()
    until(told, lambda: all(one.events("attached") for one in (resubmit, requeue)), "new followers")


def _children_named(*words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of the same training without any trouble."""
    place = tmp_path_factory.mktemp("uninterrupted")
    subprocess.run(
        [sys.executable, "-I", "-S", small_trainer.__file__, "--run-dir", str(place), "--checkpoints", str(place / "c"), "--steps",
         str(STEPS), "--every", "2", "--step-s", "0"],
        check=True, timeout=60,
    )  # fmt: skip
    return (place / "c" / f"checkpoint-{STEPS}" / "model.safetensors").read_bytes()


def test_what_the_batch_script_began_beside_the_trainer_outlives_the_trainers_end(story: Story) -> None:
    training = story.trainings["allocation"]
    second = training.starts[1]
    assert second.first_step_ns is not None and (training.place / "beside").stat().st_mtime_ns > second.first_step_ns, (
        training.said()
    )


@pytest.mark.parametrize("road", ["allocation", "resubmit", "requeue"])
def test_a_job_that_lost_its_node_goes_on_from_its_checkpoint_to_the_same_weights(
    story: Story, uninterrupted: bytes, road: str
) -> None:
    training = story.trainings[road]
    first, second = training.starts
    assert (first.kind, second.kind) == ("node_failure", "finished"), training.said()
    assert first.bad_nodes == "n2"
    assert second.resume_step is not None and second.resume_step >= 2
    assert second.resume_step == first.safe_step
    assert training.weights() == uninterrupted


@pytest.mark.parametrize("road", ["allocation", "resubmit", "requeue"])
def test_before_the_restart_it_says_how_many_nodes_are_healthy_and_which_it_leaves_out(story: Story, road: str) -> None:
    told = story.trainings[road].events("nodes")[-1]
    if road == "allocation":
        # Slurm takes a lost node out of the job, a moment before or after its steps have ended.
        assert re.fullmatch(r"2 of [23] nodes of job 1 are healthy, and the start needs 2(; not used: n2)?", told["text"])
    else:
        assert told["text"] == "2 of 3 nodes of partition all are healthy, and the start needs 2; not used: n2"
        assert told["data"]["exclude"] == "n2"


def test_a_script_that_is_submitted_anew_is_another_job_without_the_lost_node(story: Story) -> None:
    training = story.trainings["resubmit"]
    assert story.nodes["resubmit"] == ("n1", "n2")
    assert training.job != story.jobs["resubmit"]
    assert slurm_job.read(str(training.run_dir)).nodes == ("n1", "n3")
    assert "ExcNodeList=n2" in story.slurm.say("scontrol", "show", "job", "-o", training.job)


def test_a_job_that_is_requeued_keeps_its_number_and_leaves_out_the_lost_node(story: Story) -> None:
    training = story.trainings["requeue"]
    assert training.job == story.jobs["requeue"]
    shown = story.slurm.say("scontrol", "show", "job", "-o", training.job)
    assert "Restarts=1 " in shown and "ExcNodeList=n2" in shown and "NodeList=n[1,3]" in shown


def test_with_too_few_healthy_nodes_it_holds_and_says_how_many_there_are(story: Story) -> None:
    training = story.trainings["short"]
    (held,) = training.events("held")
    assert re.search(r"not enough healthy nodes: 2 of [23] nodes of job 2 are healthy, and the start needs 3", held["text"])
    assert held["data"]["rule"] == "restart_failed"
    assert len(training.starts) == 1


def test_a_supervisor_that_is_told_to_end_leaves_the_job_alone_and_the_next_one_on_another_host_follows_it(story: Story) -> None:
    assert story.left_with == 0
    for road in ("resubmit", "requeue"):
        (attached,) = story.trainings[road].events("attached")
        assert attached["data"]["job"] == story.jobs[road]


def test_the_queue_is_a_phase_of_its_own_before_the_others(story: Story) -> None:
    for road in ("resubmit", "requeue"):
        phases = [event["data"]["phase"] for event in story.trainings[road].events("phase") if event["data"]["attempt"] == 2]
        assert phases[0] == "queue"
    inside = [event["data"]["phase"] for event in story.trainings["allocation"].events("phase")]
    assert "queue" not in inside


def test_a_way_back_that_a_person_asks_for_cancels_the_job_and_starts_another_one(story: Story, tmp_path: Path) -> None:
    training = Training(tmp_path / "back", "resubmit", story.slurm)
    training.begin()
    told = Story(story.slurm, {"back": training}, {}, {})
    try:
        until(told, lambda: training.last_step() >= 5, "five steps")
        job = training.job
        to = training.place / "checkpoints" / "checkpoint-2"
        supervised.ask_rollback(training.run_dir, "small", to=str(to), by="alice", reason="the data were wrong", source="cli")
        until(told, lambda: training.supervisor.poll() is not None, "the end")
        first, second = training.starts
        assert (first.kind, second.kind, second.resume_step) == ("rollback", "finished", 2), training.said()
        assert "JobState=CANCELLED" in story.slurm.say("scontrol", "show", "job", "-o", job)
        assert training.job != job
    finally:
        stop(training.supervisor)


def test_the_time_limit_of_a_job_is_said_once_it_is_less_than_an_hour_away(story: Story) -> None:
    limits = story.trainings["allocation"].events("time_limit_near")
    assert limits and limits[0]["severity"] == "info"
    assert 0 < limits[0]["data"]["remaining_s"] <= 3000
    assert not story.trainings["resubmit"].events("time_limit_near")
