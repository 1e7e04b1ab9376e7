"""Timestamps of training points: a (run, attempt, step) that InfluxDB holds keeps the time it was stored with.

InfluxDB names a row by its time, so a step read again at another time would become a second row. Before a batch is written
its steps are looked up: not at all while a run goes on (a step above the highest stored one at a time after the last one is
new), page by page when a log is read again. What was looked up is believed for a minute; one program writes a run at a time
(the watch lock sees to that).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainvitals.clock import Clock
from trainvitals.identity import MILLISECOND_NS
from trainvitals.records import Point
from trainvitals.store.influx_query import Reader, condition, identifier
from trainvitals.store.line_protocol import MAX_TIME_NS, MIN_TIME_NS

MEASUREMENT = "train"
PAGE_STEPS = 16_384
MAX_PAGES = 16
BELIEVED_S = 60.0
_CLUSTER_NS = 600 * 10**9
_MOST_FOUND = 1000
#: What another program wrote since the last look is looked for from so long before the last known row.
_LOOK_BACK_NS = 3600 * 10**9
_Series = tuple[str, str]


@dataclass
class _Extent:
    """Highest step and last time of a series, and when that was asked. An empty series has neither."""

    highest: int | None
    last_ns: int | None
    asked_s: float


class StepTimes:
    """Gives points of `train` the time their step is stored with. ``lock`` is held from ``settled`` to ``stored`` or ``forget``."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self.lock = threading.Lock()
        self._reader, self._clock = reader, clock
        self._extents: dict[_Series, _Extent] = {}
        self._pages: OrderedDict[tuple[_Series, int], dict[int, int]] = OrderedDict()
        self._found: dict[tuple[str, int, int], tuple[int, float]] = {}

    def settled(self, points: Sequence[Point]) -> list[Point]:
        """The points, those of `train` at the time of their step: stored, or earlier in this batch, or the next free one."""
        by_series: dict[_Series, list[int]] = {}
        for at, point in enumerate(points):
            if point.measurement == MEASUREMENT:
                by_series.setdefault((point.tags["run"], point.tags["attempt"]), []).append(at)
        settled = list(points)
        for series, positions in by_series.items():
            times = self._times(series, [(int(points[at].fields["step"]), points[at].time_ns) for at in positions])
            for at, time_ns in zip(positions, times, strict=True):
                if time_ns != points[at].time_ns:
                    settled[at] = replace(points[at], time_ns=time_ns)
        return settled

    def stored(self, points: Iterable[Point]) -> None:
        """The server acknowledged these settled points."""
        for point in points:
            if point.measurement != MEASUREMENT:
                continue
            series, step = (point.tags["run"], point.tags["attempt"]), int(point.fields["step"])
            extent = self._extents.get(series)
            if extent is not None:
                extent.highest = step if extent.highest is None else max(extent.highest, step)
                extent.last_ns = point.time_ns if extent.last_ns is None else max(extent.last_ns, point.time_ns)
            page = self._pages.get((series, step // PAGE_STEPS))
            if page is not None:
                page[step] = point.time_ns

    def time_of(self, run: str, attempt: int, step: int) -> int | None:
        """The stored time of a step. A time that was found is remembered: it never changes, and finding it reads the run."""
        key, now_s = (run, attempt, step), self._clock.monotonic_s()
        found = self._found.get(key)
        if found is not None and now_s - found[1] < BELIEVED_S:
            return found[0]
        time_ns = self._rows((run, str(attempt)), f'"step" = {int(step)}', MIN_TIME_NS, MAX_TIME_NS).get(step)
        if time_ns is not None:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[key] = (time_ns, now_s)
        return time_ns

    def forget(self) -> None:
        """It is not known what the server holds now."""
        self._extents.clear()
        self._pages.clear()
        self._found.clear()

    def _times(self, series: _Series, wanted: Sequence[tuple[int, int]]) -> list[int]:
        extent = self._extent(series)
        known: dict[int, int] = {}
        if extent.highest is not None:
            for number in sorted({step // PAGE_STEPS for step, _ in wanted if step <= extent.highest}):
                page = self._page(series, number)
                known.update({step: page[step] for step, _ in wanted if step in page})
        last_ns = extent.last_ns
        doubtful = [] if last_ns is None else sorted({t for step, t in wanted if step not in known and t <= last_ns})
        taken = self._taken(series, doubtful)
        times = []
        for step, time_ns in wanted:
            at = known.get(step)
            if at is None:
                at = time_ns
                while taken.get(at, step) != step:  # another step has this very nanosecond: the next free one is taken
                    at += 1
                known[step] = at
            taken[at] = step
            times.append(at)
        return times

    def _extent(self, series: _Series) -> _Extent:
        now_s = self._clock.monotonic_s()
        known = self._extents.get(series)
        if known is not None and now_s - known.asked_s < BELIEVED_S:
            return known
        for key in [key for key in self._pages if key[0] == series]:
            del self._pages[key]
        # All of a long run is read at the first look only; later ones read what is new.
        since_ns = MIN_TIME_NS if known is None or known.last_ns is None else known.last_ns - _LOOK_BACK_NS
        highest, last_ns = (None, None) if known is None else (known.highest, known.last_ns)
        for function in ("max", "last"):
            selector = f"{function}({identifier('step')})"
            for table in self._reader.grouped(MEASUREMENT, selector, (), _piece(series), since_ns, MAX_TIME_NS):
                for time_ns, step in table.rows:
                    if function == "max":
                        highest = int(step) if highest is None else max(highest, int(step))
                    else:
                        last_ns = int(time_ns) if last_ns is None else max(last_ns, int(time_ns))
        self._extents[series] = _Extent(highest, last_ns, now_s)
        return self._extents[series]

    def _page(self, series: _Series, number: int) -> dict[int, int]:
        page = self._pages.get((series, number))
        if page is None:
            first = number * PAGE_STEPS
            page = self._rows(series, f'"step" >= {first} AND "step" < {first + PAGE_STEPS}', MIN_TIME_NS, MAX_TIME_NS)
            self._pages[series, number] = page
            if len(self._pages) > MAX_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end((series, number))
        return page

    def _taken(self, series: _Series, times: Sequence[int]) -> dict[int, int]:
        """time -> step of the rows around these times (ascending)."""
        taken: dict[int, int] = {}
        begin = 0
        for at in range(1, len(times) + 1):
            if at == len(times) or times[at] - times[at - 1] > _CLUSTER_NS:
                rows = self._rows(series, "", times[begin], times[at - 1] + MILLISECOND_NS + len(times))
                taken.update({time_ns: step for step, time_ns in rows.items()})
                begin = at
        return taken

    def _rows(self, series: _Series, more: str, start_ns: int, end_ns: int) -> dict[int, int]:
        """step -> time of the rows of a series."""
        admitted, values = _piece(series)
        piece = (f"{admitted} AND {more}" if more else admitted, values)
        rows: dict[int, int] = {}
        for page in self._reader.pages(MEASUREMENT, ["step"], piece, start_ns, end_ns):
            for time_ns, step in page.rows:
                rows.setdefault(int(step), int(time_ns))
        return rows


def _piece(series: _Series) -> tuple[str, Mapping[str, str]]:
    (piece,) = condition(MEASUREMENT, {"run": series[0], "attempt": series[1]}).pieces
    return piece
