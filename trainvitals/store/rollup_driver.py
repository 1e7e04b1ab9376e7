"""Keeps the roll-ups of one run complete: new windows as they close, again when late rows come, and all of an old history.

Windows are computed from the store's own rows, never from what passes by, so that a restart, a replay and an import give the
same rows. Progress is kept as state in the same transaction as the points it speaks of. Rows that come long after their
moment (an import, a log read late, an outage) are noted by hour by ``DirtyNotes``, together with the rows themselves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.clock import Clock
from trainvitals.records import Point
from trainvitals.schema import NODE_ROLLUP, NODE_ROLLUP_NS, SECOND_NS, TRAIN_ROLLUPS
from trainvitals.store.protocol import Sink, Store
from trainvitals.store.rollup import NODE_FIELDS, node_rollup, rollup, train_fields

HOUR_NS = 3_600 * SECOND_NS
#: A window is closed this long after its end: what is on its way then has arrived.
GRACE_NS = 10 * SECOND_NS
#: So many closed windows are computed again with every new one, for rows that came a little late.
LATE_WINDOWS = 2
#: A row older than this when it is written is late for certain: its hour is noted.
LATE_NS = 60 * SECOND_NS
#: Late hours, and parts of an old history, that one call works through before it lets others have their turn.
HOURS_PER_CALL = 24
#: An old history is read in parts of about so many rows.
ROWS_AT_ONCE = 40_000
#: Rows of `node` read at once; a slice of a large cluster's ten minutes is larger, and read whole.
NODE_SLICE_NS = NODE_ROLLUP_NS


def _key(run: str, what: str) -> str:
    return f"rollup/{run}/{what}"


class DirtyNotes:
    """A sink in front of another one that notes the hours that late `train` rows fall into, in the same transaction."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        self.inner = sink
        self._clock = clock
        self._lock = threading.Lock()
        self._touched: set[str] = set()  # hours noted since their computing began

    def write(self, points: Sequence[Point]) -> None:
        self.commit(points, {})

    def commit(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        now_ns = self._clock.time_ns()
        notes = late_notes(points, now_ns)
        if not notes:
            self.inner.commit(points, state)
            return
        with self._lock:  # an hour is begun and finished before these rows are stored or after, never in between
            self._touched.update(notes)
            self.inner.commit(points, {**state, **{key: str(now_ns).encode() for key in notes}})

    def load_state(self, prefix: str) -> dict[str, bytes]:
        return self.inner.load_state(prefix)

    def begin(self, key: str) -> None:
        """The hour of ``key`` is going to be computed: what is noted from now on is new."""
        with self._lock:
            self._touched.discard(key)

    def finish(self, key: str) -> None:
        """The hour was computed: forget the note, unless rows came meanwhile."""
        with self._lock:
            if key not in self._touched:
                self.inner.commit([], {key: None})


def late_notes(points: Sequence[Point], now_ns: int) -> dict[str, int]:
    """State key -> start of the hour (ns), for every hour of a run that late `train` points fall into."""
    notes: dict[str, int] = {}
    for point in points:
        if point.measurement == "train" and point.time_ns < now_ns - LATE_NS:
            hour_ns = point.time_ns // HOUR_NS * HOUR_NS
            notes[_key(point.tags["run"], f"dirty/{hour_ns}")] = hour_ns
    return notes


@dataclass(frozen=True)
class Progress:
    """What one call did. is_behind: there is more to do now. points: how many were written."""

    points: int = 0
    is_behind: bool = False


class RollupDriver:
    """``step`` is called every now and then (a minute is enough), in any thread, by one process a run.

    store: where rows are read. sink: where windows and progress are written; a ``DirtyNotes``, so that late rows are seen.
    waiting_s: age of the oldest row that the store does not have yet (a spool's); windows younger than that stay open.
    Raises ``StoreError`` (then nothing is lost: the next call goes on where the last commit ended).
    """

    def __init__(self, run: str, store: Store, sink: DirtyNotes, clock: Clock, waiting_s: Callable[[], float]) -> None:
        self._run, self._store, self._sink, self._clock, self._waiting_s = run, store, sink, clock, waiting_s
        self._done: dict[str, int] | None = None
        self._hours_at_once = 1

    def step(self) -> Progress:
        """Compute what is due, or a part of it."""
        horizon_ns = self._clock.time_ns() - GRACE_NS - round(max(0.0, self._waiting_s()) * 1e9)
        if self._done is None:
            self._done = self._kept()
        self._done = {name: self._behind(name, end_ns, horizon_ns) for name, end_ns in self._done.items()}
        dirty = self._dirty_hours(horizon_ns)
        written = 0
        for hour_ns, key in dirty[:HOURS_PER_CALL]:
            self._sink.begin(key)
            if self._done and hour_ns >= max(self._done.values()):  # the history below has not come this far: it will read it
                self._sink.finish(key)
                continue
            ends = {name: min(hour_ns + HOUR_NS, _floor(horizon_ns, width)) for name, width in TRAIN_ROLLUPS.items()}
            written += self._compute({name: (hour_ns, end) for name, end in ends.items()}, {})
            self._sink.finish(key)
        if len(dirty) > HOURS_PER_CALL:
            return Progress(written, is_behind=True)
        more = self._go_on(horizon_ns, HOURS_PER_CALL - len(dirty))
        return Progress(written + more.points, more.is_behind)

    def settled_ns(self) -> int | None:
        """Time before which every step of the run is in the roll-ups; None before the first."""
        if not self._done:
            return None
        noted = self._dirty_hours(self._clock.time_ns())
        return min([*self._done.values(), *(hour_ns for hour_ns, _ in noted)])

    def _kept(self) -> dict[str, int]:
        """Measurement -> end of what is done. Without a note the history starts with the run's first row."""
        key = _key(self._run, "done")
        blob = self._sink.load_state(key).get(key)
        known = json.loads(blob) if blob else {}
        if len(known) == len(TRAIN_ROLLUPS):
            return {name: int(known[name]) for name in TRAIN_ROLLUPS}
        first_ns = self._next_row_ns(0)
        return {} if first_ns is None else {name: _floor(first_ns, HOUR_NS) for name in TRAIN_ROLLUPS}

    def _behind(self, name: str, done_ns: int, horizon_ns: int) -> int:
        """``done_ns``; where it lies beyond the horizon the end of the newest window that is there: a clock that was ahead, and is
        right again, had skipped what was still to come."""
        width_ns = TRAIN_ROLLUPS[name]
        end_ns = _floor(horizon_ns, width_ns)
        if done_ns <= end_ns:
            return done_ns
        frame = self._store.raw(name, ["n"], {"run": self._run}, 0, end_ns, limit=1, newest_first=True)
        if not frame.empty:
            return int(frame["time_ns"].iloc[0]) + width_ns
        first_ns = self._next_row_ns(
            0
        )  # none: this clock is behind the whole history, and there is nothing to do before it is right
        return done_ns if first_ns is None else min(end_ns, _floor(first_ns, HOUR_NS))

    def _next_row_ns(self, start_ns: int) -> int | None:
        frame = self._store.raw("train", ["step"], {"run": self._run}, start_ns, self._clock.time_ns() + HOUR_NS, limit=1)
        return None if frame.empty else int(frame["time_ns"].iloc[0])

    def _dirty_hours(self, horizon_ns: int) -> list[tuple[int, str]]:
        """(hour, key), oldest first, of what was noted before the horizon: before it all rows are in the store. A note of the future was
        made while the clock was ahead; it counts as one of now."""
        prefix = _key(self._run, "dirty/")
        now_ns = self._clock.time_ns()
        is_all_there = horizon_ns >= now_ns - 2 * GRACE_NS
        return sorted(
            (int(key.removeprefix(prefix)), key)
            for key, noted in self._sink.load_state(prefix).items()
            if int(noted) <= horizon_ns or (is_all_there and int(noted) > now_ns)
        )

    def _go_on(self, horizon_ns: int, hours: int) -> Progress:
        """Windows that closed since the last call, hour by hour."""
        if not self._done:
            self._done = None  # no row yet: look again at the next call
            return Progress()
        written = 0
        spans = self._due(horizon_ns)
        end_ns = max((end for _, end in spans.values()), default=0)
        hour_ns = _floor(min((start for start, _ in spans.values()), default=0), HOUR_NS)
        for _ in range(max(LATE_WINDOWS + 2, hours)):
            if hour_ns >= end_ns:
                return Progress(written)
            following_ns = hour_ns + self._hours_at_once * HOUR_NS
            cut = {name: (max(start, hour_ns), min(end, following_ns)) for name, (start, end) in spans.items()}
            cut = {name: (start, end) for name, (start, end) in cut.items() if start < end}
            done = {name: max(end, cut.get(name, (0, 0))[1]) for name, end in self._done.items()}
            made = self._compute(cut, done)
            written += made
            hour_ns = following_ns if made or not cut else max(following_ns, self._skip_empty(done, horizon_ns))
            self._done = done
        return Progress(written, is_behind=hour_ns < end_ns)

    def _due(self, horizon_ns: int) -> dict[str, tuple[int, int]]:
        """Measurement -> span to compute, with the windows before it: a row that is not late enough for a note may have
        waited in a spool since."""
        assert self._done is not None
        spans = {}
        for name, width_ns in TRAIN_ROLLUPS.items():
            done_ns, end_ns = self._done[name], _floor(horizon_ns, width_ns)
            if end_ns > done_ns:
                spans[name] = (done_ns - LATE_WINDOWS * width_ns, end_ns)
        return spans

    def _skip_empty(self, done: dict[str, int], horizon_ns: int) -> int:
        """A run that stood still for weeks has no rows to look for hour by hour: the hour to go on with; moves ``done`` there."""
        at_ns = min(done.values())
        if horizon_ns - at_ns < 2 * HOUR_NS:
            return at_ns
        next_ns = self._next_row_ns(at_ns)
        resume_ns = _floor(horizon_ns if next_ns is None else min(next_ns, horizon_ns), HOUR_NS)
        for name in done:
            done[name] = max(done[name], resume_ns)
        return resume_ns

    def _compute(self, spans: Mapping[str, tuple[int, int]], done: Mapping[str, int]) -> int:
        """Read once, compute each measurement's own span, commit with the progress; returns the number of points."""
        spans = {name: span for name, span in spans.items() if span[0] < span[1]}
        points: list[Point] = []
        if spans:
            start_ns, end_ns = min(span[0] for span in spans.values()), max(span[1] for span in spans.values())
            fields = train_fields(self._store.stored_fields("train"))
            frame = self._store.raw("train", fields, {"run": self._run}, start_ns, end_ns)
            if len(frame) > ROWS_AT_ONCE:
                self._hours_at_once = max(1, self._hours_at_once // 2)
            elif len(frame) < ROWS_AT_ONCE // 4:
                self._hours_at_once = min(HOURS_PER_CALL, self._hours_at_once * 2)
            for name, (first_ns, last_ns) in spans.items():
                inside = (frame["time_ns"] >= first_ns) & (frame["time_ns"] < last_ns)
                points += rollup(frame[inside], name)
        state = {_key(self._run, "done"): json.dumps(dict(done)).encode()} if done else {}
        if points or state:
            self._sink.commit(points, state)
        return len(points)


class NodeRollupDriver:
    """``node_10m`` of all nodes. Several processes of one store share the progress: the first that comes does the work."""

    KEY = "rollup_nodes/done"

    def __init__(self, store: Store, sink: Sink, clock: Clock, waiting_s: Callable[[], float]) -> None:
        self._store, self._sink, self._clock, self._waiting_s = store, sink, clock, waiting_s

    def step(self, slices: int = 36) -> Progress:
        """Compute what is due, at most ``slices`` windows of ten minutes."""
        horizon_ns = self._clock.time_ns() - GRACE_NS - round(max(0.0, self._waiting_s()) * 1e9)
        end_ns = _floor(horizon_ns, NODE_ROLLUP_NS)
        done_ns = self.done_ns()
        if done_ns is not None and done_ns > end_ns + LATE_WINDOWS * NODE_ROLLUP_NS:
            # A clock was ahead and is right again: on from the newest window that is there, not from where it had skipped to.
            first_ns = self._next_row_ns(0, end_ns)
            if first_ns is None:  # or this one is behind the whole history
                return Progress()
            done_ns = self._summarised_by_others_ns(end_ns) or max(first_ns, end_ns - 24 * HOUR_NS)
            self._sink.commit([], {self.KEY: str(done_ns).encode()})
        if done_ns is None or end_ns > done_ns:
            done_ns = max(done_ns or 0, self._summarised_by_others_ns(end_ns)) or None
        if done_ns is None:
            done_ns = self._next_row_ns(0, end_ns)
            if done_ns is None:
                return Progress()
        elif end_ns <= done_ns:
            return Progress()
        else:
            done_ns -= LATE_WINDOWS * NODE_ROLLUP_NS
        written = 0
        for _ in range(slices):
            if done_ns >= end_ns:
                return Progress(written)
            frame = self._store.raw("node", NODE_FIELDS, {}, done_ns, done_ns + NODE_SLICE_NS)
            points = node_rollup(frame)
            following = done_ns + NODE_SLICE_NS
            if not points:
                following = max(following, min(end_ns, self._next_row_ns(following, end_ns) or end_ns))
            self._sink.commit(points, {self.KEY: str(following).encode()})
            written += len(points)
            done_ns = following
        return Progress(written, is_behind=done_ns < end_ns)

    def done_ns(self) -> int | None:
        """End of the last summarised window, None before the first."""
        blob = self._sink.load_state(self.KEY).get(self.KEY)
        return int(blob) if blob else None

    def _summarised_by_others_ns(self, end_ns: int) -> int:
        """End of the newest window in the store, 0 without one in the last day: progress is not shared between hosts."""
        frame = self._store.raw(NODE_ROLLUP, ["n"], {}, end_ns - 24 * HOUR_NS, end_ns, limit=1, newest_first=True)
        return 0 if frame.empty else int(frame["time_ns"].iloc[0]) + NODE_ROLLUP_NS

    def _next_row_ns(self, start_ns: int, end_ns: int) -> int | None:
        if start_ns >= end_ns:
            return None
        frame = self._store.raw("node", ["state"], {}, start_ns, end_ns, limit=1)
        return None if frame.empty else _floor(int(frame["time_ns"].iloc[0]), NODE_ROLLUP_NS)


def _floor(time_ns: int, width_ns: int) -> int:
    return time_ns // width_ns * width_ns
