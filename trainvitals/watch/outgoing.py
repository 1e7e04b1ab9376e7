"""What the watchdog sends to the store: points that wait for their commit, and the commit itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.records import Event, Point
from trainvitals.store.encode import check_point, event_point
from trainvitals.store.protocol import Sink
from trainvitals.watch.ahead import Waiting
from trainvitals.watch.counters import Counters
from trainvitals.watch.pending import Pending
from trainvitals.watch.store_gone import StoreReplaced
from trainvitals.watch.unnumbered import Unnumbered

#: Beyond this many uncommitted points no steps are kept in memory: the trainer's own files are the longer queue (``Gap``).
MAX_PENDING_POINTS = 200_000
#: Of everything else (findings, incidents, what people did), which no file has: beyond it the oldest is lost, and counted.
MAX_PENDING_OTHERS = 100_000
#: Store faults are told once in this time.
TELL_AGAIN_S = 60.0
STEPS = "train"
#: Events that people hear of: what was told must be in the store one day.
TOLD_KINDS = frozenset({"incident", "breaker", "alert"})
#: Between two tries of a commit that was refused, doubled up to the second; and at least so many times what the try itself took: one on
#: a store that is locked waits, and detection with it.
TRY_AGAIN_S = (0.5, 5.0)
TRY_AGAIN_TIMES = 2.0


class Outgoing:
    """Of one run. ``add_*`` and ``announce`` collect, ``commit`` writes all of it with the state in one transaction."""

    def __init__(self, run: str, store: Sink, clock: Clock, say: Callable[[str], None]) -> None:
        self._run, self._store, self._clock, self._say = run, store, clock, say
        self._pending = Pending()
        self._told_s: float | None = None
        self.unnumbered = Unnumbered(run)
        self._again_s, self._pause_s = float("-inf"), TRY_AGAIN_S[0]
        #: Why the store takes nothing now, "" when it does.
        self.trouble = ""
        #: Called before each commit: whether it can be done yet. Raises ``StoreError``.
        self.before_commit: Callable[[], bool] = lambda: True
        #: Steps had no room: they are to be read again before the next commit.
        self.is_cut = False
        #: Hears of every event that is to be stored.
        self.listener: Callable[[Event], None] = lambda event: None
        self.counters = Counters()
        #: Events of ``TOLD_KINDS`` so far.
        self.told = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be committed."""
        return self._pending.changed

    def waiting_others(self) -> list[Point]:
        """Everything but steps that waits, oldest first."""
        return [one for one in self._pending.points if one.measurement != STEPS]

    def take_back(self, waiting: Waiting) -> None:
        """What waited when an earlier watchdog ended: before everything that came since, which may say more of the same rows."""
        since, self._pending.points = self._pending.points, []
        for point in waiting.points:
            self.add_point(point)
        self._pending.points += since
        self._pending.changed = True
        self.counters.events_not_kept += waiting.left_out
        if waiting.left_out:
            self.announce(
                f"{waiting.left_out:,} events of the time without a store were lost in a restart: there were too many to keep"
            )

    def waiting_steps(self) -> frozenset[tuple[str, int]]:
        """(attempt, step) of the steps that wait."""
        return frozenset(
            (one.tags["attempt"], int(one.fields["step"])) for one in self._pending.points if one.measurement == STEPS
        )

    def add_event(self, event: Event) -> None:
        """With what the event tells of its step, see ``Unnumbered``."""
        self.listener(event)
        self.told += event.kind in TOLD_KINDS
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
        if len(self._pending.points) > MAX_PENDING_POINTS:
            self._make_room()

    def _make_room(self) -> None:
        others = [one for one in self._pending.points if one.measurement != STEPS]
        self.is_cut = self.is_cut or len(others) < len(self._pending.points)
        self.counters.events_not_kept += max(0, len(others) - MAX_PENDING_OTHERS)
        self._pending.points = others[-MAX_PENDING_OTHERS:]

    def announce(self, sentence: str) -> None:
        """Said once the next commit is written, or refused."""
        self._pending.announcements.append(sentence)

    def tell(self, event: Event, sentence: str = "") -> None:
        """Store an event and announce it; sentence: in other words than its own."""
        self.add_event(event)
        self.announce(sentence or event.text)

    def touch(self) -> None:
        """The state alone has changed: it is to be committed, too."""
        self._pending.changed = True

    def hurry(self) -> None:
        """Let the next commit be tried at once: there may be no other."""
        self._again_s = float("-inf")

    def commit(self, state: Callable[[], Mapping[str, bytes | None]]) -> bool:
        """Whether something was written. What the store refuses waits, and is tried again after a pause."""
        now_s = self._clock.monotonic_s()
        if not self._pending.changed or now_s < self._again_s:
            return False
        try:
            if not self.before_commit():
                return False
            pending = self._pending
            self._store.commit(pending.points, state())
        except StoreReplaced:
            return False  # the next turn begins with a look at it
        except StoreError as error:
            self.counters.commit_failures += 1
            self.trouble = str(error)
            ended_s = self._clock.monotonic_s()
            self._again_s = ended_s + max(self._pause_s, TRY_AGAIN_TIMES * (ended_s - now_s))
            self._pause_s = min(TRY_AGAIN_S[1], 2 * self._pause_s)
            if self._told_s is None or now_s - self._told_s >= TELL_AGAIN_S:
                self._told_s = now_s
                self._say(f"the store took nothing ({len(self._pending.points)} points wait): {error}")
            self._say_all()  # perhaps twice, after a kill: better than nothing until the store is there
            return False
        self.trouble, self._again_s, self._pause_s = "", float("-inf"), TRY_AGAIN_S[0]
        if self._told_s is not None:
            self._told_s = None
            self._say("the store answers again.")
        self._say_all()
        self._pending = Pending()
        return True

    def _say_all(self) -> None:
        sentences, self._pending.announcements = self._pending.announcements, []
        for sentence in sentences:
            self._say(sentence)
