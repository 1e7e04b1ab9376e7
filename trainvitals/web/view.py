"""What the pages draw: frozen snapshots made by the poller, never fetched by a page.

Everything is plain data; text in it may come from outside (log lines, names) and is drawn as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainvitals.control.audit import AuditRecord
from trainvitals.control.view import ControlState
from trainvitals.incidents.checkpoint_card import CardRow as CardRow
from trainvitals.incidents.checkpoint_card import Judgement as Judgement
from trainvitals.incidents.current_attempt import current_attempt, later_numbers
from trainvitals.incidents.retention import PauseSave as PauseSave
from trainvitals.incidents.rollback import Rollback as Rollback
from trainvitals.incidents.saves import SaveTime as SaveTime
from trainvitals.incidents.triage import Check as Check
from trainvitals.incidents.verdict import Verdict as Verdict
from trainvitals.incidents.verdict import VerdictWord as VerdictWord
from trainvitals.records import CheckpointReport, Event, Finding, GpuSample, Incident, NodeSample, NonFinite, ResumeChoice
from trainvitals.settings import RunSettings
from trainvitals.web.supervisor_view import SupervisorView as SupervisorView


@dataclass(frozen=True)
class MetricNow:
    """Newest value of a metric against what is usual (median of the last 128 points before it)."""

    name: str
    value: float | None
    nonfinite: NonFinite | None
    usual: float | None
    step: int
    is_abnormal: bool = False


@dataclass(frozen=True)
class Then:
    """What is stored of an incident that is over, or of an earlier start. metrics: the worst value of each against the usual one before.
    events: data positions and messages before its onset, which may be long behind the newest. nodes: as they were when it opened."""

    metrics: Mapping[str, MetricNow] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    nodes: tuple[NodeSample, ...] = ()


@dataclass(frozen=True)
class AttemptView:
    """One start of the trainer. superseded_from: first of its steps that a later attempt ran again, None if none. newest_ns: of its newest
    point or its begin, UTC ns by the trainer's own clock, None = not known."""

    number: int
    started_ns: int
    first_step: int | None
    last_step: int | None
    resumed_from_step: int | None = None
    superseded_from: int | None = None
    ended_ns: int | None = None
    end_reason: str = ""
    newest_ns: int | None = None


@dataclass(frozen=True)
class Configuration:
    """What one start of the trainer told of itself: section -> key -> value as text. incomplete: sections with parts missing."""

    attempt: int
    sections: Mapping[str, Mapping[str, str]]
    incomplete: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """One loss on held-out data. value: NaN or infinite when the trainer said so. name: of the data, where there are several."""

    time_ns: int
    step: int | None
    attempt: int
    value: float
    name: str = ""


@dataclass(frozen=True)
class Start:
    """A start of the trainer that went on from ``from_step``. path: of that checkpoint, "" = not known. Losses: the median of the ten
    points before and after. settings: what is equal or what changed. problem: what was wrong with the checkpoint, "" = nothing known."""

    attempt: int
    from_step: int
    first_step: int | None
    path: str
    started_ns: int
    loss_before: float | None = None
    loss_after: float | None = None
    settings: str = "not known"
    problem: str = ""


@dataclass(frozen=True)
class AuditView:
    """The newest records of a run's audit, oldest first. count: records that are kept. state: whether the chain is whole, in a
    sentence. latency: of the newest request, in a sentence; "" = none."""

    records: tuple[AuditRecord, ...] = ()
    count: int = 0
    state: str = "Nothing was audited here yet."
    is_broken: bool = False
    latency: str = ""


#: The control state of a run, as the pages know it.
ControlView = ControlState


@dataclass(frozen=True)
class RunView:
    """Everything the pages show of one run, at one moment.

    first_step_time_ns: when the oldest attempt's first step ended, as far as known. extra_metrics: names of logged metrics
    beside the usual ones. checkpoint_history: (attempt, report), what each attempt left at each path, also where a later
    attempt wrote over it; ``checkpoints`` holds what is there now. suspects: path of each checkpoint that may hold damaged
    weights -> onset of the incident in which it was saved. configurations: of the newest starts that told theirs, newest first.
    reading: what could not be read or kept, "" = nothing. validations: losses on held-out data, by time. saves: how long each
    took, by step. choices: what a restart would load. pinned: path -> where it is kept from deletion. rollback: the
    recommendation with its reasons. card: how well the run saves, point by point. starts: what each start went on from.
    pause: whether a pause would save first, and why. settings.breaker: the mode in force, as the watchdog tells it;
    breaker_of_settings: what the settings file says. breaker_hold: what forbids it to pause now. supervisor: what whoever starts the trainer does. thens: incident id -> what was
    measured in it. troubles: what the watchdog cannot do now, by what it is about (``told_troubles``).
    """

    settings: RunSettings
    taken_at_ns: int
    verdict: Verdict
    control: ControlView
    checks: tuple[Check, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    last_step: int | None = None
    last_step_time_ns: int | None = None
    first_step_time_ns: int | None = None
    watch_seen_ns: int | None = None
    eta_s: float | None = None
    steps_per_s: float | None = None
    metrics: Mapping[str, MetricNow] = field(default_factory=dict)
    extra_metrics: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointReport, ...] = ()
    checkpoint_history: tuple[tuple[int, CheckpointReport], ...] = ()
    newest_verified: CheckpointReport | None = None
    recommended: CheckpointReport | None = None
    suspects: Mapping[str, int] = field(default_factory=dict)
    incidents: tuple[Incident, ...] = ()
    findings: tuple[Finding, ...] = ()
    events: tuple[Event, ...] = ()
    control_history: tuple[Event, ...] = ()
    not_watched: tuple[str, ...] = ()
    reading: str = ""
    configurations: tuple[Configuration, ...] = ()
    validations: tuple[Validation, ...] = ()
    saves: tuple[SaveTime, ...] = ()
    choices: tuple[ResumeChoice, ...] = ()
    pinned: Mapping[str, str] = field(default_factory=dict)
    pause: PauseSave = field(default_factory=PauseSave)
    rollback: Rollback = field(default_factory=lambda: Rollback(None, ""))
    card: tuple[CardRow, ...] = ()
    starts: tuple[Start, ...] = ()
    audit: AuditView = field(default_factory=AuditView)
    breaker_of_settings: str = ""
    breaker_hold: str = ""
    supervisor: SupervisorView = field(default_factory=SupervisorView)
    thens: Mapping[str, Then] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def attempt(self) -> AttemptView | None:
        """The start that runs now, or ran last; an old log that was found later has a higher number."""
        return current_attempt(self.attempts)

    def later_than(self, number: int) -> frozenset[int]:
        """Numbers of the starts that ran after that one."""
        return later_numbers(self.attempts, number)

    def last_of(self, numbers: Collection[int]) -> int | None:
        """Of these starts the one that ran last, None when there is none."""
        known = current_attempt([one for one in self.attempts if one.number in numbers])
        return known.number if known is not None else max(numbers, default=None)


@dataclass(frozen=True)
class Snapshot:
    """The poller's last good look at everything. ``error`` says why it is older than it should be."""

    taken_at_ns: int
    runs: tuple[RunView, ...] = ()
    nodes: tuple[NodeSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    error: str = ""
    error_since_ns: int | None = None

    def run(self, name: str) -> RunView | None:
        """The run of that name, or None."""
        return next((run for run in self.runs if run.name == name), None)


@dataclass(frozen=True)
class CurveQuery:
    """What a viewer looks at. metrics: names of `train` fields, plus "gpu_utilization". by: "time" or "step".

    start/end: UTC ns for "time", steps for "step"; None = open end (from the first, up to now). last_s: instead of start
    and end, the last so many seconds up to now (up to the last step, when that is longer ago); 0 = not asked.
    compact: small margins, for the overview. until_attempt: leave out what later starts made, None = show all.
    log_loss: the loss on a logarithmic axis. smooth: the running median over each faint line.
    """

    run: str
    metrics: tuple[str, ...]
    by: str = "step"
    start: int | None = None
    end: int | None = None
    theme: str = "light"
    last_s: float = 0.0
    compact: bool = False
    until_attempt: int | None = None
    log_loss: bool = False
    smooth: bool = False


@dataclass(frozen=True)
class CurveResult:
    """A finished figure. ``error`` says why it is older than it should be ("" = it is not); figure_json is then the last good one."""

    figure_json: str
    taken_at_ns: int
    error: str = ""
    error_since_ns: int | None = None
