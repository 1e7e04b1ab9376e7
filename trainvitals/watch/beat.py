"""The watchdog's heartbeat: when it is due, what was lost so far, and what is to be noted of that."""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.clock import Clock
from trainvitals.errors import StoreError
from trainvitals.identity import MILLISECOND_NS
from trainvitals.records import Point
from trainvitals.store.protocol import Sink
from trainvitals.store.sink import heartbeat_fields
from trainvitals.watch.counters import Counters
from trainvitals.watch.heartbeat import heartbeat_point
from trainvitals.watch.losses import Losses, Note

#: A heartbeat that is further ahead than this is looked for by nobody.
AHEAD_NS = 24 * 3600 * 10**9


class Beat:
    """Of one run. every_s: seconds between two. last_ns: time of the last one; each has a later one, also while the clock is set back,
    because whoever listens takes the latest."""

    def __init__(self, run: str, node: str, store: Sink, clock: Clock, every_s: float) -> None:
        self._run, self._node, self._store, self._clock, self._every_s = run, node, store, clock, every_s
        self._due_s = clock.monotonic_s()
        self._losses = Losses(self._due_s)
        self.last_ns = 0

    def poll(
        self, now_ns: int, counters: Counters, others: Mapping[str, int], newest: tuple[int | None, int | None]
    ) -> tuple[Point | None, list[Note]]:
        """(the heartbeat when it is due, what is to be noted). others: counters of other parts. newest: step and its time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s:
            return None, []
        self._due_s = now_s + self._every_s
        kinds = {
            "bad_points": counters.bad_points, "detector_errors": counters.detector_errors, "hook_lost": counters.hook_lost,
            "flooded_events": counters.flooded_events, "events_not_kept": counters.events_not_kept, **others,
        }  # fmt: skip
        lost, notes = self._losses.look(kinds, now_s)
        is_ahead = 0 <= self.last_ns - now_ns < AHEAD_NS
        self.last_ns = self.last_ns + MILLISECOND_NS if is_ahead else now_ns
        return heartbeat_point(self._run, self._node, self.last_ns, lost, newest, self._of_spool()), notes

    def _of_spool(self) -> dict[str, float | int | str | bool]:
        """Its numbers; none while it cannot be opened, which the commit says."""
        try:
            return heartbeat_fields(self._store)
        except StoreError:
            return {}
