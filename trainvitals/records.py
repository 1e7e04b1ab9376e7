"""The records that flow between the parts: frozen, with units in their names, free of any store or page.

Times are UTC nanoseconds since the epoch (``*_ns``), durations seconds (``*_s``), sizes bytes.
A non-finite value never stands in ``values``: it is named in ``nonfinite`` as ``"nan"``, ``"inf"`` or ``"-inf"``,
because no time-series database stores it and trainers hide it (Megatron-LM omits the field, Hugging Face prints 0.0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

NonFinite = Literal["nan", "inf", "-inf"]
NONFINITE_CODES: Mapping[str, int] = MappingProxyType({"nan": 1, "inf": 2, "-inf": 3})
NONFINITE_NAMES: Mapping[int, str] = MappingProxyType({1: "nan", 2: "inf", 3: "-inf"})


class Severity(StrEnum):
    """``critical`` pages someone now, ``warning`` is looked at within hours, ``info`` is a mark on the chart."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0, 1 or 2, for comparing and for the store."""
        return ("info", "warning", "critical").index(self.value)


def nonfinite_name(value: float) -> NonFinite | None:
    """``None`` for a finite number, else which of the three it is."""
    if math.isfinite(value):
        return None
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def split_nonfinite(raw: Mapping[str, float]) -> tuple[dict[str, float], dict[str, NonFinite]]:
    """Split raw values into finite ones and the names of the non-finite ones."""
    values: dict[str, float] = {}
    nonfinite: dict[str, NonFinite] = {}
    for name, value in raw.items():
        kind = nonfinite_name(value)
        if kind is None:
            values[name] = value
        else:
            nonfinite[name] = kind
    return values, nonfinite


@dataclass(frozen=True, slots=True)
class Step:
    """One training step as a source told it.

    ``time_ns`` is the record's own time, or None when the source has none (the writer then chooses one, see
    ``trainvitals.identity``); ``time_estimated``: it is a guess, for drawing only. ``attempt`` is the number of this start of the trainer, counted from 1.
    """

    step: int
    attempt: int
    time_ns: int | None
    values: Mapping[str, float]
    nonfinite: Mapping[str, NonFinite] = field(default_factory=dict)
    time_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment, in a run: see ``EVENT_KINDS``.

    ``id`` is deterministic, so that the same event read twice is one event. ``data`` holds JSON values only.
    """

    kind: str
    time_ns: int | None
    step: int | None = None
    attempt: int | None = None
    id: str = ""
    severity: Severity = Severity.INFO
    source: str = ""
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


EVENT_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "attempt_start": "the trainer started; data: attempt, key, first_step, source, job, host, pid",
        "attempt_end": "the trainer ended; data: attempt, last_step, reason, exit_code",
        "resume": "training continues from a checkpoint; step = the step it continues from",
        "phase": "data.phase = start|train|eval|checkpoint|paused|finished, data.state = begin|end",
        "annotation": "a person's note; data.rules = rules it silences, data.change = what was changed, data.points, data.by",
        "data": "data position: source, shards, sample_first, sample_last",
        "checkpoint": "state of a checkpoint: data = a CheckpointReport as a mapping; id = its path",
        "verification": "a verification ended; data: path, level, state, reasons",
        "save": "a save as the trainer told it; data.state = begun|staged|persisted|manifest|failed|deleted, path, blocked_s, staged_s, "
        "persisted_s, is_async; manifest = hashes were written (is_written, bytes, files, manifest_sha256) or why not (reason, "
        "ranks_missing); persisted with copy_of = a copy that is equal to its source",
        "pointer": "what a trainer that restarts now would load from a directory; data = a ResumeChoice as a mapping",
        "room": "what a checkpoint directory's file system has left; data: directory, free_bytes, total_bytes",
        "pin": "a safe checkpoint was kept from deletion, let go, or could not be; data: path, state, how, reason",
        "control": "request, acknowledgement, refusal; data: seq, desired, by, reason, source, state, latency_s",
        "finding": "a detector's finding: data = a Finding as a mapping; id = its id",
        "incident": "an incident: data = an Incident as a mapping; id = its id",
        "acknowledgement": "a person has an incident; data: incident, by, note",
        "silence": "a person asked that something be told to nobody for a while, or ended that; data: silence, until_ns, rules, by, comment",
        "alert": "somebody is told of an incident; data: target, notice, incident, kind",
        "breaker": "a decision of the circuit breaker; data: decision, mode, reason",
        "supervisor": "what the supervisor of a trainer did; data.state = started|ended|ending|waiting|held|released|phase|recovered|…",
        "fault": "a fault seen in a log; data: class, count, host, rank, ranks_seen, ranks_missing, file",
        "postmortem": "what the ends of all logs say of a death; data: attempt, cause, victims, files, tails",
        "metadata": "a part of what this start of the trainer was made of; data: section, values (flat), part, parts",
        "ranks": "the ten ranks that come last to the all-reduce; data: worst (rank, share, host, local_rank, gpu_uuid), ranks, median",
        "message": "a line worth keeping (skipped iterations, overflow, validation loss); data as the source gave it",
        "external": "an alert of another monitoring system; data.state = firing|resolved|truncated, name, node, gpu, labels, annotations, "
        "started_ns, ended_ns",
        "watch": "the watchdog's own life: start, stop, data loss counters",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector found. The same id is emitted again when severity, extent or state change.

    first_step: estimated onset. detected_step: when it first became >= warning (for info: when it was seen).
    last_step: None while it is open. ``severity`` is the highest reached.
    """

    id: str
    rule: str
    family: str
    severity: Severity
    first_step: int
    detected_step: int
    last_step: int | None
    attempt: int
    time_ns: int | None
    value: float | None
    expected: float | None
    message: str
    is_open: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings of one run and family that belong together.

    acknowledged_by: who has it, until it is over, "" = nobody. silenced_until_ns: until when nobody is told of it, None = no silence.
    """

    id: str
    run: str
    family: str
    severity: Severity
    rules: tuple[str, ...]
    finding_ids: tuple[str, ...]
    first_step: int | None
    last_step: int | None
    opened_at_ns: int
    updated_at_ns: int
    closed_at_ns: int | None
    title: str
    message: str
    acknowledged_by: str = ""
    acknowledged_at_ns: int | None = None
    acknowledged_note: str = ""
    silenced_until_ns: int | None = None

    @property
    def is_open(self) -> bool:
        return self.closed_at_ns is None


class CheckpointState(StrEnum):
    """Life of a checkpoint. Only ``verified`` together with its level may be offered for a resume."""

    WRITING = "writing"
    STAGED = "staged"
    COMPLETE = "complete"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    INCOMPLETE = "incomplete"
    CORRUPT = "corrupt"
    DELETING = "deleting"
    DELETED = "deleted"
    UNKNOWN_FORMAT = "unknown_format"


class VerificationLevel(StrEnum):
    """How far a checkpoint was looked at, in rising order of proof (and cost)."""

    PRESENCE = "presence"
    STRUCTURE = "structure"
    CONTENT = "content"
    LOAD = "load"


class ContentProof(StrEnum):
    """What the bytes of a checkpoint were compared with; the weakest over all its files.

    manifest: hashes that the writer took. integrity_json: Megatron's own. checksum: CRC32 inside the files. first_seen: hashes
    taken when the watchdog first saw them, which proves that nothing changed since then and no more.
    """

    NONE = ""
    MANIFEST = "manifest"
    INTEGRITY_JSON = "integrity_json"
    CHECKSUM = "checksum"
    FIRST_SEEN = "first_seen"


#: What a look at level load says of numbers that no training leaves behind; other damage is the file's own.
DAMAGED_NUMBERS = ("holds NaN (", "holds infinity (", "holds denormal numbers", "sampled weight tensors are all zero")


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What is known of one checkpoint. ``level`` is the highest level it passed, None when none was tried.

    parallel: sizes by name (dp, tp, pp, ep, cp) where the files tell them. proof: what the content was compared with when the
    level is ``content`` or more. verified_at_ns: when that comparison ended. None = not known, for every part.
    """

    path: str
    step: int | None
    format: str
    state: CheckpointState
    level: VerificationLevel | None
    has_optimizer: bool | None
    files: int
    bytes: int
    reasons: tuple[str, ...] = ()
    modified_at_ns: int | None = None
    loss: float | None = None
    has_rng: bool | None = None
    has_scheduler: bool | None = None
    has_data_position: bool | None = None
    world_size: int | None = None
    parallel: Mapping[str, int] = field(default_factory=dict)
    largest_file_bytes: int | None = None
    proof: ContentProof = ContentProof.NONE
    verified_at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ResumeChoice:
    """What a trainer that restarts now would load from ``directory``, found the way that its own code finds it.

    path: of the checkpoint, None = it would start from scratch. how: pointer file or rule that decides ("latest",
    "highest checkpoint-N"). problem: a sentence when that choice is dangerous (a pointer behind, absent, or at a bad checkpoint).
    """

    directory: str
    path: str | None
    step: int | None
    how: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment. A field that the driver does not support is absent (None), never zero."""

    node: str
    gpu: str  # the GPU's UUID: index order shifts when a GPU is lost
    index: int
    time_ns: int
    state: str  # ok, warm, warn, fail, lost, silent
    name: str | None = None
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: int | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    pcie_replays: int | None = None
    xid_last: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node at one moment: the worst of its GPUs. ``state`` no_gpu means no NVIDIA driver, which is no fault."""

    node: str
    time_ns: int
    state: str  # ok, warm, warn, fail, silent, drained, no_gpu
    gpus: int = 0
    utilization_mean_percent: float | None = None
    utilization_min_percent: float | None = None
    temperature_max_c: float | None = None
    power_sum_w: float | None = None
    memory_used_max_bytes: int | None = None
    ecc_uncorrected: int | None = None
    xid_last: int | None = None
    run: str = ""
    is_simulated: bool = False
    text: str = ""


FieldValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Point:
    """One row for the store. Names and types are those of ``trainvitals.schema``; all tags always present."""

    measurement: str
    tags: Mapping[str, str]
    time_ns: int
    fields: Mapping[str, FieldValue]


def to_json_number(value: float | None) -> float | None:
    """JSON has no NaN: everything the product emits uses null plus a flag."""
    return value if value is not None and math.isfinite(value) else None


Points = Sequence[Point]
