"""What stands for a job, against commands that answer as a busy, a dead or a forgetful controller does.

The commands are programs of the test's own: a real controller does not lose an answer when it is asked to.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainvitals.clock import ManualClock, StopSignal
from trainvitals.errors import SettingsError
from trainvitals.incidents.postmortem import Cause, Postmortem
from trainvitals.settings import RunSettings, SupervisorSettings
from trainvitals.supervisor import slurm_commands, slurm_job
from trainvitals.supervisor.desk import Desk
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.roads import road_of
from trainvitals.supervisor.slurm_commands import SlurmError, UnknownJobError
from trainvitals.supervisor.slurm_follow import FAILED_CODE, LEFT_CODE, Follower, Order
from trainvitals.supervisor.slurm_job import FORGOTTEN, NOT_SUBMITTED, JobRecord
from trainvitals.supervisor.slurm_nodes import Plan

#: One program under every name: says what is next in its file, and keeps how it was called. The last answer is said again and again.
PROGRAM = """#!{python} -IS
import json, os, sys
place, name = {place!r}, os.path.basename(sys.argv[0])
with open(place + "/calls", "a") as file:
    file.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
try:
    with open(place + "/" + name + ".json") as file:
        answers = json.load(file)
except FileNotFoundError:
    answers = [[0, "", ""]]
code, out, err = answers[0]
if len(answers) > 1:
    with open(place + "/" + name + ".json", "w") as file:
        json.dump(answers[1:], file)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
SILENCE = [1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"]
GONE = [1, "", "slurm_load_jobs error: Invalid job id specified"]


def shown(state: str, id: int = 7, **more: Any) -> list[Any]:
    words = {"Reason": "None", "Restarts": 0, "ExitCode": "0:0", "NodeList": "n[1-2]", "ExcNodeList": "(null)", **more}
    return [0, f"JobId={id} JobName=x JobState={state} " + " ".join(f"{key}={value}" for key, value in words.items()), ""]


class Controller:
    """What each of Slurm's commands answers."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place / "bin"
        self.run_dir = place / "run"
        self.place.mkdir()
        self.run_dir.mkdir()
        for name in ("sbatch", "scontrol", "squeue", "sinfo", "scancel"):
            (self.place / name).write_text(PROGRAM.format(python=sys.executable, place=str(self.place)))
            (self.place / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.place}{os.pathsep}/usr/bin:/bin")

    def answers(self, **programs: list[Any]) -> None:
        for name, answers in programs.items():
            (self.place / f"{name}.json").write_text(json.dumps(answers))

    def calls(self, *words: str) -> list[list[str]]:
        path = self.place / "calls"
        made = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in made if list(words) == call[: len(words)]]

    def follower(self, **more: Any) -> Follower:
        order = Order(str(self.run_dir), 3, "ab/3.", 5.0, **more)
        return Follower(order, ["sbatch", "train.sh"], dict(os.environ), ManualClock(), _Stop())

    @property
    def record(self) -> JobRecord:
        found = slurm_job.read(str(self.run_dir))
        assert found is not None
        return found


class _Stop(StopSignal):
    def wait(self, seconds: float) -> bool:
        return self.is_set()


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(tmp_path, monkeypatch)


def test_a_job_is_submitted_followed_through_the_queue_and_ends_as_it_ended(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("PENDING", NodeList="(null)"), shown("RUNNING"), shown("COMPLETING"), shown("FAILED", ExitCode="75:0")],
        sinfo=[[0, "n1|idle|none\nn2|idle|none\n", ""]],
    )
    assert controller.follower().run() == 75
    assert (controller.record.state, controller.record.nodes, controller.record.is_over) == ("FAILED", ("n1", "n2"), True)
    (call,) = controller.calls("sbatch")
    assert call == ["sbatch", "--parsable", "--comment=trainvitals:ab/3.", "--no-requeue", "train.sh"]


def test_a_job_whose_submission_was_never_answered_is_found_and_no_second_one_is_submitted(controller: Controller) -> None:
    controller.answers(
        sbatch=[[1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"]],
        squeue=[[0, "", ""], [0, "5|(null)\n7|trainvitals:ab/3.\n", ""]],
        scontrol=[shown("COMPLETED")],
    )
    assert controller.follower().run() == 0
    assert len(controller.calls("sbatch")) == 1 and controller.record.job == "7"


def test_a_submission_that_is_refused_is_not_tried_again_and_the_reason_is_told(controller: Controller) -> None:
    controller.answers(sbatch=[[1, "", "sbatch: error: Batch job submission failed: Invalid account"]])
    assert controller.follower().run() == FAILED_CODE
    assert len(controller.calls("sbatch")) == 1
    assert controller.record.state == NOT_SUBMITTED and controller.record.told is not None
    assert "Invalid account" in controller.record.told.text


def test_from_a_controller_that_does_not_answer_nothing_is_concluded(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("RUNNING"), SILENCE, [1, "", "fork failed"], [0, "", ""], SILENCE, shown("RUNNING"), shown("COMPLETED")],
    )
    assert controller.follower().run() == 0
    assert controller.record.trouble == ""


def test_a_job_that_slurm_has_forgotten_ended_and_nobody_knows_how(controller: Controller) -> None:
    controller.answers(sbatch=[[0, "7\n", ""]], scontrol=[shown("RUNNING"), GONE])
    controller.follower().run()
    assert controller.record.state == FORGOTTEN and controller.record.code is None


def test_nodes_to_leave_out_are_added_to_those_of_the_script_before_the_job_may_start(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]], scontrol=[shown("PENDING", ExcNodeList="n[8-9]"), [0, "", ""], [0, "", ""], shown("COMPLETED")]
    )
    controller.follower(exclude="n2").run()
    assert "--hold" in controller.calls("sbatch")[0]
    assert controller.calls("scontrol", "update") == [["scontrol", "update", "JobId=7", "ExcNodeList=n2,n8,n9"]]
    assert controller.calls("scontrol", "release") == [["scontrol", "release", "7"]]


def test_a_job_of_an_earlier_start_that_still_runs_is_ended_before_the_new_one_is_submitted(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("RUNNING", 4), shown("COMPLETING", 4), shown("CANCELLED", 4), shown("COMPLETED")],
    )
    assert controller.follower(previous="4").run() == 0
    names = [call[0] for call in controller.calls()]
    assert names.index("scancel") < names.index("sbatch") and controller.calls("scancel") == [["scancel", "4"]]
    assert names[: names.index("sbatch")].count("scontrol") == 3


def test_a_job_that_cannot_be_requeued_is_submitted_anew(controller: Controller) -> None:
    controller.answers(sbatch=[[0, "7\n", ""]], scontrol=[GONE, GONE, shown("COMPLETED")])
    assert controller.follower(previous="4", is_requeue=True).run() == 0
    assert "--requeue" in controller.calls("sbatch")[0]


def test_a_job_that_slurm_put_back_by_itself_is_held_until_somebody_decides(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("RUNNING"), shown("PENDING", Restarts=1, NodeList="(null)"), [0, "", ""]],
        sinfo=[[0, "n1|idle|none\nn2|down*|Not responding\nn3|down|other\n", ""]],
    )
    assert controller.follower(is_requeue=True).run() == FAILED_CODE
    assert controller.calls("scontrol", "hold") == [["scontrol", "hold", "7"]]
    assert controller.record.lost_nodes == ("n2",)
    assert controller.record.told is not None and controller.record.told.kind == "node_failure"


def test_a_controller_that_was_restarted_and_remembers_less_ends_no_job_and_blames_no_node(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[
            shown("RUNNING"),
            SILENCE,
            shown("PENDING", NodeList="(null)"),
            shown("RUNNING"),
            shown("FAILED", ExitCode="1:0"),
        ],
        sinfo=[[0, "n1|unknown*|none\nn2|idle*|none\n", ""]],
    )
    assert controller.follower(is_requeue=True).run() == FAILED_CODE
    assert (controller.record.state, controller.record.lost_nodes) == ("FAILED", ())
    assert not controller.calls("scontrol", "hold")


def test_a_job_that_runs_again_before_anybody_looked_is_put_back_and_one_that_cannot_be_is_ended(controller: Controller) -> None:
    refused = [1, "", "Job is no longer pending execution for job 7"]
    for more in ([0, "", ""], [1, "", "Requested operation is presently disabled for job 7"]):
        controller.answers(
            sbatch=[[0, "7\n", ""]], scontrol=[shown("RUNNING"), shown("RUNNING", Restarts=1), refused, more], sinfo=[[0, "", ""]]
        )
        assert controller.follower(is_requeue=True).run() == FAILED_CODE
    assert controller.calls("scontrol", "requeuehold") == [["scontrol", "requeuehold", "7"]] * 2
    assert controller.calls("scancel") == [["scancel", "7"]]


def test_a_follower_that_comes_back_finds_its_job_by_its_comment(controller: Controller) -> None:
    slurm_job.write(str(controller.run_dir), JobRecord(3))
    controller.answers(squeue=[[0, "9|trainvitals:ab/3.\n", ""]], scontrol=[shown("RUNNING", 9), shown("COMPLETED", 9)])
    assert controller.follower(is_attach=True).run() == 0
    assert controller.record.job == "9" and not controller.calls("sbatch")


def test_a_follower_that_comes_back_and_finds_nothing_says_that_nothing_was_submitted(controller: Controller) -> None:
    slurm_job.write(str(controller.run_dir), JobRecord(3))
    controller.answers(squeue=[[0, "9|other\n", ""]])
    assert controller.follower(is_attach=True).run() == FAILED_CODE
    assert controller.record.is_over and "never submitted" in controller.record.trouble


def test_to_cancel_ends_the_job_and_to_leave_does_not(controller: Controller) -> None:
    controller.answers(sbatch=[[0, "7\n", ""]], scontrol=[shown("RUNNING"), shown("RUNNING"), shown("CANCELLED")])
    follower = controller.follower()
    follower.cancel()
    follower.run()
    assert controller.calls("scancel") == [["scancel", "7"]] and controller.record.state == "CANCELLED"
    controller.answers(scontrol=[shown("RUNNING")])
    follower = controller.follower()
    follower.leave()
    assert follower.run() == LEFT_CODE
    assert len(controller.calls("scancel")) == 1 and not controller.record.is_over


def test_a_command_that_hangs_is_given_up_and_one_that_is_not_there_is_named(controller: Controller) -> None:
    (controller.place / "sinfo").write_text("#!/bin/sh\nsleep 100 & wait\n")
    with pytest.raises(SlurmError, match="did not answer") as caught:
        slurm_commands.run(["sinfo"], 0.2)
    assert caught.value.is_silence
    with pytest.raises(SlurmError, match="Cannot run scontro"):
        slurm_commands.run(["scontro"])
    controller.answers(scontrol=[GONE])
    with pytest.raises(UnknownJobError):
        slurm_commands.show_job("7")


def test_no_text_is_taken_for_a_job(controller: Controller) -> None:
    for strange in ("", "7; reboot", "-1", "7,8", "all"):
        with pytest.raises(Exception, match="no number of a job"):
            slurm_commands.cancel(strange)
    assert not controller.calls("scancel")


def road(controller: Controller, slurm: str, command: list[str], **environment: str) -> Any:
    run, clock = RunSettings(name="small", dir=str(controller.run_dir)), ManualClock()
    return road_of(run, SupervisorSettings(slurm=slurm), clock, Desk(run, clock), environment, command), clock


def test_a_command_that_a_road_cannot_use_is_refused_at_once(controller: Controller) -> None:
    for slurm, command, words in [
        ("resubmit", ["torchrun", "x"], "begins with sbatch"),
        ("requeue", ["sbatch", "x.sh", "{resume_from}"], "next_start"),
        ("allocation", ["srun", "x"], "needs a job"),
    ]:
        with pytest.raises(SettingsError, match=words):
            road(controller, slurm, command)


def test_a_job_that_is_requeued_is_told_by_files_only_because_its_environment_stays_what_it_was(controller: Controller) -> None:
    start, plan = Start(2, 0, "/c/checkpoint-20", 20), Plan("n2", 2)
    for name, told in (("requeue", {}), ("resubmit", {"TRAINVITALS_RESUME_FROM": "/c/checkpoint-20"})):
        own, _ = road(controller, name, ["sbatch", "x.sh"])
        assert {key: value for key, value in own.variables(start, plan).items() if "FROM" in key} == told
        assert own.command(["sbatch", "x.sh"], start, plan, "ab/2.")[-2:] == ["sbatch", "x.sh"]
        texts = {path.name: path.read_text() for path in (controller.run_dir / "next_start").iterdir()}
        assert texts == {"resume_from": "/c/checkpoint-20\n", "step": "20\n", "skip_samples": "", "exclude": "n2\n"}
        own.command(["sbatch", "x.sh"], Start(3, 0), Plan(), "ab/3.")
        assert (controller.run_dir / "next_start" / "resume_from").read_text() == ""


def test_in_an_allocation_a_node_in_doubt_is_looked_at_again_before_anything_starts(controller: Controller) -> None:
    controller.answers(
        scontrol=[shown("RUNNING", NodeList="n[1-3]")],
        sinfo=[[0, "n1|mixed|none\nn2|mixed*|none\nn3|mixed|none\n", ""]],
        squeue=[[0, "7.0|2026-01-02T03:04:05\n7.batch|N/A\n", ""], [0, "7.batch|N/A\n", ""]],
    )
    own, clock = road(controller, "allocation", ["srun"], SLURM_JOB_ID="7")
    history = History((Start(1, 0, nodes=2, ended_ns=1),))
    assert own.plan(history).is_pending and controller.calls("scancel") == [["scancel", "7.0"]]
    clock.advance(20)
    assert own.plan(history).is_pending, "one look only"
    assert own.plan(history).is_pending, "too soon"
    clock.advance(20)
    plan = own.plan(history)
    assert (plan.exclude, plan.nodes, plan.is_pending) == ("n2", 2, False)


def test_the_host_that_the_logs_blame_is_avoided_and_a_person_is_shown_how_to_drain_it(controller: Controller) -> None:
    controller.answers(
        scontrol=[shown("RUNNING", NodeList="n[1-3]")],
        squeue=[[0, "", ""]],
        sinfo=[[0, "n1|mixed|none\nn2|mixed|none\nn3|mixed|none\n", ""]],
    )
    own, clock = road(controller, "allocation", ["srun"], SLURM_JOB_ID="7")
    assert own.plan(History()).exclude == ""
    start = Start(1, clock.time_ns(), ended_ns=clock.time_ns(), nodes=2, kind="gpu_error")
    assert own.ended(start, 1).scheduler is None
    cause = Cause("gpu_error", "GPU error", "uncorrectable ECC error", "n2.cluster.local", 9, "", None, "a.log")
    start = own.blame(start, Postmortem(1, cause, {}, 0, ()))
    assert start.bad_nodes == "n2"
    events = [json.loads(line) for line in (controller.run_dir / "supervisor.events.jsonl").read_text().splitlines()]
    assert "scontrol update nodename=n2 state=drain reason='small: gpu_error'" in events[-1]["text"]
    assert not controller.calls("scontrol", "update")
    plan = own.plan(History((start,)))
    assert (plan.exclude, plan.nodes, plan.refusal) == ("n2", 2, "")
    other = Start(1, 0, kind="nccl_timeout")
    assert own.blame(other, Postmortem(1, replace(cause, kind="nccl_timeout"), {}, 0, ())) == other


def test_a_record_that_cannot_be_read_starts_nothing_because_a_job_may_be_hidden_in_it(controller: Controller) -> None:
    (controller.run_dir / slurm_job.JOB_FILE).write_text("{")
    own, _ = road(controller, "resubmit", ["sbatch", "x.sh"])
    start = Start(1, 0, pid=1, began=1)
    assert own.plan(History((start,))).is_pending
    assert own.again(start) is not None
