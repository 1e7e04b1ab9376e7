"""The way of one watchdog's state to its store: committed together with the points, copied beside it, and met late where the store could
not be opened at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainvitals.clock import Clock
from trainvitals.settings import RunSettings
from trainvitals.store.protocol import Sink
from trainvitals.watch.ahead import NUMBER, Waiting, number_of, pack_waiting, unpack_waiting
from trainvitals.watch.gap import Gap
from trainvitals.watch.kept_state import KEPT_ERRORS, packed, unpacked
from trainvitals.watch.outgoing import Outgoing
from trainvitals.watch.sources import RunSources
from trainvitals.watch.state_copy import MAX_BYTES, Kept, StateCopy
from trainvitals.watch.store_gone import StoreGone

HEADER_BYTES = 4096


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
        self._number = 0
        self._told = 0
        self._before = Waiting()
        self._last: bytes | None = None  # the newest state in the copy
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
        return self._newest_of(self._copy.read()), kept.get(self._key + "checkpoints")

    def kept_elsewhere(self) -> bytes | None:
        """The copy of what was committed before, when the store has nothing of it."""
        return self._last if self._committed is None and not self._out.is_cut else None

    def copied(self, meet: Callable[[bytes | None], bool]) -> bytes | None:
        """The copy to go on from while the store cannot be opened. meet: called with what the store has kept when it can be; whether the
        run's files are read from the start then."""
        self._meet = meet
        copy = self._copy.read()
        self._committed = None if copy is None else copy.committed
        return self._newest_of(copy)

    @property
    def was_committed(self) -> bool:
        """Whether a store is known to have something of the run."""
        return self._committed is not None

    def hurry(self) -> None:
        """Let the next commit, and the copy, be tried at once: there may be no other."""
        self._out.hurry()
        self._copy.hurry()

    def _newest_of(self, copy: Kept | None) -> bytes | None:
        """Where to go on from: what the store has, or where a watchdog was ahead of it."""
        self._number = number_of(self._committed)
        self._last = None if copy is None else copy.ahead or copy.committed
        if copy is None or copy.ahead is None or copy.waiting is None:
            return self._committed
        ahead = number_of(copy.ahead)
        if self._number >= ahead:
            return self._committed  # the store took it after all
        try:
            self._before = unpack_waiting(copy.waiting)
        except KEPT_ERRORS as error:
            self._copy.trouble = f"what waited for the store could not be read ({type(error).__name__}: {error})"
            return self._committed
        if self._number < number_of(copy.committed):
            return self._committed  # another store: its own state, and what waited besides
        self._number, self._out.is_cut = ahead, True  # the steps between are read again
        return copy.ahead

    def commit(self, state: Callable[[], Mapping[str, Any]], checkpoints: Callable[[], bytes] | None) -> bool:
        """Whether something was written. checkpoints: None = they did not change; thousands are megabytes."""
        self._take_back()
        blob = b""

        def made() -> Mapping[str, bytes | None]:
            nonlocal blob
            blob = self._packed(state)
            state_now = {self._key + "state": blob, **({} if checkpoints is None else {self._key + "checkpoints": checkpoints()})}
            return self._gone.for_known_file(state_now)

        if not self._out.commit(made):
            self._keep_ahead(state)
            return False
        self._committed, told = blob, self._out.told
        if self._copy.keep(blob, is_news=told != self._told):
            self._told = told
        return True

    def _take_back(self) -> None:
        """What waited when the watchdog before this one ended waits again: not before its state was taken up, with its counters."""
        waiting, self._before = self._before, Waiting()
        if waiting.points or waiting.left_out:
            self._out.take_back(waiting)

    def _keep_ahead(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """What was told, and waits for the store, outlives this process."""
        told = self._out.told
        if not self._out.is_waiting or not self._copy.is_due(is_news=told != self._told):
            return
        ahead = self._packed(state)
        room_bytes = MAX_BYTES - HEADER_BYTES - len(ahead) - len(self._committed or b"")
        self._copy.keep_ahead(Kept(self._committed, ahead, pack_waiting(self._out.waiting_others(), room_bytes)))
        self._told = told

    def _packed(self, state: Callable[[], Mapping[str, Any]]) -> bytes:
        self._number = max(self._number + 1, self._clock.time_ns())
        return packed({**state(), NUMBER: self._number})

    def begin_anew(self) -> None:
        """The store has nothing any more of what was committed: whatever finds no room is read from the start of the run's files."""
        self._committed = self._gap = None

    def _is_ready(self) -> bool:
        """Before a commit: the store is met, and has all steps before those in memory. Raises ``StoreError`` while it cannot be opened."""
        if self._meet is not None:
            kept = self._store.load_state(self._key).get(self._key + "state")
            if self._meet(kept if number_of(kept) >= number_of(self._committed) else None):  # an older one has less than the copy
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
