"""Why a start of the trainer ended: one word for the decision, one sentence for people. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainvitals.control.group import PARKED_END
from trainvitals.incidents.postmortem import Postmortem

#: The trainer asks to be put away (EX_TEMPFAIL): it saved, and wants its nodes released.
PARK_CODE = 75
NOT_FOUND = 127
#: ``ended_by_us`` for what stayed after the trainer's good-bye: a launcher, or a rank that did not end.
LEFT_OVER = "left_over"


@dataclass(frozen=True, slots=True)
class Policy:
    """action: restart, hold, give_up, done. deaths: in a row at one place after which it holds, 0 = as set for all."""

    action: str
    why: str
    deaths: int = 0


#: What ranks and launchers tell that only follows; a scheduler that lost a node knows why.
FOLLOWERS = ("nccl_timeout", "network", "process_failed", "cancelled", "killed", "unknown")
#: What follows each kind of end; the kinds of faults are those of ``logs.faults``.
POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "finished": Policy("done", "the training reached its end"),
        "parked": Policy("done", "the trainer saved and gave its nodes back; whoever started the supervisor starts it again"),
        "stopped": Policy("stopped", "somebody stopped the run; it starts again when somebody resumes it"),
        "rollback": Policy("restart_now", "somebody asked to go back"),
        "shutdown": Policy("done", "the supervisor itself was told to end"),
        "out_of_memory": Policy("restart", "fragmentation and long samples pass; the same batch twice does not", 2),
        "numerics": Policy("restart", "from a checkpoint before the onset; twice at one place needs other data or settings", 2),
        "hang": Policy("restart", "no step for too long"),
        "nccl_timeout": Policy("restart", "a rank was gone or late"),
        "network": Policy("restart", "a connection broke"),
        "node_failure": Policy("restart", "the scheduler lost a node"),
        "gpu_error": Policy("restart", "a GPU failed"),
        "xid": Policy("restart", "the driver reported a fault of a GPU"),
        "cuda_error": Policy("restart", "a CUDA call failed"),
        "crashed": Policy("restart", "a process ended by a signal of its own"),
        "exception": Policy("restart", "an exception that nobody caught"),
        "killed": Policy("restart", "killed from outside: the host's memory, the scheduler, or a person"),
        "process_failed": Policy("restart", "a launcher saw a process end"),
        "io_hang": Policy("restart", "storage did not answer"),
        "storage_error": Policy("restart", "a file system failed; if it still does, the next start fails at once"),
        "time_limit": Policy("restart", "the allocation ended"),
        "preempted": Policy("restart", "the scheduler took the nodes"),
        "cancelled": Policy("restart", "SIGTERM or SIGINT from somebody else; to end a run for good there is control stop"),
        "unknown": Policy("restart", "nothing tells why"),
        "disk_full": Policy("hold", "the next checkpoint would not be written either"),
        "wide_area": Policy("hold", "many nodes at once: a restart would meet the same network or power"),
        "config_error": Policy("give_up", "it would fail in the same way again"),
        "resumed_behind": Policy("hold", "the trainer does not load what it is told"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What the scheduler says of an end. is_sure: it knows better than the logs; else it counts only where these tell no cause."""

    kind: str
    text: str
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """code: of the trainer, negative = ended by that signal, None = not known. ended_by_us: "" or why the supervisor ended it
    (hang, rollback, shutdown, resumed_behind, left_over). is_stop_asked: the run is asked to be stopped. end_reason: what the trainer told
    its hook at the end ("finished", "stopped", …), "" = nothing. has_steps: it trained, so it could start.
    faulty_nodes: nodes with a fault of their own at this moment. may_be_off: its own way of control makes it end with exit code 0 before it
    trains, and earlier starts did train."""

    code: int | None
    ended_by_us: str = ""
    is_stop_asked: bool = False
    end_reason: str = ""
    postmortem: Postmortem | None = None
    nonfinite_at_step: int | None = None
    faulty_nodes: int = 0
    wide_area_nodes: int = 0
    scheduler: Scheduler | None = None
    has_steps: bool = False
    may_be_off: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """kind: a key of ``POLICIES``. sentence: for people."""

    kind: str
    sentence: str


def classify(evidence: Evidence) -> Exit:
    """The trainer's own good-bye first, then who ended it, then the earliest cause in the logs, then the exit code."""
    how = _how(evidence.code)
    if evidence.ended_by_us == LEFT_OVER and evidence.end_reason == "stopped":
        return Exit("stopped", f"stopped on request; what stayed of it was ended ({how})")
    if evidence.ended_by_us and evidence.ended_by_us != LEFT_OVER:
        return Exit(evidence.ended_by_us, f"ended by the supervisor ({evidence.ended_by_us.replace('_', ' ')}), {how}")
    if evidence.code == PARK_CODE or evidence.end_reason == PARKED_END:  # a launcher may have made another code of it
        return Exit("parked", f"parked ({how})")
    if evidence.code == 0:
        if evidence.end_reason == "stopped" or (evidence.is_stop_asked and evidence.end_reason != "finished"):
            return Exit("stopped", "stopped on request")
        if evidence.may_be_off and not evidence.has_steps and not evidence.end_reason:
            return Exit("unknown", "exit code 0 without a step, as a kill switch makes it")
        return Exit("finished", "finished")
    if evidence.code is None and evidence.end_reason in ("finished", "stopped"):
        return Exit(evidence.end_reason, f"{evidence.end_reason}, as the trainer said")
    if evidence.wide_area_nodes and evidence.faulty_nodes >= evidence.wide_area_nodes:
        return Exit("wide_area", f"{evidence.faulty_nodes:,} nodes have a fault at once; the trainer {how}")
    kind, told = _from_logs(evidence)
    if kind == "config_error" and evidence.has_steps:
        # A trainer goes on after the traceback of an optional import; and what a signal ended was ended by no exception.
        kind, told = ("", "") if _signal(evidence.code) else ("exception", told)
    scheduler = evidence.scheduler
    if scheduler is not None and (scheduler.is_sure or kind in ("", *FOLLOWERS)):
        kind, told = scheduler.kind, scheduler.text + (f"; {told}" if told else "")
    if not kind and evidence.nonfinite_at_step is not None:
        kind, told = "numerics", f"the loss was no number at step {evidence.nonfinite_at_step:,}"
    if kind in ("", "exception") and evidence.nonfinite_at_step is not None:
        # A trainer's own guard ends by an exception of any name; what it had logged tells what it saw.
        kind, told = "numerics", f"the loss was no number at step {evidence.nonfinite_at_step:,}; {told}"
    if not kind:
        kind = _from_code(evidence.code)
    return Exit(kind if kind in POLICIES else "unknown", f"{how}" + (f"; {told}" if told else ""))


def _from_logs(evidence: Evidence) -> tuple[str, str]:
    found = evidence.postmortem
    if found is None or found.cause is None:
        return "", ""
    return found.cause.kind, found.message


def _from_code(code: int | None) -> str:
    if code is None:
        return "unknown"
    number = _signal(code)
    if number == signal.SIGKILL:
        return "killed"
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return "cancelled"
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL):
        return "crashed"
    if code in (NOT_FOUND, 126):
        return "config_error"
    return "unknown"


def _signal(code: int | None) -> int:
    """That ended it, 0 = none; a shell and a launcher tell it as 128 and more."""
    return 0 if code is None else -code if code < 0 else code - 128 if code > 128 else 0


def _how(code: int | None) -> str:
    if code is None:
        return "ended and nobody saw its exit code"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}"
    return f"exit code {code}"


def policies_table() -> str:
    """Markdown, for docs/supervisor.md."""
    words = {
        "restart": "restart",
        "restart_now": "restart at once",
        "give_up": "no retry",
        "hold": "hold",
        "done": "end",
        "stopped": "wait",
    }
    rows = [
        f"| `{kind}` | {words[policy.action]}{f' (hold after {policy.deaths} in place)' if policy.deaths else ''} | {policy.why} |"
        for kind, policy in POLICIES.items()
    ]
    return "\n".join(["| end | what follows | why |", "|---|---|---|", *rows])
