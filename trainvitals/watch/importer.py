"""Back-fills the logs of a run into the store: the same rows that ``watch`` would have written, whenever and however often.

Points, findings and how far the reading came are committed in one transaction, so a kill at any moment repeats nothing and
loses nothing. Attempts keep their numbers, steps and events that are stored keep their times (``trainvitals.identity``).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.attempts import AttemptBook
from trainvitals.detect.engine import Engine
from trainvitals.errors import InputError, StoreError, StoreUnavailable, TrainvitalsError
from trainvitals.identity import event_time_ns, step_time_ns
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Finding, Point, Step
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.encode import check_point, dropped_metrics, event_point, step_point
from trainvitals.store.protocol import Sink, Store
from trainvitals.watch.deaths import Deaths
from trainvitals.watch.engines import engine_for
from trainvitals.watch.import_times import RecordTimes, TimePlan
from trainvitals.watch.incident_keeper import IncidentKeeper
from trainvitals.watch.metadata import MetadataFiles
from trainvitals.watch.sources import OWN_KINDS
from trainvitals.watch.unnumbered import Unnumbered

#: One commit; the kept state is written with it.
COMMIT_POINTS = 10_000
COMMIT_BYTES = 8 << 20
#: Imports that are remembered as done.
MAX_DONE = 100
MAX_KNOWN_EVENTS = 500_000
END_NS = 2**62


@dataclass(frozen=True)
class LogPart:
    """One file. chunks: its text from the start. written_ns: when it was last written. identity: changes with its content."""

    name: str
    chunks: Callable[[], Iterator[bytes]]
    written_ns: int
    identity: str


@dataclass(frozen=True)
class ImportLog:
    """The files of one log in the order in which they were written (more than one: it was rotated)."""

    parts: tuple[LogPart, ...]

    @property
    def name(self) -> str:
        return self.parts[-1].name


@dataclass
class Counts:
    """What an import did; JSON values. ``new_steps``, ``new_events``: of those read, the ones that the store did not have.
    ``detector_errors``: records that no rule judged, because one of them failed."""

    steps: int = 0
    new_steps: int = 0
    events: int = 0
    new_events: int = 0
    findings: int = 0
    left_out: int = 0
    attempts: list[int] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    estimated_times: int = 0
    detector_errors: int = 0


class Importer:
    """``run`` reads and commits; it yields after every commit, so that somebody can tell how far it is.

    sink: what takes the rows and the state. store: where what is stored already is looked up. Raises ``InputError`` for what
    cannot be read and ``StoreError`` when the store takes nothing; the next call goes on behind the last commit.
    """

    def __init__(
        self, settings: Settings, run: RunSettings, sink: Sink, store: Store, logs: Sequence[ImportLog], *,
        format: str = "auto", timezone: str = "UTC", custom: Mapping[str, type[Any]] | None = None, detect: bool = True,
    ) -> None:  # fmt: skip
        self._run, self._sink, self._store, self._logs = run, sink, store, logs
        self._format, self._timezone, self._custom = format, timezone, custom or {}
        self._book = AttemptBook(run.dir)
        self._settings, self._detects = settings, detect
        self._engine = self._new_engine()
        self._incidents = IncidentKeeper(run.name)
        self._metadata = MetadataFiles(run.dir, run.name)
        self._deaths = Deaths(run, None)
        self._unnumbered = Unnumbered(run.name)
        self._key, self._done_key = f"import/{run.name}/state", f"import/{run.name}/done"
        identities = [[part.identity for part in log.parts] for log in logs]
        self._id = hashlib.sha256(json.dumps([format, timezone, detect, identities]).encode()).hexdigest()
        self._points: list[Point] = []
        self._bytes = 0
        self._numbers: dict[str, int] = {}
        self._current = 0
        self._resumed_from: int | None = None
        self._last_ns = 0
        self._finding_ids: set[str] = set()
        self._known_events: dict[tuple[str, str], int] = {}
        self._known_steps: dict[int, frozenset[int]] = {}
        self.counts = Counts()
        #: Of each log that holds no step: its name and the format it was read as, None when none was recognised.
        self.empty: list[tuple[str, str | None]] = []

    def _new_engine(self) -> Engine | None:
        return engine_for(self._settings, self._run) if self._detects else None

    @property
    def was_done(self) -> bool:
        """Whether exactly these files were imported to their end before."""
        return self._id in self._done()

    def run(self) -> Iterator[Counts]:
        """Import everything, from where an interrupted import of the same files ended."""
        resume = self._load()
        self._look_up_events()
        first = resume["log"] if resume else 0
        for number in range(first, len(self._logs)):
            yield from self._import_log(number, resume if resume and number == first else None)
        self._finish_detection()
        self._commit({self._key: None, self._done_key: json.dumps([*self._done(), self._id][-MAX_DONE:]).encode()})
        yield self.counts

    # -- one log --------------------------------------------------------------------------------------------------

    def _import_log(self, number: int, resume: Mapping[str, Any] | None) -> Iterator[Counts]:
        log = self._logs[number]
        times = RecordTimes(self._plan(log), log.parts[-1].written_ns)
        parser = self._parser(log)
        steps_before, first_part, offset = self.counts.steps, 0, 0
        if resume:
            parser.restore(resume["parser"])
            times.restore(resume["times"])
            first_part, offset, steps_before = resume["part"], resume["offset"], resume["steps_before"]
        for part_number in range(first_part, len(log.parts)):
            part = log.parts[part_number]
            if part_number > first_part or (not resume and part_number):
                parser.next_file(part.written_ns)
            for chunk in skipped(part.chunks(), offset):
                offset += len(chunk)
                self._bytes += len(chunk)
                self._take(number, parser.feed(chunk), times)
                if len(self._points) >= COMMIT_POINTS or self._bytes >= COMMIT_BYTES:
                    place = {"log": number, "part": part_number, "offset": offset, "steps_before": steps_before}
                    self._commit(self._state({**place, "parser": parser.to_state(), "times": times.to_state()}))
                    yield self.counts
            offset = 0
        self._take(number, parser.finish(), times)
        self.counts.left_out += sum(parser.counters.values()) - parser.counters.get("repeated_steps", 0)
        if self.counts.steps == steps_before:
            self.empty.append((log.name, parser.format))

    def _parser(self, log: ImportLog) -> Parser:
        return Parser(self._format, self._timezone, log.parts[0].written_ns, custom=self._custom)

    def _plan(self, log: ImportLog) -> Sequence[int] | None:
        """Times of the steps of a log that tells none; None as soon as its first step tells its own."""
        plan, parser = TimePlan(), self._parser(log)
        for number, part in enumerate(log.parts):
            if number:
                parser.next_file(part.written_ns)
            for records in self._records(parser, part, is_last=number == len(log.parts) - 1):
                for record in records:
                    if isinstance(record, Step):
                        if not plan.times and record.time_ns is not None:
                            return None
                        plan.add(record)
            plan.end_of_file(part.written_ns)
        return plan.times

    @staticmethod
    def _records(parser: Parser, part: LogPart, *, is_last: bool) -> Iterator[list[Step | Event]]:
        for chunk in part.chunks():
            yield parser.feed(chunk)
        if is_last:
            yield parser.finish()

    # -- records --------------------------------------------------------------------------------------------------

    def _take(self, log: int, records: Sequence[Step | Event], times: RecordTimes) -> None:
        for record in times.dated(records):
            if isinstance(record, Step):
                self._take_step(log, record)
            else:
                self._take_event(log, record)

    def _take_step(self, log: int, step: Step) -> None:
        number = self._numbers.get(f"{log}#{step.attempt}", self._current or 1)
        step = replace(step, attempt=number)
        counts, time_ns = self.counts, step.time_ns or 0
        counts.steps += 1
        counts.left_out += len(dropped_metrics(step))
        counts.estimated_times += step.time_estimated
        counts.new_steps += step.step not in self._steps_of(number)
        counts.first_step = step.step if counts.first_step is None else min(counts.first_step, step.step)
        counts.last_step = step.step if counts.last_step is None else max(counts.last_step, step.step)
        self._points.append(step_point(self._run.name, step, step_time_ns(time_ns, step.step), step.time_estimated))
        # A guessed time is for drawing; no rule may take it for the pace of the run.
        self._judge(replace(step, time_ns=None) if step.time_estimated else step, time_ns)

    def _take_event(self, log: int, event: Event) -> None:
        if event.kind == "attempt_start":
            event = self._attempt_start(log, event)
        elif event.attempt is None:
            # Told before the first step of an attempt: it belongs to the one that begins.
            self._resumed_from = event.step if event.kind == "resume" else self._resumed_from
        else:
            event = replace(event, attempt=self._numbers.get(f"{log}#{event.attempt}", self._current or 1))
        if event.kind in OWN_KINDS:
            event = replace(event, kind="message", data={"said_kind": event.kind, **event.data})
        self.counts.events += 1
        self._metadata.take(event)
        self._count_metadata()
        if event.kind == "fault":
            self._metadata.flush()  # where the ranks of this start are; what cannot be written is said by the next commit
        event = self._deaths.take(event, self._current)
        self.counts.new_events += (event.kind, event.id) not in self._known_events
        self._add_event(event)
        self._judge(event, event.time_ns or 0)

    def _attempt_start(self, log: int, event: Event) -> Event:
        data = event.data
        started_ns = data.get("started_ns", event.time_ns)
        number = self._book.number(str(data["key"]), started_ns, data.get("first_step"), str(data.get("source", "log")))
        self._numbers = {f"{log}#{event.attempt}": number}
        self._current = number
        if number not in self.counts.attempts:
            self.counts.attempts.append(number)
        told = {**data, "attempt": number}
        if self._resumed_from is not None:
            told["resumed_from_step"], self._resumed_from = self._resumed_from, None
        return replace(event, attempt=number, data=told)

    def _judge(self, record: Step | Event, time_ns: int) -> None:
        self._last_ns = time_ns
        for row in self._incidents.poll(time_ns):
            self._add_event(row)
        if self._engine is not None:
            engine = self._engine
            self._found(self._guarded(lambda: engine.update(record)), time_ns)

    def _guarded(self, detect: Callable[[], list[Finding]]) -> list[Finding]:
        """A fault in a rule costs that record's findings, not the import."""
        try:
            return detect()
        except Exception:  # noqa: BLE001 (counted and told)
            self.counts.detector_errors += 1
            return []

    def _found(self, findings: Iterable[Finding], now_ns: int) -> None:
        for finding in map(self._deaths.with_place, findings):
            self._finding_ids.add(finding.id)
            for event in self._incidents.take(finding, now_ns).events:
                self._add_event(event)
        self.counts.findings = len(self._finding_ids)

    def _finish_detection(self) -> None:
        if self._engine is not None:
            self._found(self._guarded(self._engine.finish), self._last_ns)

    # -- the store ------------------------------------------------------------------------------------------------

    def _add_event(self, event: Event) -> None:
        known = self._known_events.get((event.kind, event.id))
        if known is None:
            self._known_events[event.kind, event.id] = event.time_ns or 0
        else:
            event = replace(event, time_ns=known)
        self._points += [event_point(self._run.name, event), *self._unnumbered.take(event)]

    def _look_up_events(self) -> None:
        """An event that is stored keeps its time, as a step does: where the log tells none, it depends on when it was read."""
        frame = self._store.raw("event", ["id"], {"run": self._run.name}, 0, END_NS, limit=MAX_KNOWN_EVENTS, newest_first=True)
        for kind, identifier, time_ns in zip(frame["kind"], frame["id"], frame["time_ns"], strict=True):
            if isinstance(identifier, str):
                self._known_events[str(kind), identifier] = int(time_ns) - event_time_ns(0, identifier)

    def _steps_of(self, attempt: int) -> frozenset[int]:
        """Steps of an attempt that were stored before this import."""
        known = self._known_steps.get(attempt)
        if known is None:
            where = {"run": self._run.name, "attempt": str(attempt)}
            frame = self._store.raw("train", ["step"], where, 0, END_NS)
            # Of one attempt at a time: a run has many.
            self._known_steps = {attempt: frozenset(int(step) for step in frame["step"])}
            known = self._known_steps[attempt]
        return known

    def _count_metadata(self) -> None:
        self.counts.left_out += self._metadata.left_out
        self._metadata.left_out = 0

    def _commit(self, state: Mapping[str, bytes | None]) -> None:
        trouble = self._metadata.flush()
        self._count_metadata()
        if trouble:
            raise InputError(f"{trouble} Nothing is lost: make room or rights there, and run the import again.")
        try:
            try:
                self._sink.commit(self._points, state)
            except StoreUnavailable:
                raise
            except StoreError:  # one of them does not fit the schema: the others do
                self._points = [point for point in self._points if self._fits(point)]
                self._sink.commit(self._points, state)
        except StoreError as error:
            raise TrainvitalsError(
                f"The store took nothing: {error} Nothing is lost: run the import again, it goes on there."
            ) from error
        self._points, self._bytes = [], 0

    def _fits(self, point: Point) -> bool:
        try:
            check_point(point)
        except StoreError:
            self.counts.left_out += 1
            return False
        return True

    # -- state ----------------------------------------------------------------------------------------------------

    def _done(self) -> list[str]:
        blob = self._sink.load_state(self._done_key).get(self._done_key)
        found = json.loads(blob) if blob else []
        return [str(identifier) for identifier in found]

    def _state(self, place: Mapping[str, Any]) -> dict[str, bytes | None]:
        state: dict[str, Any] = {
            "id": self._id, "place": place, "numbers": self._numbers, "current": self._current, "counts": vars(self.counts),
            "engine": self._engine.to_state() if self._engine else None, **self._incidents.to_state(),
            "resumed_from": self._resumed_from, "last_ns": self._last_ns, "finding_ids": sorted(self._finding_ids), "empty": self.empty,
            "unnumbered": self._unnumbered.to_state(),
        }  # fmt: skip
        return {self._key: zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)}

    def _load(self) -> Mapping[str, Any] | None:
        """Where an interrupted import of the same files stands; None: begin. A state of another version counts as none."""
        blob = self._sink.load_state(self._key).get(self._key)
        if blob is None:
            return None
        try:
            state = json.loads(zlib.decompress(blob))
            if state["id"] != self._id:
                return None
            if self._engine is not None:
                self._engine.restore(state["engine"])
            self._incidents.restore(state)
            resumed_from, last_ns = state["resumed_from"], state["last_ns"]
            self._parser(self._logs[state["place"]["log"]]).restore(state["place"]["parser"])
            counts = Counts(**state["counts"])
        except (ValueError, KeyError, TypeError, IndexError, zlib.error):
            self._engine = self._new_engine()
            self._incidents.start_anew()
            return None
        self._numbers, self._current, self.counts = dict(state["numbers"]), state["current"], counts
        self._resumed_from, self._last_ns = resumed_from, last_ns
        self._finding_ids = set(state["finding_ids"])
        self.empty = [(name, format) for name, format in state["empty"]]
        self._unnumbered.restore(state.get("unnumbered", []))
        place: Mapping[str, Any] = state["place"]
        return place


def skipped(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The chunks without their first ``count`` bytes. Raises ``InputError`` when they hold fewer."""
    left = count
    for chunk in chunks:
        if left >= len(chunk):
            left -= len(chunk)
            continue
        yield chunk[left:] if left else chunk
        left = 0
    if left:
        raise InputError("A file is shorter than what was read of it before; it was changed meanwhile. Run the import again.")
