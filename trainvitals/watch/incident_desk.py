"""Everything that the watchdog does with incidents: it keeps them, tells people, and writes their pages. Composition only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainvitals.clock import Clock
from trainvitals.control.requests import ACKNOWLEDGE, SILENCE
from trainvitals.incidents.change import ChangeKind, IncidentChange
from trainvitals.incidents.mending import Patience
from trainvitals.incidents.silences import Silence
from trainvitals.records import Event, Finding, Severity, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.watch.alert_facts import Seen
from trainvitals.watch.alerting import Alerting, NoAlerts
from trainvitals.watch.incident_files import IncidentFiles
from trainvitals.watch.incident_keeper import IncidentKeeper, Taken
from trainvitals.watch.outgoing import Outgoing
from trainvitals.watch.requests import Apply
from trainvitals.watch.supervision import Supervision


class IncidentDesk:
    """Of one run. Whatever is to be stored goes out by ``out``."""

    def __init__(
        self, settings: Settings, run: RunSettings, clock: Clock, out: Outgoing, alerts: Alerting | NoAlerts | None = None
    ) -> None:
        patience = Patience(settings.incidents.mend_s, settings.incidents.end_s, settings.incidents.mend_max_s)
        self._clock, self._out, self._alerts = clock, out, alerts or NoAlerts()
        self._keeper = IncidentKeeper(run.name, patience, Supervision(run.dir, clock).is_there)
        self._pages = IncidentFiles(settings, run)
        self.kinds: Mapping[str, Apply] = {ACKNOWLEDGE: self._keeper.acknowledge, SILENCE: self._keeper.silence}
        out.listener = self._hear

    @property
    def trouble(self) -> str:
        """Why pages are not written or not explained, "" when all is well."""
        return self._pages.trouble or self._pages.fault

    @property
    def silences(self) -> tuple[Silence, ...]:
        return self._keeper.silences

    def take(self, step: Step) -> None:
        """A step of the trainer. Events are heard of when they go out."""
        self._keeper.stepped(step.attempt, 0 if step.time_estimated else self._age_ns(step.time_ns))
        self._hear(step)

    def found(self, finding: Finding, now_ns: int) -> Taken:
        """A new or changed finding, and what it led to. now_ns: UTC ns."""
        taken = self._keeper.take(finding, now_ns, self._age_ns(finding.time_ns))
        for event in taken.events:
            self._out.add_event(event)
        if taken.announcement:
            self._out.announce(taken.announcement)
        self._alerts.found(finding)
        self._pages.found(finding)
        return taken

    def keep(self, steady_ns: int) -> None:
        """What time or a person changed. steady_ns: a clock that nobody sets while we run."""
        for row in self._keeper.poll(steady_ns, self._clock.time_ns()):
            self._out.add_event(row)

    def tell(self, seen: Seen, now_ns: int, steady_ns: int) -> None:
        """People, and the pages in the run directory."""
        changes = self._keeper.take_changes()
        for event in self._alerts.poll(changes, self._keeper.open_incidents, seen, steady_ns):
            self._out.add_event(event)
        if changes:
            self._out.touch()
        for change in changes:
            self._out.announce(f"incident {change.kind.value}: {change.incident.title}{self._still_open(change)}")
        self._pages.poll(self._keeper.known, seen, now_ns, self._clock.monotonic_s(), self._keeper.silences)

    def _still_open(self, change: IncidentChange) -> str:
        """An end must not read as if all were over."""
        is_grave = (one.severity is Severity.CRITICAL and one.id != change.incident.id for one in self._keeper.open_incidents)
        count = sum(is_grave) if change.kind is ChangeKind.RECOVERED else 0
        return f"; but still open: {count} critical" if count else ""

    def flush(self) -> None:
        """Hand messages over, whatever the store says."""
        self._alerts.flush()

    def start_anew(self) -> None:
        """Forget everything."""
        self._keeper.start_anew()
        self._alerts.restore({})

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {**self._keeper.to_state(), "alerts": self._alerts.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        self._keeper.restore(state)
        self._alerts.restore(state.get("alerts", {}))

    def _age_ns(self, time_ns: int | None) -> int:
        return 0 if time_ns is None else max(0, self._clock.time_ns() - time_ns)

    def _hear(self, record: Step | Event) -> None:
        if isinstance(record, Event) and record.kind in ("supervisor", "control"):
            self._keeper.hear(record, self._age_ns(record.time_ns))
        self._alerts.take(record)
        self._pages.take(record)
