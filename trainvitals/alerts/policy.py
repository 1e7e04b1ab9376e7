"""Who is told what, and when: severities, runs, quiet hours, silences, reminders, a second target, floods. Pure: time comes in.

A notice goes to each target that wants it, at once; or it is kept until the target's quiet hours are over, or until the minute is
over in which the target was told too much, and then one summary says all of it. What is over is told to those only who were told that it
began. State is JSON; the ids that come out depend on what happened alone, so telling twice is telling once.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainvitals.alerts.notice import Notice, NoticeKind, notice_id
from trainvitals.alerts.quiet import day, is_quiet
from trainvitals.alerts.summary import FLOOD, HEALED, QUIET, Heap, summary
from trainvitals.records import Severity
from trainvitals.settings_alerts import TargetSettings

#: Notices to one target within a minute, of critical ones and of the others each, before the rest becomes one summary.
PER_MINUTE = 6
MINUTE_NS = 60 * 10**9
#: What healed and began longer ago than this is history, which was only read now.
HISTORY_NS = 48 * 3600 * 10**9
#: Incidents whose targets are kept in mind; beyond it the oldest is forgotten, and counted.
MAX_OPEN = 100
_NEWS = (NoticeKind.OPENED, NoticeKind.ESCALATED, NoticeKind.REOPENED)


@dataclass(frozen=True, slots=True)
class Now:
    """wall_ns: UTC, for what a clock on the wall decides. steady_ns: goes on evenly while the wall clock is set, for durations."""

    wall_ns: int
    steady_ns: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notice for one target."""

    notice: Notice
    target: str


@dataclass
class _Told:
    """Of one target. first_ns, last_ns: steady, None = it is only kept for it so far."""

    severity: Severity
    first_ns: int | None = None
    last_ns: int | None = None
    reminders: int = 0


@dataclass
class _Open:
    notice: Notice
    acknowledged_by: str = ""
    silenced_until_ns: int = 0
    is_held: bool = False  # a silence kept it from everybody so far
    told: dict[str, _Told] = field(default_factory=dict)


class Policy:
    """Of one run, for all targets of the settings."""

    def __init__(self, targets: Mapping[str, TargetSettings]) -> None:
        self._targets = dict(targets)
        self._clear()

    def _clear(self) -> None:
        self._open: dict[str, _Open] = {}
        self._quiet: dict[str, Heap] = {}
        self._flood: dict[str, Heap] = {}
        self._healed: dict[str, Heap] = {}
        #: target -> steady times of the last minute, of critical notices and of others
        self._lately: dict[str, list[int]] = {}
        self._summaries: dict[str, int] = {}
        self.forgotten = 0

    def take(
        self, notice: Notice, now: Now, *, silenced_until_ns: int = 0, is_healed: bool = False, is_apart: bool = False
    ) -> list[Delivery]:
        """What is to be delivered now because of ``notice``. silenced_until_ns: UTC, 0 = no silence covers its incident. is_healed:
        it was over before anybody was told, so it is a line of the day's summary. is_apart: who was told of something as grave is told."""
        if notice.kind in _NEWS:
            return self._news(notice, now, silenced_until_ns, is_apart=is_apart)
        if notice.kind is NoticeKind.ACKNOWLEDGED:
            known = self._open.get(notice.incident_id)
            if known is None:
                return []
            known.acknowledged_by = notice.acknowledged_by or "somebody"
            return self._to_told(known, notice, now)
        if notice.kind is NoticeKind.PAUSED:
            known = self._open.get(notice.incident_id)
            return [] if known is None else self._to_told(known, notice, now)
        if notice.kind is NoticeKind.RECOVERED:
            known = self._open.pop(notice.incident_id, None)
            if is_healed and known is None:
                self._heal(notice, now)
            return [] if known is None else self._to_told(known, notice, now)
        return [one for name in self._wanting(notice) for one in self._tell(name, notice, now)]

    def note(self, incident_id: str, *, silenced_until_ns: int, acknowledged_by: str) -> None:
        """What people said of an open incident since."""
        known = self._open.get(incident_id)
        if known is not None:
            known.silenced_until_ns, known.acknowledged_by = silenced_until_ns, acknowledged_by or known.acknowledged_by

    def refresh(self, notice: Notice) -> None:
        """What is known of an open incident now: reminders and a second target are told that."""
        known = self._open.get(notice.incident_id)
        if known is not None:
            # Who is told later is told the same thing under the same id, with newer facts.
            old = known.notice
            known.notice = replace(notice, id=old.id, kind=old.kind, number=old.number, severity=old.severity)

    def tick(self, now: Now) -> list[Delivery]:
        """What time alone makes due: ends of silences and of quiet hours, reminders, second targets, summaries."""
        due: list[Delivery] = []
        for name in self._targets:  # before reminders: what is new must not wait behind what is told again
            if name in self._flood and self._has_room(name, now, is_critical=self._flood[name].severity is Severity.CRITICAL):
                due += self._release(name, self._flood.pop(name), FLOOD, now)
        for known in self._open.values():
            if now.wall_ns < known.silenced_until_ns:
                continue
            if known.is_held:
                known.is_held = False
                due += self._to_wanting(known, known.notice, now)
            if not known.acknowledged_by:
                due += [one for name in self._unheard(known) for one in self._tell(name, known.notice, now, known)]
                due += self._remind(known, now)
        for name, target in self._targets.items():
            if name in self._quiet and not is_quiet(target, now.wall_ns):
                due += self._release(name, self._quiet.pop(name), QUIET, now)
            if name in self._healed and self._healed[name].day != day(target, now.wall_ns):
                due += self._release(name, self._healed.pop(name), HEALED, now)
        return due

    @property
    def open_incidents(self) -> tuple[str, ...]:
        """Ids of those that somebody may still have to be told of."""
        return tuple(self._open)

    def told_of(self, incident_id: str) -> Notice | None:
        """What is told of an open incident; None when nothing is."""
        known = self._open.get(incident_id)
        return known.notice if known is not None else None

    def is_waiting(self, now: Now) -> bool:
        """Whether a reminder or a second target is due now, so that fresh facts are worth collecting."""
        return any(
            not known.acknowledged_by
            and now.wall_ns >= known.silenced_until_ns
            and (known.is_held or self._unheard(known) or self._due(known, now))
            for known in self._open.values()
        )

    # -- news --------------------------------------------------------------------------------------------------------------

    def _news(self, notice: Notice, now: Now, silenced_until_ns: int, *, is_apart: bool) -> list[Delivery]:
        known = self._open.get(notice.incident_id)
        if known is None or notice.kind is NoticeKind.REOPENED:
            known = _Open(notice)
            self._open.pop(notice.incident_id, None)
            self._open[notice.incident_id] = known
            while len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
                self.forgotten += 1
        known.notice, known.silenced_until_ns = notice, silenced_until_ns
        if now.wall_ns < silenced_until_ns:
            known.is_held = True
            return []
        known.is_held = False
        return self._to_wanting(known, notice, now, is_apart=is_apart)

    def _to_wanting(self, known: _Open, notice: Notice, now: Now, *, is_apart: bool = False) -> list[Delivery]:
        due = []
        # A second target that was called in hears the rest of it, whatever it wants otherwise.
        for name in dict.fromkeys((*self._wanting(notice), *known.told)):
            told = known.told.get(name)
            if name in self._targets and (is_apart or told is None or told.severity.rank < notice.severity.rank):
                due += self._tell(name, notice, now, known)
        return due

    def _unheard(self, known: _Open) -> list[str]:
        """Targets that came into the settings while something critical was open: they are told of it once."""
        if known.is_held or known.notice.severity is not Severity.CRITICAL:
            return []
        return [name for name in self._wanting(known.notice) if name not in known.told]

    def _wanting(self, notice: Notice) -> list[str]:
        return [
            name
            for name, target in self._targets.items()
            if notice.severity.value in target.severities and any(fnmatch.fnmatchcase(notice.run, glob) for glob in target.runs)
        ]

    def _to_told(self, known: _Open, notice: Notice, now: Now) -> list[Delivery]:
        due = []
        for name in known.told:
            target = self._targets.get(name)
            if target is None or (notice.kind is NoticeKind.RECOVERED and not target.send_recovered):
                continue
            kept = [heaps[name] for heaps in (self._quiet, self._flood) if name in heaps]
            heap = next((one for one in kept if one.holds(notice.incident_id)), None)
            if known.told[name].first_ns is None and heap is not None:
                heap.add(notice)  # whoever was not told yet that it began is told both in one
            else:
                due += self._tell(name, notice, now)
        return due

    def _tell(self, name: str, notice: Notice, now: Now, known: _Open | None = None) -> list[Delivery]:
        target = self._targets[name]
        told = known.told.setdefault(name, _Told(notice.severity)) if known is not None else None
        if told is not None:
            told.severity = max(told.severity, notice.severity, key=lambda severity: severity.rank)
            told.last_ns = now.steady_ns if told.first_ns is not None else None
        is_critical = notice.severity is Severity.CRITICAL
        # Whoever was woken must not wait until the morning for what was done about it.
        if not is_critical and notice.kind is not NoticeKind.PAUSED and is_quiet(target, now.wall_ns):
            self._quiet.setdefault(name, Heap()).add(notice)
            return []
        if target.kind != "pagerduty":  # it groups by itself
            if not self._has_room(name, now, is_critical=is_critical, is_again=notice.kind is NoticeKind.REMINDER):
                self._flood.setdefault(name, Heap()).add(notice)
                return []
            self._lately.setdefault(_lane(name, is_critical), []).append(now.steady_ns)
        if told is not None:
            told.first_ns = now.steady_ns if told.first_ns is None else told.first_ns
            told.last_ns = now.steady_ns
        if notice.kind in (*_NEWS, NoticeKind.RECOVERED):
            self._drop(name, notice.incident_id)
        return [Delivery(notice, name)]

    def _drop(self, name: str, incident_id: str) -> None:
        """What is kept of an incident says less, or another thing, than what was just told of it."""
        for heaps in (self._quiet, self._flood):
            if name in heaps:
                heaps[name].drop(incident_id)
                if not heaps[name].notices and not heaps[name].more:
                    del heaps[name]

    def _has_room(self, name: str, now: Now, *, is_critical: bool, is_again: bool = False) -> bool:
        lane = _lane(name, is_critical)
        kept = [at_ns for at_ns in self._lately.get(lane, ()) if 0 <= now.steady_ns - at_ns < MINUTE_NS]
        self._lately[lane] = kept
        return len(kept) < (PER_MINUTE // 2 if is_again else PER_MINUTE)  # reminders leave places to what is new

    # -- what time makes due -----------------------------------------------------------------------------------------------

    def _remind(self, known: _Open, now: Now) -> list[Delivery]:
        due: list[Delivery] = []
        for name, told in list(known.told.items()):
            target = self._targets.get(name)
            if target is None or told.first_ns is None or told.last_ns is None:
                continue
            told.first_ns, told.last_ns = min(told.first_ns, now.steady_ns), min(told.last_ns, now.steady_ns)
            second = target.escalate_to
            if second in self._targets and second not in known.told and self._is_late(told, target, now):
                due += self._tell(second, known.notice, now, known)
            if self._is_forgotten(told, target, now):
                told.reminders += 1
                number = told.reminders
                again = replace(
                    known.notice, id=notice_id(f"{known.notice.incident_id}/{known.notice.id}", "reminder", number),
                    kind=NoticeKind.REMINDER, number=number, at_ns=now.wall_ns,
                )  # fmt: skip
                due += self._tell(name, again, now, known)
        return due

    def _due(self, known: _Open, now: Now) -> bool:
        return any(
            name in self._targets
            and (
                self._is_forgotten(told, self._targets[name], now)
                or (
                    self._targets[name].escalate_to not in ("", *known.told) and self._is_late(told, self._targets[name], now)
                )
            )
            for name, told in known.told.items()
        )  # fmt: skip

    @staticmethod
    def _is_late(told: _Told, target: TargetSettings, now: Now) -> bool:
        return told.first_ns is not None and now.steady_ns - told.first_ns >= target.escalate_after_s * 10**9

    @staticmethod
    def _is_forgotten(told: _Told, target: TargetSettings, now: Now) -> bool:
        if not target.repeat_s or told.last_ns is None:
            return False
        return now.steady_ns - told.last_ns >= target.repeat_s * 10**9

    def _release(self, name: str, heap: Heap, why: str, now: Now) -> list[Delivery]:
        """What was kept: a single notice as it is, several as one summary. A pager is told of what is still open, one by one: it
        groups by itself, and nobody would ever resolve a summary there."""
        for incident_id in heap.incidents():
            known = self._open.get(incident_id)
            told = known.told.get(name) if known is not None else None
            if told is not None and told.first_ns is None:
                told.first_ns = told.last_ns = now.steady_ns
        if self._targets[name].kind == "pagerduty":
            if why == HEALED:
                return []
            oldest = {one.incident_id: one for one in reversed(heap.notices)}
            newest = {one.incident_id: one for one in heap.notices}
            # What began and ended while it was kept is nothing there; what had begun before is still open there.
            return [
                Delivery(one, name)
                for one in newest.values()
                if one.kind is not NoticeKind.RECOVERED or oldest[one.incident_id].kind not in _NEWS or heap.more
            ]
        self._lately.setdefault(_lane(name, heap.severity is Severity.CRITICAL), []).append(now.steady_ns)
        if len(heap.notices) == 1 and not heap.more and why != HEALED:
            return [Delivery(heap.notices[0], name)]
        number = self._summaries[name] = self._summaries.get(name, 0) + 1
        return [Delivery(summary(heap, why, name, number, now.wall_ns), name)]

    def _heal(self, notice: Notice, now: Now) -> None:
        if now.wall_ns - notice.opened_at_ns > HISTORY_NS:
            return
        for name, target in self._targets.items():
            if any(fnmatch.fnmatchcase(notice.run, glob) for glob in target.runs):
                heap = self._healed.setdefault(name, Heap(day=day(target, now.wall_ns)))
                heap.add(notice)

    # -- state -------------------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "open": {
                identifier: {**asdict(known), "notice": known.notice.to_mapping()} for identifier, known in self._open.items()
            },
            **{
                key: {name: heap.to_mapping() for name, heap in heaps.items()}
                for key, heaps in (("quiet", self._quiet), ("flood", self._flood), ("healed", self._healed))
            },
            "lately": self._lately, "summaries": self._summaries, "forgotten": self.forgotten,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken; targets that the settings no longer name are told nothing more. Raises ``KeyError``,
        ``TypeError`` or ``ValueError`` for what is none."""
        self._clear()
        if not state:
            return
        self._open = {
            identifier: _Open(
                Notice.from_mapping(known["notice"]), known["acknowledged_by"], known["silenced_until_ns"], known["is_held"],
                {name: _Told(**{**told, "severity": Severity(told["severity"])}) for name, told in known["told"].items()},
            )
            for identifier, known in state["open"].items()
        }  # fmt: skip
        for key, heaps in (("quiet", self._quiet), ("flood", self._flood), ("healed", self._healed)):
            heaps.update({name: Heap.from_mapping(data) for name, data in state[key].items() if name in self._targets})
        self._lately = {lane: list(times) for lane, times in state["lately"].items()}
        self._summaries, self.forgotten = dict(state["summaries"]), int(state["forgotten"])


def _lane(name: str, is_critical: bool) -> str:
    return f"{name}/{'critical' if is_critical else 'other'}"
