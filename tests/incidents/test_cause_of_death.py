"""The cause of a death from what all files say: the earliest, never a victim; suspects; and what people read."""

from __future__ import annotations

import json

import pytest

from trainvitals.incidents.grouping import Grouper
from trainvitals.incidents.postmortem import FileFaults, Reading, choose
from trainvitals.incidents.triage import Evidence, triage
from trainvitals.records import Event, Finding, Severity

AT_NS = 1_767_323_045_000_000_000  # 03:04:05
S = 1_000_000_000


def fault(kind, at_s=None, **data):
    time_ns = None if at_s is None else AT_NS + round(at_s * S)
    return Event(
        "fault", time_ns, severity=Severity.CRITICAL, text=f"a line about {kind}", data={"class": kind, "count": 1, **data}
    )


def file(path, *events, changed_s=0.0):
    return FileFaults(path, AT_NS + round(changed_s * S), tuple(events))


def waiting(rank, at_s=1800, **data):
    return file(f"rank{rank}.err", fault("nccl_timeout", at_s, rank=rank, ranks_seen=[rank], **data), changed_s=at_s)


def test_one_rank_that_ran_out_of_memory_is_the_cause_of_thousands_of_timeouts():
    files = [waiting(rank) for rank in range(5120) if rank != 12]
    files.append(file("rank12.err", fault("out_of_memory", rank=12, host="node17", memory="gpu"), changed_s=-2))
    told = choose(1, files, reading=Reading(read=5120))
    assert told.message == "cause: CUDA out of memory on node17 rank 12 (03:04:03 UTC), 5,119 others only followed"
    assert told.victims == {"nccl_timeout": 5119} and told.suspects == ()
    assert told.cause is not None and told.cause.file == "rank12.err"


def test_a_victim_is_no_cause_although_it_comes_first():
    files = [
        file("rank0.err", fault("network", 0, rank=0), fault("killed", 1, signal=15)),
        file("launcher.err", fault("process_failed", 0.5)),
        file("rank3.err", fault("exception", 2, rank=3, exception="ValueError")),
    ]
    told = choose(1, files)
    assert told.cause is not None and (told.cause.kind, told.cause.rank) == ("exception", 3)
    assert told.message.startswith("cause: ValueError on rank 3 (03:04:07 UTC)")


def test_the_earliest_of_two_causes_wins_and_within_a_moment_the_one_from_outside():
    early, late = fault("exception", 0, rank=1), fault("out_of_memory", 600, rank=2)
    assert choose(1, [file("b", late), file("a", early)]).cause.rank == 1
    near = fault("out_of_memory", 5, rank=2)
    assert choose(1, [file("a", early), file("b", near)]).cause.rank == 2


def test_a_text_without_a_time_counts_at_the_last_change_of_its_file():
    first, second = file("a", fault("exception", rank=1), changed_s=100), file("b", fault("cuda_error", rank=2), changed_s=3)
    assert choose(1, [first, second]).cause.rank == 2


@pytest.mark.parametrize("places", [{}, {3: "node2/3/GPU-7"}])
def test_when_all_only_waited_the_rank_that_said_nothing_is_the_suspect(places):
    files = [waiting(rank, op="ALLREDUCE", world_size=rank + 1, is_at_least=True) for rank in (0, 1, 2, 4, 5, 6, 7)]
    told = choose(1, files, places=places)
    assert told.suspects == (3,)
    assert told.message.endswith("(03:34:05 UTC); rank 3 said nothing")


def test_timeouts_of_a_small_part_of_the_job_make_no_suspects():
    assert choose(1, [waiting(0, world_size=64), waiting(1, world_size=64)]).suspects == ()


def test_what_an_earlier_or_a_later_attempt_wrote_does_not_count():
    files = [file("train.err", fault("disk_full", -7200), fault("gpu_error", 5, rank=4), fault("out_of_memory", 400, rank=9))]
    told = choose(2, files, started_ns=AT_NS, until_ns=AT_NS + 300 * S)
    assert told.cause is not None and told.cause.kind == "gpu_error"


def test_a_merged_log_counts_the_ranks_that_followed():
    cause = fault("out_of_memory", 0, rank=12, memory="gpu", followed_by={"nccl_timeout": 126}, ranks_followed_count=63)
    told = choose(1, [file("train.out", cause)])
    assert told.followers == 63 and told.victims == {"nccl_timeout": 126}


def test_host_and_gpu_of_the_rank_come_from_the_metadata():
    told = choose(1, [file("a", fault("cuda_error", 0, rank=12))], places={12: "node17/4/GPU-aa"})
    assert told.cause is not None and told.cause.host == "node17"
    assert "on node17 rank 12 [node17/4/GPU-aa]" in told.message


def test_the_launchers_log_tells_the_host_that_the_ranks_own_log_does_not():
    files = [
        file("rank3.err", fault("exception", 0, rank=3, exception="ValueError")),
        file("launcher.err", fault("process_failed", 1, rank=3, host="node17")),
    ]
    assert "on node17 rank 3 (" in choose(1, files).message


def test_nothing_found_and_not_all_read_are_said():
    assert choose(1, [], reading=Reading(read=3)).message == "no cause found in the ends of 3 logs"
    told = choose(1, [file("a", fault("killed", 0, signal=9))], reading=Reading(read=1, left=4))
    assert told.message == "cause: killed by signal 9 (03:04:05 UTC); 4 files were not read in time"
    assert told.to_data()["partial"] and json.loads(json.dumps(told.to_data())) == told.to_data()


def test_the_data_names_the_class_of_the_cause():
    data = choose(1, [file("a", fault("time_limit", 0))]).to_data()
    assert data["cause"]["class"] == "time_limit" and "kind" not in data["cause"]


@pytest.mark.parametrize(
    ("kind", "layer"), [("out_of_memory", "cluster"), ("config_error", "code"), ("exception", "code"), ("gpu_error", "cluster")]
)
def test_the_checks_of_an_incident_name_the_cause_in_its_layer(kind, layer):
    told = choose(1, [file("a", fault(kind, 0, rank=12, host="node17"))])
    event = Event("postmortem", AT_NS, attempt=1, text=told.message, data=told.to_data())
    checks = {check.layer: check for check in triage("run_dead", Evidence(onset_step=5, onset_ns=AT_NS, events=[event]))}
    assert checks[layer].mark == "!" and "on node17 rank 12" in checks[layer].evidence
    assert all("node17" not in check.evidence for name, check in checks.items() if name != layer)


def test_the_incident_of_a_dead_run_takes_the_cause_into_its_title_although_a_stall_opened_it():
    def finding(rule, severity, message):
        return Finding(f"r/1/{rule}/5", rule, "liveness", severity, 5, 5, None, 1, AT_NS, None, None, message, is_open=True)

    grouper = Grouper("r")
    grouper.add(finding("stall", Severity.WARNING, "no step for 10 min"), AT_NS)
    grouper.add(finding("run_dead", Severity.CRITICAL, "the run died after step 5"), AT_NS + 1)
    told = grouper.add(finding("run_dead", Severity.CRITICAL, "the run died after step 5; cause: CUDA out of memory"), AT_NS + 2)
    assert told is not None and told.title == "the run died after step 5; cause: CUDA out of memory"


def test_the_jobs_log_that_repeats_the_cause_did_not_follow():
    files = [
        file("rank3.err", fault("out_of_memory", 0, rank=3, host="node2")),
        file("job.out", fault("out_of_memory", 1), fault("out_of_memory", 2, rank=3, ranks_seen=[3], ranks_seen_count=1)),
        waiting(4),
    ]
    told = choose(1, files)
    assert told.followers == 1 and told.victims == {"nccl_timeout": 1}
    alone = choose(1, files[:2])
    assert alone.followers == 0 and alone.victims == {} and "followed" not in alone.message


def test_another_rank_that_ran_out_of_memory_too_is_no_repetition():
    files = [file("rank3.err", fault("out_of_memory", 0, rank=3)), file("rank5.err", fault("out_of_memory", 1, rank=5))]
    told = choose(1, files)
    assert told.followers == 1 and told.victims == {"out_of_memory": 1}


def test_the_cluster_check_does_not_tell_the_cause_twice():
    told = choose(1, [file("rank3.err", fault("out_of_memory", 0, rank=3))])
    death = Event("postmortem", AT_NS, attempt=1, text=told.message, data=told.to_data())

    def cluster(*faults):
        evidence = Evidence(onset_step=5, onset_ns=AT_NS, events=[death, *faults])
        return next(check for check in triage("run_dead", evidence) if check.layer == "cluster").evidence

    cause = fault("out_of_memory", 1, rank=3)
    assert cluster(cause, fault("out_of_memory", 2)) == told.message
    assert cluster(cause, fault("nccl_timeout", 3, rank=4)) == f"{told.message}; 1 other in the log, last: nccl_timeout"
