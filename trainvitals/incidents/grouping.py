"""Findings of one run that belong together become one incident: (run, group of families).

An incident opens with the first finding of at least ``warning``, closes when none of its findings is open, and opens again
(the same incident) when the trouble comes back in the same attempt within 200 steps and 30 minutes (docs/detection.md). A start that
ends before its first step belongs to the death before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from trainvitals.identity import event_id
from trainvitals.incidents.symptoms import OF_ITS_OWN
from trainvitals.records import Finding, Incident, Severity

MERGE_STEPS = 200
MERGE_NS = 30 * 60 * 1_000_000_000
#: A start that ends before its first step is the same trouble as the death before it, for so long after that.
DOWN_NS = 2 * 3600 * 1_000_000_000
_ENDS = frozenset({"run_dead", "nccl_timeout", "out_of_memory", "restart_failed", "restart_loop"})
#: Findings named by one incident: the first one, those that are open, and the newest. A storm must not make its row megabytes.
MAX_FINDINGS = 200
#: family of a detector -> group of an incident. The breaker's trip belongs to the loss incident that caused it.
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "loss": "loss",
        "grad_norm": "loss",
        "lr": "loss",
        "breaker": "loss",
        "throughput": "time",
        "liveness": "time",
        "checkpoint": "checkpoint",
    }
)


def group_of(family: str) -> str:
    """The incident group of a detector family."""
    return GROUPS.get(family, family)


@dataclass(frozen=True)
class _Live:
    incident: Incident
    open_findings: tuple[str, ...]
    attempt: int
    last_step: int | None
    last_ns: int
    titled_by: str = ""  # the finding that told the cause of a death
    led_by: str = ""  # the finding whose words are the title
    own: str = ""  # the finding of a trouble of its own, which has the title while it is open
    is_down: bool = False  # the trainer ended, and no step was made since


class Grouper:
    """Incidents of one run. State is JSON and small: one live incident per group."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._live: dict[str, _Live] = {}

    def add(self, finding: Finding, now_ns: int) -> Incident | None:
        """Take a new or changed finding; return the incident it opened or changed, None when it changes nothing."""
        group = group_of(finding.family)
        live = self._live.get(group)
        known = live is not None and finding.id in live.incident.finding_ids
        if finding.severity is Severity.INFO and not known:
            return None
        if live is None or not (known or self._belongs(live, finding, now_ns)):
            live = self._open(group, finding, now_ns)
        incident = live.incident
        findings = incident.finding_ids if known else (*incident.finding_ids, finding.id)
        open_findings = tuple(i for i in live.open_findings if i != finding.id) + ((finding.id,) if finding.is_open else ())
        worse = finding.severity.rank > incident.severity.rank
        # The finding that gave the title may say more later: how it ended, or what a post-mortem found.
        is_longer_title = known and finding.message.startswith(incident.title)
        # Of all that is told of one death the cause says most; nothing that comes later takes its place in the title.
        is_cause = "cause" in finding.data
        is_first = not incident.finding_ids or finding.id == incident.finding_ids[0]
        is_gravest = finding.severity.rank >= incident.severity.rank
        is_own = finding.rule in OF_ITS_OWN and is_gravest and finding.is_open
        own = finding.id if is_own else live.own
        leads = is_cause or is_own or worse or (is_first and is_gravest) or is_longer_title or finding.id == live.led_by
        leads = leads and (is_cause or live.titled_by in ("", finding.id))
        if own not in ("", finding.id) and not is_cause:  # what was found before it says less; at the end too
            leads = leads and own not in live.open_findings and (finding.is_open or finding.id == live.led_by)
        changed = replace(
            incident,
            severity=finding.severity if worse else incident.severity,
            rules=incident.rules if finding.rule in incident.rules else (*incident.rules, finding.rule),
            finding_ids=_bounded(findings, open_findings),
            first_step=min(incident.first_step, finding.first_step) if incident.first_step is not None else finding.first_step,
            last_step=None if open_findings else _latest(incident.last_step, finding.last_step),
            updated_at_ns=now_ns,
            closed_at_ns=None if open_findings else now_ns,
            title=finding.message if leads else incident.title,
            message=finding.message,
        )
        titled_by = finding.id if is_cause else live.titled_by
        led_by = finding.id if leads else live.led_by
        step = finding.last_step if finding.last_step is not None else finding.detected_step
        self._live[group] = _Live(
            changed, open_findings, finding.attempt, _latest(live.last_step, step), now_ns, titled_by, led_by, own,
            is_down=live.is_down or finding.rule in _ENDS,
        )  # fmt: skip
        return None if changed == incident else changed

    def stepped(self, attempt: int) -> None:
        """A step of ``attempt`` was made: what ends the trainer now is another trouble."""
        for group, live in self._live.items():
            if live.is_down and attempt >= live.attempt:
                self._live[group] = replace(live, is_down=False)

    def knows(self, finding: Finding) -> bool:
        """Whether the finding belongs to an incident already."""
        live = self._live.get(group_of(finding.family))
        return live is not None and finding.id in live.incident.finding_ids

    def live(self, incident_id: str) -> Incident | None:
        """The incident when findings may still join it, else None."""
        return next((live.incident for live in self._live.values() if live.incident.id == incident_id), None)

    def attempt_of(self, incident_id: str) -> int | None:
        """The attempt of its newest finding; None when no findings join it any more."""
        return next((live.attempt for live in self._live.values() if live.incident.id == incident_id), None)

    def amend(self, incident: Incident) -> None:
        """Take over what others keep in an incident (who acknowledged it); does nothing when no findings join it any more."""
        for group, live in self._live.items():
            if live.incident.id == incident.id:
                self._live[group] = replace(live, incident=incident)

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        return tuple(live.incident for live in self._live.values() if live.incident.is_open)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {group: asdict(live) for group, live in self._live.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._live = {
            group: _Live(
                incident_from_mapping(live["incident"]),
                tuple(live["open_findings"]),
                live["attempt"],
                live["last_step"],
                live["last_ns"],
                live.get("titled_by", ""),
                live.get("led_by", ""),
                live.get("own", ""),
                bool(live.get("is_down", False)),
            )
            for group, live in state.items()
        }

    @staticmethod
    def _belongs(live: _Live, finding: Finding, now_ns: int) -> bool:
        if live.open_findings:
            return True
        if live.is_down and now_ns - live.last_ns <= DOWN_NS:
            return True
        if finding.attempt != live.attempt:
            return False
        near_in_time = now_ns - live.last_ns <= MERGE_NS
        near_in_steps = live.last_step is not None and abs(finding.first_step - live.last_step) <= MERGE_STEPS
        return near_in_time and near_in_steps

    def _open(self, group: str, finding: Finding, now_ns: int) -> _Live:
        incident = Incident(
            id=event_id(self._run, group, finding.attempt, finding.rule, finding.detected_step),
            run=self._run, family=group, severity=finding.severity, rules=(), finding_ids=(), first_step=None, last_step=None,
            opened_at_ns=finding.time_ns if finding.time_ns is not None else now_ns, updated_at_ns=now_ns, closed_at_ns=now_ns,
            title=finding.message, message=finding.message,
        )  # fmt: skip
        return _Live(incident, (), finding.attempt, None, now_ns)


def incident_from_mapping(data: Mapping[str, Any]) -> Incident:
    """An ``Incident`` from its stored mapping. Raises ``KeyError``/``ValueError`` when it is not one."""
    return Incident(
        **{
            **data,
            "severity": Severity(data["severity"]),
            "rules": tuple(data["rules"]),
            "finding_ids": tuple(data["finding_ids"]),
        }
    )


def finding_from_mapping(data: Mapping[str, Any]) -> Finding:
    """A ``Finding`` from its stored mapping. Raises ``KeyError``/``ValueError`` when it is not one."""
    return Finding(**{**data, "severity": Severity(data["severity"])})


def _bounded(findings: tuple[str, ...], open_findings: tuple[str, ...]) -> tuple[str, ...]:
    if len(findings) <= MAX_FINDINGS:
        return findings
    kept = {findings[0], *open_findings, *findings[-MAX_FINDINGS // 2 :]}
    return tuple(identifier for identifier in findings if identifier in kept)


def _latest(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return max(a, b)
