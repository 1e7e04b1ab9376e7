"""Steps that found no room in memory while the store took nothing: read again from the run's files, and stored, when it does.

The files are the longer queue. The state that goes with them is committed only afterwards, so a kill in the middle begins this anew.
"""

from __future__ import annotations

from collections.abc import Container

from trainvitals.clock import Clock
from trainvitals.identity import step_time_ns
from trainvitals.records import Step
from trainvitals.store.encode import step_point
from trainvitals.store.protocol import Sink
from trainvitals.watch.sources import RunSources

#: Seconds of one piece: detection waits for it.
PIECE_S = 0.5


class Gap:
    """sources: the run's files from where the last commit ended."""

    def __init__(self, run: str, sources: RunSources, store: Sink, clock: Clock) -> None:
        self._run, self._sources, self._store, self._clock = run, sources, store, clock

    def fill(self, known: Container[tuple[str, int]], newest: tuple[int, int]) -> bool:
        """One piece; whether all is there. known: (attempt, step) that wait in memory. newest: attempt and step that were read last:
        what lies beyond will be read in its turn. Raises what the store raises; then the piece is lost, and the whole is to be begun anew."""
        until_s = self._clock.monotonic_s() + PIECE_S
        while True:
            points = [
                step_point(self._run, one, step_time_ns(one.time_ns or 0, one.step), one.time_estimated)
                for one in self._sources.poll()
                if isinstance(one, Step) and (one.attempt, one.step) <= newest and (str(one.attempt), one.step) not in known
            ]
            if points:
                self._store.commit(points, {})
            if not self._sources.is_behind:
                return True
            if self._clock.monotonic_s() >= until_s:
                return False
