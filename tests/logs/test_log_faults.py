"""Faults of a log: one event per class and burst, causes told from what only follows, and no fault where nothing happened."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import MTIME_NS, OVERFLOW, faults_of

from trainvitals.logs.faults.reader import HELD_LINES, LITERALS, REMEMBERED_LINES, Faults
from trainvitals.logs.faults.table import CLASSES, DEADLY_CLASSES, with_table
from trainvitals.logs.framing import split_noise
from trainvitals.logs.times import LineTimes
from trainvitals.records import Severity


def only(text):
    (event,) = [event for event in faults_of(text) if event.kind == "fault"]
    return event


def traceback(last, frame="train.py", prefix=""):
    lines = ["Traceback (most recent call last):", f'  File "/x/{frame}", line 3, in <module>', "    main()", last]
    return "".join(f"{prefix}{line}\n" for line in lines)


WATCHDOG = (
    "[rank{rank}]:[E102 03:04:{second:02d}.123456789 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
    "[rank{rank}]:[E102 03:04:{second:02d}.133456789 ProcessGroupNCCL.cpp:1664] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error "
    "or timeout) detected by watchdog at work: 77, last enqueued NCCL work: {enqueued}, last completed NCCL work: 76.\n"
)


def watchdogs(ranks, enqueued=None):
    return "".join(WATCHDOG.format(rank=rank, second=5, enqueued=(enqueued or {}).get(rank, 78)) for rank in ranks)


# -- classes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "data"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB", "out_of_memory", {"memory": "gpu", "gpu": 3}),
        ("RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB", "out_of_memory", {"memory": "gpu"}),
        ("RuntimeError: CUDA error: out of memory", "out_of_memory", {"memory": "gpu"}),
        ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.", "out_of_memory", {"memory": "gpu"}),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.", "out_of_memory", {"memory": "host"}),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 77.0 cgroup.", "out_of_memory", {"memory": "host"}),
        ("kernel: Out of memory: Killed process 4321 (python) total-vm:9kB", "out_of_memory", {"memory": "host"}),
        ("srun: error: node06: tasks 1-3: Out Of Memory", "out_of_memory", {"memory": "host", "host": "node06", "tasks": [1, 2, 3]}),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu_error", {}),
        ("cudaErrorECCUncorrectable: uncorrectable ECC error encountered", "gpu_error", {}),
        ("kernel: NVRM: GPU at PCI:0000:1b:00 has fallen off the bus.", "gpu_error", {}),
        ("[Fri Jan  2 03:04:05 2026] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.", "xid", {"xid": 79, "pci": "0000:1b:00"}),
        ("node17 kernel: [12345.678] NVRM: Xid (PCI:0000:1a:00): 63, pid=4321, Row Remapper", "xid", {"xid": 63, "host": "node17"}),
        ("RuntimeError: CUDA error: unknown error", "cuda_error", {}),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error", {}),
        ("../aten/src/x.cu:1: f: block: [1,0,0], thread: [2,0,0] Assertion `index < size` failed.", "cuda_error", {}),
        ("slurmstepd: error: *** JOB 78 ON node17 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***", "preempted", {}),
        ("slurmstepd: error: *** JOB 78 ON node17 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***", "time_limit", {"reported_by": "node17"}),
        ("srun: error: Node failure on node49", "node_failure", {"host": "node49"}),
        ("OSError: [Errno 122] Disk quota exceeded", "disk_full", {}),
        ("AssertionError: Rank 12: found NaN in local forward loss calculation. Device: 4, node: node17", "numerics", {"rank": 12, "host": "node17"}),
        ("train.py: error: unrecognized arguments: --foo", "config_error", {}),
        ("srun: error: node06: task 0: Killed", "killed", {"host": "node06", "rank": 0, "signal": 9}),
        ("E0102 03:04:05.000000 1234 api.py:869] failed (exitcode: -9) local_rank: 5 (pid: 2630) of binary: python", "killed", {"signal": 9, "local_rank": 5}),
        ("E0102 03:04:05.000000 1234 api.py:869] failed (exitcode: -11) local_rank: 5 (pid: 2630) of binary: python", "crashed", {"signal": 11}),
        ("W0102 03:04:05.000000 1234 api.py:723] Received 15 death signal, shutting down workers", "killed", {"signal": 15}),
        ("Killed", "killed", {"signal": 9}),
        ("slurmstepd: error: Job 77 exceeded memory limit (9 > 8), being killed", "out_of_memory", {"memory": "host"}),
        ("=>> PBS: job killed: mem job total 9 kb exceeded limit 8 kb", "out_of_memory", {"memory": "host"}),
        ("=>> PBS: job killed: walltime 3610 exceeded limit 3600", "time_limit", {}),
        ("Loss is nan, stopping training", "numerics", {}),
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "numerics", {}),
        ("RuntimeError: NCCL communicator was aborted on rank 3.", "nccl_timeout", {"rank": 3}),
        ("command terminated with exit code 137", "killed", {"signal": 9}),
        ("[rank: 2] Child process with PID 4321 terminated with code 1. Forcefully terminating all other processes", "process_failed", {"rank": 2}),
        ("/bin/sh: line 1: 4321 Segmentation fault      (core dumped) python train.py", "crashed", {}),
        ("[launch.py:321:sigkill_handler] ['python', 'x.py'] exits with return code = 1", "process_failed", {"exit_code": 1}),
        ("INFO: task python:4321 blocked for more than 120 seconds.", "io_hang", {}),
        ("host1:984:1357 [4] ib.c:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with status=12 vendor err 129", "network", {"host": "host1"}),
        ("host1:9:1 [4] NCCL WARN NET/Socket : Connect to 10.0.0.1<5> failed : Connection refused", "network", {}),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "network", {}),
        ("[W102 03:04:05.1 TCPStore.cpp:125] [c10d] sendBytes failed on SocketImpl(fd=3): Broken pipe", "network", {}),
    ],
)  # fmt: skip
def test_a_line_has_its_class_and_says_who(line, kind, data):
    event = only(line)
    assert event.data["class"] == kind
    assert {name: event.data.get(name) for name in data} == data
    assert event.severity is CLASSES[kind].severity or kind == "xid"


@pytest.mark.parametrize(
    ("last", "frame", "kind"),
    [
        ("ModuleNotFoundError: No module named 'flash_attn'", "train.py", "config_error"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/tokenizer.model'", "train.py", "config_error"),
        ("AssertionError: world size 8 is not divisible by 3", "arguments.py", "config_error"),
        ("AssertionError: loss is too high", "train.py", "exception"),
        ("my_trainer.errors.DataExploded: shard 7", "train.py", "exception"),
        ("KeyError: 'labels'", "train.py", "exception"),
        ("MemoryError", "train.py", "out_of_memory"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.2 GiB", "train.py", "out_of_memory"),
        ("KeyboardInterrupt", "train.py", "cancelled"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "train.py", "network"),
    ],
)
def test_the_last_line_of_a_traceback_decides(last, frame, kind):
    assert only(traceback(last, frame)).data["class"] == kind
    assert faults_of(last + "\n") == [] or kind == "config_error"


def test_a_traceback_between_lines_of_other_processes_is_followed():
    text = "".join(f"[rank3]: {line}\nstep of another process\n" for line in traceback("ValueError: bad batch").splitlines())
    event = only(text)
    assert (event.data["class"], event.data["exception"], event.data["rank"]) == ("exception", "ValueError", 3)


def test_a_traceback_glued_to_a_progress_bar_is_followed():
    first, *rest = traceback("ValueError: bad batch", prefix="[rank12]: ").splitlines(keepends=True)
    event = only(" 10%|█   | 38/500 [1:10:00<14:11:00, 110.50s/it]" + first + "".join(rest))
    assert (event.data["exception"], event.data["rank"]) == ("ValueError", 12)


@pytest.mark.parametrize("stamp", ["2026-01-02T03:04:05.123456789Z stderr F ", "2026-01-02 03:04:05,123 ", "704.7s\t1458\t"])
def test_a_traceback_with_a_time_before_every_line_is_followed(stamp):
    assert only(traceback("ValueError: bad batch", prefix=stamp)).data["exception"] == "ValueError"


def test_a_rich_box_is_a_traceback():
    box = "╭──── Traceback (most recent call last) ────╮\n│ /x/train.py:3 in main │\n╰──────────╯\nValueError: bad batch\n"
    assert only(box).data["exception"] == "ValueError"


def test_the_documentation_holds_the_table():
    document = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    assert with_table(document) == document, "run python -m trainvitals.logs.faults.table"


def test_classes_that_end_a_run_are_deadly_and_others_are_not():
    assert {"config_error", "crashed", "cuda_error", "killed", "out_of_memory", "nccl_timeout", "time_limit"} <= DEADLY_CLASSES
    assert not {"xid", "io_hang", "network"} & DEADLY_CLASSES


# -- bursts -------------------------------------------------------------------------------------------------------------


def test_a_timeout_names_who_waited_and_who_said_nothing():
    event = only("WORLD_SIZE=8\n" + watchdogs([0, 1, 2, 4, 5, 6, 7]))
    data = event.data
    assert data["ranks_seen"] == [0, 1, 2, 4, 5, 6, 7] and data["ranks_missing"] == [3] and "is_at_least" not in data
    assert (data["op"], data["seq_num"], data["timeout_ms"]) == ("ALLREDUCE", 77, 600_000)
    assert (data["last_enqueued"], data["last_completed"], data["count"]) == (78, 76, 14)
    assert event.time_ns == 1_767_323_045_123_456_789


def test_without_a_world_size_the_missing_ranks_are_at_least_those():
    data = only(watchdogs([0, 1, 2, 5])).data
    assert (data["ranks_missing"], data["world_size"], data["is_at_least"]) == ([3, 4], 6, True)


def test_a_message_without_its_prefix_does_not_make_the_ranks_doubtful():
    what = "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated with exception: [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2,\n"
    assert only("WORLD_SIZE=8\n" + watchdogs([5, 7]) + what).data["ranks_missing"] == [0, 1, 2, 3, 4, 6]


def test_a_rank_that_queued_less_work_than_the_others_is_behind():
    assert only(watchdogs([0, 1, 2, 3], {2: 77})).data["rank_behind"] == 2


def test_ranks_of_a_sub_group_prove_nothing_of_others():
    line = "[rank13]:[E102 03:04:05.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
    data = only("WORLD_SIZE=16\n" + line + "\n").data
    assert data["rank"] == 13 and data["is_sub_group"] and "ranks_missing" not in data


def test_ranks_that_old_versions_number_within_their_group_prove_nothing_of_a_large_job():
    line = "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, \n"
    assert "ranks_missing" not in only("using world size: 64\n" + "".join(line.format(rank) for rank in range(8))).data
    assert only("using world size: 8\n" + "".join(line.format(rank) for rank in range(7))).data["ranks_missing"] == [7]


def test_thousands_of_ranks_are_one_event_of_bounded_size():
    data = only("WORLD_SIZE=5120\n" + watchdogs(range(1, 5120))).data
    assert data["ranks_missing"] == [0] and data["ranks_seen_count"] == 5119
    assert len(json.dumps(data)) < 16_000


def test_what_follows_an_out_of_memory_is_counted_and_not_told():
    text = (
        traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", prefix="[rank12]: ")
        + "W0102 03:04:05.000000 1234 api.py:900] Sending process 79302 closing signal SIGTERM\n" * 7
        + watchdogs([0, 1])
        + traceback("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited", prefix="[rank0]: ")
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    event = only(text)
    assert (event.data["class"], event.data["rank"]) == ("out_of_memory", 12)
    assert event.data["followed_by"] == {"killed": 7, "nccl_timeout": 4, "network": 1, "process_failed": 1}


def test_what_a_launcher_says_before_the_cause_follows_it_all_the_same():
    text = (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 79.0 ON node17 CANCELLED AT 2026-01-02T03:04:05 ***\n"
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    assert only(text).data["class"] == "gpu_error"


def test_a_broken_connection_that_the_run_did_not_outlive_is_critical():
    text = (
        "RuntimeError: The server socket has failed to listen on any local network address. (errno: 98 - Address already in use).\n"
        "srun: error: node44: task 3: Exited with exit code 1\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 77.1 ON node43 CANCELLED AT 2026-01-02T03:04:05 ***\n"
    )
    event = only(text)
    assert (event.data["class"], event.severity) == ("network", Severity.CRITICAL)
    assert event.data["followed_by"] == {"process_failed": 1, "killed": 1, "cancelled": 1}


def test_a_python_error_that_comes_before_the_timeouts_is_the_cause():
    event = only(traceback("ValueError: bad batch", prefix="[rank3]: ") + watchdogs([0, 1, 2]))
    assert event.data["exception"] == "ValueError" and event.data["followed_by"] == {"nccl_timeout": 6}


def test_torchruns_root_cause_gives_rank_host_time_and_signal():
    text = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n----\nFailures:\n[1]:\n"
        "  time      : 2026-01-02_03:04:06\n  host      : node18\n  rank      : 20 (local_rank: 4)\n  exitcode  : 1 (pid: 9)\n----\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-02_03:04:05\n  host      : node17\n  rank      : 12 (local_rank: 4)\n"
        "  exitcode  : -9 (pid: 4321)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 4321\n====\n"
    )
    event = only(text)
    assert (event.data["class"], event.data["rank"], event.data["host"], event.data["signal"]) == ("killed", 12, "node17", 9)
    assert event.time_ns == 1_767_323_045_000_000_000


def test_a_kill_says_more_than_the_request_to_end_that_the_others_got():
    event = only(
        "W0102 03:04:05.938000 10265 api.py:1028] Sending process 10274 closing signal SIGTERM\n"
        "E0102 03:04:06.100000 10265 api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 10275) of binary: python\n"
    )
    assert (event.data["class"], event.data["signal"], event.data["local_rank"]) == ("killed", 9, 1)
    assert "exitcode: -9" in event.text


def test_the_first_observed_failure_names_the_rank_of_a_cause_that_names_none():
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-01-02_03:04:05\n  host      : node17\n  rank      : 12 (local_rank: 4)\n  exitcode  : 1 (pid: 4321)\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://x\n"
    )
    event = only(text)
    assert (event.data["class"], event.data["rank"], event.data["host"]) == ("out_of_memory", 12, "node17")


def test_a_burst_ends_with_a_step_and_what_training_survives_is_a_warning():
    faults = Faults(LineTimes())
    for line in traceback("ValueError: bad batch").splitlines():
        assert faults.feed(line) == []
    (event,) = faults.step_seen()
    assert event.severity is Severity.WARNING and event.data["survived"]
    assert not faults.is_waiting and faults.finish() == []


def test_a_burst_ends_after_many_lines_and_is_not_told_again_before_a_step():
    faults = Faults(LineTimes())
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
    assert faults.feed(oom) == []
    told = [event for _ in range(HELD_LINES) for event in faults.feed("Exception raised from nowhere")]
    assert [event.id for event in told] == ["out_of_memory/1"]
    assert faults.feed(oom) == [] and faults.feed("ChildFailedError:") == [] and faults.finish() == []
    faults.step_seen()
    faults.feed(oom)
    assert [event.id for event in faults.idle()] == ["out_of_memory/2"]


def test_a_log_without_steps_tells_the_same_class_again_after_many_lines():
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    assert len(faults_of(oom + "fine\n" * (REMEMBERED_LINES // 2) + oom)) == 1
    assert [event.id for event in faults_of(oom + "fine\n" * (HELD_LINES + REMEMBERED_LINES) + oom)] == [
        "out_of_memory/1",
        "out_of_memory/2",
    ]


def test_what_a_silence_tells_early_has_the_same_id_and_text():
    text = watchdogs([0, 1])
    waiting = Faults(LineTimes("UTC", MTIME_NS))
    for raw in text.splitlines():
        line, prefix = split_noise(raw)
        waiting.feed(line, prefix)
    (early,) = waiting.idle()
    late = only(text)
    assert (early.id, early.text, early.data) == (late.id, late.text, late.data)


# -- no fault -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["Exception ignored in: <function Loader.__del__ at 0x7f>", "--- Logging error ---"])
def test_an_exception_that_python_caught_by_itself_is_no_fault(before):
    assert faults_of(f"{before}\n" + traceback("AttributeError: 'Loader' object has no attribute 'workers'")) == []
    assert only(f"{before}\n" + 2 * traceback("AttributeError: no workers")).data["count"] == 1


def test_a_logger_that_writes_json_tells_a_fault():
    assert only('{"level": "error", "message": "CUDA out of memory. Tried to allocate 2 GiB"}').data["class"] == "out_of_memory"


@pytest.mark.parametrize(
    "line",
    [
        "terminate called after throwing an instance of 'terminate called after throwing an instance of 'c10::CUDAErrorc10::CUDAError'",
        "[rank0]:[E102 03:04:05.1 Proc[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiBessGroupNCCL.cpp:607]",
        "epoch 3 los[E ProcessGroupNCCL.cpp:737] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(s: 2.5",
    ],
)
def test_a_line_that_two_processes_wrote_into_each_other_hides_nothing(line):
    assert len(faults_of(line)) == 1


# -- robustness ---------------------------------------------------------------------------------------------------------

PIECES = [*LITERALS, "\n", "[rank3]: ", "Traceback (most recent call last):\n", "ValueError: x\n", "  File x\n", OVERFLOW.format(64, 32),
          watchdogs([1]), "  rank      : 12 (local_rank: 4)\n", "  exitcode  : -9 (pid: 1)\n", "Root Cause (first observed failure):\n", "é", "1" * 30]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=60), st.integers(0, 60))
def test_state_goes_on_exactly_wherever_it_was_taken(pieces, at):
    lines = "".join(pieces).splitlines()
    straight, broken = Faults(LineTimes("UTC", MTIME_NS)), Faults(LineTimes("UTC", MTIME_NS))
    told, retold = [], []
    for number, raw in enumerate(lines):
        line, prefix = split_noise(raw)
        told += straight.feed(line, prefix)
        if number == at:
            state = json.loads(json.dumps(broken.to_state()))
            broken = Faults(LineTimes("UTC", MTIME_NS))
            broken.restore(state)
        retold += broken.feed(line, prefix)
        if number % 17 == 16:
            told += straight.step_seen()
            retold += broken.step_seen()
    told += straight.finish()
    retold += broken.finish()
    assert told == retold
    assert len({event.id for event in told}) == len(told)


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=40))
def test_a_line_without_a_literal_changes_nothing_while_nothing_is_held(pieces):
    faults = Faults(LineTimes())
    for line in "".join(pieces).splitlines():
        if not faults.is_waiting and not any(literal in line for literal in LITERALS):
            before = faults.to_state()
            assert faults.feed(line) == [] and faults.to_state() == before
        else:
            faults.feed(line)


@pytest.mark.parametrize("unit", [*LITERALS, " ", "1", "|", '"', "{", "a", "[Rank ", "srun: error: ", "node: ", "world size ."])
def test_a_hostile_line_takes_no_time(unit):
    line = (unit * 65_536)[:65_536]
    faults = Faults(LineTimes())
    began = time.process_time()
    faults.feed(line)
    faults.feed(line + "x")
    assert time.process_time() - began < 0.5
