"""A collective hangs: who waited, who had nothing to wait for, and what proves nothing."""

from __future__ import annotations

import json

import pytest
from reading import MTIME_NS, faults_of

from trainvitals.incidents.postmortem import FileFaults, choose
from trainvitals.logs.faults.collectives import DEFAULT, group_of
from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.tails import PathOrigin, placed
from trainvitals.logs.times import LineTimes

ALL = "PG ID 0 PG GUID 0(default_pg)"
TIMEOUT = (
    "[rank{rank}]:[E810 03:04:11.100000000 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=78, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
    "[rank{rank}]:[E810 03:04:11.200000000 ProcessGroupNCCL.cpp:2252] [{group} Rank {rank}]  failure detected by watchdog at work "
    "sequence id: 78 PG status: last enqueued work: {enqueued}, last completed work: 77\n"
)
SIGNAL = (
    "[rank{rank}]:[E810 03:04:11.300000000 ProcessGroupNCCL.cpp:1794] [{group} Rank {rank}] Observed flight recorder dump signal from "
    "another rank via TCPStore.\n"
    "[rank{rank}]:[E810 03:04:11.400000000 ProcessGroupNCCL.cpp:1858] [{group} Rank {rank}] Received a dump signal due to a collective "
    "timeout from {of} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL "
    "work: {completed}.This is most likely caused by incorrect usages of collectives\n"
)
END = (
    "[rank{rank}]:[F810 03:12:11.500000000 ProcessGroupNCCL.cpp:1653] [{group} Rank {rank}] [{group} Rank {rank}] Terminating the process "
    "after attempting to dump debug info, due to collective timeout or exception.\n"
)


def timeout(rank, enqueued=78, group=ALL):
    return TIMEOUT.format(rank=rank, enqueued=enqueued, group=group)


def signal(rank, enqueued, completed=77, group=ALL, of=" rank 1"):
    return SIGNAL.format(rank=rank, enqueued=enqueued, completed=completed, group=group, of=of) + END.format(
        rank=rank, group=group
    )


def only(text):
    (event,) = faults_of(text)
    assert event.data["class"] == "nccl_timeout"
    return event.data


def test_a_rank_with_nothing_pending_is_the_one_that_did_not_come():
    text = timeout(1) + signal(0, 77) + signal(2, 78) + signal(3, 78) + signal(4, 77)
    data = only(text)
    assert data["ranks_not_waiting"] == [0, 4]
    assert data["ranks_seen"] == [1, 2, 3]
    assert data["ranks_missing"] == [0, 4]
    assert (data["rank_behind"], data["op"], data["timed_out_rank"]) == (0, "ALLREDUCE", 1)


def test_what_a_rank_says_of_the_whole_job_proves_nothing_when_a_part_of_it_hangs():
    part = "PG ID 4 PG GUID 51(TENSOR_MODEL_PARALLEL_GROUP)"
    data = only(timeout(1, group=part) + signal(0, 593, 593) + signal(1, 593, 593, of="this local rank"))
    assert "ranks_not_waiting" not in data
    assert "rank_behind" not in data


def test_numbers_of_work_of_different_groups_are_not_compared():
    text = (
        timeout(1, 78, "PG ID 4 PG GUID 51(tp)")
        + timeout(5, 9_000, "PG ID 2 PG GUID 7(dp)")
        + timeout(6, 9_001, "PG ID 2 PG GUID 7(dp)")
    )
    assert only(text)["rank_behind"] == 5
    assert "rank_behind" not in only(timeout(1, 78, "PG 3") + timeout(5, 9_000, "PG 3"))


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("[PG ID 0 PG GUID 0(default_pg) Rank 7]", DEFAULT),
        ("[PG ID 0 PG GUID 0 Rank 7]", DEFAULT),
        ("[PG 0 (default_pg) Rank 7]", DEFAULT),
        ("[PG 0 Rank 7]", DEFAULT),
        ("[PG ID 4 PG GUID 51(tp) Rank 7]", "51(tp)"),
        ("[PG 3 Rank 7]", ""),
        ("[Rank 7]", None),
    ],
)
def test_the_process_group_of_a_line(text, group):
    assert group_of(text) == group


def test_a_watchdog_that_got_stuck_is_a_timeout_whatever_its_text():
    heart = "[rank3]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=1"
    first = "[rank3]:[E1019 01:04:03.357615073 ProcessGroupNCCL.cpp:1375] [PG 3 Rank 3] First PG on this rank that detected no heartbeat of its watchdog."
    for line in (heart, first):
        assert only(line)["ranks_seen"] == [3]


def test_a_monitored_barrier_names_who_did_not_come():
    data = only("[rank0]: RuntimeError: [Rank 0]: Ranks 2, 13 failed to pass monitoredBarrier in 1800000 ms")
    assert (data["ranks_missing"], data["ranks_missing_count"]) == ([2, 13], 2)
    assert data["ranks_seen"] == [0]
    assert only("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms")["ranks_missing"] == [1]


def test_a_rank_that_only_heard_of_a_timeout_is_not_told_as_one_that_waited():
    (event,) = faults_of(signal(7, 77, of=" rank 1"))
    data = placed(event, PathOrigin(rank=7)).data
    assert data["is_signalled"] is True
    assert data["timed_out_rank"] == 1
    assert "ranks_seen" not in data


def test_the_rank_that_only_heard_of_it_is_a_suspect_of_the_post_mortem():
    events = []
    for rank in range(4):
        text = signal(3, 77, of=" rank 0") if rank == 3 else timeout(rank)
        (event,) = faults_of(text)
        events.append(FileFaults(f"/logs/{rank}.err", MTIME_NS, (placed(event, PathOrigin(rank=rank)),)))
    found = choose(1, events)
    assert found.cause is not None
    assert found.cause.rank in (0, 1, 2)
    assert found.suspects == (3,)


def test_a_burst_that_an_older_version_had_begun_is_read_on():
    faults = Faults(LineTimes("UTC", MTIME_NS))
    assert (
        faults.feed(*reversed(["[rank1]:", "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78)"])) == []
    )
    state = json.loads(json.dumps(faults.to_state()))
    for one in state["seen"]:
        del one["hang"]
        one["work"] = [[78, 1]]
    later = Faults(LineTimes("UTC", MTIME_NS))
    later.restore(state)
    (event,) = later.finish()
    assert event.data["ranks_seen"] == [1]
    assert "is_signalled" not in event.data
