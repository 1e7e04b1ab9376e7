"""Tables of the embedded store: one wide table a measurement, and what is known of them while a process runs.

Key order decides cost (measured: 564 MB or 10 MB of write-ahead log): ``train`` and its roll-ups are read by run and append, so they are keyed
(series, time); all others are written by many series at once, so they are keyed (time, series). Own columns and tables
start with "_", which no metric's name can. Codes of non-finite values and extra metrics get their column when the first
one arrives: rows before it stay short.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.schema import SCHEMA, FieldType, Measurement
from trainvitals.store.encode import stored_type

VERSION = 1
APPLICATION_ID = 0x54564954  # "TVIT": so that no other program's database is taken for ours
#: SQLite allows 2,000 columns a table; an extra metric needs two.
MAX_COLUMNS = 1_900

_SQL_TYPES: Mapping[FieldType, str] = {"float": "REAL", "int": "INTEGER", "str": "TEXT", "bool": "INTEGER"}
_OWN_TABLES = (
    "CREATE TABLE _series (id INTEGER PRIMARY KEY, measurement TEXT NOT NULL, tags TEXT NOT NULL, UNIQUE (measurement, tags))",
    "CREATE INDEX _series_newest ON _series (measurement, id)",
    "CREATE TABLE _state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _extra_metric (run TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID",
    "CREATE TABLE _counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL, text TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE _schema_version (version INTEGER NOT NULL)",
)


def quoted(name: str) -> str:
    """An identifier for SQL. Names come from the schema or passed ``EXTRA_METRIC_NAME``; quoting keeps keywords harmless."""
    return '"' + name.replace('"', '""') + '"'


def step_index(measurement: str) -> str:
    """Name of the index that makes (series, step) unique."""
    return f"_{measurement}_step"


def _base_columns(measurement: Measurement) -> dict[str, FieldType]:
    fields = dict(measurement.fields)
    if not measurement.is_open:
        return fields
    # What every query reads stands first: SQLite decodes a row only as far as it must.
    first = {name: fields[name] for name in ("step", "step_min", "step_max", "n", "nonfinite") if name in fields}
    return first | {name: kind for name, kind in fields.items() if not name.endswith("_nf")}


def _create(measurement: Measurement) -> list[str]:
    columns = [f"{quoted(name)} {_SQL_TYPES[kind]}" for name, kind in _base_columns(measurement).items()]
    key = "_series, _ts" if measurement.series_first else "_ts, _series"
    table = quoted(measurement.name)
    own = ["_series INTEGER NOT NULL", "_ts INTEGER NOT NULL"]
    statements = [f"CREATE TABLE {table} ({', '.join([*own, *columns, f'PRIMARY KEY ({key})'])}) WITHOUT ROWID"]
    if measurement.has_unique_step:
        statements.append(f'CREATE UNIQUE INDEX {step_index(measurement.name)} ON {table} (_series, "step")')
    if measurement.last_table:
        last = ["_series INTEGER PRIMARY KEY", "_ts INTEGER NOT NULL", *columns]
        statements.append(f"CREATE TABLE {quoted(measurement.name + '_last')} ({', '.join(last)})")
    return statements


def prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    """Make the tables of a new file, add tables and columns that a newer program declared, refuse what is not ours to touch."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            f"The store {path} was written by a newer Trainvitals (schema {version}, this one knows {VERSION}); "
            "update this program or name another file in store."
        )
    if read_only:
        if version == 0:
            raise StoreUnavailable(f"The store {path} is empty so far; it is made when the first `watch` writes to it.")
        connection.execute("PRAGMA query_only=ON")
        return
    if version == VERSION and not any(_missing_columns(connection, m) for m in SCHEMA.values()):
        return
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # else another process made it while we waited
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{path} is a database of another program; name another file in store.")
        for statement in (*_OWN_TABLES, *(s for m in SCHEMA.values() for s in _create(m))):
            connection.execute(statement)
        connection.execute("INSERT INTO _schema_version VALUES (?)", (VERSION,))
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    for measurement in SCHEMA.values():
        if not table_columns(connection, measurement.name):  # a measurement that a newer program declared
            for statement in _create(measurement):
                connection.execute(statement)
        for name in _missing_columns(connection, measurement):
            add_column(connection, measurement, name)
    connection.execute("COMMIT")


def _missing_columns(connection: sqlite3.Connection, measurement: Measurement) -> list[str]:
    there = table_columns(connection, measurement.name)
    return [name for name in _base_columns(measurement) if name not in there]


def table_columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Names of a table's columns; empty when there is no such table."""
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({quoted(table)})"))


def add_column(connection: sqlite3.Connection, measurement: Measurement, name: str) -> None:
    """Give a field its column; rows that are there already read as "not there"."""
    kind = stored_type(measurement.name, name)
    if kind is None:
        raise StoreError(f"Field {name!r} of {measurement.name} is not in the schema and gets no column.")
    for table in (measurement.name, measurement.name + "_last")[: 2 if measurement.last_table else 1]:
        connection.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(name)} {_SQL_TYPES[kind]}")


class Catalog:
    """What a process remembers of one state of the file: series ids and columns. Made anew when the file may have changed.

    A writer asks before it changes anything, so only committed facts stand here. Each answer is an unchanging snapshot
    that is replaced as a whole: threads share it without a lock.
    """

    def __init__(self) -> None:
        self._series: dict[str, tuple[int, Mapping[tuple[str, ...], int]]] = {name: (0, {}) for name in SCHEMA}
        self._columns: dict[str, tuple[int, frozenset[str]]] = {}

    def series(self, connection: sqlite3.Connection, measurement: str) -> Mapping[tuple[str, ...], int]:
        """Tag values (in the schema's order) -> id, of all series that the connection can see."""
        newest, known = self._series[measurement]
        rows = connection.execute(
            "SELECT id, tags FROM _series WHERE measurement = ? AND id > ? ORDER BY id", (measurement, newest)
        ).fetchall()
        if rows:
            known = {**known, **{tuple(json.loads(tags)): number for number, tags in rows}}
            self._series[measurement] = (rows[-1][0], known)
        return known

    def columns(self, connection: sqlite3.Connection, measurement: str) -> frozenset[str]:
        """Columns of a measurement's table; another process may have added one."""
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        known = self._columns.get(measurement)
        if known is None or known[0] != version:
            known = (version, table_columns(connection, measurement))
            self._columns[measurement] = known
        return known[1]


def matching(
    catalog: Catalog, connection: sqlite3.Connection, measurement: str, where: Mapping[str, str | Sequence[str]]
) -> dict[int, tuple[str, ...]]:
    """Series id -> tag values of the series that ``where`` admits, in the order of their tags."""
    tags = SCHEMA[measurement].tags
    wanted: dict[int, frozenset[str]] = {}
    for tag, value in where.items():
        if tag not in tags:
            raise StoreError(f"{measurement} has no tag {tag!r}; its tags are {', '.join(tags)}.")
        wanted[tags.index(tag)] = frozenset((value,) if isinstance(value, str) else value)
    return {
        number: values
        for values, number in sorted(catalog.series(connection, measurement).items())
        if all(values[position] in admitted for position, admitted in wanted.items())
    }
