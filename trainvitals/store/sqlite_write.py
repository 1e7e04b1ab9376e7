"""One write transaction of the embedded store: points merge field by field, state is kept with them, all or nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from trainvitals.records import Point
from trainvitals.schema import MAX_EXTRA_METRICS, SCHEMA, Measurement, extra_metric_of
from trainvitals.store.sqlite_schema import MAX_COLUMNS, Catalog, add_column, quoted

DROPPED = "dropped"
_Row = tuple[Any, ...]


def write_transaction(
    connection: sqlite3.Connection, catalog: Catalog, points: Sequence[Point], state: Mapping[str, bytes | None]
) -> None:
    """Write checked points and state. On an exception the caller rolls back (the transaction is still open)."""
    connection.execute("BEGIN IMMEDIATE")
    transaction = _Transaction(connection, catalog)
    for (name, _fields), group in groupby(points, key=lambda point: (point.measurement, tuple(point.fields))):
        transaction.write(SCHEMA[name], list(group))
    for key, value in state.items():
        if value is None:
            connection.execute("DELETE FROM _state WHERE key = ?", (key,))
        else:
            connection.execute("INSERT OR REPLACE INTO _state (key, value) VALUES (?, ?)", (key, bytes(value)))
    connection.execute("COMMIT")


class _Transaction:
    def __init__(self, connection: sqlite3.Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog
        self._series: dict[str, dict[tuple[str, ...], int]] = {}
        self._columns: dict[str, frozenset[str]] = {}
        self._extra_metrics: dict[str, set[str]] = {}

    def write(self, measurement: Measurement, points: Sequence[Point]) -> None:
        """Points of one measurement that all have the same fields in the same order."""
        fields = self._admitted(measurement, points)
        if all(each is fields[0] for each in fields):
            self._upsert(measurement, tuple(fields[0]), self._rows(measurement, points, fields))
            return
        for point, kept in zip(points, fields, strict=True):
            self._upsert(measurement, tuple(kept), self._rows(measurement, [point], [kept]))

    def _rows(self, measurement: Measurement, points: Sequence[Point], names: Sequence[Sequence[str]]) -> list[_Row]:
        rows = []
        for point, kept in zip(points, names, strict=True):
            number = self._series_id(measurement, tuple(point.tags[tag] for tag in measurement.tags))
            rows.append((number, point.time_ns, *[point.fields[name] for name in kept]))
        return rows

    def _series_id(self, measurement: Measurement, tags: tuple[str, ...]) -> int:
        known = self._series.get(measurement.name)
        if known is None:
            known = self._series[measurement.name] = dict(self._catalog.series(self._connection, measurement.name))
        number = known.get(tags)
        if number is None:
            cursor = self._connection.execute(
                "INSERT INTO _series (measurement, tags) VALUES (?, ?)", (measurement.name, json.dumps(tags, ensure_ascii=False))
            )
            number = known[tags] = int(cursor.lastrowid or 0)
        return number

    def _admitted(self, measurement: Measurement, points: Sequence[Point]) -> list[tuple[str, ...]]:
        """Per point the fields that may be stored (the same tuple for all when none is refused)."""
        names = tuple(points[0].fields)
        if not measurement.is_open:
            return [names] * len(points)
        extra = [name for name in names if name not in measurement.fields]
        declared_new = [name for name in names if name in measurement.fields]
        self._need_columns(measurement, declared_new)
        if not extra:
            return [names] * len(points)
        by_run: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}
        admitted = []
        for point in points:
            run = point.tags["run"]
            if run not in by_run:
                refused = self._refused(measurement, run, extra)
                by_run[run] = (tuple(name for name in names if name not in refused) if refused else names), refused
            kept, refused = by_run[run]
            if refused:
                self._count_dropped(len(refused), next(iter(refused.values())))
            admitted.append(kept)
        first = admitted[0]
        return [first] * len(points) if all(kept == first for kept in admitted) else admitted

    def _refused(self, measurement: Measurement, run: str, extra: Sequence[str]) -> dict[str, str]:
        """Name -> why it is not stored."""
        known = self._extra_metrics.get(run)
        if known is None:
            rows = self._connection.execute("SELECT name FROM _extra_metric WHERE run = ?", (run,))
            known = self._extra_metrics[run] = {row[0] for row in rows}
        refused: dict[str, str] = {}
        for name in extra:
            metric, _kind = extra_metric_of(measurement.name, name)
            is_new = metric not in known
            if is_new and len(known) >= MAX_EXTRA_METRICS:
                refused[name] = (
                    f"run {run!r} logs more extra metrics than are stored ({MAX_EXTRA_METRICS} a run), for example {name!r}"
                )
            elif not self._need_columns(measurement, [name]):
                refused[name] = (
                    f"the names of metrics of all runs together fill {measurement.name} ({MAX_COLUMNS:,} columns), so that {name!r} of "
                    f"run {run!r} found no room; name a new file in store"
                )
            elif is_new:
                known.add(metric)
                self._connection.execute("INSERT INTO _extra_metric (run, name) VALUES (?, ?)", (run, metric))
        return refused

    def _need_columns(self, measurement: Measurement, names: Iterable[str]) -> bool:
        there = self._columns.get(measurement.name)
        if there is None:
            there = self._catalog.columns(self._connection, measurement.name)
        for name in names:
            if name not in there:
                if len(there) >= MAX_COLUMNS and name not in measurement.fields:
                    return False
                add_column(self._connection, measurement, name)
                there = there | {name}
        self._columns[measurement.name] = there
        return True

    def _count_dropped(self, values: int, why: str) -> None:
        self._connection.execute(
            "INSERT INTO _counter (name, value, text) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value, text = excluded.text",
            (DROPPED, values, why),
        )

    def _upsert(self, measurement: Measurement, names: Sequence[str], rows: list[_Row]) -> None:
        if not names:
            return
        if measurement.has_unique_step:
            self._upsert_steps(measurement, names, rows)
            return
        key = "_series, _ts" if measurement.series_first else "_ts, _series"
        self._connection.executemany(_upsert_sql(measurement.name, key, names), rows)
        if measurement.last_table:
            self._connection.executemany(_last_sql(measurement.name, names), rows)

    def _upsert_steps(self, measurement: Measurement, names: Sequence[str], rows: list[_Row]) -> None:
        """A step that is stored keeps its timestamp: the conflict is on (series, step). SQLite looks at it first."""
        sql = _upsert_sql(measurement.name, '_series, "step"', [name for name in names if name != "step"], ["step"])
        order = [0, 1, 2 + names.index("step"), *(2 + at for at, name in enumerate(names) if name != "step")]
        ordered = [tuple(row[at] for at in order) for row in rows]
        self._connection.execute("SAVEPOINT steps")
        try:
            self._connection.executemany(sql, ordered)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO steps")
            for row in ordered:
                self._upsert_one_step(measurement, sql, row)
        self._connection.execute("RELEASE steps")

    def _upsert_one_step(self, measurement: Measurement, sql: str, row: _Row) -> None:
        try:
            self._connection.execute(sql, row)
        except sqlite3.IntegrityError:
            # Another step has this very nanosecond (two clocks, or estimated times): the next free one is taken.
            table = quoted(measurement.name)
            number, free = row[0], row[1]
            taken = self._connection.execute(
                f"SELECT _ts FROM {table} WHERE _series = ? AND _ts >= ? ORDER BY _ts",  # noqa: S608  (a name of the schema)
                (number, free),
            )
            for (time_ns,) in taken:
                if time_ns != free:
                    break
                free += 1
            taken.close()
            self._connection.execute(sql, (number, free, *row[2:]))


def _upsert_sql(table: str, key: str, names: Sequence[str], more: Sequence[str] = ()) -> str:
    columns = ["_series", "_ts", *map(quoted, [*more, *names])]
    merge = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names)
    return (  # names of the schema, or checked metric names
        f"INSERT INTO {quoted(table)} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "  # noqa: S608
        f"ON CONFLICT ({key}) DO {f'UPDATE SET {merge}' if merge else 'NOTHING'}"
    )


def _last_sql(measurement: str, names: Sequence[str]) -> str:
    """Newest row of each series: a newer time replaces the whole row, the same time merges, an older one changes nothing."""
    table = quoted(measurement + "_last")
    given = set(names)
    columns = ["_series", "_ts", *map(quoted, names)]
    merge = ["_ts = excluded._ts"]
    for name in SCHEMA[measurement].fields:
        column = quoted(name)
        if name in given:
            merge.append(f"{column} = excluded.{column}")
        else:
            merge.append(f"{column} = CASE WHEN excluded._ts > _ts THEN NULL ELSE {column} END")
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "  # noqa: S608
        f"ON CONFLICT (_series) DO UPDATE SET {', '.join(merge)} WHERE excluded._ts >= _ts"
    )
