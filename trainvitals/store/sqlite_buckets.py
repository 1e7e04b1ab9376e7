"""Min, max, mean and last per bucket, exact over every stored row.

SQLite groups through a sorter unless it knows that rows come in group order, and a sorter over a long run costs more than
reading it. So each bucket of a training curve is one range of the primary key. Buckets of steps are ranges of time too
wherever a series' steps rise with time: every range reports its lowest and highest step, and buckets whose steps lie in more
than one range (a clock was set, a log was read late) are read again through the index on steps. Numbers: docs/store.md.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.errors import StoreError
from trainvitals.schema import SCHEMA
from trainvitals.store.frames import bucket_width, column, series_of, tag_columns
from trainvitals.store.sqlite_query import Where, field_types, series_filter
from trainvitals.store.sqlite_schema import Catalog, matching, quoted, step_index

#: series, bucket, first time, lowest step, rows, non-finite values, then per field min, max, mean, last.
_Row = tuple[Any, ...]


@dataclass(frozen=True)
class _Query:
    connection: sqlite3.Connection
    table: str
    fields: tuple[str, ...]
    columns: tuple[str, ...]  # SQL of each field
    step: str  # SQL of the step, or NULL
    nonfinite: str
    start_ns: int
    end_ns: int

    @property
    def aggregates(self) -> str:
        per_field = [f"min({c}), max({c}), avg({c})" for c in self.columns]
        return ", ".join([f"min({self.step})", "count(*)", f"total({self.nonfinite})", *per_field])


def buckets(
    connection: sqlite3.Connection,
    catalog: Catalog,
    measurement: str,
    fields: Sequence[str],
    where: Where,
    start_ns: int,
    end_ns: int,
    count: int,
    by: str = "time_ns",
) -> pd.DataFrame:
    """See ``Store.buckets``. Rows ascend by time. Raises ``StoreError`` for fields of text and for an unknown ``by``."""
    for name, kind in field_types(measurement, fields).items():
        if kind == "str":
            raise StoreError(f"Field {name!r} of {measurement} is text and has no minimum or mean; read it with raw.")
    declared = SCHEMA[measurement]
    if by not in ("time_ns", "step") or (by == "step" and not declared.has_unique_step):
        raise StoreError(
            f"Buckets of {measurement} cannot be made by {by!r}; use time_ns" + " or step." * declared.has_unique_step
        )
    there = catalog.columns(connection, measurement)

    def sql(name: str) -> str:
        return quoted(name) if name in there else "NULL"

    query = _Query(
        connection, quoted(measurement), tuple(dict.fromkeys(fields)), tuple(map(sql, dict.fromkeys(fields))), sql("step"),
        sql("nonfinite"), start_ns, end_ns,
    )  # fmt: skip
    names = matching(catalog, connection, measurement, where)
    if not declared.series_first:
        is_all = len(names) == len(catalog.series(connection, measurement))
        rows = list(_grouped_by_time(query, series_filter(names, is_all), count)) if names and start_ns < end_ns else []
    elif by == "time_ns":
        rows = list(_series_by_time(query, names, count))
    else:
        rows = list(_series_by_step(query, names, count))
    return _frame(measurement, query.fields, names, rows)


def _extent(query: _Query, number: int) -> tuple[int, int] | None:
    """First and last time of a series in the window."""
    ends = [
        query.connection.execute(
            f"SELECT _ts FROM {query.table} WHERE _series = ? AND _ts >= ? AND _ts < ? ORDER BY _ts {order} LIMIT 1",  # noqa: S608
            (number, query.start_ns, query.end_ns),
        ).fetchone()
        for order in ("ASC", "DESC")
    ]
    return None if ends[0] is None else (ends[0][0], ends[1][0])


def _extents(query: _Query, names: Mapping[int, Any]) -> dict[int, tuple[int, int]]:
    found = {number: _extent(query, number) for number in names}
    return {number: extent for number, extent in found.items() if extent is not None}


class _Ranges:
    """Aggregates one range of a series at a time: a range of the primary key (time), or of the index on steps."""

    def __init__(self, query: _Query, number: int, condition: str = "_ts >= ? AND _ts < ?", index: str = "") -> None:
        self._query = query
        self._number = number
        span = f"FROM {query.table}{index} WHERE _series = ? AND {condition}"
        self._sql = f"SELECT min(_ts), max({query.step}), {query.aggregates} {span}"
        self._last = f"SELECT {', '.join(query.columns) or 'NULL'} {span} ORDER BY _ts DESC LIMIT 1"
        self._last_of = [f"SELECT {c} {span} AND {c} IS NOT NULL ORDER BY _ts DESC LIMIT 1" for c in query.columns]

    def read(self, bucket: int, *bounds: int) -> tuple[int, _Row] | None:
        """(highest step, row) of the range, None when it is empty."""
        key = (self._number, *bounds)
        first, highest, lowest, rows, nonfinite, *values = self._query.connection.execute(self._sql, key).fetchone()
        if first is None:
            return None
        last = list(self._query.connection.execute(self._last, key).fetchone())
        row: list[Any] = [self._number, bucket, first, lowest, rows, nonfinite]
        for at in range(len(self._query.fields)):
            if last[at] is None and values[3 * at] is not None:  # the last row lacks it, an earlier one has it
                last[at] = self._query.connection.execute(self._last_of[at], key).fetchone()[0]
            row += [*values[3 * at : 3 * at + 3], last[at]]
        return highest, tuple(row)


def _series_by_time(query: _Query, names: Mapping[int, Any], count: int) -> Iterator[_Row]:
    extents = _extents(query, names)
    if not extents:
        return
    low, high = min(e[0] for e in extents.values()), max(e[1] for e in extents.values()) + 1
    width = bucket_width(high - low, count)
    for number, (first, last) in extents.items():
        ranges = _Ranges(query, number)
        for bucket in range(first // width * width, last + 1, width):
            found = ranges.read(bucket, max(bucket, first), min(bucket + width, last + 1))
            if found is not None:
                yield found[1]


def _series_by_step(query: _Query, names: Mapping[int, Any], count: int) -> Iterator[_Row]:
    extents = _extents(query, names)
    steps = {number: _step_extent(query, number, extent) for number, extent in extents.items()}
    if not steps:
        return
    width = bucket_width(max(e[1] for e in steps.values()) - min(e[0] for e in steps.values()) + 1, count)
    for number, extent in extents.items():
        yield from _one_series_by_step(query, number, extent, steps[number], width)


def _step_extent(query: _Query, number: int, extent: tuple[int, int]) -> tuple[int, int]:
    """Lowest and highest step of a series in its window: from the index when the window holds the whole series."""
    outside = f"SELECT 1 FROM {query.table} WHERE _series = ? AND _ts"  # noqa: S608
    before = query.connection.execute(f"{outside} < ? LIMIT 1", (number, extent[0])).fetchone()
    after = query.connection.execute(f"{outside} > ? LIMIT 1", (number, extent[1])).fetchone()
    if before is None and after is None:
        sql = f'SELECT "step" FROM {query.table} WHERE _series = ? ORDER BY "step"'  # noqa: S608
        ends = [query.connection.execute(f"{sql} {order} LIMIT 1", (number,)).fetchone()[0] for order in ("ASC", "DESC")]
        return ends[0], ends[1]
    sql = f'SELECT min("step"), max("step") FROM {query.table} WHERE _series = ? AND _ts >= ? AND _ts <= ?'  # noqa: S608
    lowest, highest = query.connection.execute(sql, (number, *extent)).fetchone()
    return lowest, highest


def _one_series_by_step(
    query: _Query, number: int, extent: tuple[int, int], steps: tuple[int, int], width: int
) -> Iterator[_Row]:
    ranges = _Ranges(query, number)
    found: dict[int, _Row] = {}
    again: set[int] = set()
    edges = [extent[0], *_time_edges(query, number, extent, steps, width), extent[1] + 1]
    for low, high in pairwise(edges):
        read = ranges.read(0, low, high)
        if read is None:
            continue
        highest, row = read
        bucket = row[3] // width * width
        if highest >= bucket + width:
            # SQL's division rounds towards zero; counted from the lowest bucket nothing is negative.
            sql = f'SELECT DISTINCT ("step" - {bucket}) / {width} FROM {query.table} WHERE _series = ? AND _ts >= ? AND _ts < ?'  # noqa: S608
            again.update(bucket + index * width for (index,) in query.connection.execute(sql, (number, low, high)))
        elif bucket in found:
            again.add(bucket)
        else:
            found[bucket] = (number, bucket, *row[2:])
    by_step = '"step" >= ? AND "step" < ? AND _ts >= ? AND _ts <= ?'
    exact = _Ranges(query, number, by_step, f" INDEXED BY {step_index('train')}")
    for bucket in again:
        read = exact.read(bucket, bucket, bucket + width, *extent)
        if read is not None:
            found[bucket] = read[1]
    yield from found.values()


def _time_edges(query: _Query, number: int, extent: tuple[int, int], steps: tuple[int, int], width: int) -> list[int]:
    """Times at which buckets of steps begin, rising: the longest rising part, so that one odd timestamp costs one edge."""
    sql = f'SELECT _ts FROM {query.table} WHERE _series = ? AND "step" >= ? ORDER BY "step" LIMIT 1'  # noqa: S608
    times = []
    for bucket in range(steps[0] // width * width + width, steps[1] + 1, width):
        (time_ns,) = query.connection.execute(sql, (number, bucket)).fetchone()
        if extent[0] < time_ns <= extent[1]:
            times.append(time_ns)
    ends: list[int] = []  # position of the smallest end of a rising part of each length
    before: list[int] = []
    for at, time_ns in enumerate(times):
        length = bisect_left(ends, time_ns, key=times.__getitem__)
        before.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [at]
    rising: list[int] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        rising.append(times[at])
        at = before[at]
    return rising[::-1]


def _grouped_by_time(query: _Query, admitted: str, count: int) -> Iterator[_Row]:
    window = f"_ts >= ? AND _ts < ?{admitted}"
    bounds = (query.start_ns, query.end_ns)
    sql = f"SELECT _ts FROM {query.table} WHERE {window} ORDER BY _ts"  # noqa: S608
    first = query.connection.execute(f"{sql} ASC LIMIT 1", bounds).fetchone()
    last = query.connection.execute(f"{sql} DESC LIMIT 1", bounds).fetchone()
    if first is None:
        return
    width = bucket_width(last[0] + 1 - first[0], count)
    base = first[0] // width * width
    yield from _grouped(query, f"(_ts - {base}) / {width}", window, bounds, base, width)


def _grouped(query: _Query, bucket: str, window: str, parameters: Sequence[int], base: int, width: int) -> Iterator[_Row]:
    """One statement with a sorter; the last values are looked up at the newest time that has one."""
    newest = "".join(f", max(CASE WHEN {c} IS NOT NULL THEN _ts END)" for c in query.columns)
    sql = (
        f"SELECT _series, {bucket}, min(_ts), {query.aggregates}{newest} FROM {query.table} "  # noqa: S608
        f"WHERE {window} GROUP BY _series, {bucket}"
    )
    fields = len(query.fields)
    lookups = [f"SELECT {c} FROM {query.table} WHERE _series = ? AND _ts = ?" for c in query.columns]  # noqa: S608
    for number, index, first, lowest, rows, nonfinite, *values in query.connection.execute(sql, parameters).fetchall():
        row: list[Any] = [number, base + index * width, first, lowest, rows, nonfinite]
        for at in range(fields):
            time_ns = values[3 * fields + at]
            last = None if time_ns is None else query.connection.execute(lookups[at], (number, time_ns)).fetchone()[0]
            row += [*values[3 * at : 3 * at + 3], last]
        yield tuple(row)


def _frame(measurement: str, fields: Sequence[str], names: Mapping[int, tuple[str, ...]], rows: list[_Row]) -> pd.DataFrame:
    rows.sort(key=lambda row: (row[2], row[0]))
    data: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * (6 + 4 * len(fields))
    columns: dict[str, Any] = {"bucket": np.array(data[1], dtype=np.int64)}
    columns.update(tag_columns(measurement, np.array(data[0], dtype=np.int64), names))
    columns["time_ns"] = np.array(data[2], dtype=np.int64)
    columns["step"] = series_of(column(data[3], "int"), "int")
    columns["n"] = np.array(data[4], dtype=np.int64)
    if "nonfinite" in SCHEMA[measurement].fields:
        columns["nonfinite"] = np.array(data[5], dtype=np.int64)
    for at, name in enumerate(fields):
        low, high, mean, last = (column(data[6 + 4 * at + part], "float")[0] for part in range(4))
        # A sum rounds (and may overflow): the mean is kept between the extremes it lies between.
        values = {"min": low, "max": high, "mean": np.clip(mean, low, high), "last": last}
        columns.update({f"{name}_{part}": value for part, value in values.items()})
    return pd.DataFrame(columns)
