"""One poller per dashboard process: it reads the store, the pages read what it holds. A page never waits for the store.

Two threads, each with its own connection: one re-assembles the snapshot, one draws the curves that somebody looks at. While the
store cannot be read, the last good snapshot stays, with the reason and since when; the next good read heals it by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import StoreMissing, TrainvitalsError
from trainvitals.incidents.verdict import span
from trainvitals.records import Event, NodeSample
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.protocol import Store
from trainvitals.web import format as fmt
from trainvitals.web import remote
from trainvitals.web.assemble import run_view
from trainvitals.web.checkpoints import CheckpointReader
from trainvitals.web.configuration import ConfigurationReader
from trainvitals.web.incident_then import ThenReader
from trainvitals.web.nodes import NodeReader
from trainvitals.web.starts import StartReader
from trainvitals.web.upright import upright_run
from trainvitals.web.validation import ValidationReader
from trainvitals.web.view import AuditView, ControlView, CurveQuery, CurveResult, RunView, Snapshot

log = logging.getLogger(__name__)

#: How long a curve is kept fresh after somebody last looked at it, and how many different ones at once.
INTEREST_S = 60.0
MAX_INTERESTS = 64
#: How long a first request may wait for its figure.
FIRST_WAIT_S = 1.5
#: A window that ended in the past hardly changes: late rows only.
PAST_REFRESH_S = 30.0
#: A snapshot older than this many refreshes is called late even without an error: the store is slow.
LATE_REFRESHES = 5.0

OpenStore = Callable[[], Store]
#: (store, the run as last seen, what is asked, now) -> figure JSON
Draw = Callable[[Store, RunView, CurveQuery, int], str]
#: (run, now) -> control state; reads the run directory
ReadControl = Callable[[RunSettings, int], ControlView]
#: run -> all requests ever made of it, as events of kind ``control``
ReadRequests = Callable[[RunSettings], Sequence[Event]]
#: run -> mode of its breaker that is in force (off, dry-run or armed), and what forbids it to pause now
ReadBreaker = Callable[[RunSettings], tuple[str, str]]
#: run -> its audit; reads the run directory
ReadAudit = Callable[[RunSettings], AuditView]


@dataclass
class _Interest:
    query: CurveQuery
    viewed_s: float
    drawn_s: float | None = None
    result: CurveResult | None = None


class _Connection:
    """A store that is opened when first needed and again after any failure."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open, self._store = open_store, None  # type: tuple[OpenStore, Store | None]

    def get(self) -> Store:
        if self._store is None:
            self._store = self._open()
        return self._store

    def drop(self) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        try:
            store.close()
        except (TrainvitalsError, OSError) as error:
            log.warning("closing the store failed: %s", error)


class Poller:
    """Holds the last good ``Snapshot`` and the curves in demand. ``start`` and ``stop`` run the threads; tests call ``tick``."""

    def __init__(
        self,
        settings: Settings,
        open_store: OpenStore,
        draw: Draw,
        read_control: ReadControl,
        clock: Clock | None = None,
        read_requests: ReadRequests | None = None,
        read_breaker: ReadBreaker | None = None,
        read_audit: ReadAudit | None = None,
    ) -> None:
        self._settings, self._draw, self._read_control = settings, draw, read_control
        self._clock: Clock = clock or SystemClock()
        self._read_requests, self._read_breaker, self._read_audit = read_requests, read_breaker, read_audit
        #: run -> (sequence number when read, requests): the history directory is read again only when the number changed.
        self._requests: dict[str, tuple[int, Sequence[Event]]] = {}
        self._configurations, self._validations = ConfigurationReader(), ValidationReader()
        self._checkpoints, self._starts, self._thens = CheckpointReader(), StartReader(), ThenReader()
        self._far, self._nodes = remote.FarReader(), NodeReader()
        self._period_s = min(1.0, settings.dashboard.refresh_s)
        self._snapshots, self._curves_store = _Connection(open_store), _Connection(open_store)
        self._snapshot = Snapshot(0)
        self._interests: dict[CurveQuery, _Interest] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def settings(self) -> Settings:
        return self._settings

    def start(self) -> None:
        """Start both threads; a second call does nothing."""
        if self._threads:
            return
        self._stopping.clear()
        for name, work in (("trainvitals-poller", self._poll), ("trainvitals-curves", self._draw_forever)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End both threads and close the stores; a thread stuck in the store is left behind as a daemon."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)
        self._threads.clear()

    def now_ns(self) -> int:
        """The poller's clock, for ages on the pages."""
        return self._clock.time_ns()

    def snapshot(self) -> Snapshot:
        """The last good look; never waits. Without an error but late, it says that the store is slow."""
        held = self._snapshot
        age_s = (self._clock.time_ns() - held.taken_at_ns) / 1e9
        if held.error or not held.taken_at_ns or age_s <= LATE_REFRESHES * max(1.0, self._settings.dashboard.refresh_s):
            return held
        return replace(held, error=f"The store has not answered for {span(age_s)}.", error_since_ns=held.taken_at_ns)

    def curves(self, query: CurveQuery, wait_s: float = FIRST_WAIT_S) -> CurveResult | None:
        """The figure for ``query``: at once when known, else after at most ``wait_s``; None = not drawn yet, ask again."""
        with self._changed:
            interest = self._interests.get(query)
            if interest is None:
                interest = self._interests[query] = _Interest(query, self._clock.monotonic_s())
                self._forget()
                self._changed.notify_all()
            interest.viewed_s = self._clock.monotonic_s()
            if interest.result is None and wait_s > 0:
                self._changed.wait_for(lambda: interest.result is not None, wait_s)
            return interest.result

    def tick(self) -> None:
        """One look at everything; never raises."""
        now_ns = self._clock.time_ns()
        try:
            store = self._snapshots.get()
            # Which machines a run uses is known from the look before: they do not change from one second to the next.
            seen_nodes, seen_gpus = self._nodes.of(store, now_ns, self._settings, self._snapshot.runs)
            runs = tuple(upright_run(self._view(store, run, now_ns, seen_nodes)) for run in self._settings.runs)
            self._snapshot = Snapshot(now_ns, runs, seen_nodes, seen_gpus)
        except Exception as error:  # noqa: BLE001 - becomes the sentence on the page, and goes to the log
            self._snapshots.drop()
            held = self._snapshot
            since_ns = held.error_since_ns if held.error else now_ns
            self._snapshot = replace(held, error=sentence(error, held), error_since_ns=since_ns)

    def _view(self, store: Store, run: RunSettings, now_ns: int, seen_nodes: Sequence[NodeSample]) -> RunView:
        if remote.is_far(run):
            return self._far_view(store, run, now_ns, seen_nodes)
        control = self._read_control(run, now_ns)
        mode, hold = self._read_breaker(run) if self._read_breaker is not None else (run.breaker, "")
        in_force = replace(run, breaker=mode)
        if self._read_requests is not None and self._requests.get(run.name, (-1, ()))[0] != control.seq:
            self._requests[run.name] = (control.seq, self._read_requests(run))
        requests = self._requests.get(run.name, (0, ()))[1]
        view = self._assembled(store, in_force, control, now_ns, seen_nodes, requests, hold)
        audit = self._read_audit(run) if self._read_audit is not None else view.audit
        return replace(view, audit=audit, breaker_of_settings=run.breaker, breaker_hold=hold)

    def _far_view(self, store: Store, run: RunSettings, now_ns: int, seen_nodes: Sequence[NodeSample]) -> RunView:
        """Of a run whose directory is not on this host: nothing is read there, everything as its watchdog told it."""
        told = self._far.read(store, run, now_ns)
        in_force = replace(run, breaker=told.breaker or run.breaker)
        view = self._assembled(store, in_force, told.control, now_ns, seen_nodes, told.requests, told.breaker_hold)
        return replace(view, audit=remote.ELSEWHERE, breaker_of_settings=run.breaker, breaker_hold=told.breaker_hold)

    def _assembled(
        self, store: Store, run: RunSettings, control: ControlView, now_ns: int, seen_nodes: Sequence[NodeSample],
        requests: Sequence[Event], hold: str,
    ) -> RunView:  # fmt: skip
        return run_view(
            self._settings, store, run, control, now_ns, seen_nodes, requests, self._configurations, self._validations,
            self._checkpoints, self._starts, self._thens, hold,
        )  # fmt: skip

    def draw_due(self) -> int:
        """Draw every curve that is due, most overdue first; returns how many were drawn. Never raises."""
        drawn = 0
        while not self._stopping.is_set():
            with self._changed:
                self._forget()
                interest = self._most_overdue()
            if interest is None:
                return drawn
            self._draw_one(interest)
            drawn += 1
        return drawn

    def _draw_one(self, interest: _Interest) -> None:
        now_ns = self._clock.time_ns()
        query = interest.query
        try:
            run = self._snapshot.run(query.run)
            if run is None:
                if not self._snapshot.taken_at_ns:
                    raise TrainvitalsError(self._snapshot.error or "The first look at the store is not finished.")
                raise TrainvitalsError(f"No run {query.run!r} in the settings.")
            result = CurveResult(self._draw(self._curves_store.get(), run, query, now_ns), now_ns)
        except Exception as error:  # noqa: BLE001 - becomes the sentence on the page, and goes to the log
            self._curves_store.drop()
            old = interest.result
            since_ns = old.error_since_ns if old and old.error else now_ns
            result = CurveResult(
                old.figure_json if old else "", old.taken_at_ns if old else 0, sentence(error, self._snapshot), since_ns
            )
        with self._changed:
            interest.result, interest.drawn_s = result, self._clock.monotonic_s()
            self._changed.notify_all()

    def _most_overdue(self) -> _Interest | None:
        now_s = self._clock.monotonic_s()

        def overdue(interest: _Interest) -> float:
            if interest.drawn_s is None:
                return float("inf")
            is_past = interest.query.end is not None
            failed = interest.result is not None and bool(interest.result.error)
            period_s = PAST_REFRESH_S if is_past and not failed else max(1.0, self._settings.dashboard.refresh_s)
            return now_s - interest.drawn_s - period_s

        chosen = max(self._interests.values(), key=overdue, default=None)
        return chosen if chosen is not None and overdue(chosen) >= 0 else None

    def _forget(self) -> None:
        now_s = self._clock.monotonic_s()
        for query in [query for query, interest in self._interests.items() if now_s - interest.viewed_s > INTEREST_S]:
            del self._interests[query]
        while len(self._interests) > MAX_INTERESTS:
            del self._interests[min(self._interests, key=lambda query: self._interests[query].viewed_s)]

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self.tick()
            self._stopping.wait(self._period_s)
        self._snapshots.drop()

    def _draw_forever(self) -> None:
        while not self._stopping.is_set():
            self.draw_due()
            with self._changed:
                self._changed.wait_for(lambda: self._stopping.is_set() or self._has_new(), 0.25)
        self._curves_store.drop()

    def _has_new(self) -> bool:
        return any(interest.drawn_s is None for interest in self._interests.values())


def sentence(error: Exception, held: Snapshot) -> str:
    """What a person reads of an error. Only our own errors are sentences; the others go to the log with their trace.

    held: the last good look. Who read a store a minute ago must not be told that there is none yet.
    """
    if isinstance(error, StoreMissing) and held.taken_at_ns:
        at = fmt.clock(held.taken_at_ns, now_ns=held.taken_at_ns)
        return f"The store {error.path} that was here at {at} UTC is gone. Is its disk mounted? Who moved or deleted it?"
    if isinstance(error, TrainvitalsError):
        return str(error)
    log.exception("the poller met an error of an unexpected kind", exc_info=error)
    return f"Reading failed in an unexpected way ({type(error).__name__}); the dashboard's log has the details."
