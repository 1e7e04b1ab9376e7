"""From stored events back to records. The newest event of an id wins; what cannot be read is counted, never guessed.

``watch`` stores a record as the event's ``data`` (``dataclasses.asdict``), so a record here is exactly what it wrote there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    ContentProof,
    Event,
    Finding,
    Incident,
    Severity,
    VerificationLevel,
)

Record = TypeVar("Record")
_DAMAGED = frozenset({CheckpointState.CORRUPT, CheckpointState.INCOMPLETE})
_GOING = frozenset({CheckpointState.WRITING, CheckpointState.STAGED, CheckpointState.DELETING, CheckpointState.DELETED})


@dataclass
class Unreadable:
    """Counts events whose data is not the record it should be; shown under "not watched"."""

    count: int = 0
    last: str = ""

    def note(self, event: Event, error: Exception) -> None:
        self.count += 1
        self.last = f"{event.kind} {event.id}: {error}"


@dataclass(frozen=True)
class Facts:
    """Events of one run, sorted out. Findings newest first, incidents most urgent first, checkpoints by step, the rest by time.

    checkpoints: the newest report of each path. checkpoint_history: (attempt, report), the newest of each path and attempt.
    """

    findings: tuple[Finding, ...] = ()
    incidents: tuple[Incident, ...] = ()
    checkpoints: tuple[CheckpointReport, ...] = ()
    checkpoint_history: tuple[tuple[int, CheckpointReport], ...] = ()
    events: tuple[Event, ...] = ()
    control: tuple[Event, ...] = ()
    unreadable: Unreadable = field(default_factory=Unreadable)

    def of_kind(self, *kinds: str) -> list[Event]:
        """Events of these kinds, oldest first."""
        return [event for event in self.events if event.kind in kinds]


def sort_out(events: Iterable[Event]) -> Facts:
    """Split stored events of one run into what the pages show."""
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    unreadable = Unreadable()
    findings = _newest(by_kind.pop("finding", []), finding_of, lambda finding: finding.id, unreadable)
    incidents = _newest(by_kind.pop("incident", []), incident_of, lambda incident: incident.id, unreadable)
    findings, incidents = told_by_breaker(findings, incidents, by_kind.get("breaker", []))
    reported = by_kind.pop("checkpoint", [])
    checkpoints = _newest(reported, checkpoint_of, lambda report: report.path, unreadable)
    history = checkpoint_history(reported)
    control = sorted(by_kind.pop("control", []), key=_time)
    rest = sorted((event for group in by_kind.values() for event in group), key=_time)
    return Facts(
        findings=tuple(sorted(findings, key=lambda f: (f.time_ns or 0, f.detected_step), reverse=True)),
        incidents=tuple(sorted(incidents, key=_urgency, reverse=True)),
        checkpoints=tuple(sorted(checkpoints, key=lambda c: (c.step is None, c.step or 0, c.path))),
        checkpoint_history=history,
        events=tuple(rest),
        control=tuple(control),
        unreadable=unreadable,
    )


def told_by_breaker(
    findings: list[Finding], incidents: list[Incident], decisions: Iterable[Event]
) -> tuple[list[Finding], list[Incident]]:
    """What became of each trip of the breaker, in place of what the detector could say of it: it does not know the mode."""
    done = {str(event.data.get("finding")): event.text for event in sorted(decisions, key=_time) if event.text}
    words = {f.id: f"breaker: {done[f.id]}" for f in findings if f.rule == "breaker_trip" and f.id in done}
    said = {(finding.id, finding.message): words[finding.id] for finding in findings if finding.id in words}

    def of(incident: Incident, text: str) -> str:
        return next((said[id_, text] for id_ in incident.finding_ids if (id_, text) in said), text)

    return (
        [replace(finding, message=words.get(finding.id, finding.message)) for finding in findings],
        [replace(one, title=of(one, one.title), message=of(one, one.message)) for one in incidents],
    )


class Told(NamedTuple):
    """A report as it was told: when, and in which attempt (0 = not told)."""

    time_ns: int
    attempt: int
    report: CheckpointReport


def checkpoint_history(events: Iterable[Event]) -> tuple[tuple[int, CheckpointReport], ...]:
    """What each attempt left at each path, by step."""
    told = []
    for event in sorted(events, key=_time):
        try:
            told.append(Told(_time(event), event.attempt or 0, checkpoint_of(event)))
        except (TypeError, ValueError, KeyError, AttributeError):
            continue  # counted where the newest of each path is chosen
    return history_of(told)


def history_of(told: Iterable[Told]) -> tuple[tuple[int, CheckpointReport], ...]:
    """What each attempt left at each path, by step. A damaged checkpoint stays in its attempt's history when it is deleted or
    written again: that it was damaged is what a person looks for. Attempt 0 = not told. ``told``: by time."""
    left: dict[tuple[str, int], CheckpointReport] = {}
    for _, attempt, report in told:
        key = (report.path, attempt)
        known = left.get(key)
        if known is None or known.state not in _DAMAGED or report.state not in _GOING:
            left[key] = report
    return tuple(sorted(((attempt, report) for (_, attempt), report in left.items()), key=_place))


def _place(entry: tuple[int, CheckpointReport]) -> tuple[bool, int, int, str]:
    attempt, report = entry
    return report.step is None, report.step or 0, attempt, report.path


def _time(event: Event) -> int:
    return event.time_ns or 0


def _urgency(incident: Incident) -> tuple[bool, int, int]:
    """Open ones first, of these the worst first; closed ones by time."""
    return incident.is_open, incident.severity.rank if incident.is_open else 0, incident.opened_at_ns


def _newest(
    events: list[Event], make: Callable[[Event], Record], key: Callable[[Record], str], unreadable: Unreadable
) -> list[Record]:
    newest: dict[str, tuple[int, Record]] = {}
    for event in events:
        try:
            record = make(event)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            unreadable.note(event, error)
            continue
        order = getattr(record, "updated_at_ns", None) or event.time_ns or 0
        known = newest.get(key(record))
        if known is None or order >= known[0]:
            newest[key(record)] = (order, record)
    return [record for _, record in newest.values()]


def _values(record: type, data: Mapping[str, Any], **converted: Any) -> dict[str, Any]:
    """The record's own fields out of ``data``; keys a newer writer added are ignored, missing ones raise ``KeyError``."""
    values: dict[str, Any] = {}
    for declared in fields(record):
        if declared.name in converted:
            values[declared.name] = converted[declared.name]
        elif declared.name in data:
            values[declared.name] = data[declared.name]
        elif declared.default is MISSING and declared.default_factory is MISSING:
            raise KeyError(declared.name)
    return values


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _sizes(value: Any) -> dict[str, int]:
    return {str(name): int(size) for name, size in (value or {}).items()}


def finding_of(event: Event) -> Finding:
    """The finding that an event of kind ``finding`` carries; raises on anything that is none."""
    data = event.data
    return Finding(
        **_values(
            Finding, data, id=str(data["id"]), rule=str(data["rule"]), severity=Severity(data["severity"]),
            first_step=int(data["first_step"]), detected_step=int(data["detected_step"]), last_step=_whole(data["last_step"]),
            attempt=int(data["attempt"]), time_ns=_whole(data.get("time_ns") or event.time_ns), value=_number(data.get("value")),
            expected=_number(data.get("expected")), message=str(data["message"]), is_open=bool(data.get("is_open", False)),
        )
    )  # fmt: skip


def incident_of(event: Event) -> Incident:
    """The incident that an event of kind ``incident`` carries; raises on anything that is none."""
    data = event.data
    return Incident(
        **_values(
            Incident, data, id=str(data["id"]), run=str(data["run"]), severity=Severity(data["severity"]),
            rules=tuple(str(rule) for rule in data["rules"]), finding_ids=tuple(str(i) for i in data["finding_ids"]),
            first_step=_whole(data["first_step"]), last_step=_whole(data["last_step"]), opened_at_ns=int(data["opened_at_ns"]),
            updated_at_ns=int(data["updated_at_ns"]), closed_at_ns=_whole(data["closed_at_ns"]), title=str(data["title"]),
            message=str(data["message"]),
        )
    )  # fmt: skip


def checkpoint_of(event: Event) -> CheckpointReport:
    """The report that an event of kind ``checkpoint`` carries; raises on anything that is none."""
    data = event.data
    level = data.get("level")
    return CheckpointReport(
        **_values(
            CheckpointReport, data, path=str(data["path"]), step=_whole(data["step"]), state=CheckpointState(data["state"]),
            level=None if level is None else VerificationLevel(level), files=int(data["files"]), bytes=int(data["bytes"]),
            reasons=tuple(str(reason) for reason in data.get("reasons") or ()), modified_at_ns=_whole(data.get("modified_at_ns")),
            loss=_number(data.get("loss")), has_optimizer=_flag(data["has_optimizer"]), has_rng=_flag(data.get("has_rng")),
            has_scheduler=_flag(data.get("has_scheduler")), has_data_position=_flag(data.get("has_data_position")),
            world_size=_whole(data.get("world_size")), parallel=_sizes(data.get("parallel")),
            largest_file_bytes=_whole(data.get("largest_file_bytes")), proof=ContentProof(data.get("proof") or ""),
            verified_at_ns=_whole(data.get("verified_at_ns")),
        )
    )  # fmt: skip
