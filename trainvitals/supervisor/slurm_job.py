"""What is known of the job of a start: ``slurm_job.json`` in the run directory, written by whoever follows the job, read by the supervisor."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainvitals.control import files
from trainvitals.errors import InputError
from trainvitals.supervisor.exits import Scheduler
from trainvitals.supervisor.slurm_text import JOB_ID, Job, nodes_of, shown

JOB_FILE = "slurm_job.json"
#: States of our own beside Slurm's: before there is a job, and after Slurm has forgotten it or started it again by itself.
SUBMITTING, NOT_SUBMITTED, FORGOTTEN, STARTED_ANEW = "SUBMITTING", "NOT_SUBMITTED", "FORGOTTEN", "STARTED_ANEW"
#: State of a job -> class of the end, whether the logs may know better.
_KINDS: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        "NODE_FAIL": ("node_failure", True),
        "BOOT_FAIL": ("node_failure", True),
        "TIMEOUT": ("time_limit", True),
        "DEADLINE": ("time_limit", True),
        "PREEMPTED": ("preempted", True),
        STARTED_ANEW: ("preempted", True),
        "OUT_OF_MEMORY": ("out_of_memory", False),
        "CANCELLED": ("cancelled", False),
        NOT_SUBMITTED: ("unknown", True),
    }
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """attempt: of the start. job: its number, "" = none yet. node_list: where it ran. started_ns: it began to run. ends_at_ns: its
    time limit. lost_nodes: of its nodes, those that were bad when it ended. trouble: why Slurm could not be asked, "" = it was."""

    attempt: int
    job: str = ""
    state: str = SUBMITTING
    reason: str = ""
    is_over: bool = False
    is_waiting: bool = True
    node_list: str = ""
    node_count: int = 0
    partition: str = ""
    restarts: int = 0
    started_ns: int | None = None
    ends_at_ns: int | None = None
    exit_code: int = 0
    exit_signal: int = 0
    output: str = ""
    errors: str = ""
    lost_nodes: tuple[str, ...] = ()
    trouble: str = ""

    def seen(self, job: Job, now_ns: int) -> JobRecord:
        """With what Slurm says now. A job that waits again keeps the nodes it had."""
        is_running = not job.is_waiting and not job.is_over
        return replace(
            self, job=job.id, state=job.state, reason=job.reason, is_over=job.is_over, is_waiting=job.is_waiting,
            node_list=job.node_list or self.node_list, node_count=job.node_count or self.node_count, partition=job.partition or self.partition,
            restarts=job.restarts, started_ns=self.started_ns or (now_ns if is_running or (job.is_over and job.nodes) else None),
            ends_at_ns=job.ends_at_ns if is_running else None, exit_code=job.exit_code, exit_signal=job.exit_signal,
            output=job.output or self.output, errors=job.errors or self.errors, trouble="",
        )  # fmt: skip

    @property
    def nodes(self) -> tuple[str, ...]:
        return nodes_of(self.node_list)

    @property
    def code(self) -> int | None:
        """As a trainer's own exit code; None where nobody knows it."""
        if self.state == "COMPLETED":
            return 0
        if self.exit_code or self.exit_signal:
            return self.exit_code or 128 + self.exit_signal
        return None if self.state == FORGOTTEN else 1

    @property
    def told(self) -> Scheduler | None:
        """What the scheduler says of the end; None where it says no more than an exit code does."""
        kind, is_sure = _KINDS.get(self.state, ("", False))
        if self.lost_nodes and self.state == STARTED_ANEW:
            kind = "node_failure"
        if not kind:
            return None
        lost = f", lost {shown(self.lost_nodes)}" if self.lost_nodes else ""
        why = f" ({self.trouble})" if self.trouble else ""
        what = f"job {self.job}" if self.job else "no job"
        return Scheduler(kind, f"{what}: {self.state.replace('_', ' ').lower()}{lost}{why}", is_sure)


def mark_of(run_dir: str) -> str:
    """What the comments of all jobs of this run have in common, on each host that has its directory. Raises ``InputError``."""
    real = os.path.realpath(run_dir)
    try:
        number = Path(real).stat().st_ino
    except OSError as error:
        raise InputError(f"Cannot look at the run directory {run_dir}: {error.strerror or error}.") from error
    return hashlib.sha256(os.fsencode(f"{number}:{real}")).hexdigest()[:16]


def write(run_dir: str, record: JobRecord) -> None:
    """Raises ``ControlError`` or ``OSError``; the file before stays whole."""
    files.replace(
        Path(run_dir) / JOB_FILE, (json.dumps(asdict(record), separators=(",", ":")) + "\n").encode(), files.STATUS_MODE
    )


def read(run_dir: str) -> JobRecord | None:
    """None when there is none. Raises ``InputError``, ``ControlError`` or ``OSError``."""
    path = Path(run_dir) / JOB_FILE
    data = files.read_bytes(path)
    if data is None:
        return None
    try:
        return _record(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} tells of no job ({error}); look with squeue what runs, then move it away.") from error


def _record(raw: Any) -> JobRecord:
    """Raises ``ValueError``, ``TypeError`` or ``KeyError``: everybody of the group may write this file."""
    blank = JobRecord(0)
    given = {one.name: raw[one.name] for one in fields(JobRecord) if one.name in raw}
    given["lost_nodes"] = tuple(str(one) for one in given.get("lost_nodes", ()))
    for name, value in given.items():
        wanted = int if name in ("started_ns", "ends_at_ns") else type(getattr(blank, name))
        is_none = value is None and getattr(blank, name) is None
        if type(value) is not wanted and not is_none:
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    if given["job"] and JOB_ID.fullmatch(given["job"]) is None:
        raise ValueError("no number of a job")
    return JobRecord(**given)
