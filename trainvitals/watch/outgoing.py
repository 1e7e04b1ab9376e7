"""What the watchdog sends to the store: points that wait for their commit, and the commit itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.records import Event, Point
from trainvitals.store.encode import check_point, event_point
from trainvitals.store.protocol import Sink
from trainvitals.watch.counters import Counters
from trainvitals.watch.pending import Pending
from trainvitals.watch.unnumbered import Unnumbered

#: Beyond this many uncommitted points nothing more is read: the trainer's own files are the longer queue.
MAX_PENDING_POINTS = 200_000
#: Store faults are told once in this time.
TELL_AGAIN_S = 60.0


class Outgoing:
    """Of one run. ``add_*`` and ``announce`` collect, ``commit`` writes all of it with the state in one transaction."""

    def __init__(self, run: str, store: Sink, clock: Clock, say: Callable[[str], None]) -> None:
        self._run, self._store, self._clock, self._say = run, store, clock, say
        self._pending = Pending()
        self._told_s: float | None = None
        self.unnumbered = Unnumbered(run)
        #: Hears of every event that is to be stored.
        self.listener: Callable[[Event], None] = lambda event: None
        self.counters = Counters()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more is to be read."""
        return len(self._pending.points) >= MAX_PENDING_POINTS

    def add_event(self, event: Event) -> None:
        """With what the event tells of its step, see ``Unnumbered``."""
        self.listener(event)
        for point in (event_point(self._run, event), *self.unnumbered.take(event)):
            self.add_point(point)

    def add_point(self, point: Point) -> None:
        """One that does not fit the schema is counted and told, not stored."""
        try:
            check_point(point)
        except StoreError as error:
            self.counters.bad_points += 1
            self.announce(f"a point was not stored: {error}")
            return
        self._pending.points.append(point)
        self._pending.changed = True

    def announce(self, sentence: str) -> None:
        """Said once the next commit is written."""
        self._pending.announcements.append(sentence)

    def touch(self) -> None:
        """The state alone has changed: it is to be committed, too."""
        self._pending.changed = True

    def commit(self, state: Callable[[], Mapping[str, bytes | None]]) -> bool:
        """Whether something was written. What the store refuses waits for the next call."""
        pending = self._pending
        if not pending.changed:
            return False
        try:
            self._store.commit(pending.points, state())
        except StoreError as error:
            self.counters.commit_failures += 1
            now_s = self._clock.monotonic_s()
            if self._told_s is None or now_s - self._told_s >= TELL_AGAIN_S:
                self._told_s = now_s
                self._say(f"the store took nothing ({len(pending.points)} points wait): {error}")
            return False
        if self._told_s is not None:
            self._told_s = None
            self._say("the store answers again.")
        self._pending = Pending()
        for sentence in pending.announcements:
            self._say(sentence)
        return True
