"""Texts by which a log says that something broke: one row a text, one class a kind of fault. Data only, and the search for it.

``level`` says what is cause and what only follows: 5 = the surroundings ended the run, 4 = the program itself failed, 3 = killed by
somebody unknown, 2 = what a launcher or a peer says when a process has died, 1 = what is said to processes that are still alive,
0 = stands for itself. Texts: PyTorch (torch/csrc/distributed/c10d, torch/distributed/elastic), NCCL (src/transport, src/misc), CUDA,
Slurm (slurmstepd, srun), the Linux kernel, DeepSpeed and Megatron-LM; real examples are named beside the rows.

``python -m trainvitals.logs.faults.table`` rewrites the generated table of docs/faults.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainvitals.records import Severity


@dataclass(frozen=True)
class FaultClass:
    """``is_deadly``: no trainer goes on after it. ``action``: what to look at first."""

    severity: Severity
    is_deadly: bool
    meaning: str
    action: str


def _deadly(meaning: str, action: str) -> FaultClass:
    return FaultClass(Severity.CRITICAL, True, meaning, action)


def _soft(meaning: str, action: str, *, is_deadly: bool) -> FaultClass:
    return FaultClass(Severity.WARNING, is_deadly, meaning, action)


CLASSES: Mapping[str, FaultClass] = MappingProxyType(
    {
        "out_of_memory": _deadly("GPU memory (data.memory = gpu) or the host's (host) was used up", "batch size, sequence length, fragmentation; on the host: data loader workers, checkpoint staging"),
        "gpu_error": _deadly("a GPU failed: uncorrectable ECC error, lost from the bus", "drain the node, reset or replace the GPU"),
        "disk_full": _deadly("no space or no quota left", "space of the checkpoint directory, the log directory and /tmp"),
        "numerics": _deadly("the loss scale fell to its floor, or the trainer gave up on NaN; as a warning: five or more halvings in a row", "learning rate, data, precision; see the loss before it"),
        "node_failure": _deadly("the scheduler lost a node", "the scheduler's log of that node"),
        "time_limit": _soft("the allocation ended", "submit again; the newest checkpoint counts", is_deadly=True),
        "preempted": _soft("the scheduler took the nodes for another job, or queued the job again", "wait, or submit again", is_deadly=True),
        "nccl_timeout": _deadly("a collective did not end: ranks_seen waited, ranks_missing said nothing", "the missing ranks' hosts and logs"),
        "cuda_error": _deadly("a CUDA call failed: illegal access, device-side assert, launch failure", "the first traceback; then the GPU's health"),
        "crashed": _deadly("a process ended by a signal of its own: segmentation fault, bus error, abort", "the core dump; libraries that changed"),
        "config_error": _deadly("the program could not start: a module, an argument or a file is missing or wrong", "the last line of the traceback; what changed since the last start"),
        "exception": _deadly("a Python exception of any other kind that nobody caught", "the traceback"),
        "killed": _deadly("a process was killed (data.signal), by whom is not said", "the host's kernel log (out of memory?), the scheduler, people"),
        "network": _soft("a connection between ranks, or to the rendezvous, broke", "the link, the switch, and whether the peer died first", is_deadly=False),
        "process_failed": _deadly("the launcher saw a process end with an error", "that rank's own log"),
        "cancelled": _soft("somebody cancelled the job or interrupted the program", "ask who", is_deadly=True),
        "xid": _soft("the NVIDIA driver reported an Xid (data.xid, data.pci)", "the Xid's number in NVIDIA's table", is_deadly=False),
        "io_hang": _soft("the kernel saw a task blocked for minutes, mostly on storage", "the file system it waits for", is_deadly=False),
    }
)  # fmt: skip
DEADLY_CLASSES = frozenset(name for name, known in CLASSES.items() if known.is_deadly)


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
_ROWS: tuple[Row, ...] = (
    _row("Xid (", r"Xid \((?:PCI:)?[0-9a-fA-F:.]{1,20}\): \d{1,4}", "xid", 0),
    _row("blocked for more than", r"task \S{1,80} blocked for more than \d{1,6} seconds", "io_hang", 0),
    # Slurm, PBS, LSF, submitit
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO TIME LIMIT", "time_limit", 5),
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO NODE FAILURE", "node_failure", 5),
    _row("CANCELLED AT", r"CANCELLED AT \S{1,40} DUE TO (?:PREEMPTION|JOB REQUEUE)", "preempted", 5),
    _row("CANCELLED AT", r"slurmstepd: error: \*\*\* .{0,200}?CANCELLED AT \S{1,40}", "cancelled", 2),
    _row("job killed: walltime", r"PBS: job killed: walltime", "time_limit", 5),
    _row("TERM_RUNLIMIT", r"TERM_RUNLIMIT: job killed", "time_limit", 5),
    _row("TERM_PREEMPT", r"TERM_PREEMPT: ", "preempted", 5),
    _row("this job is ", r"Caught signal \w{1,20} on \S{1,100}: this job is timed-out", "time_limit", 5),
    _row("this job is ", r"Caught signal \w{1,20} on \S{1,100}: this job is preempted", "preempted", 5),
    _row("Node failure on", r"(?:srun|salloc|sbatch): error: Node failure on \S", "node_failure", 5),
    _row("memory limit", r"slurmstepd: error: .{0,80}?[Ee]xceeded (?:job |step )?memory limit", "out_of_memory", 5, memory="host"),
    _row("PBS: job killed:", r"PBS: job killed: (?:v?mem|pv?mem|ppmem|resident)", "out_of_memory", 5, memory="host"),
    # Memory
    _row("ray.exceptions.OutOfMemory", r"ray\.exceptions\.OutOfMemoryError", "out_of_memory", 5, memory="host"),
    _row("out of memory", rf"^\s?{_DEVICE} out of memory|(?:Error|exception): {_DEVICE} out of memory|{_DEVICE} out of memory\. Tried to", "out_of_memory", 5, memory="gpu"),
    _row("out of memory", r"(?:CUDA|HIP) error: out of memory|[Cc]uda (?:runtime error \(2\) :|failure (?:2 )?')\s?out of memory", "out_of_memory", 5, memory="gpu"),
    _row("RESOURCE_EXHAUSTED: ", r"RESOURCE_EXHAUSTED: .{0,40}?[Oo]ut of memory", "out_of_memory", 5, memory="gpu"),
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
    _row("No space left", r"No space left on device", "disk_full", 5),
    _row("Disk quota", r"Disk quota exceeded", "disk_full", 5),
    # GPU
    _row("ECC", r"[Uu]ncorrectable ECC error(?![s,])|cudaErrorECCUncorrectable", "gpu_error", 5),
    _row("NVLink error", r"[Uu]ncorrectable NVLink error", "gpu_error", 5),
    _row("fallen off the bus", r"has fallen off the bus", "gpu_error", 5),
    _row("device handle for", r"Unable to determine the device handle for (?:gpu|GPU)", "gpu_error", 5),
    _row("CUDA error", r"CUDA error: (?!out of memory|uncorrectable)[\w(]", "cuda_error", 4),
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
    _row("Unexpected result", r"Unexpected result (?:nan|inf|-inf)\b", "numerics", 5),
    _row("stopping training", r"[Ll]oss is (?:nan|inf|-inf), stopping training", "numerics", 5),
    _row("Gradients are Nan", r"Gradients are Nan/Inf", "numerics", 5),
    _row("nan loss encountered", r"nan loss encountered", "numerics", 5),
    _row("loss contains a NaN", r"loss contains a NaN", "numerics", 5),
    _row("found NaN in", r"found NaN in (?:local|the) ", "numerics", 5),
    # NCCL: NVIDIA/nccl issues 1609 and 1730, hiyouga/LlamaFactory issue 7396
    _row("atchdog caught collective", r"Watchdog caught collective operation timeout", "nccl_timeout", 4, says="timeout"),
    _row("detected by watchdog at work", r"(?:failure|timeout\)) detected by watchdog at work", "nccl_timeout", 4, says="status"),
    _row("Timeout at NCCL work", r"Timeout at NCCL work: \d", "nccl_timeout", 4, says="status"),
    _row("atchdog got stuck", r"watchdog got stuck for \d{1,9} seconds", "nccl_timeout", 4, says="timeout"),
    _row("Some NCCL operations", r"Some NCCL operations have failed or timed out", "nccl_timeout", 2, says="abort"),
    _row("NCCL communicator was aborted", r"NCCL communicator was aborted", "nccl_timeout", 2, says="abort"),
    _row("taking the entire process down", r"we are taking the entire process down", "nccl_timeout", 2, says="abort"),
    _row("Timed out waiting", r"Timed out waiting \d{1,12}ms for (?:recv|send) operation", "nccl_timeout", 4, says="timeout"),
    # Network: NVIDIA/nccl issues 1405 and 1814
    _row("Got completion from peer", r"Got completion from peer", "network", 4),
    _row("NCCL WARN", r"NCCL WARN .{0,120}?(?:Connect to .{0,120}? failed|No route to host|Got async|Call to ibv_\w{1,40} failed)", "network", 4),
    _row("NCCL WARN", r"NCCL WARN .{0,120}?Connection (?:reset|refused|closed|timed out)", "network", 2),
    _row("NCCL error in", r"NCCL error in: ", "network", 2),
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
    _row("segfault at", r"segfault at [0-9a-f]", "crashed", 4),
    _row("Bus error", r"\bBus error\b", "crashed", 4),
    _row("Illegal instruction", r"\bIllegal instruction .{0,20}dumped", "crashed", 4),
    _row("Floating point exception", r"\bFloating point exception\b", "crashed", 4),
    _row("Fatal Python error", r"Fatal Python error: ", "crashed", 4),
    _row("terminate called", r"terminate called (?:after|without|recursively)|instance of 'terminate called", "crashed", 2),
    _row("Aborted", r"\bAborted +\(core dumped\)|srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Aborted", "crashed", 2),
    # Killed
    _row("Killed", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Killed", "killed", 3, signal="9"),
    _row("Killed", r"^\s{0,20}Killed\s{0,20}\Z|line \d{1,6}: {1,9}\d{1,9} Killed\b|killed by signal: Killed", "killed", 3, signal="9"),
    _row("SIGKILL", r"Signal 9 \(SIGKILL\) received|died with <Signals\.SIGKILL", "killed", 3, signal="9"),
    _row("code 137", r"\b(?:exit code|exited with code) 137\b", "killed", 3, signal="9"),
    _row("code: 137", r"\bexit code: 137\b", "killed", 3, signal="9"),
    _row("status 137", r"\bexit status 137\b", "killed", 3, signal="9"),
    _row("on signal 9", r"exited on signal 9\b", "killed", 3, signal="9"),
    _row("death signal", r"Received (?:\d{1,3}|Signals\.SIG[A-Z]{2,6}) death signal", "killed", 1, signal="15"),
    _row("closing signal", r"closing signal (?:SIG[A-Z]{2,6}|Signals)", "killed", 1, signal="15"),
    _row("Received SIGTERM", r"Received SIGTERM: 15", "killed", 1, signal="15"),
    _row("got signal:", r"got signal: \d", "killed", 1, signal="15"),
    _row("Killing subprocess", r"Killing subprocess \d", "killed", 1, signal="15"),
    _row("Terminated", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Terminated|Force Terminated ", "killed", 1, signal="15"),
    _row("Job step aborted", r"srun: Job step aborted: Waiting", "killed", 1, signal="15"),
    # Launchers
    _row("ChildFailedError", r"ChildFailedError(?::|\Z)", "process_failed", 2),
    _row("exitcode", r"failed \(exitcode: -?\d{1,4}\)", "process_failed", 2),
    _row("exits with return code", r"exits with return code = (?!0\b)-?\d{1,4}", "process_failed", 2),
    _row("Exited with exit code", r"srun: error: \S{1,100}: tasks? [\d,-]{1,200}: Exited with exit code (?!0\b)\d", "process_failed", 2),
    _row("Child process with PID", r"Child process with PID \d{1,9} terminated with code", "process_failed", 2),
    _row("ssh exited with", r"ssh exited with exit code (?!0\b)\d", "process_failed", 2),
    _row("non-zero exit code", r"process returned\s+a non-zero exit code", "process_failed", 2),
    # argparse
    _row(": error: ", r"^\S{1,300}: error: (?:unrecognized arguments|the following arguments are required|argument \S|ambiguous option)", "config_error", 4),
)  # fmt: skip

_BY_LITERAL: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {literal: tuple(row for row in _ROWS if row.literal == literal) for literal in dict.fromkeys(row.literal for row in _ROWS)}
)
#: One of these, letter by letter, is in every line in which ``sightings`` finds anything. Without digits none may be common.
LITERALS = tuple(_BY_LITERAL)

#: How a line of a program's text begins; a message that a program would print stands in it, but nothing happened.
_CODE = re.compile(
    r"\s{0,200}(?:#(?!#)|//|\"\"\"|@\w|(?:if|elif|for|while|with|def|class|except|try|else)\b.{0,300}:\s{0,9}(?:#.{0,300})?$|raise \w[\w.]{0,80}(?:\(|$)|[rfb][\"']|[\"'][^\"']{0,300}[\"'],?\s{0,9}\)?$"
    r"|print\(|assert |return (?!code)|import \w|from [\w.]{1,80} import |(?:logg?er|logging|log)\.(?:info|error|warn|exception|debug|critical)|self\.\w"
    r"|[A-Za-z_][\w.\[\]]{0,80}(?:, [A-Za-z_]\w{0,40}){0,6} [+|]?= ?\S)",
    re.ASCII,
)
_QUOTES = frozenset("\"'`")
_BEFORE, _AFTER, _PLACES = 400, 600, 4


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row found in a line. ``text``: the line around it."""

    kind: str
    level: int
    text: str
    detail: Mapping[str, str]


def sightings(line: str) -> list[Sighting]:
    """Every class that the line names, each once with its strongest row; nothing for a line of program text."""
    found: dict[str, Sighting] = {}
    for literal, rows in _BY_LITERAL.items():
        if literal in line:
            for row in rows:
                text, is_found = _look(row, line)
                known = found.get(row.kind)
                if is_found and (known is None or row.level > known.level):
                    found[row.kind] = Sighting(row.kind, row.level, text, row.detail)
    if "xid" in found:
        return [found["xid"]]  # the rest of that line is the driver's own explanation of the number
    if "cancelled" in found and any(kind in found for kind in ("time_limit", "node_failure", "preempted")):
        del found["cancelled"]
    return list(found.values())


def _look(row: Row, line: str) -> tuple[str, bool]:
    """The text around the row's literal, and whether its pattern is there: looked for in a few places of an endless line."""
    at = line.find(row.literal)
    for _ in range(_PLACES):
        if at < 0:
            break
        text = line[max(0, at - _BEFORE) : at + _AFTER]
        match = row.pattern.search(text)
        if match is not None and not _is_program_text(line, text, match.start()):
            return text, True
        at = line.find(row.literal, at + _AFTER)
    return "", False


def _is_program_text(line: str, text: str, start: int) -> bool:
    if _CODE.match(line):
        return True
    if start == 0 or text[start - 1] not in _QUOTES or text[start] in _QUOTES:
        return False
    # An exception's repr, C++ ("an instance of 'terminate called ...") and loggers that write JSON or logfmt quote what did happen.
    is_told = text.startswith(("terminate called", "instance of"), start) or text.endswith(("Error(", "Exception("), 0, start - 1)
    return not (is_told or line.lstrip().startswith("{") or "level=" in line or "msg=" in line)


def table() -> str:
    """Markdown."""
    rows = [
        f"| `{name}` | {known.severity.value} | {'yes' if known.is_deadly else 'no'} | {known.meaning} | {known.action} |"
        for name, known in CLASSES.items()
    ]
    return "\n".join(["| class | severity | deadly | meaning | look at |", "|---|---|---|---|---|", *rows])


def with_table(text: str) -> str:
    """The document with what stands between its generated marks made anew. Raises ``ValueError`` when they are missing."""
    begin, end = "<!-- generated: faults -->\n", "<!-- end: faults -->"
    head, found, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found and found_end):
        raise ValueError("The document lacks the marks of the generated table 'faults'.")
    return head + begin + table() + "\n" + end + tail


def main() -> int:
    """Rewrite docs/faults.md of this checkout."""
    path = Path(__file__).parents[2] / "docs" / "faults.md"
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
