"""Which nodes a start leaves out, whether enough are left, when a time limit is said; pure."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import InputError
from trainvitals.settings import SupervisorSettings
from trainvitals.supervisor import slurm_job
from trainvitals.supervisor.command import filled, variables
from trainvitals.supervisor.exits import Evidence, Scheduler, classify
from trainvitals.supervisor.history import History, Start
from trainvitals.supervisor.recovery import phases, usual_s
from trainvitals.supervisor.slurm_job import JobRecord
from trainvitals.supervisor.slurm_nodes import (
    BLAMED_NS,
    bad_nodes,
    blamed,
    drain_command,
    has_doubt,
    in_allocation,
    in_partition,
    node_named,
)  # fmt: skip
from trainvitals.supervisor.slurm_text import Job, Node
from trainvitals.supervisor.time_limit import Said, due, wants_save

S = 10**9
T = 1_800_000_000 * S
SETTINGS = SupervisorSettings()


def look(**states: str) -> dict[str, Node]:
    return {name: Node(name, state.rstrip("*"), not state.endswith("*")) for name, state in states.items()}


def test_a_node_that_does_not_respond_once_is_in_doubt_and_twice_it_is_bad() -> None:
    first = look(n1="idle", n2="idle*", n3="down*")
    assert bad_nodes([first]) == ("n3",)
    assert has_doubt(first, ["n1", "n2"]) and not has_doubt(first, ["n1", "n3"])
    assert bad_nodes([first, look(n1="idle", n2="idle*", n3="down*")]) == ("n2", "n3")
    assert bad_nodes([first, look(n1="idle*", n2="idle", n3="idle")]) == ()


def test_the_host_of_a_log_is_a_node_as_it_stands_or_without_its_domain() -> None:
    assert node_named("n1.cluster.local", ["n1", "n2"]) == "n1"
    assert node_named("n1", ["n1"]) == "n1"
    assert node_named("other", ["n1"]) == "" and node_named(None, ["n1"]) == "" and node_named("n1; reboot", ["n1; reboot"]) == ""


def test_nodes_are_blamed_for_a_day_or_until_a_person_lets_a_run_go_on_that_holds() -> None:
    ended = Start(1, T, ended_ns=T, bad_nodes="n2,n3")
    assert blamed(History((ended,)), T + S) == ("n2", "n3")
    assert blamed(History((ended,)), T + BLAMED_NS + S) == ()
    assert blamed(History((ended,), forgiven=1), T + 2 * S) == ()
    assert blamed(History((Start(1, T, ended_ns=T, bad_nodes="x;y"),)), T) == ()


def test_in_an_allocation_spares_take_the_place_of_lost_nodes_and_too_few_are_refused_in_words() -> None:
    plan = in_allocation(["n1", "n2", "n3"], ["n2"], [], 2, "77")
    assert (plan.exclude, plan.nodes, plan.refusal) == ("n2", 2, "")
    assert plan.sentence == "2 of 3 nodes of job 77 are healthy, and the start needs 2; not used: n2"
    refused = in_allocation(["n1", "n2", "n3"], ["n2"], ["n1"], 2, "77").refusal
    assert refused.startswith(
        "not enough healthy nodes: 1 of 3 nodes of job 77 are healthy, and the start needs 2; not used: n1, n2"
    )
    assert in_allocation(["n1", "n2"], [], [], 0, "77").nodes == 2
    assert in_allocation([], [], [], 0, "77").refusal


def test_a_job_waits_for_nodes_that_slurm_takes_for_bad_but_not_for_those_that_only_we_avoid() -> None:
    nodes = ["n1", "n2", "n3"]
    waits = in_partition(nodes, ["n2", "n3"], [], 2, "all")
    assert waits.refusal == "" and "waits in the queue" in waits.sentence and waits.exclude == ""
    refused = in_partition(nodes, [], ["n2", "n3"], 2, "all")
    assert "1 of 3 nodes of partition all are healthy, and the start needs 2; not used: n2, n3" in refused.refusal
    assert in_partition(nodes, [], ["n3", "elsewhere"], 2, "all").exclude == "n3"


@given(st.text(max_size=200))
def test_the_command_that_is_shown_is_one_command_whatever_the_reason_is(reason: str) -> None:
    words = shlex.split(drain_command("n1", reason))
    assert words[:4] == ["scontrol", "update", "nodename=n1", "state=drain"] and len(words) == 5
    assert words[4].startswith("reason=") and "'" not in words[4]


def test_what_a_command_says_of_nodes_is_left_out_where_there_is_nothing_to_say() -> None:
    command = ["srun", "--nodes={nodes}", "--exclude={exclude}", "train"]
    assert filled(command, None, None, "", "n1,n2", 3) == ["srun", "--nodes=3", "--exclude=n1,n2", "train"]
    assert filled(command, None, None) == ["srun", "train"]
    assert variables(None, None, "", "n1", 3) == {"TRAINVITALS_EXCLUDE_NODES": "n1", "TRAINVITALS_NODES": "3"}


@pytest.mark.parametrize(
    ("state", "kind"),
    [("NODE_FAIL", "node_failure"), ("TIMEOUT", "time_limit"), ("PREEMPTED", "preempted"), ("FAILED", "unknown"), ("CANCELLED", "cancelled")],
)  # fmt: skip
def test_the_state_of_a_job_tells_why_it_ended(state: str, kind: str) -> None:
    record = JobRecord(1).seen(Job("7", state, exit_code=1, node_list="n[1-2]"), T)
    assert record.is_over and record.code == 1
    assert classify(Evidence(record.code, scheduler=record.told)).kind == kind


def test_a_job_that_was_put_back_because_of_its_node_is_a_failure_of_that_node() -> None:
    record = JobRecord(1, "7", slurm_job.STARTED_ANEW, is_over=True, lost_nodes=("n2",))
    assert record.told == Scheduler("node_failure", "job 7: started anew, lost n2", True)
    assert JobRecord(1, "7", slurm_job.STARTED_ANEW, is_over=True).told == Scheduler("preempted", "job 7: started anew", True)


def test_what_nobody_knows_of_a_job_is_no_exit_code() -> None:
    assert JobRecord(1, "7", slurm_job.FORGOTTEN, is_over=True).code is None
    assert JobRecord(1, "7", "COMPLETED", is_over=True).code == 0
    assert JobRecord(1, "7", "FAILED", is_over=True, exit_code=75).code == 75
    assert JobRecord(1, "7", "FAILED", is_over=True, exit_signal=9).code == 137


def test_a_record_comes_back_from_its_file_and_a_strange_one_is_refused(tmp_path: Path) -> None:
    assert slurm_job.read(str(tmp_path)) is None
    record = JobRecord(3, "77", "RUNNING", node_list="n[1-2]", started_ns=T, lost_nodes=("n2",))
    slurm_job.write(str(tmp_path), record)
    assert slurm_job.read(str(tmp_path)) == record
    for strange in ("{", "[]", "{}", '{"attempt": 1, "job": "1; reboot"}', '{"attempt": "1"}', '{"attempt": 1, "node_list": 5}', '{"attempt": 1, "job": null}'):  # fmt: skip
        (tmp_path / slurm_job.JOB_FILE).write_text(strange)
        with pytest.raises(InputError, match="look with squeue"):
            slurm_job.read(str(tmp_path))


def test_a_wait_in_the_queue_has_its_usual_time_where_there_is_a_queue() -> None:
    def start(number: int, running: int | None, road: str = "resubmit") -> Start:
        at = T + number * 10_000 * S
        ran = None if running is None else at + running * S
        return Start(
            number, at, road=road, running_ns=ran, opened_ns=None if ran is None else ran + 5 * S, ended_ns=at + 9_000 * S
        )

    earlier = [start(1, 100), start(2, 300)]
    assert usual_s(earlier, "resubmit")["queue"] == 200
    assert "queue" not in usual_s(earlier, "allocation")
    waiting = Start(3, T, road="resubmit")
    (phase,) = phases([*earlier, waiting], T + 50 * S)
    assert (phase.name, phase.usual_s, phase.is_over) == ("queue", 200, False)
    assert phases([Start(1, T)], T + S)[0].name == "start"


def test_a_time_limit_is_said_once_an_hour_and_once_a_quarter_of_an_hour_before() -> None:
    said, told = Said().of(T), []
    for left_s in range(5_000, -100, -10):
        severity, said = due(said, float(left_s), SETTINGS)
        told += [(severity, left_s)] if severity else []
    assert told == [("info", 3600), ("warning", 900)]
    assert due(Said().of(T), 600.0, SETTINGS)[0] == "warning", "a job that has only so long is told once"


def test_a_limit_that_was_moved_is_another_one() -> None:
    said = Said(T, True, True, True)
    assert said.of(T + S) == Said(T + S, True, True, True)
    assert said.of(T + 3600 * S) == Said(T + 3600 * S)


def test_the_last_checkpoint_is_asked_for_when_two_saves_still_fit() -> None:
    said = Said(T)
    assert not wants_save(said, 721.0, 300.0, SETTINGS) and wants_save(said, 719.0, 300.0, SETTINGS)
    assert wants_save(said, 100.0, None, SETTINGS) and not wants_save(said, -1.0, None, SETTINGS)
    assert not wants_save(Said(T, is_asked=True), 100.0, None, SETTINGS)
    assert not wants_save(said, 100.0, None, SupervisorSettings(save_before_limit=False))
