"""Rows of the embedded store as they are: raw, newest, tag values, one step's time. Buckets stand in ``sqlite_buckets``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.errors import StoreError
from trainvitals.records import NONFINITE_CODES
from trainvitals.schema import SCHEMA, FieldType, Measurement
from trainvitals.store.encode import stored_type
from trainvitals.store.frames import Column, column, joined, row_frame
from trainvitals.store.sqlite_schema import Catalog, matching, quoted

_CHUNK_ROWS = 50_000
Where = Mapping[str, str | Sequence[str]]


def declared(measurement: str) -> Measurement:
    """The schema's entry; raises ``StoreError`` for a name that is not in it."""
    found = SCHEMA.get(measurement)
    if found is None:
        raise StoreError(f"Measurement {measurement!r} is not in the schema; known are {', '.join(SCHEMA)}.")
    return found


def field_types(measurement: str, fields: Sequence[str]) -> dict[str, FieldType]:
    """Types of the asked fields; raises ``StoreError`` for one that is not in the schema."""
    declared(measurement)
    types: dict[str, FieldType] = {}
    for name in fields:
        kind = stored_type(measurement, name)
        if kind is None:
            raise StoreError(f"{measurement} has no field {name!r}; its fields are {', '.join(SCHEMA[measurement].fields)}.")
        types[name] = kind
    return types


def series_filter(numbers: Iterable[int], is_all: bool) -> str:
    """SQL that admits these series; the numbers are our own, so they may stand in the text."""
    return "" if is_all else f" AND _series IN ({','.join(map(str, numbers))})"


class _Reader:
    """Collects rows (series, ts, fields…) of several statements into columns, with codes decoded to NaN and infinities."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, measurement: str, fields: Sequence[str]) -> None:
        self._connection = connection
        self._measurement = measurement
        self._types = field_types(measurement, fields)
        there = catalog.columns(connection, measurement)
        self._codes = [name for name, kind in self._types.items() if kind == "float" and f"{name}_nf" in there]
        columns = [*self._types, *(f"{name}_nf" for name in self._codes)]
        self.select = ", ".join(["_series", "_ts", *(quoted(name) if name in there else "NULL" for name in columns)])
        codes: list[FieldType] = ["int"] * len(self._codes)
        self._kinds: list[FieldType] = ["int", "int", *self._types.values(), *codes]
        self._parts: list[list[Column]] = [[] for _ in self._kinds]

    def fetch(self, sql: str, parameters: Sequence[Any]) -> None:
        cursor = self._connection.execute(sql, parameters)
        while rows := cursor.fetchmany(_CHUNK_ROWS):
            for parts, values, kind in zip(self._parts, zip(*rows, strict=True), self._kinds, strict=True):
                parts.append(column(values, kind))

    def frame(self, names: Mapping[int, tuple[str, ...]]) -> pd.DataFrame:
        data = [joined(parts, kind) for parts, kind in zip(self._parts, self._kinds, strict=True)]
        fields = {
            name: (values, kind) for (name, kind), values in zip(self._types.items(), data[2 : 2 + len(self._types)], strict=True)
        }
        for name, (codes, _missing) in zip(self._codes, data[2 + len(self._types) :], strict=True):
            values = fields[name][0][0]
            # A code wins over a value: some sources print 0.0 for what another knew to be NaN.
            values[codes == NONFINITE_CODES["nan"]] = np.nan
            values[codes == NONFINITE_CODES["inf"]] = np.inf
            values[codes == NONFINITE_CODES["-inf"]] = -np.inf
        return row_frame(self._measurement, names, data[0][0], data[1][0], fields)


def raw(
    connection: sqlite3.Connection,
    catalog: Catalog,
    measurement: str,
    fields: Sequence[str],
    where: Where,
    start_ns: int,
    end_ns: int,
    limit: int | None = None,
    newest_first: bool = False,
) -> pd.DataFrame:
    """See ``Store.raw``."""
    reader = _Reader(connection, catalog, measurement, fields)
    names = matching(catalog, connection, measurement, where)
    order = "DESC" if newest_first else "ASC"
    bounds = (start_ns, end_ns, -1 if limit is None else max(0, limit))
    table = quoted(measurement)
    if SCHEMA[measurement].series_first:
        for number in names:
            reader.fetch(
                f"SELECT {reader.select} FROM {table} WHERE _series = ? AND _ts >= ? AND _ts < ? "  # noqa: S608
                f"ORDER BY _ts {order} LIMIT ?",
                (number, *bounds),
            )
    elif names:
        admitted = series_filter(names, len(names) == len(catalog.series(connection, measurement)))
        reader.fetch(
            f"SELECT {reader.select} FROM {table} WHERE _ts >= ? AND _ts < ?{admitted} "  # noqa: S608
            f"ORDER BY _ts {order}, _series {order} LIMIT ?",
            bounds,
        )
    frame = reader.frame(names)
    if SCHEMA[measurement].series_first and len(names) > 1:
        frame = frame.sort_values("time_ns", ascending=not newest_first, kind="stable", ignore_index=True)
    return frame if limit is None else frame.head(max(0, limit))


def latest(
    connection: sqlite3.Connection, catalog: Catalog, measurement: str, fields: Sequence[str], where: Where, since_ns: int
) -> pd.DataFrame:
    """The newest row of each series at or after ``since_ns``."""
    reader = _Reader(connection, catalog, measurement, fields)
    names = matching(catalog, connection, measurement, where)
    table = quoted(measurement)
    admitted = series_filter(names, len(names) == len(catalog.series(connection, measurement)))
    if SCHEMA[measurement].series_first:
        for number in names:
            reader.fetch(
                f"SELECT {reader.select} FROM {table} WHERE _series = ? AND _ts >= ? ORDER BY _ts DESC LIMIT 1",  # noqa: S608
                (number, since_ns),
            )
    elif names and SCHEMA[measurement].last_table:
        reader.fetch(
            f"SELECT {reader.select} FROM {quoted(measurement + '_last')} WHERE _ts >= ?{admitted}",  # noqa: S608
            (since_ns,),
        )
    elif names:
        # The newest time of each series, then that very row (time and series are the key).
        reader.fetch(
            f"SELECT {reader.select} FROM {table} WHERE (_ts, _series) IN "  # noqa: S608
            f"(SELECT max(_ts), _series FROM {table} WHERE _ts >= ?{admitted} GROUP BY _series)",
            (since_ns,),
        )
    frame = reader.frame(names)
    return frame.sort_values(["time_ns", *SCHEMA[measurement].tags], ignore_index=True)


def tag_values(connection: sqlite3.Connection, catalog: Catalog, measurement: str, tag: str, since_ns: int) -> list[str]:
    """Sorted values of a tag in rows at or after ``since_ns``."""
    field_types(measurement, ())
    tags = SCHEMA[measurement].tags
    if tag not in tags:
        raise StoreError(f"{measurement} has no tag {tag!r}; its tags are {', '.join(tags)}.")
    names = matching(catalog, connection, measurement, {})
    if SCHEMA[measurement].series_first:
        sql = f"SELECT 1 FROM {quoted(measurement)} WHERE _series = ? AND _ts >= ? LIMIT 1"  # noqa: S608
        seen = [number for number in names if connection.execute(sql, (number, since_ns)).fetchone()]
    else:
        table = quoted(measurement + "_last" if SCHEMA[measurement].last_table else measurement)
        sql = f"SELECT DISTINCT _series FROM {table} WHERE _ts >= ?"  # noqa: S608
        seen = [row[0] for row in connection.execute(sql, (since_ns,))]
    at = tags.index(tag)
    return sorted({names[number][at] for number in seen if number in names})


def time_of_step(connection: sqlite3.Connection, catalog: Catalog, run: str, attempt: int, step: int) -> int | None:
    """Stored time of (run, attempt, step), None when it is not stored."""
    number = catalog.series(connection, "train").get((run, str(attempt)))
    if number is None:
        return None
    row = connection.execute('SELECT _ts FROM "train" WHERE _series = ? AND "step" = ?', (number, step)).fetchone()
    return None if row is None else int(row[0])


def oldest_to_delete(connection: sqlite3.Connection, measurement: str, number: int | None, time_ns: int, slice_rows: int) -> int:
    """The end (exclusive) of the next slice of rows older than ``time_ns``; of one series, or of all."""
    of_series = "" if number is None else "_series = ? AND "
    row = connection.execute(
        f"SELECT _ts FROM {quoted(measurement)} WHERE {of_series}_ts < ? ORDER BY _ts LIMIT 1 OFFSET ?",  # noqa: S608
        (*([] if number is None else [number]), time_ns, slice_rows),
    ).fetchone()
    # One nanosecond further, so that a slice of rows of a single moment still moves on.
    return time_ns if row is None else min(time_ns, int(row[0]) + 1)
