"""What Slurm prints, read back: lists of nodes, states with marks, reasons with blanks, and lines that are none of Slurm's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import InputError
from trainvitals.supervisor import slurm_text
from trainvitals.supervisor.slurm_text import expand, fields, job, joined, node_details, nodes, steps, submitted, time_ns

#: As ``scontrol show node -o`` of 22.05.8 writes it.
NODE = (
    "NodeName=n2 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.71 AvailableFeatures=(null) Gres=(null) "
    "NodeAddr=127.0.0.1 NodeHostName=vm Port=27822 Version=22.05.8 OS=Linux 6.1.0 #1 SMP State=IDLE of mind @0  RealMemory=1 "
    "State=DOWN+NOT_RESPONDING ThreadsPerCore=1 Partitions=all,twice  BootTime=2026-11-29T13:01:14 ExtSensorsTemp=n/s "
    "Reason=Not responding State=IDLE [root@2026-11-29T22:31:45]"
)
#: ``scontrol show job -o`` of the same, shortened.
JOB = (
    "JobId=3 JobName=b.sh UserId=root(0) GroupId=root(0) Priority=4294901757 Account=(null) JobState=PENDING Reason=BeginTime "
    "Dependency=(null) Requeue=1 Restarts=1 BatchFlag=1 ExitCode=3:9 RunTime=00:00:00 TimeLimit=01:30:00 TimeMin=N/A "
    "SubmitTime=2026-11-29T22:31:45 StartTime=2026-11-29T22:33:46 EndTime=2026-11-30T00:03:46 Partition=all AllocNode:Sid=vm:21409 "
    "ReqNodeList=(null) ExcNodeList=n[4,6-7] NodeList=n[1-2] BatchHost=n1 NumNodes=2-2 ReqB:S:C:T=0:0:*:* Command=/x/b c.sh "
    "WorkDir=/x StdErr=/x/a b.out StdIn=/dev/null StdOut=/x/a b.out Power= "
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[001,003-004]", ["gpu001", "gpu003", "gpu004"]),
        ("gpu[001,003-004],login1", ["gpu001", "gpu003", "gpu004", "login1"]),
        ("a[1-2]b[3,5]", ["a1b3", "a1b5", "a2b3", "a2b5"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n1.cluster-a.local", ["n1.cluster-a.local"]),
        ("n[9-11]x", ["n9x", "n10x", "n11x"]),
        ("", []),
        ("(null)", []),
    ],
)
def test_a_list_of_nodes_is_read_as_scontrol_show_hostnames_reads_it(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text", ["n[", "n]", "n[1", "n[1]]", "n[[1]]", "n[a]", "n[2-1]", "n[1-]", "n1,,n2", "-x", "n1;reboot", "n[1-999999999]", "n[1-999][1-999]", "ä1", "n[١]"]
)  # fmt: skip
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        expand(text)


@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=30, unique=True), st.integers(1, 6))
def test_any_list_of_numbers_comes_back_as_the_same_nodes(numbers: list[int], width: int) -> None:
    text = f"gpu[{','.join(f'{number:0{width}d}' for number in numbers)}]"
    assert expand(text) == tuple(f"gpu{number:0{width}d}" for number in numbers)
    assert set(expand(joined(expand(text)))) == set(expand(text))


@given(st.text(max_size=300))
def test_no_text_makes_a_list_of_anything_but_names_of_nodes(text: str) -> None:
    try:
        names = expand(text)
    except InputError:
        return
    assert all(slurm_text.is_node(name) for name in names)


@given(st.text(max_size=400) | st.text(alphabet="nJobIdState=|*[]1-9 \n,Reason", max_size=400))
def test_no_output_of_a_command_raises(text: str) -> None:
    for name, node in {**nodes(text), **node_details(text)}.items():
        assert slurm_text.is_node(name) and node.state
    job(text)
    job("JobId=" + text)
    fields(text)
    assert all(slurm_text._STEP.fullmatch(step) for step in steps(text))
    assert submitted(text) == "" or slurm_text.JOB_ID.fullmatch(submitted(text))


def test_a_node_of_two_partitions_is_one_node_and_its_marks_are_no_part_of_its_state() -> None:
    assert nodes("n0|@\nn0|*|none\n") == {}, "marks of no state"
    found = nodes("n1|idle*|none\nn1|idle*|none\nn2|down*|Not responding\nn3|draining|fans = loud|and more\nn4|allocated#|none\n")
    assert list(found) == ["n1", "n2", "n3", "n4"]
    assert (found["n1"].state, found["n1"].is_responding, found["n1"].is_bad) == ("idle", False, False)
    assert (found["n2"].state, found["n2"].is_bad, found["n2"].reason) == ("down", True, "Not responding")
    assert (found["n3"].is_bad, found["n3"].reason) == (True, "fans = loud|and more")
    assert (found["n4"].state, found["n4"].is_responding) == ("allocated", True)


def test_a_reason_that_looks_like_a_state_is_a_reason() -> None:
    (node,) = node_details(NODE).values()
    assert node.reason == "Not responding State=IDLE [root@2026-11-29T22:31:45]"


@pytest.mark.parametrize(
    ("state", "read", "is_responding", "is_bad"),
    [
        ("DOWN+NOT_RESPONDING", "down", False, True),
        ("IDLE+DRAIN", "drained", True, True),
        ("MIXED+DRAIN", "draining", True, True),
        ("IDLE*", "idle", False, False),
        ("ALLOCATED", "allocated", True, False),
        ("ALLOCATED+FAIL", "failing", True, True),
    ],
)
def test_states_of_scontrol_are_those_of_sinfo(state: str, read: str, is_responding: bool, is_bad: bool) -> None:
    (node,) = node_details(f"NodeName=n1 State={state} ThreadsPerCore=1 ").values()
    assert (node.state, node.is_responding, node.is_bad) == (read, is_responding, is_bad)


def test_a_job_is_read_with_its_nodes_its_exit_and_its_end() -> None:
    found = job(JOB)
    assert found is not None
    assert (found.id, found.state, found.reason, found.restarts) == ("3", "PENDING", "BeginTime", 1)
    assert (found.nodes, found.node_count, found.excluded) == (("n1", "n2"), 2, "n[4,6-7]")
    assert (found.exit_code, found.exit_signal) == (3, 9)
    assert found.ends_at_ns == int(datetime(2026, 11, 30, 0, 3, 46, tzinfo=UTC).timestamp()) * 10**9
    assert (found.output, found.is_waiting, found.is_over) == ("/x/a b.out", True, False)


def test_a_job_without_a_limit_has_no_end() -> None:
    found = job(JOB.replace("TimeLimit=01:30:00", "TimeLimit=UNLIMITED"))
    assert found is not None and found.ends_at_ns is None
    assert time_ns("Unknown") is None and time_ns("2026-13-45T00:00:00") is None


def test_a_job_that_completes_still_runs() -> None:
    found = job(JOB.replace("JobState=PENDING", "JobState=COMPLETING"))
    assert found is not None and not found.is_over and not found.is_waiting


def test_steps_that_srun_began_after_a_moment_are_told_from_the_others() -> None:
    text = "77.0|2026-11-29T22:00:00\n77.3|2026-11-29T23:00:00\n77.batch|2026-11-29T23:00:00\n77.extern|N/A\n"
    assert steps(text) == ("77.0", "77.3")
    assert steps(text, time_ns("2026-11-29T22:30:00") or 0) == ("77.3",)


@pytest.mark.parametrize(("text", "id"), [("77\n", "77"), ("77;cluster\n", "77"), ("sbatch: hello\n77\n", "77"), ("no\n", "")])
def test_the_number_of_a_submitted_job_is_found(text: str, id: str) -> None:
    assert submitted(text) == id


def test_only_the_job_with_exactly_this_comment_is_this_start() -> None:
    text = "5|trainvitals:ab/1.\n6|trainvitals:ab/12.\n7|(null)\n8|trainvitals:ab/1.\n"
    assert slurm_text.with_comment(text, "trainvitals:ab/1.") == (("5", "trainvitals:ab/1."), ("8", "trainvitals:ab/1."))
