"""The way of one watchdog's state to its store: committed together with the points, copied beside it, and met late where the store could
not be opened at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.clock import Clock
from trainvitals.settings import RunSettings
from trainvitals.store.protocol import Sink
from trainvitals.watch.gap import Gap
from trainvitals.watch.kept_state import KEPT_ERRORS, unpacked
from trainvitals.watch.outgoing import Outgoing
from trainvitals.watch.sources import RunSources
from trainvitals.watch.state_copy import StateCopy
from trainvitals.watch.store_gone import StoreGone


class StoreRoad:
    """Of one run. sources: those of the watchdog now. newest: attempt and step that it read last. gone: whether the file is still the same."""

    def __init__(
        self, run: RunSettings, store: Sink, clock: Clock, out: Outgoing, sources: Callable[[], RunSources],
        newest: Callable[[], tuple[int, int]], gone: StoreGone,
    ) -> None:  # fmt: skip
        self._run, self._store, self._clock, self._out, self._sources, self._newest = run, store, clock, out, sources, newest
        self._gone = gone
        self._key = f"watch/{run.name}/"
        self._copy = StateCopy(run.dir, run.name, clock)
        self._committed: bytes | None = None  # up to there the store has everything
        self._meet: Callable[[bytes | None], bool] | None = None
        self._gap: Gap | None = None
        out.before_commit = self._is_ready

    @property
    def trouble(self) -> str:
        """Why there is no new copy of the state, "" when there is."""
        return self._copy.trouble

    def kept(self) -> tuple[bytes | None, bytes | None]:
        """What was committed last: (state, that of the checkpoints). Raises ``StoreError`` when the store does not answer."""
        kept = self._store.load_state(self._key)
        self._committed = kept.get(self._key + "state")
        return self._committed, kept.get(self._key + "checkpoints")

    def kept_elsewhere(self) -> bytes | None:
        """The copy of what was committed before, when the store has nothing of it."""
        return self._copy.read() if self._committed is None else None

    def copied(self, meet: Callable[[bytes | None], bool]) -> bytes | None:
        """The copy to go on from while the store cannot be opened. meet: called with what the store has kept when it can be; whether the
        run's files are read from the start then."""
        self._meet = meet
        self._committed = self._copy.read()
        return self._committed

    def commit(self, state: Callable[[], bytes], checkpoints: Callable[[], bytes] | None) -> bool:
        """Whether something was written. checkpoints: None = they did not change; thousands are megabytes."""
        blob = b""

        def made() -> Mapping[str, bytes | None]:
            nonlocal blob
            blob = state()
            state_now = {self._key + "state": blob, **({} if checkpoints is None else {self._key + "checkpoints": checkpoints()})}
            return self._gone.for_known_file(state_now)

        if not self._out.commit(made):
            return False
        self._committed = blob
        self._copy.keep(blob)
        return True

    def begin_anew(self) -> None:
        """The store has nothing any more of what was committed: whatever finds no room is read from the start of the run's files."""
        self._committed = self._gap = None

    def _is_ready(self) -> bool:
        """Before a commit: the store is met, and has all steps before those in memory. Raises ``StoreError`` while it cannot be opened."""
        if self._meet is not None:
            kept = self._store.load_state(self._key).get(self._key + "state")
            if self._meet(kept):
                self._committed, self._out.is_cut = None, False  # the files themselves are read anew
            self._meet = None
        return not self._out.is_cut or self._is_filled()

    def _is_filled(self) -> bool:
        gap = self._gap or Gap(self._run.name, self._sources().again(self._state_of_sources()), self._store, self._clock)
        self._gap = None
        is_filled = gap.fill(self._out.waiting_steps(), self._newest())  # begun anew where the store refuses a piece
        self._gap, self._out.is_cut = (None, False) if is_filled else (gap, True)
        return is_filled

    def _state_of_sources(self) -> Mapping[str, Any] | None:
        try:
            return None if self._committed is None else unpacked(self._committed)["sources"]
        except KEPT_ERRORS:
            return None  # of another version: from the start, as everything else
