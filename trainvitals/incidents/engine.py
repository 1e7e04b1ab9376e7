"""The incidents of one run, and what is to be told of them: findings come in, changes of incidents go out. Pure, bounded, restorable.

``add`` gives the incidents as they are stored; ``take_changes`` gives what somebody may have to hear of, each once, whatever happens to
the process in between: an opened incident, one that became critical, one that is over or came back, one that a person has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainvitals.errors import InputError
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.incidents.engine_told import Situation, Told
from trainvitals.incidents.grouping import Grouper, finding_from_mapping
from trainvitals.incidents.mending import HANGS, MENDABLE, Mending, Patience
from trainvitals.incidents.pacing import Pacing
from trainvitals.incidents.silences import Silence, Silences
from trainvitals.incidents.suppression import muted_by
from trainvitals.records import Event, Finding, Incident, Severity

#: Incidents of which something may still be told, and those of which nothing is: how often they were told. Open findings that may explain others; findings that are explained.
MAX_TOLD = 200
MAX_ENDED = 200
MAX_OPEN = 500
MAX_MUTED = 200
#: What followed from another trouble mostly ends right after it; only what stays is told for itself.
AFTER_MUTER_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class _Muted:
    finding: Finding
    free_ns: int | None = None  # since when nothing explains it


class IncidentEngine:
    """Of one run."""

    def __init__(self, run: str, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._grouper = Grouper(run)
        self._told: dict[str, Told] = {}
        self._ended: dict[str, dict[str, int]] = {}
        self._open: dict[str, Finding] = {}
        self._muted: dict[str, _Muted] = {}
        self._acknowledged: list[IncidentChange] = []
        self._now_ns: int | None = None
        self._wall_ns: int | None = None
        self._mending, self._pacing = Mending(self._patience), Pacing()
        self.silences = Silences()
        #: Findings that were explained by another one and forgotten because there were too many.
        self.lost_muted = 0

    def add(self, finding: Finding, now_ns: int, age_ns: int = 0) -> list[Incident]:
        """Take a new or changed finding; return the incidents that it opened or changed. now_ns: UTC ns, for their times. age_ns: how
        long ago it began, where it is only read now."""
        self._remember(finding)
        if finding.is_open and finding.severity is not Severity.INFO and finding.rule in MENDABLE | HANGS:
            self._mending.found(finding, self._clock_ns(now_ns) - (age_ns if finding.rule in MENDABLE else 0))
        if finding.id in self._muted and not finding.is_open:
            del self._muted[finding.id]
            return []
        if not self._grouper.knows(finding) and muted_by(finding, self._open.values()) is not None:
            if finding.is_open:
                self._muted[finding.id] = _Muted(finding)
                while len(self._muted) > MAX_MUTED:
                    self._muted.pop(next(iter(self._muted)))
                    self.lost_muted += 1
            return []
        self._muted.pop(finding.id, None)
        return self._join(finding, now_ns)

    def advance(self, now_ns: int, wall_ns: int | None = None) -> list[Incident]:
        """The time is ``now_ns`` by a clock of the caller's own, which waits are measured by. wall_ns: UTC, by which silences end; now_ns
        when not given. Returns incidents that changed with it."""
        self._now_ns, self._wall_ns = now_ns, now_ns if wall_ns is None else wall_ns
        self._mending.not_after(now_ns)
        changed: list[Incident] = []
        for identifier, muted in list(self._muted.items()):
            if muted_by(muted.finding, self._open.values()) is not None:
                self._muted[identifier] = replace(muted, free_ns=None)
            elif muted.free_ns is None or muted.free_ns > now_ns:
                self._muted[identifier] = replace(muted, free_ns=now_ns)
            elif now_ns - muted.free_ns >= AFTER_MUTER_NS:
                del self._muted[identifier]
                changed += self._join(muted.finding, now_ns)
        wall_ns = self._wall_ns
        return changed + self._marked_anew(wall_ns) if self.silences.expire(wall_ns) else changed

    def hear(self, event: Event, age_ns: int = 0) -> None:
        """What the supervisor says of its restarts; other events are passed over. age_ns: how long ago it said so."""
        if self._now_ns is not None:
            self._mending.hear(event, self._now_ns - age_ns)

    def stepped(self, attempt: int, age_ns: int = 0) -> None:
        """A step of ``attempt`` was made: what ended a run before is over. age_ns: how long ago it was made."""
        if self._now_ns is not None:
            self._mending.stepped(attempt, self._now_ns - age_ns)
        self._grouper.stepped(attempt)
        for told in self._told.values():
            if told.closed_ns is not None and not told.has_stepped:
                at = self._grouper.attempt_of(told.incident.id)
                told.has_stepped = at is None or attempt >= at

    def take_changes(self, now_ns: int | None = None, *, is_supervised: bool = False) -> list[IncidentChange]:
        """What is to be told now. now_ns: as of ``advance``, the last one when not given. is_supervised: a supervisor is there that
        starts the trainer again."""
        now_ns = now_ns if now_ns is not None else self._now_ns if self._now_ns is not None else 0
        wall_ns = self._wall_ns if self._wall_ns is not None else now_ns
        changes, self._acknowledged = self._acknowledged, []
        mending, wait_ns = self._mending if is_supervised else None, round(self._patience.end_s * 1e9)
        for identifier, told in list(self._told.items()):
            is_live = self._grouper.live(identifier) is not None
            silence = self.silences.covering(told.incident, wall_ns)
            is_paced = told.told is None and self._pacing.is_soon(told.incident, told.rule, wait_ns, now_ns)
            for change in told.at(Situation(now_ns, mending, wait_ns, silence is not None, is_live, is_paced)):
                changes.append(change)
                if change.kind in (ChangeKind.OPENED, ChangeKind.ESCALATED, ChangeKind.REOPENED):
                    self._pacing.told(change.incident, change.rule, now_ns, is_return=change.kind is ChangeKind.REOPENED)
            if told.is_over and not is_live:
                self._ended[identifier] = self._told.pop(identifier).numbers
                while len(self._ended) > MAX_ENDED:
                    del self._ended[next(iter(self._ended))]
        return changes

    def acknowledge(self, incident_id: str, by: str, note: str, at_ns: int) -> Incident:
        """Somebody has it until it is over. Raises ``InputError`` when no such incident is open (a unique beginning of its id will do)."""
        told = self._named(incident_id)
        incident = replace(told.incident, acknowledged_by=by, acknowledged_at_ns=at_ns, acknowledged_note=note)
        self._put(told, incident)
        self._acknowledged.append(told.acknowledged(at_ns))
        return incident

    def silence(self, silence: Silence, now_ns: int) -> list[Incident]:
        """Tell nobody of what it covers. Returns incidents that changed by it. Raises ``InputError`` when there are too many."""
        self.silences.add(silence)
        return self._marked_anew(now_ns)

    def unsilence(self, identifier: str, now_ns: int) -> tuple[Silence, list[Incident]]:
        """End a silence now. Raises ``InputError`` when there is none of that id."""
        return self.silences.remove(identifier), self._marked_anew(now_ns)

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        return self._grouper.open_incidents

    @property
    def known(self) -> tuple[Incident, ...]:
        """Those that are open, and those that were lately."""
        return tuple(told.incident for told in self._told.values())

    def attempt_of(self, incident_id: str) -> int | None:
        """The attempt of its newest finding; None when it is not known any more."""
        return self._grouper.attempt_of(incident_id)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "groups": self._grouper.to_state(),
            "ended": self._ended,
            "told": [told.to_state() for told in self._told.values()],
            "open": [asdict(finding) for finding in self._open.values()],
            "muted": [{"finding": asdict(one.finding), "free_ns": one.free_ns} for one in self._muted.values()],
            "acknowledged": [[change.incident.id, change.at_ns, change.number, change.by] for change in self._acknowledged],
            "silences": self.silences.to_state(),
            "now_ns": self._now_ns,
            "mending": self._mending.to_state(),
            "pacing": self._pacing.to_state(),
            "lost_muted": self.lost_muted,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        if "groups" not in state:  # an earlier version's: what is open then was told in its own way
            self._restore_groups(state)
            return
        self._grouper.restore(state["groups"])
        self._told = {told.incident.id: told for told in map(Told.from_state, state["told"])}
        self._ended = {str(name): dict(numbers) for name, numbers in state["ended"].items()}
        self._open = {finding.id: finding for finding in map(finding_from_mapping, state["open"])}
        muted = [_Muted(finding_from_mapping(one["finding"]), one["free_ns"]) for one in state["muted"]]
        self._muted = {one.finding.id: one for one in muted}
        self.silences.restore(state["silences"])
        self._now_ns, self.lost_muted = state["now_ns"], state["lost_muted"]
        self._wall_ns = None
        self._mending = Mending.from_state(self._patience, state.get("mending", {}))
        self._pacing.restore(state.get("pacing", {}))
        self._acknowledged = []
        for identifier, at_ns, number, by in state["acknowledged"]:
            if (told := self._told.get(identifier)) is not None:
                change = IncidentChange(told.incident, ChangeKind.ACKNOWLEDGED, number, at_ns, told.rule, by)
                self._acknowledged.append(change)

    def _restore_groups(self, state: Mapping[str, Any]) -> None:
        self._grouper.restore(state)
        self._told = {
            one.id: Told(one, one.opened_at_ns, one.severity, loud=dict.fromkeys(one.rules, one.severity), numbers={"opened": 1})
            for one in self._grouper.open_incidents
        }

    def _remember(self, finding: Finding) -> None:
        self._open.pop(finding.id, None)
        if finding.is_open:
            self._open[finding.id] = finding
            while len(self._open) > MAX_OPEN:
                self._open.pop(next(iter(self._open)))

    def _join(self, finding: Finding, now_ns: int) -> list[Incident]:
        incident = self._grouper.add(finding, now_ns)
        if incident is None:
            return []
        clock_ns = self._clock_ns(now_ns)
        wall_ns = self._wall_ns if self._wall_ns is not None else now_ns
        told = self._told.get(incident.id)
        if told is None:
            numbers = self._ended.pop(incident.id, None)  # a word more of what was over, or its return
            told = Told(incident, clock_ns, is_over=numbers is not None, was_gone=numbers is not None, numbers=numbers or {})
            self._told[incident.id] = told
            self._forget_oldest()
        elif incident.is_open and told.is_over:  # it came back: whoever had it then has not seen this
            incident = replace(incident, acknowledged_by="", acknowledged_at_ns=None, acknowledged_note="")
        incident = self._marked(incident, wall_ns)
        told.take(incident, finding, clock_ns, wall_ns)
        self._grouper.amend(incident)
        return [incident]

    def _clock_ns(self, now_ns: int) -> int:
        return self._now_ns if self._now_ns is not None else now_ns

    def _forget_oldest(self) -> None:
        while len(self._told) > MAX_TOLD:
            over = next((name for name, told in self._told.items() if told.is_over or not told.incident.is_open), None)
            del self._told[over if over is not None else next(iter(self._told))]

    def _named(self, incident_id: str) -> Told:
        # Ids end with a step: r/time/1/stall/10 is no beginning of r/time/1/stall/1000.
        beginning = incident_id.rstrip("/") + "/"
        exact = self._told.get(incident_id)
        is_long = len(incident_id) >= 6
        found = [exact] if exact else [told for name, told in self._told.items() if is_long and name.startswith(beginning)]
        if len(found) != 1:
            raise InputError(f"no incident {incident_id[:100]!r} is open in this run; see `python -m trainvitals incident list`")
        if not found[0].incident.is_open:
            raise InputError(f"the incident {found[0].incident.id} is over already")
        return found[0]

    def _marked_anew(self, now_ns: int) -> list[Incident]:
        changed = []
        for told in self._told.values():
            marked = self._marked(told.incident, now_ns)
            if marked != told.incident:
                self._put(told, marked)
                changed.append(marked)
        return changed

    def _marked(self, incident: Incident, now_ns: int) -> Incident:
        silence = self.silences.covering(incident, now_ns) if incident.is_open else None
        until_ns = silence.until_ns if silence is not None else None
        return incident if until_ns == incident.silenced_until_ns else replace(incident, silenced_until_ns=until_ns)

    def _put(self, told: Told, incident: Incident) -> None:
        told.incident = incident
        self._grouper.amend(incident)
