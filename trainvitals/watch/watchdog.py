"""The watchdog of one run: read → detect → group → act, and commit. Composition only; the rules live elsewhere.

One turn reads what is new, and commits points, events and the whole state (file offsets, detectors, incidents) in one
transaction. A kill at any moment therefore repeats nothing and loses nothing. While the store is away, also from the start on, the
watchdog goes on detecting from what it reads; what it could not commit waits in memory up to a bound, then in the files themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from trainvitals.clock import Clock
from trainvitals.control.requests import ANNOTATION, BREAKER
from trainvitals.identity import event_id, step_time_ns
from trainvitals.incidents.grouping import finding_from_mapping
from trainvitals.records import Event, Finding, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import dropped_metrics, step_point
from trainvitals.store.protocol import Sink
from trainvitals.watch.alert_facts import Seen
from trainvitals.watch.alerting import Alerting, NoAlerts
from trainvitals.watch.annotation_request import AnnotationRequests
from trainvitals.watch.audit_trail import AuditTrail
from trainvitals.watch.beat import Beat
from trainvitals.watch.breaker_action import BreakerAction, Trips
from trainvitals.watch.breaker_mode import BreakerMode
from trainvitals.watch.checkpoint_events import CheckpointEvents
from trainvitals.watch.checkpoint_scan import CheckpointScanner, Scan
from trainvitals.watch.control_adapter import ControlAdapter, NoAdapter
from trainvitals.watch.counters import Counters
from trainvitals.watch.deaths import Deaths
from trainvitals.watch.engines import engine_for
from trainvitals.watch.far_control import FarControl
from trainvitals.watch.flood import FloodGate
from trainvitals.watch.incident_desk import IncidentDesk
from trainvitals.watch.kept_state import KEPT_ERRORS, packed, unpacked, was_watched
from trainvitals.watch.metadata import MetadataFiles
from trainvitals.watch.outgoing import Outgoing
from trainvitals.watch.pause_requests import PauseRequests
from trainvitals.watch.postmortem import PostmortemRunner
from trainvitals.watch.requests import Requests
from trainvitals.watch.safe_checkpoint import SafeCheckpoint
from trainvitals.watch.sources import RunSources
from trainvitals.watch.store_gone import StoreGone
from trainvitals.watch.store_road import StoreRoad
from trainvitals.watch.trainer_clocks import TrainerClocks
from trainvitals.watch.troubles import Troubles


class Watchdog:
    """One run. ``turn`` is called again and again; it never waits and never raises for what it reads."""

    def __init__(
        self, settings: Settings, run: RunSettings, store: Sink, clock: Clock, sources: RunSources, scanner: CheckpointScanner,
        breaker: BreakerAction, node: str, say: Callable[[str], None], postmortems: PostmortemRunner | None = None,
        safe: SafeCheckpoint | None = None, adapter: ControlAdapter | NoAdapter | None = None,
        alerts: Alerting | NoAlerts | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._run, self._store, self._clock = settings, run, store, clock
        self._sources, self._scanner, self._breaker, self._node, self._say = sources, scanner, breaker, node, say
        self._engine = engine_for(settings, run)
        self._out = Outgoing(run.name, store, clock, say)
        self._incidents = IncidentDesk(settings, run, clock, self._out, alerts)
        self._safe = safe or SafeCheckpoint(run, settings.watch)
        self._metadata = MetadataFiles(run.dir, run.name)
        self._deaths = Deaths(run, postmortems)
        self._pauses, self._adapter, self._clocks = PauseRequests(run.dir), adapter or NoAdapter(), TrainerClocks(clock)
        self._audit, self._mode = AuditTrail(run.dir, run.name, clock), BreakerMode(run.name, breaker)
        kinds = {ANNOTATION: AnnotationRequests(run.name).apply, BREAKER: self._mode.apply, **self._incidents.kinds}
        self._requests = Requests(run.dir, run.name, node, kinds, self._audit.answered, lambda: self._mode.told(self._engine))
        self._far = FarControl(
            settings, run, node, clock, kinds=lambda: self._requests.kinds, breaker=self._requests.breaker, told=self._audit.answered
        )  # fmt: skip
        self._parts: Mapping[str, Any] = {
            "safe": self._safe, "deaths": self._deaths, "requests": self._pauses, "adapter": self._adapter, "people": self._requests,
            "breaker_mode": self._mode, "clocks": self._clocks, "decided": (trips := Trips(breaker)).decided,
        }  # fmt: skip
        self._checkpoint_events = CheckpointEvents()
        self._checkpoint_state: Mapping[str, Any] | None = None
        self._is_checkpoint_state_new = False
        self._trips = trips
        self._last_step: int | None = None
        self._last_step_ns: int | None = None
        self._alive_ns: int | None = None  # when the newest step was written, by our clock
        self._heart = Beat(run.name, node, store, clock, settings.watch.heartbeat_s)
        self._started = (clock.time_ns(), clock.monotonic_s())
        self._scan_error = ""
        self._troubles, self._gate, self._gone = Troubles(), FloodGate(clock), StoreGone(run.name, store, clock)
        self._road = StoreRoad(
            run, store, clock, self._out, lambda: self._sources, lambda: (self._sources.attempt or 1, self._last_step or 0), self._gone
        )  # fmt: skip

    @property
    def counters(self) -> Counters:
        return self._out.counters

    @property
    def store_trouble(self) -> str:
        """Why the store takes nothing now, "" when it does."""
        return self._out.trouble

    def restore(self) -> None:
        """Go on where the last committed turn ended. Raises ``StoreError`` when the store does not answer."""
        self._go_on_from(*self._road.kept())
        if (copy := self._road.kept_elsewhere()) is not None:
            self._keep_watching(copy)
            self._out.tell(self._gone.met())

    def begin_without_store(self, why: str) -> None:
        """Go on from the copy of the state in the run directory, without one from the start of the run's files, and keep in memory
        what is found until the store can be opened. why: a sentence for people."""
        copy = self._road.copied(lambda kept: self._meet(kept, has_copy=self._road.was_committed))
        self._go_on_from(copy, None)
        since = "the run's files are read from the start" if copy is None else "the run goes on from the copy of its state"
        text = f"the store cannot be opened; {since}, and what is found is kept in memory until it can be: {why}"
        self.note(text, "without store")
        self._say(text)
        self._out.trouble = why

    def _meet(self, kept: bytes | None, *, has_copy: bool) -> bool:
        """A store that could not be opened at the start can be: whether the run's files are read from the start for it."""
        if kept is not None:
            try:
                self._far.add_known(unpacked(kept)["far"])  # what was taken after the copy was made is not taken again
            except KEPT_ERRORS as error:
                self.note(f"what the store had kept could not be used ({type(error).__name__}: {error})", "store met")
        elif has_copy:  # a new one, that has nothing of what came before the copy
            self._read_again(self._gone.met())
        return kept is None and has_copy

    def _go_on_from(self, blob: bytes | None, checkpoints: bytes | None) -> None:
        if blob is None:
            return self._take_up_notes()
        try:
            self._take_up(unpacked(blob), unpacked(checkpoints) if checkpoints else None)
        except KEPT_ERRORS as error:
            # Written by another version: reading the files again gives the same rows and the same ids, so nothing doubles.
            text = f"the kept state could not be used ({type(error).__name__}: {error}); the run's files are read again from the start"
            self._start_anew()
            self._keep_watching(blob)
            self._trips.restore([])
            self.note(text)
            self._out.announce(text)

    def _take_up(self, state: Mapping[str, Any], checkpoints: dict[str, Any] | None) -> None:
        self._far.restore(state.get("far", {}))  # first: what was taken is known also where the rest cannot be used
        self._sources.restore(state["sources"])
        self._engine.restore(state["engine"])
        self._incidents.restore(state)
        self._heart.last_ns = int(state.get("beat_ns", 0))
        self._out.counters = Counters(**state["counters"])
        self._last_step, self._last_step_ns = state["last_step"]
        self._checkpoint_events.restore(state.get("checkpoint_events", {}))
        self._trips.restore(state["trips"])
        self._out.unnumbered.restore(state.get("unnumbered", []))
        for name, part in self._parts.items():
            part.restore(state.get(name, {}))
        for data in state.get("checkpoint_findings", {}).values():  # an earlier version's, found again under another id
            old = finding_from_mapping(data)
            self._found([replace(old, is_open=False, last_step=old.first_step)], self._clock.time_ns())
        # The rules of an earlier version were told nothing of what lies on disk: look at it all anew.
        if checkpoints is not None and "checkpoint_events" in state:
            self._checkpoint_state = checkpoints
            self._scanner.restore(checkpoints)

    def _start_anew(self) -> None:
        self._sources = self._sources.fresh()
        (was_watched_until_now, arrived_ns), self._engine = self._engine.watched, engine_for(self._settings, self._run)
        if was_watched_until_now:
            self._engine.go_on_watching(arrived_ns)
        self._incidents.start_anew()
        self._out.counters = Counters()
        self._checkpoint_events, self._checkpoint_state = CheckpointEvents(), None
        self._is_checkpoint_state_new = True
        self._safe.restore({})
        self._deaths.restore({})
        self._out.unnumbered.restore([])
        self._mode.restore({})
        self._take_up_notes()

    def _read_again(self, why: Event) -> None:
        """What the store had is gone: the run's files give the same rows, with the same ids. What the breaker decided still holds."""
        self._start_anew()
        self._road.begin_anew()
        self._out.tell(why)

    def _keep_watching(self, kept: bytes) -> None:
        """All is read from the start: a run that was watched before, and stays silent from now on, hangs."""
        if was_watched(kept):
            self._engine.go_on_watching(self._steady_ns())
        for decision in self._trips.decided.salvage(kept):
            self._out.add_event(decision)

    def _take_up_notes(self) -> None:
        """What people said outlives what was kept of it: a store that is new, or a state that cannot be read."""
        for note in self._requests.again():
            self._out.add_event(note)
            self._guarded(partial(self._engine.update, note))
        for decision in self._trips.decided.events:
            self._out.add_event(decision)

    def turn(self) -> bool:
        """Read, detect, commit, act. Returns whether more is waiting to be read."""
        if (gone := self._gone.look()) is not None:
            self._read_again(gone)
        self._incidents.keep(self._steady_ns())
        records = self._sources.poll()
        newest = {one.attempt: one.time_ns for one in records if isinstance(one, Step) and one.time_ns and not one.time_estimated}
        self._clocks.looked((self._sources.path_of(attempt), time_ns) for attempt, time_ns in newest.items())
        for record in records:
            self._take(record)
        now_ns = self._clock.time_ns()
        for request in self._pauses.poll(self._clock.monotonic_s()):
            self._found(self._guarded(partial(self._engine.update, request)), now_ns)
            self._out.touch()
        for told in self._adapter.poll(self._clock.monotonic_s(), now_ns):
            self._out.tell(told, f"control: {told.text or told.data['state']}")
            self._found(self._guarded(partial(self._engine.update, told)), now_ns)
        for answered in self._far.poll(self._clock.monotonic_s(), now_ns):
            self._out.tell(answered, f"{answered.kind}: {answered.text}")
        for asked in self._requests.poll(self._clock.monotonic_s(), now_ns, self._last_step):
            self._out.tell(asked, f"{asked.kind}: {asked.text}")
            self._found(self._guarded(partial(self._engine.update, asked)), now_ns)
        for decision in self._breaker.log_events(self._engine.take_breaker_log(), self._sources.attempt, now_ns):
            self._out.add_event(decision)
        is_behind = self._sources.is_behind
        self._clocks.caught_up(not is_behind)
        if not is_behind:  # a log that never falls silent must not hide a stall
            self._found(self._guarded(lambda: self._engine.tick(self._steady_ns())), now_ns)
            self._take_postmortem(now_ns)
        self._scanner.advise(self._safe.wanted(), self._engine.step_s())
        scan = self._scanner.poll()
        if scan is not None:
            self._take_scan(scan, now_ns)
        if not is_behind:  # what is read later may say that it is over
            self._found(self._guarded(lambda: self._safe.poll(now_ns, self._sources.attempt)), now_ns)
        for event in self._safe.take_events():
            self._out.tell(event)
            self._audit.kept(event)
        for head in self._audit.poll(self._clock.monotonic_s()):
            self._out.add_event(head)
        self._incidents.keep(self._steady_ns())
        for point in self._far.points(self._clock.monotonic_s(), now_ns):
            self._out.add_point(point)
        self._tell_trouble()
        self._beat(now_ns)
        self._commit()
        if self._trips and self._act(now_ns):
            self._commit()
        if not is_behind:  # what is read later may say that it is over
            alive_ns = self._alive_ns or self._last_step_ns
            seen = Seen(self._last_step, alive_ns, self._engine.step_s(), self._safe.rollback, *self._mode.told(self._engine))
            self._incidents.tell(seen, now_ns, self._steady_ns())
            self._commit()
        self._incidents.flush()  # whatever the store says: people are told all the same
        return is_behind and bool(records)

    def last_turn(self) -> None:
        """The store is tried once more, whenever it was tried last."""
        self._road.hurry()
        self.turn()

    def close(self) -> None:
        """After the last turn: whoever asks for something is told that nobody watches."""
        self._requests.close()
        self._far.close()

    def _steady_ns(self) -> int:
        """The time as the detectors see it pass: a wall clock that is set while we run is neither a stall nor the end of one."""
        return self._started[0] + round((self._clock.monotonic_s() - self._started[1]) * 1e9)

    def _tell_trouble(self) -> None:
        troubles = [
            ("metadata", self._metadata.flush()), ("pauses", self._pauses.trouble), ("audit", self._audit.trouble),
            ("requests", self._requests.trouble), ("control", self._adapter.trouble), ("incidents", self._incidents.trouble), ("signed requests", self._far.trouble),
            ("attempts", self._sources.trouble), ("flapping", self._sources.flapping()), ("log", self._sources.unread), ("copy of the state", self._road.trouble),
        ]  # fmt: skip
        for source, trouble in self._troubles.news(troubles):
            self.note(trouble, f"trouble with {source}", trouble=source)
            self._out.announce(trouble)

    def note(self, text: str, subject: str = "watch", **data: Any) -> None:
        """Record something of the watchdog's own life (start, stop). subject: tells notes of one moment apart."""
        now_ns = self._clock.time_ns()
        identifier = event_id(self._run.name, subject, now_ns)
        self._out.add_event(Event("watch", now_ns, id=identifier, source="watch", text=text, data=data))

    def _take(self, record: Step | Event) -> None:
        record = self._adapter.take(record)
        self._safe.take(record)
        time_ns = record.time_ns if record.time_ns is not None else self._clock.time_ns()
        is_last = False
        if isinstance(record, Step):
            self._incidents.take(record)
            self.counters.dropped_metrics += len(dropped_metrics(record))
            self._out.add_point(step_point(self._run.name, record, step_time_ns(time_ns, record.step), record.time_estimated))
            before, self._last_step, self._last_step_ns = self._last_step, record.step, time_ns
            self._alive_ns = self._clocks.written_ns(self._sources.path_of(record.attempt), time_ns)
            is_last = 0 < self._run.total_steps <= record.step and (before is None or before < self._run.total_steps)
        else:
            self.counters.take(record)
            self._metadata.take(record)
            record = self._deaths.take(record, self._sources.attempt)
            if self._gate.lets_through(record.kind):
                self._out.add_event(record)
            else:
                self.counters.flooded_events += 1
        # A guessed time is for drawing; no rule may take it for the pace of the run.
        judged = replace(record, time_ns=None) if isinstance(record, Step) and record.time_estimated else record
        self._found(self._guarded(lambda: self._engine.update(judged)), time_ns)
        if is_last:  # a log need not say that it is done; what comes now is no stall, and another step takes it back
            done = Event("phase", record.time_ns, step=record.step, data={"phase": "finished", "state": "begin"})
            self._found(self._guarded(lambda: self._engine.update(done)), time_ns)

    def _guarded(self, detect: Callable[[], list[Finding]]) -> list[Finding]:
        """A fault in a rule costs that record's findings, not the watchdog."""
        try:
            return detect()
        except Exception as error:  # noqa: BLE001 (counted, stored and said)
            self.counters.detector_errors += 1
            text = f"a detector failed ({type(error).__name__}: {error}); this record was not judged"
            self.note(text, detector_errors=self.counters.detector_errors)
            self._out.announce(text)
            return []

    def _found(self, findings: list[Finding], now_ns: int) -> None:
        for finding in map(self._deaths.with_place, findings):
            taken = self._incidents.found(finding, now_ns)
            self._safe.found(finding, taken.incident)
            self._deaths.found(finding, taken.event_ns)
            if finding.rule == "breaker_trip":
                written_ns = self._clocks.written_ns(self._sources.path_of(finding.attempt), finding.time_ns)
                self._trips.add(replace(finding, time_ns=written_ns))

    def _take_postmortem(self, now_ns: int) -> None:
        """What the ends of all logs said of a death, when they have been read."""
        told = self._deaths.poll(self._sources.attempt, now_ns)
        if told is None:
            return
        event, trouble = told
        self._out.add_event(event)
        self._out.announce(f"post-mortem of attempt {event.attempt}: {event.text}")
        if trouble:
            self.counters.tails_not_kept += 1
            self.note(trouble, tails_not_kept=self.counters.tails_not_kept)
            self._out.announce(trouble)
        self._found(self._guarded(lambda: self._engine.update(event)), now_ns)

    def _take_scan(self, scan: Scan, now_ns: int) -> None:
        if scan.error != self._scan_error:
            text = f"cannot look at the checkpoints: {scan.error}" if scan.error else "the checkpoints can be looked at again"
            self.note(text, "look", trouble="checkpoints", is_over=not scan.error)
            self._scan_error = scan.error
        if scan.state is not None:
            self._safe.scanned(scan.known)
        if scan.state is not None and (scan.reports or self._checkpoint_state is None):
            self._checkpoint_state, self._is_checkpoint_state_new = scan.state, True
            self._out.touch()
        for event in self._checkpoint_events.of(scan.reports, scan.choices, self._sources.attempt or None, now_ns, scan.rooms):
            self._out.add_event(event)
            self._found(self._guarded(partial(self._engine.update, event)), now_ns)

    def _beat(self, now_ns: int) -> None:
        others = {"metadata_left_out": self._metadata.left_out, **self._sources.counters}
        beat, notes = self._heart.poll(now_ns, self.counters, others, (self._last_step, self._last_step_ns))
        for note in notes:
            self.note(note.text, note.subject, **note.data)
        if beat is not None:
            self._out.add_point(beat)

    def _act(self, now_ns: int) -> bool:
        told = self._trips.carry_out(self._sources.attempt, now_ns, self._clock.monotonic_s(), self._safe.pause_save)
        for event in told:
            self._out.tell(event, f"breaker: {event.text}")
            self._audit.decided(event)
        return bool(told)

    def _commit(self) -> None:
        if self._road.commit(self._state, partial(packed, self._checkpoint_state) if self._is_checkpoint_state_new else None):
            self._is_checkpoint_state_new = False
            self._requests.settle()

    def _state(self) -> Mapping[str, Any]:
        return {
            "sources": self._sources.to_state(),
            "engine": self._engine.to_state(),
            **self._incidents.to_state(),
            "counters": asdict(self.counters),
            "last_step": [self._last_step, self._last_step_ns],
            "checkpoint_events": self._checkpoint_events.to_state(),
            "trips": self._trips.to_state(),
            "unnumbered": self._out.unnumbered.to_state(),
            **{name: part.to_state() for name, part in self._parts.items()},
            "far": self._far.to_state(),
            "beat_ns": self._heart.last_ns,
        }
