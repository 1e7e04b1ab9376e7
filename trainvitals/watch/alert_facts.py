"""What a message says around an incident, from what ``watch`` itself has read: evidence for the triage table, breaker, control.

Bounded. The store is not asked, so a message says the same while it is away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from trainvitals.alerts.compose import Known
from trainvitals.control.request import look
from trainvitals.control.view import ControlState
from trainvitals.incidents.breaker_words import breaker_words
from trainvitals.incidents.current_attempt import current_attempt
from trainvitals.incidents.deciding import STOPPED_RULES, is_about_training
from trainvitals.incidents.rollback import Rollback
from trainvitals.incidents.symptoms import leading_rule, onset_step
from trainvitals.incidents.triage import Evidence, triage
from trainvitals.records import Event, Finding, Incident, NonFinite, Severity, Step
from trainvitals.settings import RunSettings, Settings

#: Events kept: of each kind that is evidence, the newest.
KINDS = ("data", "attempt_start", "resume", "fault", "postmortem", "message", "breaker", "annotation")
MAX_OF_KIND = 12
MAX_FINDINGS = 200
POINTS = 256
#: Points before the onset that say what is usual.
USUAL_POINTS = 128
_TEXT = 400
_OVERFLOW = ("overflow", "skipp")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the watchdog knows at one moment. step_s: usual seconds of a step; breaker: the mode in force;
    breaker_hold: what forbids it to pause now, a clause, "" = nothing."""

    last_step: int | None = None
    last_step_ns: int | None = None
    step_s: float | None = None
    rollback: Rollback | None = None
    breaker: str = ""
    breaker_hold: str = ""


@dataclass(frozen=True, slots=True)
class _Point:
    step: int
    lr: float | None
    grad_norm: float | None
    loss_scale: float | None


@dataclass(frozen=True, slots=True)
class _Ran:
    number: int
    newest_ns: int | None


class AlertFacts:
    """Of one run: ``take`` and ``found`` are fed, ``known`` answers."""

    def __init__(self, settings: Settings, run: RunSettings, look_at: Callable[[str, int], ControlState] | None = None) -> None:
        self._settings, self._run, self._look = settings, run, look_at or look
        self._events: dict[str, deque[Event]] = {kind: deque(maxlen=MAX_OF_KIND) for kind in KINDS}
        self._findings: dict[str, Finding] = {}
        self._points: deque[_Point] = deque(maxlen=POINTS)
        self._nonfinite: dict[str, NonFinite] = {}
        self._first_steps: dict[int, int] = {}
        self._newest_ns: dict[int, int] = {}
        self._has_grad_norm = self._tells_settings = False
        self._audit_head = ""
        self._as_kept: list[dict[str, Any]] | None = None  # the events as JSON, which every commit writes and few steps change

    def take(self, record: Step | Event) -> None:
        """A step, or an event that was stored."""
        if isinstance(record, Step):
            values = record.values
            self._points.append(_Point(record.step, values.get("lr"), values.get("grad_norm"), values.get("loss_scale")))
            self._has_grad_norm = self._has_grad_norm or "grad_norm" in values
            self._nonfinite = dict(record.nonfinite)
            self._first_steps.setdefault(record.attempt, record.step)
            if record.time_ns is not None:
                self._newest_ns[record.attempt] = max(record.time_ns, self._newest_ns.get(record.attempt, 0))
            while len(self._first_steps) > MAX_OF_KIND:
                self._newest_ns.pop(oldest := next(iter(self._first_steps)), None)
                del self._first_steps[oldest]
        elif record.kind == "audit":
            self._audit_head = f"{record.data.get('n')} {str(record.data.get('hash'))[:64]}"
        elif record.kind == "metadata":
            self._tells_settings = True
        elif record.kind in self._events and self._is_worth_it(record):
            self._events[record.kind].append(_cut(record))
            self._as_kept = None

    def found(self, finding: Finding) -> None:
        """A new or changed finding."""
        self._findings.pop(finding.id, None)
        self._findings[finding.id] = finding
        while len(self._findings) > MAX_FINDINGS:
            del self._findings[next(iter(self._findings))]

    def knows(self, incident: Incident) -> bool:
        """Whether one of its findings is still in mind: after a restart of ``watch`` those of before are not."""
        return any(identifier in self._findings for identifier in incident.finding_ids)

    def is_paused(self, now_ns: int) -> bool:
        """Whether the trainer says that it holds."""
        return self._look(self._run.dir, now_ns).state in ("paused", "stopped")

    def known(self, incident: Incident, seen: Seen, now_ns: int, others: Sequence[Incident] = ()) -> Known:
        """Everything that a message about ``incident`` may say. others: what is open in the run."""
        members = [self._findings[one] for one in incident.finding_ids if one in self._findings]
        rule = leading_rule(members, incident.rules, incident.family)
        control = self._look(self._run.dir, now_ns)
        return Known(
            findings=members, checks=triage(rule, self._evidence(incident, members)), rollback=seen.rollback, last_step=seen.last_step,
            step_s=seen.step_s, gpus=self._run.gpus, gpu_hour_price=self._run.gpu_hour_price,
            is_paused=control.state in ("paused", "pausing"), breaker=self._breaker(incident, members, seen), control=_control(control, members),
            public_url=self._settings.dashboard.public_url, runbook_url=self._settings.alerts.runbook_url, audit_head=self._audit_head,
            others=others, other_findings=[self._findings[id_] for one in others for id_ in one.finding_ids if id_ in self._findings],
        )  # fmt: skip

    def to_state(self) -> dict[str, Any]:
        """JSON values only. Points and findings are not kept: new ones come."""
        if self._as_kept is None:
            self._as_kept = [asdict(event) for kept in self._events.values() for event in kept]
        return {
            "events": self._as_kept,
            "tells_settings": self._tells_settings, "first_steps": list(self._first_steps.items()), "audit_head": self._audit_head,
            "newest_ns": list(self._newest_ns.items()),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        self._as_kept = None
        for kept in self._events.values():
            kept.clear()
        for data in state.get("events", ()):
            event = Event(**{**data, "severity": Severity(data["severity"])})
            if event.kind in self._events:
                self._events[event.kind].append(event)
        self._tells_settings = bool(state.get("tells_settings", False))
        self._first_steps = {int(attempt): int(step) for attempt, step in state.get("first_steps", ())}
        self._newest_ns = {int(attempt): int(time_ns) for attempt, time_ns in state.get("newest_ns", ())}
        self._audit_head = str(state.get("audit_head", ""))

    def _is_worth_it(self, event: Event) -> bool:
        """Positions of the data come every few steps; only where something new begins is evidence. Most messages are none."""
        if event.kind == "message":
            return any(word in event.text.lower() for word in _OVERFLOW)
        last = self._events[event.kind][-1] if self._events[event.kind] else None
        if event.kind != "data" or last is None:
            return True
        return any(event.data.get(key) != last.data.get(key) for key in ("source", "shards")) or event.attempt != last.attempt

    def _evidence(self, incident: Incident, members: list[Finding]) -> Evidence:
        onset = onset_step(incident, members)
        attempts = frozenset(finding.attempt for finding in members)
        starts = [event for event in self._events["attempt_start"] if not attempts or event.attempt in attempts]
        attempt = self._last_of(attempts or {event.attempt for event in starts if event.attempt is not None})
        start = next((event for event in reversed(starts) if event.attempt == attempt), None)
        resumed = next((e.step for e in reversed(self._events["resume"]) if e.attempt == attempt and e.step is not None), None)
        if resumed is None and start is not None and isinstance(start.data.get("resumed_from_step"), int):
            resumed = start.data["resumed_from_step"]
        before = [point for point in self._points if onset is None or point.step < onset][-USUAL_POINTS:]
        newest = self._points[-1] if self._points else None
        is_death = bool(STOPPED_RULES & set(incident.rules))
        settings = [
            f for f in self._findings.values() if f.rule == "resume_config_changed" and f.attempt == attempt and f not in members
        ]
        return Evidence(
            onset_step=onset, onset_ns=min((f.time_ns for f in members if f.time_ns is not None), default=incident.opened_at_ns),
            attempt_first_step=self._first_steps.get(attempt) if attempt is not None else None,
            attempt_started_ns=start.time_ns if start is not None else None, attempt=attempt,
            events=[event for kept in self._events.values() for event in kept], findings=[*members, *settings],
            nonfinite=self._bad_numbers(members), loss_scale=newest.loss_scale if newest is not None else None,
            lr_now=newest.lr if newest is not None else None, lr_usual=_usual(point.lr for point in before),
            has_grad_norm=self._has_grad_norm, grad_norm_now=newest.grad_norm if newest is not None else None,
            grad_norm_usual=_usual(point.grad_norm for point in before), resumed_from_step=resumed, tells_settings=self._tells_settings,
            attempts=attempts, ended_ns=None if is_death else incident.closed_at_ns, sees_nodes=False,
        )  # fmt: skip

    def _last_of(self, numbers: Collection[int]) -> int | None:
        """Of these starts the one that ran last; None when there is none."""
        last = current_attempt([_Ran(number, self._newest_ns.get(number)) for number in numbers])
        return last.number if last is not None else None

    def _bad_numbers(self, members: list[Finding]) -> list[tuple[str, NonFinite]]:
        now = list(self._nonfinite.items())
        told = [finding.rule.removesuffix("_nonfinite") for finding in members if finding.rule.endswith("_nonfinite")]
        return [*now, *((name, "nan") for name in told if name not in self._nonfinite)]

    def _breaker(self, incident: Incident, members: list[Finding], seen: Seen) -> str:
        rules = {finding.rule for finding in members if finding.is_open} or set(incident.rules)
        attempt = self._last_of({finding.attempt for finding in members})
        told = breaker_words(list(self._events["breaker"]), incident, rules, attempt, seen.last_step).removeprefix("Breaker: ")
        if told or not seen.breaker or not is_about_training(rules):
            return told
        if seen.breaker == "off":
            return "It is off for this run."
        held = f" It is held now: {seen.breaker_hold}." if seen.breaker_hold else ""
        return f"It is {seen.breaker} and has not tripped.{held}"


def _control(control: ControlState, members: Iterable[Finding]) -> str:
    """A trainer that is gone told that it was running until then: until its heartbeat is late, only its death says better."""
    is_gone = any(one.is_open and one.rule in STOPPED_RULES for one in members)
    if not is_gone or control.state in ("stopped", "silent", "not_wired", "unreadable"):
        return control.sentence
    return f"The trainer has ended; it last said: {control.sentence[:1].lower()}{control.sentence[1:]}"


def _usual(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _cut(event: Event) -> Event:
    """Only what the triage table reads: a post-mortem with all its files is large."""
    data = {key: value for key, value in event.data.items() if key in _READ}
    return Event(
        event.kind, event.time_ns, step=event.step, attempt=event.attempt, id=event.id, severity=event.severity, source=event.source,
        text=event.text[:_TEXT], data=data,
    )  # fmt: skip


_READ = frozenset(
    {
        "source", "shards", "sample_first", "sample_last", "resumed_from_step", "config_sha256", "class", "count", "host", "rank", "cause",
        "decision", "mode", "reason", "change", "by",
    }
)  # fmt: skip
