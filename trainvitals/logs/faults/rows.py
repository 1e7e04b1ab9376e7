"""The texts by which a log says that something broke, one row each. Data only; ``table`` has the classes, what the levels mean, and the search.

Texts: PyTorch (torch/csrc/distributed/c10d, torch/distributed/elastic, torch/utils/data), NCCL (src/transport, src/misc), CUDA, ROCm, Slurm
(slurmstepd, srun), Open MPI, Ray, JAX, TensorFlow, glibc, the Linux kernel, DeepSpeed, Lightning and Megatron-LM; real examples are named beside the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Row:
    """``literal``: text that is looked for first, because that is fast; ``pattern`` is then searched around it."""

    literal: str
    pattern: re.Pattern[str]
    kind: str
    level: int
    detail: Mapping[str, str]


def _row(literal: str, pattern: str, kind: str, level: int, **detail: str) -> Row:
    return Row(literal, re.compile(pattern, re.ASCII), kind, level, MappingProxyType(detail))


_DEVICE = "(?:CUDA|HIP|XPU|NPU|MUSA)"
_PEER = r"(?:recv|send)(?:Value|Bytes|Vector) failed|Broken pipe|Connection (?:reset|closed) by peer|Connection was likely closed|Connection refused"
ROWS: tuple[Row, ...] = (
    _row("Xid (", r"Xid \((?:PCI:)?[0-9a-fA-F:.]{1,20}\): \d{1,4}", "xid", 0),
    _row("blocked for more than", r"task \S{1,80} blocked for more than \d{1,6} seconds", "io_hang", 0),
    _row("not responding", r"\bnfs: server \S{1,100} not responding", "io_hang", 0),
    _row("operations using this service", r"Connection to \S{1,100} \(at \S{1,100}\) was lost; in progress operations using this service", "io_hang", 0),
    _row("NOT ENDING WITH SIGNALS", r"STEPD TERMINATED ON \S{1,100} AT \S{1,40} DUE TO JOB NOT ENDING WITH SIGNALS", "io_hang", 0),
    # Slurm, PBS, LSF, submitit
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO TIME LIMIT", "time_limit", 5),
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO NODE FAILURE", "node_failure", 5),
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO (?:PREEMPTION|JOB REQUEUE)", "preempted", 5),
    _row("CANCELLED AT", r"slurmstepd: error: \*\*\* .{0,200}?CANCELLED AT \S{1,40}", "cancelled", 2),
    _row("job killed: walltime", r"PBS: job killed: walltime", "time_limit", 5),
    _row("TERM_RUNLIMIT", r"TERM_RUNLIMIT: job killed", "time_limit", 5),
    _row("TERM_MEMLIMIT", r"TERM_MEMLIMIT: job killed", "out_of_memory", 5, memory="host"),
    _row("TERM_OWNER", r"TERM_OWNER: job killed by owner", "cancelled", 2),
    _row("TERM_PREEMPT", r"TERM_PREEMPT: ", "preempted", 5),
    _row("this job is ", r"Caught signal \w{1,20} on \S{1,100}: this job is timed-out", "time_limit", 5),
    _row("this job is ", r"Caught signal \w{1,20} on \S{1,100}: this job is preempted", "preempted", 5),
    _row("Node failure on", r"(?:srun|salloc|sbatch): error: Node failure on \S", "node_failure", 5),
    _row("UNCORRECTABLE MEMORY ERROR", r"ON \S{1,100} UNCORRECTABLE MEMORY ERROR", "node_failure", 5),
    _row("hardware memory", r"Uncorrected hardware memory error|due to hardware memory corruption", "node_failure", 5),
    _row("missing step on node", r"srun: error: Aborting, io error and missing step on node", "node_failure", 5),
    _row("its node has died", r"because its node has died", "node_failure", 5),
    _row("NodeDiedError", r"ray\.exceptions\.NodeDiedError: ", "node_failure", 5),
    _row("Task launch for", r"srun: error: Task launch for \S{1,60} failed on node \S", "process_failed", 2),
    _row("memory limit", r"slurmstepd: error: .{0,80}?[Ee]xceeded (?:job |step )?memory limit", "out_of_memory", 5, memory="host"),
    _row("PBS: job killed:", r"PBS: job killed: (?:v?mem|pv?mem|ppmem|resident)", "out_of_memory", 5, memory="host"),
    # Memory
    _row("ray.exceptions.OutOfMemory", r"ray\.exceptions\.OutOfMemoryError", "out_of_memory", 5, memory="host"),
    _row("out of memory", rf"^\s?{_DEVICE} out of memory|(?:Error|exception): {_DEVICE} out of memory|{_DEVICE} out of memory\. Tried to", "out_of_memory", 5, memory="gpu"),
    _row("out of memory", r"(?:CUDA|HIP) error: out of memory|[Cc]uda (?:runtime error \(2\) :|failure (?:2 )?')\s?out of memory", "out_of_memory", 5, memory="gpu"),
    _row("RESOURCE_EXHAUSTED: ", r"RESOURCE_EXHAUSTED: .{0,80}?(?:[Oo]ut of memory|Attempting to (?:reserve|allocate) )", "out_of_memory", 5, memory="gpu"),
    _row("OOM when allocating", r"OOM when allocating tensor", "out_of_memory", 5, memory="gpu"),
    _row("ut of memory error on", r"[Oo]ut of memory error on (?:GPU|device) \d", "out_of_memory", 5, memory="gpu"),
    _row("OUT_OF_RESOURCES", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES", "out_of_memory", 5, memory="gpu"),
    _row("f memory: Kill", r"(?:Out of|cgroup out of) memory: Kill(?:ed)? process", "out_of_memory", 5, memory="host"),
    _row("OutOfMemoryError", r"torch(?:\.cuda)?\.OutOfMemoryError(?::|\Z)", "out_of_memory", 5, memory="gpu"),
    _row("Out Of Memory", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Out Of Memory", "out_of_memory", 5, memory="host"),
    _row("CUDA_ERROR_OUT_OF_MEMORY", r"CUDA_ERROR_OUT_OF_MEMORY", "out_of_memory", 5, memory="gpu"),
    _row("hipErrorOutOfMemory", r"hipErrorOutOfMemory", "out_of_memory", 5, memory="gpu"),
    _row("STATUS_ALLOC_FAILED", r"CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED", "out_of_memory", 5, memory="gpu"),
    _row("oom-kill", r"oom-kill:constraint|\d{1,9} oom-kill event|invoked oom-killer", "out_of_memory", 5, memory="host"),
    _row("oom_kill", r"\d{1,9} oom_kill event", "out_of_memory", 5, memory="host"),
    _row("OOMKilled", r"\bOOMKilled\b", "out_of_memory", 5, memory="host"),
    _row("std::bad_alloc", r"std::bad_alloc", "out_of_memory", 5, memory="host"),
    _row("Cannot allocate memory", r"Cannot allocate memory", "out_of_memory", 5, memory="host"),
    _row("DefaultCPUAllocator", r"DefaultCPUAllocator: (?:can't allocate|not enough) memory", "out_of_memory", 5, memory="host"),
    _row("out of shared memory", r"out of shared memory", "out_of_memory", 5, memory="host"),
    _row("insufficient shared memory", r"(?:bus|BUS) error encountered in .{0,40}?insufficient shared memory", "out_of_memory", 5, memory="host"),
    _row("oom_reaper", r"oom_reaper: reaped process", "out_of_memory", 5, memory="host"),
    _row("to memory pressure", r"killed due to memory pressure \(OOM\)", "out_of_memory", 5, memory="host"),
    _row("low on resource", r"node was low on resource: memory", "out_of_memory", 5, memory="host"),
    _row("low on resource", r"node was low on resource: ephemeral-storage", "disk_full", 5),
    # /dev/shm is memory: pytorch/pytorch issues 5040 and 8976
    _row("No space left", r"</torch_\w{1,80}>: No space left on device|No space left on device.{0,20}/dev/shm/|posix_fallocate failed : No space left", "out_of_memory", 5, memory="host"),
    _row("No space left", r"(?<!</torch_)(?<!>: )(?<!fallocate failed : )No space left on device(?!.{0,20}/dev/shm/)", "disk_full", 5),
    _row("设备上没有空间", r"设备上没有空间", "disk_full", 5),
    _row("Disk quota", r"Disk quota exceeded", "disk_full", 5),
    # Storage that fails
    _row("nput/output error", r"(?:Errno 5\] |Error: .{0,200}?|: )Input/output error", "storage_error", 5),
    _row("emote I/O error", r"Remote I/O error", "storage_error", 5),
    _row("file handle", r"Stale (?:NFS )?file handle", "storage_error", 5),
    _row("endpoint is not connected", r"Transport endpoint is not connected: ['\"]", "storage_error", 5),
    _row("endpoint shutdown", r"Cannot send after transport endpoint shutdown", "storage_error", 5),
    _row("ead-only file system", r"Read-only file system", "storage_error", 5),
    # torch.save: often only the first sign of a full disk, which is told next
    _row("failed writing file", r"PytorchStreamWriter failed writing file", "storage_error", 3),
    _row("unexpected pos", r"unexpected pos \d{1,20} vs \d{1,20}", "storage_error", 3),
    # GPU
    _row("ECC", r"[Uu]ncorrectable ECC error(?![s,])|cudaErrorECCUncorrectable", "gpu_error", 5),
    _row("NVLink error", r"[Uu]ncorrectable NVLink error", "gpu_error", 5),
    _row("fallen off the bus", r"has fallen off the bus", "gpu_error", 5),
    _row("device handle for", r"Unable to determine the device handle for (?:gpu|GPU)", "gpu_error", 5),
    _row("GpuIsLost", r"NVMLError_GpuIsLost\b", "gpu_error", 5),
    _row("GPU is lost", r"(?:: |Error: )GPU is lost\b|GPU is lost\.  ?Reboot", "gpu_error", 5),
    _row("No CUDA GPUs", r"Error: No CUDA GPUs are available", "gpu_error", 5),
    _row("system not yet initialized", r"Error 802: system not yet initialized|CUDA error: system not yet initialized", "gpu_error", 5),
    _row("CUDA error", r"CUDA error: (?:no CUDA-capable device is detected|all CUDA-capable devices are busy|CUDA-capable device\(s\) is/are busy|the remote process|driver shutting down)", "gpu_error", 5),
    _row("CUDA_ERROR_", r"CUDA_ERROR_(?:ECC_UNCORRECTABLE|SYSTEM_NOT_READY|NVLINK_UNCORRECTABLE)", "gpu_error", 5),
    _row("HW Exception by GPU", r"HW Exception by GPU", "gpu_error", 5),
    # A result that another run, or another GPU, does not give: NVIDIA/Megatron-LM megatron/core/rerun_state_machine.py
    _row("Possible transient error", r"device \d{1,3}, iteration #?\d{1,12}: Possible transient error!", "gpu_error", 5),
    _row("Possible persistent error", r"device \d{1,3}, iteration #?\d{1,12}: Possible persistent error!", "gpu_error", 5),
    _row("CUDA driver error", r"CUDA driver error: (?!out of memory)\w", "cuda_error", 4),
    _row("CUDA error", r"CUDA error: (?!out of memory|uncorrectable|no CUDA-capable|all CUDA-capable|CUDA-capable|system not yet|driver shutting)[\w(]", "cuda_error", 4),
    _row("Triton Error", r"Triton Error \[\w{3,6}\]: (?!out of memory)\w", "cuda_error", 4),
    _row("Triton Error", r"Triton Error \[\w{3,6}\]: out of memory", "out_of_memory", 5, memory="gpu"),
    _row("CUDA_ERROR_", r"CUDA_ERROR_(?:ILLEGAL|LAUNCH|ASSERT|MISALIGNED|HARDWARE|INVALID_PC|EXTERNAL|UNKNOWN)\w{0,30}: ", "cuda_error", 4),
    _row("HIP error", r"HIP error: (?!out of memory)[\w(]", "cuda_error", 4),
    _row("Cuda failure", r"Cuda failure (?:\d{1,4} )?'(?!out of memory)", "cuda_error", 4),
    _row("unhandled cuda error", r"unhandled cuda error", "cuda_error", 4),
    _row("illegal memory access", r"(?:\(\d{1,4}\) ?: ?|Error: )an illegal memory access was encountered", "cuda_error", 4),
    _row("device-side assert", r"(?:\(\d{1,4}\) ?: ?|Error: )device-side assert triggered", "cuda_error", 4),
    _row("Assertion `", r"block: \[\d{1,9},\d{1,9},\d{1,9}\], thread: \[\d{1,9},\d{1,9},\d{1,9}\] Assertion `", "cuda_error", 4),
    _row("_STATUS_", r"Error: .{0,40}?CU(?:BLAS|DNN)_STATUS_(?!ALLOC_FAILED)[A-Z_]{3,40}", "cuda_error", 4),
    _row("access fault by GPU", r"Memory access fault by GPU", "cuda_error", 4),
    # Numbers
    _row("already at minimum", r"loss scale already at minimum", "numerics", 5),
    _row("Minimum loss scale", r"Minimum loss scale reached", "numerics", 5),
    _row("iterations in a row", r"Skipped \d{1,9} iterations in a row", "numerics", 5),
    # Megatron computes it again, and says then whether a GPU is to blame
    _row("Unexpected result", r"Error: .{0,120}?Unexpected result (?:tensor\()?(?:nan|inf|-inf)\b", "numerics", 5),
    _row("Unexpected result", r"Unexpected result (?:tensor\()?(?:nan|inf|-inf)\b", "numerics", 3),
    _row("topping training", r"[Ll]oss is (?:tensor\()?(?:nan|NaN|NAN|inf|Inf|-inf)\b.{0,60}?[Ss]topping training", "numerics", 5),
    _row("oss is nan", r"Error: .{0,60}?[Ll]oss is nan\b", "numerics", 5),
    _row("oss is NaN", r"Error: .{0,60}?[Ll]oss is NaN\b", "numerics", 5),
    _row("radients are Nan", r"[Gg]radients are Nan/Inf", "numerics", 5),
    _row("NaN loss during", r"NaN loss during training", "numerics", 5),
    _row("diverged with loss", r"Model diverged with loss = NaN", "numerics", 5),
    _row("nan values in its", r"Function '\w{1,80}' returned nan values in its \d{1,4}th output", "numerics", 5),
    _row("it cannot be clipped", r"is non-finite, so it cannot be clipped", "numerics", 5),
    _row("oss returned in", r"loss returned in `\w{1,40}` is (?:tensor\()?(?:nan|inf|-inf)", "numerics", 5),
    _row("nan and/or inf values in", r"Detected nan and/or inf values in `", "numerics", 5),
    _row("invalid value (nan)", r"Error: invalid value \(nan\) encountered in ", "numerics", 5),
    _row("nan loss encountered", r"nan loss encountered", "numerics", 5),
    _row("loss contains a NaN", r"loss contains a NaN", "numerics", 5),
    _row("found NaN in", r"found NaN in (?:local|the) ", "numerics", 5),
    # NCCL: NVIDIA/nccl issues 1609 and 1730, hiyouga/LlamaFactory issue 7396
    _row("aught collective operation", r"(?:Watchdog caught|\bCaught) collective operation timeout", "nccl_timeout", 4, says="timeout"),
    _row("detected by watchdog at work", r"(?:failure|timeout\)) detected by watchdog at work", "nccl_timeout", 4, says="status"),
    _row("Timeout at NCCL work", r"Timeout at NCCL work: \d", "nccl_timeout", 4, says="status"),
    _row("atchdog got stuck", r"watchdog got stuck for \d{1,9} seconds", "nccl_timeout", 4, says="timeout"),
    _row("no heartbeat of its watchdog", r"detected no heartbeat of its watchdog", "nccl_timeout", 4, says="timeout"),
    _row("Heartbeat monitor timed out", r"Heartbeat monitor timed out! Process will be terminated", "nccl_timeout", 4, says="timeout"),
    # Told to dump by the store: the rank did not wait itself, and is often the one that the others waited for
    _row("dump signal", r"Received a dump signal due to a collective timeout from {1,3}rank \d", "nccl_timeout", 2, says="signal"),
    _row("dump signal", r"Observed flight recorder dump signal from another rank", "nccl_timeout", 2, says="signal"),
    _row("attempting to dump", r"Terminating the process after attempting to dump debug info, due to ", "nccl_timeout", 2, says="signal"),
    _row("onitoredBarrier", r"failed to pass monitoredBarrier", "nccl_timeout", 4, says="barrier"),
    _row("onitored", r"successfully reached monitored_?[Bb]arrier, but received errors", "nccl_timeout", 2, says="abort"),
    _row("EI0002", r"EI0002: .{0,200}?(?:times? out|timed out|timeout)", "nccl_timeout", 4, says="timeout"),
    _row("Some NCCL operations", r"Some NCCL operations have failed or timed out", "nccl_timeout", 2, says="abort"),
    _row("NCCL communicator was aborted", r"NCCL communicator was aborted", "nccl_timeout", 2, says="abort"),
    _row("taking the entire process down", r"we are taking the entire process down", "nccl_timeout", 2, says="abort"),
    _row("Timed out waiting", r"Timed out waiting \d{1,12}ms for (?:recv|send) operation", "nccl_timeout", 4, says="timeout"),
    # Network: NVIDIA/nccl issues 1405 and 1814
    _row("Got completion from peer", r"Got completion from peer", "network", 4),
    _row("NCCL WARN", r"NCCL WARN .{0,120}?(?:Connect to .{0,120}? failed|No route to host|Got (?:fatal )?async|Call to ibv_\w{1,40} failed)", "network", 4),
    _row("NCCL WARN", r"NCCL WARN .{0,120}?Connection (?:reset|refused|closed|timed out)", "network", 2),
    _row("NCCL error", r"NCCL error(?: in)?: ", "network", 2),
    _row("got error: ", r"store->get\('[^']{1,60}'\) got error: ", "network", 2),
    _row("waiting for clients", r"Timed out after \d{1,9} seconds waiting for clients", "network", 2),
    _row("wait timeout after", r"wait timeout after \d{1,12}ms, keys: ", "network", 2),
    _row("ddress already in use", r"Error: .{0,200}?[Aa]ddress already in use", "network", 4),
    _row("stopped sending heartbeats", r"tasks are unhealthy \(stopped sending heartbeats\)", "network", 2),
    _row("lost communication with a", r"(?:ORTE|PRTE) has lost communication with a remote daemon", "network", 4),
    _row("EI0006", r"EI0006: ", "network", 2),
    _row("Rendezvous", r"(?:^|\.|error of type )Rendezvous(?:Timeout|Connection|Closed|State|Graceful)\w{0,12}Error(?:[:.]|\Z)", "network", 2),
    _row("client socket has", r"The client socket has (?:failed to connect|timed out)", "network", 2),
    _row("server socket has", r"The server socket has failed to (?:listen|bind)", "network", 4),
    _row("TCPStore", rf"{_PEER}|Failed to check the .should dump. flag", "network", 2),
    _row("c10d", _PEER, "network", 2),
    _row("gloo", _PEER, "network", 2),
    _row("ProcessGroupNCCL", _PEER, "network", 2),
    _row("ncclRemoteError", r"ncclRemoteError: ", "network", 2),
    _row("ncclSystemError", r"ncclSystemError: ", "network", 2),
    # A signal of its own
    _row("Segmentation fault", r"Segmentation fault|Caught signal 11 ", "crashed", 4),
    _row("段错误", r"段错误", "crashed", 4),
    _row("zsh: ", r"\bzsh: (?:segmentation fault|bus error|illegal hardware instruction|floating point exception)\b", "crashed", 4),
    _row("SIGSEGV", r"\*\*\* SIGSEGV .{0,60}?received by PID|^\s{0,20}SIGSEGV\b", "crashed", 4),
    _row("Segfault encountered", r"Segfault encountered", "crashed", 4),
    _row("general protection", r"\bgeneral protection fault\b", "crashed", 4),
    _row("free(): ", r"\bfree\(\): (?:invalid|double|corrupted|unaligned)", "crashed", 4),
    _row("double free", r"double free or corruption", "crashed", 4),
    _row("malloc", r"\bmalloc(?:_consolidate)?\(\): |\bmalloc\.c:\d{1,6}: .{0,60}?Assertion `", "crashed", 4),
    _row("munmap_chunk", r"munmap_chunk\(\): invalid pointer", "crashed", 4),
    _row("corrupted ", r"\bcorrupted (?:size vs\. prev_size|double-linked list)", "crashed", 4),
    _row("stack smashing", r"stack smashing detected", "crashed", 4),
    _row("segfault at", r"segfault at [0-9a-f]", "crashed", 4),
    _row("Bus error", r"\bBus error\b", "crashed", 4),
    _row("总线错误", r"总线错误", "crashed", 4),
    _row("Illegal instruction", r"\bIllegal instruction .{0,20}dumped", "crashed", 4),
    _row("Floating point exception", r"\bFloating point exception\b", "crashed", 4),
    _row("Fatal Python error", r"Fatal Python error: ", "crashed", 4),
    _row("terminate called", r"terminate called (?:after|without|recursively)|instance of 'terminate called", "crashed", 2),
    _row("Aborted", r"\bAborted +\(core dumped\)|srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Aborted", "crashed", 2),
    # Killed
    _row("Killed", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Killed", "killed", 3, signal="9"),
    _row("Killed", r"^\s{0,20}Killed\s{0,20}\Z|line \d{1,6}: {1,9}\d{1,9} Killed\b|killed by signal: Killed", "killed", 3, signal="9"),
    _row("已杀死", r"^\s{0,20}已杀死\s{0,20}\Z|行 {0,3}\d{1,6}[:：] {1,9}\d{1,9} 已杀死", "killed", 3, signal="9"),
    _row("zsh: ", r"\bzsh: killed\b", "killed", 3, signal="9"),
    _row("unexpected system error", r"worker died or was killed .{0,60}?unexpected system error", "killed", 3, signal="9"),
    _row("SIGKILL", r"Signal 9 \(SIGKILL\) received|died with <Signals\.SIGKILL", "killed", 3, signal="9"),
    _row("code 137", r"\b(?:exit code|exited with code) 137\b", "killed", 3, signal="9"),
    _row("code: 137", r"\bexit code: 137\b", "killed", 3, signal="9"),
    _row("status 137", r"\bexit status 137\b", "killed", 3, signal="9"),
    # A terminal that was closed: torchrun ends of SIGHUP unless tmux or nohup stands between
    _row("death signal", r"Received (?:1|Signals\.SIGHUP) death signal", "killed", 3, signal="1"),
    _row("death signal", r"Received (?:2|Signals\.SIGINT) death signal", "cancelled", 2),
    _row("death signal", r"Received (?!1 |2 )(?:\d{1,3}|Signals\.SIG(?!HUP|INT)[A-Z]{2,6}) death signal", "killed", 1, signal="15"),
    _row("closing signal", r"closing signal (?:SIG[A-Z]{2,6}|Signals)", "killed", 1, signal="15"),
    _row("Received SIGTERM", r"Received SIGTERM: 15", "killed", 1, signal="15"),
    _row("got signal:", r"got signal: 1\b", "killed", 3, signal="1"),
    _row("got signal:", r"got signal: 2\b", "cancelled", 2),
    _row("got signal:", r"got signal: (?![12]\b)\d", "killed", 1, signal="15"),
    _row("Killing subprocess", r"Killing subprocess \d", "killed", 1, signal="15"),
    _row("Terminated", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Terminated|Force Terminated ", "killed", 1, signal="15"),
    _row("Job step aborted", r"srun: Job step aborted: Waiting", "killed", 1, signal="15"),
    _row("forcing job termination", r"srun: forcing job termination", "killed", 1, signal="15"),
    # Launchers
    _row("on signal ", r"exited on signal \d", "process_failed", 2),
    _row("by signal", r"(?:is|was) (?:killed|terminated) by signal:? \w", "process_failed", 2),
    _row("with signal SIG", r"terminated with signal SIG[A-Z]{2,4}\b", "process_failed", 2),
    _row("died with <Signals", r"died with <Signals\.SIG[A-Z]{2,4}\b", "process_failed", 2),
    _row("terminated with exit code", r"process \d{1,7} terminated with exit code (?!0\b)\d", "process_failed", 2),
    _row("exited unexpectedly", r"worker \(pid\(s\) [\d, ]{1,200}\) exited unexpectedly", "process_failed", 2),
    _row("died unexpectedly", r"[Tt]he (?:worker|actor) died unexpectedly", "process_failed", 2),
    _row("other failure mode", r"slurmstepd: error: .{0,100}?FAILED \(non-zero exit code or other failure mode\)", "process_failed", 2),
    _row("JAX distributed service", r"JAX distributed service detected fatal errors", "process_failed", 2),
    _row("ChildFailedError", r"ChildFailedError(?::|\Z)", "process_failed", 2),
    _row("exitcode", r"failed \(exitcode: -?\d{1,4}\)", "process_failed", 2),
    _row("exits with return code", r"exits with return code = (?!0\b)-?\d{1,4}", "process_failed", 2),
    _row("Exited with exit code", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Exited with exit code (?!0\b)\d", "process_failed", 2),
    _row("Child process with PID", r"Child process with PID \d{1,9} terminated with code", "process_failed", 2),
    _row("ssh exited with", r"ssh exited with exit code (?!0\b)\d", "process_failed", 2),
    _row("non-zero exit code", r"process returned\s+a non-zero exit code", "process_failed", 2),
    # It would fail again
    _row("loading state_dict for", r"Error\(s\) in loading state_dict for ", "config_error", 4),
    _row("can't open file", r"python\S{0,20}: can't open file ", "config_error", 4),
    _row("No module named", r"python\S{0,20}: No module named ", "config_error", 4),
    _row("command not found", r"(?:torchrun|python[\d.]{0,5}|deepspeed|accelerate|srun|mpirun|mpiexec): command not found", "config_error", 4),
    _row("execve()", r"slurmstepd: error: execve\(\): .{1,200}?: No such file or directory", "config_error", 4),
    # argparse
    _row(": error: ", r"^\S{1,300}: error: (?:unrecognized arguments|the following arguments are required|argument \S|ambiguous option)", "config_error", 4),
)  # fmt: skip
