"""What was told of one incident so far, and what is to be told now. Pure: the engine gives time, silences and supervision.

A death that a live supervisor mends, and a hang that it will end, are held back for a while (``mending``); an end waits a little, because trouble that comes back at once is no
second message; each return makes it wait longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.incidents.grouping import incident_from_mapping
from trainvitals.incidents.mending import HANGS, MENDABLE, Mending
from trainvitals.incidents.symptoms import OF_ITS_OWN, leading_rule
from trainvitals.records import Finding, Incident, Severity

#: Each return of the trouble doubles the wait for its end, so often; and it is never longer than this.
DOUBLINGS = 4
LONGEST_WAIT_NS = 30 * 60 * 10**9
#: Trouble that had been over for this long when it was read is history: nobody is sent looking for it.
MISSED_NS = 30 * 60 * 10**9
#: Trouble that comes again and again is told less often, but not later than this: it may not go away this time.
PACED_NS = 10 * 60 * 10**9


@dataclass(frozen=True, slots=True)
class Situation:
    """now_ns: the engine's clock. mending: what a supervisor that is there makes of it, None = there is none. wait_ns: how long an end
    must last. is_silenced: a silence covers the incident now. is_live: findings may still join it. is_paced: the same trouble was told
    so lately that this time may wait."""

    now_ns: int
    mending: Mending | None
    wait_ns: int
    is_silenced: bool
    is_live: bool
    is_paced: bool = False


@dataclass
class Told:
    """told: the gravest that was told, None = nothing yet. is_over: its end was told, or there was nothing to tell.

    since_ns: when it began or became graver; closed_ns: both by the engine's clock. loud: rule -> the gravest it was. has_stepped: steps were made after it closed.
    was_gone: its end was told before, so what comes now is a return. late_ns: how long it had been over when that was read.
    apart: what is told for itself also where something as grave was told before, by name; apart_told: those that were.
    """

    incident: Incident
    since_ns: int
    told: Severity | None = None
    is_over: bool = False
    was_gone: bool = False
    closed_ns: int | None = None
    has_stepped: bool = False
    returns: int = 0
    loud: dict[str, Severity] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    late_ns: int = 0
    apart: list[str] = field(default_factory=list)
    apart_told: list[str] = field(default_factory=list)

    def take(self, incident: Incident, finding: Finding | None, now_ns: int, wall_ns: int | None = None) -> None:
        """The incident as it is now, and the finding that made it so. wall_ns: UTC, by which its own times are; now_ns when not given."""
        if self.is_over and incident.is_open:  # it comes back: what was told then is told anew
            self.apart, self.apart_told = [], []
        if finding is not None:
            before = self.loud.get(finding.rule, Severity.INFO)
            self.loud[finding.rule] = max(before, finding.severity, key=lambda severity: severity.rank)
            is_apart = finding.rule in OF_ITS_OWN and finding.is_open and finding.severity is Severity.CRITICAL
            if is_apart and finding.rule not in self.apart:
                self.apart.append(finding.rule)
        is_worse = incident.severity.rank > self.incident.severity.rank
        was_open, self.incident = self.incident.is_open, incident
        if incident.is_open:
            is_new_start = bool(MENDABLE & set(self.loud)) and not self.has_stepped  # it never went away
            if self.closed_ns is not None and not was_open and not is_new_start:
                self.returns += 1
            if self.is_over or is_worse:
                self.since_ns = now_ns
            self.closed_ns, self.has_stepped = None, False
        elif was_open or self.closed_ns is None:
            self.closed_ns = now_ns
            ended_ns = incident.closed_at_ns
            self.late_ns = 0 if ended_ns is None else (now_ns if wall_ns is None else wall_ns) - ended_ns

    def at(self, situation: Situation) -> Iterator[IncidentChange]:
        """What is to be told now."""
        now_ns = situation.now_ns
        # A clock that was set back must not make anybody wait for it.
        self.since_ns = min(self.since_ns, now_ns)
        self.closed_ns = None if self.closed_ns is None else min(self.closed_ns, now_ns)
        if self.is_over and not self.incident.is_open:
            return
        if self.is_over:
            self.told, self.is_over, self.was_gone = None, False, self.was_gone or self.told is not None
        if self.told is None:
            yield from self._first(situation)
        elif self.incident.severity.rank > self.told.rank and not self._is_held(situation, self.incident.severity):
            yield self._news(ChangeKind.ESCALATED, now_ns)
        elif self.incident.is_open and self.apart != self.apart_told and not self._is_held(situation, Severity.CRITICAL):
            yield replace(self._news(ChangeKind.ESCALATED, now_ns), is_apart=True)
        if self.told is not None and not self.is_over and self._is_gone(situation):
            self.is_over = True
            yield self._change(ChangeKind.RECOVERED, now_ns)

    def acknowledged(self, now_ns: int) -> IncidentChange:
        """Somebody has it; the incident says who."""
        return self._change(ChangeKind.ACKNOWLEDGED, now_ns)

    def _first(self, situation: Situation) -> Iterator[IncidentChange]:
        now_ns = situation.now_ns
        if self.closed_ns is not None and self.late_ns >= MISSED_NS:
            self.is_over = True
            yield self._change(ChangeKind.RECOVERED, now_ns, is_healed=True)
        elif not self._is_held(situation, Severity.WARNING):
            yield self._news(ChangeKind.REOPENED if self.was_gone else ChangeKind.OPENED, now_ns)
        elif self._is_gone(situation):
            self.is_over = True
            is_mended = self.has_stepped or not MENDABLE & set(self.loud)  # else a newer death took its place
            if is_mended and not situation.is_silenced:
                yield self._change(ChangeKind.RECOVERED, now_ns, is_healed=True)

    def _is_held(self, situation: Situation, least: Severity) -> bool:
        """Whether nobody is to hear of it now. least: rules that were never as grave do not count."""
        if situation.is_silenced:
            return True
        if self.told is None and situation.is_paced and situation.now_ns - self.since_ns < PACED_NS:
            return True
        grave = {rule for rule, severity in self.loud.items() if severity.rank >= least.rank}
        if situation.mending is None or not grave or not grave <= MENDABLE | HANGS:
            return False
        # Steps again in time: what is still awaited is that it lasts. Another end opens it again.
        return self.has_stepped or situation.mending.holds(grave, self.since_ns, situation.now_ns)

    def _is_gone(self, situation: Situation) -> bool:
        if self.closed_ns is None:
            return False
        if situation.is_live and not self.has_stepped:
            # A start is no recovery before its first step.
            is_mending = self.told is None and situation.mending is not None and situation.mending.is_restarting
            if MENDABLE & set(self.loud) or (is_mending and HANGS & set(self.loud)):
                return False
        wait_ns = min(situation.wait_ns << min(self.returns, DOUBLINGS), max(LONGEST_WAIT_NS, situation.wait_ns))
        return situation.now_ns - self.closed_ns >= wait_ns

    def _news(self, kind: ChangeKind, now_ns: int) -> IncidentChange:
        self.told, self.apart_told = self.incident.severity, list(self.apart)
        return self._change(kind, now_ns)

    def _change(self, kind: ChangeKind, now_ns: int, *, is_healed: bool = False) -> IncidentChange:
        number = self.numbers[kind.value] = self.numbers.get(kind.value, 0) + 1
        by = self.incident.acknowledged_by if kind is ChangeKind.ACKNOWLEDGED else ""
        return IncidentChange(self.incident, kind, number, now_ns, self.rule, by, is_healed)

    @property
    def rule(self) -> str:
        """The rule that leads it: of the gravest the first, never what was only done about it; a trouble of its own before both."""
        gravest = max((severity.rank for severity in self.loud.values()), default=0)
        loudest = [rule for rule in self.incident.rules if self.loud.get(rule, Severity.INFO).rank == gravest]
        own = [rule for rule in loudest if rule in OF_ITS_OWN]
        return leading_rule((), own or loudest or self.incident.rules)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Told:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        told = state["told"]
        return cls(
            **{
                **state,
                "incident": incident_from_mapping(state["incident"]),
                "told": None if told is None else Severity(told),
                "loud": {rule: Severity(value) for rule, value in state["loud"].items()},
                "numbers": dict(state["numbers"]),
                "apart": list(state.get("apart", ())),
                "apart_told": list(state.get("apart_told", ())),
            }
        )
