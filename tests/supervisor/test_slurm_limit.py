"""A job's time limit as people and the trainer hear of it, and its time in the queue: real files, a clock of the test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainvitals.clock import ManualClock
from trainvitals.control import ControlStatus, files, read_request
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import slurm_job
from trainvitals.supervisor.desk import Desk
from trainvitals.supervisor.history import Start
from trainvitals.supervisor.process import Process
from trainvitals.supervisor.progress import job_log_of
from trainvitals.supervisor.road import Road
from trainvitals.supervisor.roads import road_of
from trainvitals.supervisor.running import Running, log_of
from trainvitals.supervisor.slurm_job import JobRecord
from trainvitals.supervisor.slurm_road import SlurmRoad

S = 10**9


class Place:
    """A run with a trainer that has its hook; ``tend`` is one turn of its supervisor."""

    def __init__(self, run_dir: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.run = RunSettings(name="small", dir=str(run_dir))
        self.run_dir, self.settings = run_dir, SupervisorSettings(**settings)
        files.make_directories(run_dir)
        log_of(str(run_dir), 1).parent.mkdir()
        self.road = SlurmRoad(self.run, self.settings, self.clock, Desk(self.run, self.clock))
        self.ends_at_ns = self.clock.time_ns() + 7200 * S
        self.running = Running(self.run, self.settings, Start(1, 0, last_step=5), Process(1, 1), "mark", self.clock, Road())

    def tells(self, *records: dict[str, Any]) -> None:
        with (self.run_dir / "metrics.rank00000.jsonl").open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def says(self, state: str) -> None:
        status = ControlStatus(run="small", state=state, heartbeat_ns=self.clock.time_ns())
        files.replace(self.run_dir / "control" / files.STATUS_FILE, status.to_json().encode(), files.STATUS_MODE)

    def tend(self, left_s: float, state: str = "running") -> None:
        self.clock.advance((self.ends_at_ns - self.clock.time_ns()) / S - left_s)
        self.says(state)
        self.running.look()
        self.road._tend_limit(self.running, "77", self.ends_at_ns)

    def states(self) -> list[tuple[str, str]]:
        path = self.run_dir / "supervisor.events.jsonl"
        told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [(event["data"]["state"], event["severity"]) for event in told]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def save(at_ns: int, seconds: float) -> list[dict[str, Any]]:
    event = {"type": "event", "kind": "phase", "step": 4}
    return [
        {**event, "time_ns": at_ns, "data": {"phase": "checkpoint", "state": "begin"}},
        {**event, "time_ns": at_ns + round(seconds * S), "data": {"phase": "checkpoint", "state": "end"}},
    ]


def test_it_is_said_twice_and_the_trainer_is_asked_for_a_last_checkpoint_once(place: Place) -> None:
    for left_s in (4000, 3500, 3000, 800, 500, 119, 60, 30):
        place.tend(left_s)
    assert place.states() == [("time_limit_near", "info"), ("time_limit_near", "warning"), ("save_asked", "info")]
    request = read_request(place.run_dir)
    assert request is not None
    assert (request.checkpoint_request, request.desired, request.by) == (1, "running", "supervisor")
    assert "time limit of job 77 is 119 s away" in request.reason


def test_a_save_that_takes_long_is_asked_for_earlier(place: Place) -> None:
    now_ns = place.clock.time_ns()
    place.tells(
        {"type": "header", "schema": 1, "run": "small", "pid": 1, "host": "h", "started_ns": now_ns, "rank": 0, "world_size": 1}
    )
    place.tells(*save(now_ns, 200.0), *save(now_ns + 900 * S, 220.0), *save(now_ns + 1800 * S, 240.0))
    place.tend(570)
    assert place.running.progress.save_s() == 220.0
    assert ("save_asked", "info") not in place.states()
    place.tend(550)
    assert ("save_asked", "info") in place.states()


def test_a_trainer_that_is_paused_or_does_not_hear_is_not_asked(place: Place) -> None:
    place.tend(100, state="paused")
    place.clock.advance(5)
    assert ("save_asked", "info") not in place.states()
    place.tend(90)
    assert ("save_asked", "info") in place.states()


def test_a_limit_that_a_person_moved_is_said_anew(place: Place) -> None:
    place.tend(600)
    place.ends_at_ns += 7200 * S
    place.tend(3000)
    assert place.states() == [("time_limit_near", "warning"), ("time_limit_near", "info")]


def test_a_new_start_within_the_same_job_hears_it_again(place: Place) -> None:
    place.tend(600)
    place.road.begun(Start(2, 0))
    place.tend(500)
    assert place.states() == [("time_limit_near", "warning")] * 2


def test_what_the_settings_turn_off_is_not_said(tmp_path: Path) -> None:
    place = Place(tmp_path, limit_info_s=0.0, limit_warning_s=0.0, save_before_limit=False)
    for left_s in (3000, 500, 50):
        place.tend(left_s)
    assert place.states() == []


def test_a_wait_in_the_queue_is_no_hang_and_the_time_to_the_first_step_counts_from_its_end(place: Place) -> None:
    run, clock = place.run, place.clock
    road = road_of(run, SupervisorSettings(slurm="resubmit"), clock, Desk(run, clock), {}, ["sbatch", "x.sh"])
    running = Running(run, place.settings, Start(1, 0, road="resubmit"), Process(1, 1), "mark", clock, road)
    for _ in range(10):
        slurm_job.write(run.dir, JobRecord(1, "7", "PENDING"))
        clock.advance(3000)
        running.look()
        assert running.hangs() == ""
    slurm_job.write(run.dir, JobRecord(1, "7", "RUNNING", is_waiting=False, node_count=2, started_ns=clock.time_ns()))
    clock.advance(3000)
    running.look()
    assert running.hangs() == "" and running.start.running_ns is not None and running.start.nodes == 2
    clock.advance(3601)
    running.look()
    assert "no first step" in running.hangs()


def test_what_a_job_prints_is_read_but_not_where_an_earlier_start_printed_into_the_same_file(place: Place) -> None:
    run, clock = place.run, place.clock
    output = place.run_dir / "job.out"
    output.write_text("")
    for number, is_linked in ((1, True), (2, False)):
        road = road_of(run, SupervisorSettings(slurm="resubmit"), clock, Desk(run, clock), {}, ["sbatch", "x.sh"])
        record = JobRecord(number, "7", "RUNNING", is_waiting=False, started_ns=clock.time_ns(), output=str(output))
        slurm_job.write(run.dir, record)
        start = Start(number, 0, road="resubmit")
        road.look(start)
        assert job_log_of(log_of(run.dir, number)).is_symlink() is is_linked
        assert road.logs(start) == [str(output)]
