"""From changes of incidents to messages in the outbox: compose, decide who is told, hand over. Composition only.

What is to be told is part of the watchdog's committed state until the outbox has it. The outbox takes a message once however often it
is handed over, so a kill at any moment loses none and tells none twice; and it is handed over although the store is away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from trainvitals.alerts.compose import Known, compose
from trainvitals.alerts.notice import Notice, NoticeKind, Verb
from trainvitals.alerts.policy import Delivery, Now, Policy
from trainvitals.alerts.words import headline
from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.identity import event_id
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.records import Event, Finding, Incident, Severity, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.watch.alert_facts import AlertFacts, Seen

#: What could not be handed over yet; beyond it the oldest is dropped, and counted.
MAX_PENDING = 500
#: A run that made no step for so long was given up; what began then wakes nobody now.
GIVEN_UP_NS = 24 * 3600 * 10**9
#: Incidents that are remembered as critical from their beginning.
MAX_REMEMBERED = 200
_NEWS = (ChangeKind.OPENED, ChangeKind.ESCALATED, ChangeKind.REOPENED)
#: Pauses by the breaker that are not told yet; and how long the trainer may take to hold.
MAX_PAUSES = 20
PAUSED_WITHIN_NS = 300 * 10**9
#: A fault of the outbox is told once in this time.
TELL_AGAIN_S = 60.0


class Box(Protocol):
    """Where messages wait for delivery. The same notice for the same target again changes nothing. Raises ``StoreError``."""

    def enqueue(self, notice: Notice, target: str, not_before_ns: int = 0) -> bool: ...


class Alerting:
    """Of one run. ``poll`` decides and keeps, ``flush`` hands over; neither waits for a network, neither raises."""

    def __init__(
        self, settings: Settings, run: RunSettings, box: Box, clock: Clock, say: Callable[[str], None], *,
        wake: Callable[[], None] | None = None, facts: AlertFacts | None = None,
    ) -> None:  # fmt: skip
        self._run, self._box, self._clock, self._say = run, box, clock, say
        self._wake = wake or (lambda: None)
        self._policy = Policy(settings.alert_targets)
        self.facts = facts or AlertFacts(settings, run)
        self._pending: list[Delivery] = []
        self._told_s: float | None = None
        self._grave_at_once: dict[str, None] = {}
        self._pauses: dict[str, tuple[int, int | None]] = {}  # finding of a trip -> its step, since when it is awaited
        #: Messages that were dropped because the outbox could not be used for too long; changes of a run given up long ago; messages
        #: whose evidence could not be collected.
        self.dropped = self.history = self.faults = 0

    def take(self, record: Step | Event) -> None:
        """What ``watch`` has read or stored."""
        self.facts.take(record)
        if isinstance(record, Event) and record.kind == "breaker" and record.data.get("decision") == "paused":
            self._pauses[str(record.data.get("finding"))] = (record.step or 0, None)
            while len(self._pauses) > MAX_PAUSES:
                del self._pauses[next(iter(self._pauses))]

    def found(self, finding: Finding) -> None:
        """A new or changed finding."""
        self.facts.found(finding)

    def poll(
        self, changes: Sequence[IncidentChange], incidents: Sequence[Incident], seen: Seen, steady_ns: int
    ) -> list[Event]:  # fmt: skip
        """What changed, and all incidents that are open → events of what is told to whom. steady_ns: a clock that nobody sets.

        The state has changed when there were changes or there are events.
        """
        now = Now(self._clock.time_ns(), steady_ns)
        due: list[Delivery] = []
        for change in changes:
            due += self._of_change(change, seen, now, incidents)
        due += self._of_pauses(incidents, seen, now)
        for incident in incidents:
            self._policy.note(
                incident.id, silenced_until_ns=incident.silenced_until_ns or 0, acknowledged_by=incident.acknowledged_by
            )
        if self._policy.is_waiting(now):
            self._refresh(incidents, seen, now)
        due += self._policy.tick(now)
        self._pending += due
        if len(self._pending) > MAX_PENDING:
            self.dropped += len(self._pending) - MAX_PENDING
            del self._pending[:-MAX_PENDING]
        return [self._event(delivery, now.wall_ns) for delivery in due]

    def flush(self) -> None:
        """Hand over what is due. What the outbox refuses waits for the next call."""
        if not self._pending:
            return
        done = 0
        try:
            for delivery in self._pending:
                self._box.enqueue(delivery.notice, delivery.target)
                done += 1
            self._told_s = None
        except StoreError as error:
            now_s = self._clock.monotonic_s()
            if self._told_s is None or now_s - self._told_s >= TELL_AGAIN_S:
                self._told_s = now_s
                self._say(f"{len(self._pending) - done} alerts wait, the outbox took none: {error}")
        if done:
            del self._pending[:done]
            self._wake()

    @property
    def waiting(self) -> int:
        """Messages that the outbox does not have yet."""
        return len(self._pending)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "policy": self._policy.to_state(), "facts": self.facts.to_state(),
            "counts": [self.dropped, self.history, self.faults], "grave_at_once": list(self._grave_at_once),
            "pauses": {finding: list(pause) for finding, pause in self._pauses.items()},
            "pending": [{"notice": one.notice.to_mapping(), "target": one.target} for one in self._pending],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken; what waited is handed over again. Raises ``KeyError``, ``TypeError`` or ``ValueError``
        for what is none."""
        self._policy.restore(state.get("policy", {}))
        self.facts.restore(state.get("facts", {}))
        self._pending = [Delivery(Notice.from_mapping(one["notice"]), str(one["target"])) for one in state.get("pending", ())]
        self.dropped, self.history, self.faults = map(int, state.get("counts", (0, 0, 0)))
        self._grave_at_once = {str(identifier): None for identifier in state.get("grave_at_once", ())}
        self._pauses = {str(finding): (int(step), since_ns) for finding, (step, since_ns) in state.get("pauses", {}).items()}

    def _of_pauses(self, incidents: Sequence[Incident], seen: Seen, now: Now) -> list[Delivery]:
        """Whoever was told of the trouble before the breaker paused the trainer is told that it holds now, once it does."""
        due: list[Delivery] = []
        for finding, (step, since_ns) in list(self._pauses.items()):
            since_ns = now.steady_ns if since_ns is None else min(since_ns, now.steady_ns)
            self._pauses[finding] = (step, since_ns)
            incident = next((one for one in incidents if finding in one.finding_ids), None)
            told = None if incident is None else self._policy.told_of(incident.id)
            if now.steady_ns - since_ns > PAUSED_WITHIN_NS or (told is not None and told.verb is Verb.PAUSED):
                del self._pauses[finding]
            elif incident is not None and told is not None and self.facts.is_paused(now.wall_ns):
                del self._pauses[finding]
                change = IncidentChange(incident, ChangeKind.PAUSED, step, now.wall_ns, told.rule)
                due += self._of_change(change, seen, now, incidents)
        return due

    def _of_change(self, change: IncidentChange, seen: Seen, now: Now, incidents: Sequence[Incident]) -> list[Delivery]:
        if self._is_history(change, seen, now):
            self.history += 1
            return []
        incident = change.incident
        try:
            known = self.facts.known(incident, seen, now.wall_ns, incidents)
        except Exception as error:  # noqa: BLE001 (counted and said; a page without its evidence is better than none)
            self.faults += 1
            self._say(f"an alert says less than it could ({type(error).__name__}: {error})")
            known = Known(last_step=seen.last_step, others=incidents)
        notice = self._named(compose(change, known))
        return self._policy.take(
            notice, now, silenced_until_ns=incident.silenced_until_ns or 0, is_healed=change.is_healed, is_apart=change.is_apart
        )

    def _named(self, notice: Notice) -> Notice:
        """That it is critical is one message, whether it was so at once or became so: the same lines that are read in one go after a
        kill, before anything was committed, open as critical what had opened as a warning and was told when it grew."""
        grave = self._grave_at_once
        if notice.kind is NoticeKind.OPENED and notice.severity is Severity.CRITICAL:
            number = 1
            grave[notice.incident_id] = None
            while len(grave) > MAX_REMEMBERED:
                del grave[next(iter(grave))]
        elif notice.kind is NoticeKind.ESCALATED:
            number = notice.number + (notice.incident_id in grave)
        else:
            return notice
        return replace(notice, id=f"{notice.id.rsplit('-', 2)[0]}-{NoticeKind.ESCALATED.value}-{number}")

    def _is_history(self, change: IncidentChange, seen: Seen, now: Now) -> bool:
        """Whether it began long ago in a run that nobody continued: it was only read now."""
        if change.kind not in _NEWS or change.incident.id in self._policy.open_incidents:
            return False
        began_ns = change.incident.opened_at_ns
        newest_ns = max(began_ns, seen.last_step_ns or 0)
        return now.wall_ns - newest_ns > GIVEN_UP_NS

    def _refresh(self, incidents: Sequence[Incident], seen: Seen, now: Now) -> None:
        """Reminders say what is known now, as far as it is known: after a restart of ``watch`` the first words stand."""
        by_id = {incident.id: incident for incident in incidents if self.facts.knows(incident)}
        for identifier in self._policy.open_incidents:
            incident = by_id.get(identifier)
            if incident is None:
                continue
            try:
                known = self.facts.known(incident, seen, now.wall_ns)
            except Exception:  # noqa: BLE001 (counted; the first words stand)
                self.faults += 1
                continue
            rule = max(known.findings, key=lambda one: one.severity.rank).rule
            change = IncidentChange(incident, ChangeKind.OPENED, 1, now.wall_ns, rule)
            self._policy.refresh(compose(change, known))

    def _event(self, delivery: Delivery, now_ns: int) -> Event:
        notice = delivery.notice
        words = headline(notice)
        return Event(
            "alert", now_ns, step=notice.step, id=event_id(notice.id, delivery.target), severity=notice.severity, source="watch",
            text=f"told {delivery.target}: {words}",
            data={
                "target": delivery.target, "notice": notice.id, "incident": notice.incident_id, "kind": notice.kind.value,
                "is_summary": notice.kind is NoticeKind.SUMMARY,
            },
        )  # fmt: skip


class NoAlerts:
    """For whoever reads a run and tells nobody; what ``watch`` has kept of its messages stays as it is."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def take(self, record: Step | Event) -> None:
        """Nothing."""

    def found(self, finding: Finding) -> None:
        """Nothing."""

    def poll(
        self, changes: Sequence[IncidentChange], incidents: Sequence[Incident], seen: Seen, steady_ns: int
    ) -> list[Event]:  # fmt: skip
        """Nobody is told."""
        return []

    def flush(self) -> None:
        """Nothing."""

    def to_state(self) -> dict[str, Any]:
        """As it was restored."""
        return self._kept

    def restore(self, state: Mapping[str, Any]) -> None:
        """Keep it."""
        self._kept = dict(state)
