"""Jobs that are there although nobody was told so, and what a job's own texts must not do; commands of the test's own answer."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.supervisor.test_slurm_follow import Controller, road, shown
from tests.supervisor.tools import wait_until
from trainvitals.supervisor import slurm_job, slurm_text
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.slurm_job import NOT_SUBMITTED

REFUSED = "sbatch: error: Batch job submission failed: "


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "said",
    [
        "Zero Bytes were transmitted or received", "Message receive failure", "Communication connection failure", "Unspecified error",
        "Slurm backup controller in standby mode", "Unexpected message received", "Communication shutdown failure", "a text of the future",
    ],
)  # fmt: skip
def test_a_submission_that_failed_in_any_words_is_looked_for_before_a_second_one(controller: Controller, said: str) -> None:
    controller.answers(
        sbatch=[[1, "", REFUSED + said]], squeue=[[0, "", ""], [0, "7|trainvitals:ab/3.\n", ""]], scontrol=[shown("COMPLETED")]
    )
    assert controller.follower().run() == 0
    assert len(controller.calls("sbatch")) == 1 and controller.record.job == "7"


def test_a_submission_that_was_killed_is_looked_for(controller: Controller) -> None:
    controller.answers(squeue=[[0, "", ""], [0, "7|trainvitals:ab/3.\n", ""]], scontrol=[shown("COMPLETED")])
    (controller.place / "sbatch").write_text("#!/bin/sh\nkill -9 $$\n")
    assert controller.follower().run() == 0
    assert controller.record.job == "7"


def test_a_job_of_an_earlier_start_that_nobody_knows_of_is_ended_before_a_new_one(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        squeue=[[0, "4|trainvitals:ab/2.\n5|trainvitals:cd/2.\n6|trainvitals:abc/2.\n", ""]],
        scontrol=[shown("RUNNING", 4), shown("CANCELLED", 4), shown("COMPLETED")],
    )
    assert controller.follower().run() == 0
    assert controller.calls("scancel") == [["scancel", "4"]]


@pytest.mark.parametrize("own", ["bgq[0000x1333]", "gpu[0-3x]", "n1,,n2"])
def test_nodes_of_a_form_that_only_slurm_reads_stay_left_out_and_the_job_is_let_go(controller: Controller, own: str) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("PENDING", ExcNodeList=own, Reason="JobHeldUser"), [0, "", ""], [0, "", ""], shown("COMPLETED")],
    )
    assert controller.follower(exclude="n9").run() == 0
    assert controller.calls("scontrol", "update") == [["scontrol", "update", "JobId=7", f"ExcNodeList={own},n9"]]
    assert controller.calls("scontrol", "release") == [["scontrol", "release", "7"]]


def test_a_job_that_cannot_be_let_go_is_ended_instead_of_waiting_for_ever(controller: Controller) -> None:
    controller.answers(
        sbatch=[[0, "7\n", ""]],
        scontrol=[shown("PENDING", Reason="JobHeldUser"), [1, "", "slurm_update error: Invalid node name specified"]],
    )
    assert controller.follower(exclude="n9").run() == 1
    assert controller.calls("scancel") == [["scancel", "7"]] and controller.record.state == NOT_SUBMITTED


def test_the_name_of_a_job_tells_nothing_of_its_state() -> None:
    line = "JobId=7 JobName=x JobState=COMPLETED ExitCode=0:0 UserId=a(1) GroupId=a(1) JobState=RUNNING Reason=None ExitCode=1:0 NodeList=n1"
    found = slurm_text.job(line)
    assert found is not None and (found.id, found.state, found.exit_code, found.node_list) == ("7", "RUNNING", 1, "n1")


def test_the_jobs_of_another_directory_at_the_same_path_are_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    before = slurm_job.mark_of(str(tmp_path / "run"))
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    (tmp_path / "run").mkdir()
    assert slurm_job.mark_of(str(tmp_path / "run")) != before


def test_steps_that_the_trainer_did_not_begin_are_left_alone(controller: Controller, tmp_path: Path) -> None:
    """What the batch script began beside it, and a person's shell on a node: their ``srun`` lives, or is on another host."""
    srun = tmp_path / "srun"
    srun.symlink_to("/bin/sleep")
    other = subprocess.Popen([str(srun), "600"])
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    here = socket.gethostname().partition(".")[0]
    began = {"7.0": f"{here}:{other.pid}", "7.1": "login1:77", "7.2": f"{here}:{gone.pid}"}
    steps = "".join(f"StepId={id} UserId=0 State=RUNNING Name=a SrunHost:Pid=x SrunHost:Pid={of}\n" for id, of in began.items())
    try:
        wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "srun\n", "its name")
        controller.answers(
            scontrol=[[0, steps, ""]],
            squeue=[[0, "".join(f"{id}|2026-01-02T03:04:05\n" for id in began), ""]],
            sinfo=[[0, "", ""]],
        )
        own, _ = road(controller, "allocation", ["srun"], SLURM_JOB_ID="7")
        assert own.plan(History((Start(1, 0, nodes=2, ended_ns=1),))).is_pending
        assert controller.calls("scancel") == [["scancel", "7.2"]]
    finally:
        other.kill()
        other.wait()
