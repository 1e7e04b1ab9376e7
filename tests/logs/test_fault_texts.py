"""What libraries, launchers, shells, schedulers and kernels say of a failure, each with its class."""

from __future__ import annotations

import pytest
from reading import faults_of

from trainvitals.incidents.postmortem import OUTER_CAUSES, FileFaults, choose
from trainvitals.logs.faults.signals import exit_code, signal_of
from trainvitals.logs.faults.table import main, with_table
from trainvitals.records import Severity

OOM_HOST = {"class": "out_of_memory", "memory": "host"}
OOM_GPU = {"class": "out_of_memory", "memory": "gpu"}


def told(line):
    (event,) = [event for event in faults_of(line + "\n") if event.kind == "fault"]
    return event


@pytest.mark.parametrize(
    ("line", "data"),
    [
        # Data loaders: PyTorch says the signal by its name
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ", {"class": "killed", "signal": 9}),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Aborted. ", {"class": "crashed", "signal": 6}),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Segmentation fault. ", {"class": "crashed", "signal": 11}),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated. ", {"class": "killed", "signal": 15}),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", OOM_HOST),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", OOM_HOST),
        ("RuntimeError: DataLoader worker (pid(s) 77, 78) exited unexpectedly", {"class": "process_failed"}),
        # /dev/shm is memory, whatever the text says of a device
        ("RuntimeError: unable to write to file </torch_77_1>: No space left on device (28)", OOM_HOST),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", OOM_HOST),
        ("node1:1:2 [0] misc/shmutils.cc:72 NCCL WARN Call to posix_fallocate failed : No space left on device", OOM_HOST),
        ("OSError: [Errno 28] No space left on device: '/ckpt/step_100/x.pt'", {"class": "disk_full"}),
        ("cp: 写入 '/ckpt/a' 时出错: 设备上没有空间", {"class": "disk_full"}),
        # Memory
        ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 6.48G at the bottom of memory. That was not possible.", OOM_GPU),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[32,1024] and type float on /job:a/device:GPU:0", OOM_GPU),
        ("ResourceExhaustedError: Out of memory error on GPU 3. Cannot allocate 1.5GB memory on GPU 3", OOM_GPU),
        ("RuntimeError: Triton Error [CUDA]: out of memory", OOM_GPU),
        ("[12345.6] oom_reaper: reaped process 77 (python), now anon-rss:0kB", OOM_HOST),
        ("(raylet) 5 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons", OOM_HOST),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", OOM_HOST),
        ("The node was low on resource: memory. Container trainer was using 5Ki", OOM_HOST),
        # Storage
        ("OSError: [Errno 5] Input/output error: '/ckpt/a'", {"class": "storage_error"}),
        ("OSError: [Errno 116] Stale file handle: '/data/a.bin'", {"class": "storage_error"}),
        ("OSError: [Errno 30] Read-only file system: '/ckpt/a'", {"class": "storage_error"}),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fuse/a'", {"class": "storage_error"}),
        ("OSError: [Errno 108] Cannot send after transport endpoint shutdown", {"class": "storage_error"}),
        ("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1024 vs 918", {"class": "storage_error"}),
        ("nfs: server fs1 not responding, still trying", {"class": "io_hang"}),
        ("slurmstepd: error: *** STEP 78.0 STEPD TERMINATED ON node17 AT 2026-01-02T03:04:05 DUE TO JOB NOT ENDING WITH SIGNALS ***", {"class": "io_hang"}),
        # GPU
        ("pynvml.NVMLError_GpuIsLost: GPU is lost", {"class": "gpu_error"}),
        ("RuntimeError: No CUDA GPUs are available", {"class": "gpu_error"}),
        ("RuntimeError: CUDA error: no CUDA-capable device is detected", {"class": "gpu_error"}),
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions? Error 802: system not yet initialized", {"class": "gpu_error"}),
        ("HW Exception by GPU node-4 (Agent handle: 0x1) reason :GPU Hang", {"class": "gpu_error"}),
        ("Rank 13, node node17, device 5, iteration #120: Possible persistent error!!", {"class": "gpu_error", "rank": 13, "host": "node17", "gpu": 5}),
        ("Rank 13, node node17, device 5, iteration #120: Possible transient error!!", {"class": "gpu_error", "rank": 13, "host": "node17"}),
        ("RuntimeError: CUDA driver error: an illegal memory access was encountered", {"class": "cuda_error"}),
        ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", {"class": "cuda_error"}),
        ("E0000 00:00:1 cuda_driver.cc:1 failed to synchronize: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", {"class": "cuda_error"}),
        ("[1.5] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error", {"class": "xid", "sxid": 12028, "is_fatal": False}),
        # Numbers
        ("RuntimeError: Rank 3, node node17, device 3, iteration 120: Unexpected result tensor(nan, device='cuda:3') (message='found NaN')", {"class": "numerics", "rank": 3, "host": "node17"}),
        ("FloatingPointError: gradients are Nan/Inf", {"class": "numerics"}),
        ("ERROR: Loss is NaN. Stopping training.", {"class": "numerics"}),
        ("Loss is tensor(nan, device='cuda:0'), stopping training", {"class": "numerics"}),
        ("NanLossDuringTrainingError: NaN loss during training.", {"class": "numerics"}),
        ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", {"class": "numerics"}),
        ("RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.", {"class": "numerics"}),
        ("ValueError: The loss returned in `training_step` is nan.", {"class": "numerics"}),
        ("FloatingPointError: invalid value (nan) encountered in jit(train_step)", {"class": "numerics"}),
        # Ends of processes
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGSEGV", {"class": "crashed", "signal": 11}),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL", {"class": "killed", "signal": 9}),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with exit code 1", {"class": "process_failed"}),
        ("subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGSEGV: 11>.", {"class": "crashed", "signal": 11}),
        ("mpirun noticed that process rank 3 with PID 0 on node node17 exited on signal 11 (Segmentation fault).", {"class": "crashed", "signal": 11, "rank": 3}),
        ("mpirun noticed that process rank 3 with PID 7 on node node17 exited on signal 9 (Killed).", {"class": "killed", "signal": 9, "host": "node17"}),
        ("zsh: killed     python train.py", {"class": "killed", "signal": 9}),
        ("zsh: segmentation fault  python train.py", {"class": "crashed"}),
        ("已杀死", {"class": "killed", "signal": 9}),
        ("./train.sh: 行 12:  4321 已杀死               python train.py", {"class": "killed", "signal": 9}),
        ("./train.sh: 行 12:  4321 段错误               （核心已转储） python train.py", {"class": "crashed"}),
        ("double free or corruption (!prev)", {"class": "crashed"}),
        ("malloc(): corrupted top size", {"class": "crashed"}),
        ("*** SIGSEGV (@0x0) received by PID 12 (TID 0x7f) from PID 0; stack trace: ***", {"class": "crashed"}),
        ("traps: python[77] general protection fault ip:7f sp:7f error:0 in libc.so", {"class": "crashed"}),
        ("The actor died because its node has died. Node Id: 3f", {"class": "node_failure"}),
        ("srun: error: Aborting, io error and missing step on node 3", {"class": "node_failure"}),
        ("srun: error: Task launch for StepId=78.0 failed on node n17: Communication connection failure", {"class": "process_failed", "host": "n17"}),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.", {"class": "process_failed"}),
        ("E coordination_service.cc:954] UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.", {"class": "process_failed", "rank": 37}),
        ("*** Check failure stack trace: ***", {"class": "crashed"}),
        # Ascend, Gaudi
        ("EI0002: [PID: 130] 2026-01-02-03:04:05.586.187 The wait execution of the Notify register times out. Reason: The Notify register has not received", {"class": "nccl_timeout", "host": None}),
        ("EI0006: 2026-01-02-03:04:05.270.506 Getting socket times out. Reason: Remote Rank did not send the data in time.", {"class": "network"}),
        ("RuntimeError: npuSynchronizeDevice:x.ts:479 NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507048", {"class": "cuda_error"}),
        ("RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64", {"class": "network"}),
        ("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.", {"class": "gpu_error"}),
        ("RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].", {"class": "cuda_error"}),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 40121 got signal: 1", {"class": "killed", "signal": 1}),
        ("W0102 03:04:05.000000 12 api.py:723] Received Signals.SIGHUP death signal, shutting down workers", {"class": "killed", "signal": 1}),
        ("W0102 03:04:05.000000 12 api.py:723] Received 15 death signal, shutting down workers", {"class": "killed", "signal": 15}),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 40121 got signal: 2", {"class": "cancelled"}),
        ("TERM_OWNER: job killed by owner.", {"class": "cancelled"}),
        ("slurmstepd: error: *** STEP 78.0 ON node17 UNCORRECTABLE MEMORY ERROR AT 2026-01-02T03:04:05 ***", {"class": "node_failure", "host": "node17"}),
        ("[123.4] mce: Uncorrected hardware memory error in user-access at 1f", {"class": "node_failure"}),
        ("slurmstepd: error: *** STEP 78.0 FAILED (non-zero exit code or other failure mode) ***", {"class": "process_failed"}),
        # Network
        ("torch.distributed.DistBackendError: [5] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout", {"class": "network"}),
        ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", {"class": "network"}),
        ("RuntimeError: wait timeout after 600000ms, keys: /default_pg/0//cuda//worker_count", {"class": "network"}),
        ("RuntimeError: Address already in use", {"class": "network"}),
        ("  what():  NCCL error: remote process exited or there was a network error", {"class": "network"}),
        ("node1:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got fatal async event: local catastrophic error(1)", {"class": "network"}),
        ("UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):", {"class": "network"}),
        # It would fail again
        ("RuntimeError: Error(s) in loading state_dict for GPT:", {"class": "config_error"}),
        ("/usr/bin/python3: can't open file '/x/train.py': [Errno 2] No such file or directory", {"class": "config_error"}),
        ("/usr/bin/python3.11: No module named megatron", {"class": "config_error"}),
        ("bash: line 1: torchrun: command not found", {"class": "config_error"}),
        ("slurmstepd: error: execve(): python3: No such file or directory", {"class": "config_error"}),
    ],
)  # fmt: skip
def test_a_text_has_its_class(line, data):
    event = told(line)
    assert {name: event.data.get(name) for name in data} == data


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-02 03:04:05 E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "nvidia-smi: command not found",
        "WARNING: NaN or Inf found in input tensor.",
        "epoch: 1 step: 100, loss is 2.3",
        "Loss is 2.31, keep training",
        "INFO: a worker is killed by the signal handler at the end",
        "Skipping corrupted sample 17",
        "ranks that failed the barrier: none",
        "The dump signal is handled by the monitor thread",
        "Possible values: 1, 2, 3",
        "socket: Transport endpoint is not connected",
        "Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\n  File x\nRuntimeError: cannot schedule new futures",
        "total elapsed: 12 s, 100 files on a file system",
    ],
)
def test_a_text_that_is_near_one_is_no_fault(line):
    assert faults_of(line + "\n") == []


def test_a_fatal_error_of_a_switch_wakes_somebody_and_another_does_not():
    line = "[1.5] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, {}, Link 32 LTSSM Fault Up"
    assert told(line.format("Fatal")).severity is Severity.CRITICAL
    assert told(line.format("Non-fatal")).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("text", "code", "signal"),
    [
        ("failed (exitcode: -9)", -9, 9),
        ("exits with return code = 137", 137, 9),
        ("Exited with exit code 143", 143, 15),
        ("exited on signal 6 (Aborted)", -6, 6),
        ("was killed by signal 9", -9, 9),
        ("terminated with signal SIGBUS", -7, 7),
        ("is killed by signal: Floating point exception. ", -8, 8),
        ("is killed by signal: Unknown of the future", None, 0),
        ("exit code 128", 128, 0),
        ("all well", None, 0),
    ],
)
def test_how_a_process_ended(text, code, signal):
    assert exit_code(text) == code
    assert signal_of(code or 0) == signal


def test_a_file_system_that_fails_is_a_cause_from_outside():
    assert "storage_error" in OUTER_CAUSES


def test_the_table_of_the_documentation_is_written_where_it_stands(monkeypatch, tmp_path):
    written = {}
    monkeypatch.setattr("pathlib.Path.write_text", lambda path, text, **_: written.setdefault(path.name, (path, text)))
    assert main() == 0
    path, text = written["faults.md"]
    assert path.parent.name == "docs"
    assert with_table(text) == text


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (
            [
                "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1024 vs 918",
                "OSError: [Errno 28] No space left on device: '/ckpt/x.pt'",
            ],
            ["disk_full"],
        ),
        (
            [
                "Unexpected result nan on rank 13 at iteration #200 invocation #1 (message='found NaN in local forward loss')",
                "Rank 13, node node17, device 5, iteration #200: Possible transient error!!",
            ],
            ["gpu_error"],
        ),
        (
            [
                "Unexpected result nan on rank 13 at iteration #200 invocation #1 (message='found NaN in local forward loss')",
                "Rank 13, node node17, device 5, iteration #200: Correct result (but possible Application error) (NaN)!",
            ],
            ["numerics"],
        ),
        (
            [
                "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
                "RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly",
            ],
            ["killed"],
        ),
    ],
)
def test_of_several_texts_about_one_death_the_one_that_says_why_is_told(lines, kinds):
    assert [event.data["class"] for event in faults_of("\n".join(lines))] == kinds


def test_a_closed_terminal_is_a_cause_and_is_called_by_its_name():
    event = told("torch.distributed.elastic.multiprocessing.api.SignalException: Process 40121 got signal: 1")
    found = choose(1, [FileFaults("/logs/train.log", 0, (event,))])
    assert found.cause is not None
    assert found.cause.name == "ended as its terminal was closed (signal 1)"


def test_what_is_in_an_exception_group_is_told():
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/x/train.py", line 3, in <module>\n'
        "  |     asyncio.run(main())\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/x/train.py", line 9, in step\n'
        "    |     raise ValueError(batch)\n"
        "    | ValueError: bad batch\n"
        "    +------------------------------------\n"
    )
    (event,) = faults_of(group)
    assert (event.data["class"], event.data["exception"]) == ("exception", "ValueError")


BLOCK = (
    "============================================================\n"
    "train.py FAILED\n"
    "Root Cause (first observed failure):\n"
    "[0]:\n"
    "  time      : 2026-01-02_03:0{minute}:05\n"
    "  host      : {host}\n"
    "  rank      : {rank} (local_rank: 0)\n"
    "  exitcode  : {code} (pid: 1243)\n"
    "  error_file: <N/A>\n"
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    "============================================================\n"
)


def test_of_many_launchers_the_one_that_saw_the_earliest_failure_names_it():
    text = (
        BLOCK.format(minute=1, host="node30", rank=240, code=-15)  # told to end; its clock is early
        + BLOCK.format(minute=9, host="node17", rank=136, code=1)
        + BLOCK.format(minute=4, host="node03", rank=24, code=1)
        + BLOCK.format(minute=7, host="node08", rank=64, code=1)
    )
    (event,) = faults_of(text)
    assert (event.data["class"], event.data["rank"], event.data["host"]) == ("process_failed", 24, "node03")
    assert event.data["followed_by"] == {"killed": 1}
    assert "first_failure" not in event.data
    named_by_none = faults_of(text + "RuntimeError: CUDA error: unspecified launch failure\n")
    (cause,) = [one for one in named_by_none if one.data["class"] == "cuda_error"]
    assert (cause.data["rank"], cause.data["host"]) == (24, "node03")
