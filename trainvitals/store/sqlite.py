"""The embedded store: one SQLite file that trainer-side writers and the dashboard of one host share (see ``Store``)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pandas as pd

from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import StoreError
from trainvitals.records import Event, Point
from trainvitals.schema import SCHEMA
from trainvitals.store import sqlite_buckets, sqlite_query
from trainvitals.store.encode import check_point, event_from_row
from trainvitals.store.protocol import StoreHealth
from trainvitals.store.sqlite_connection import Connections
from trainvitals.store.sqlite_query import Where
from trainvitals.store.sqlite_schema import Catalog, prepare, quoted
from trainvitals.store.sqlite_write import DROPPED, write_transaction

WAL_LIMIT_BYTES = 64 * 1024 * 1024
_CHECKPOINT_PAUSE_S = 10.0
_CHECKPOINT_WAIT_MS = 200
_DELETE_SLICE_ROWS = 20_000
_T = TypeVar("_T")


class SqliteStore:
    """``Store`` on one file. Threads may share an instance; a forked child may go on using it.

    path: the file; it and its directory are made when missing. read_only: for pages, never creates or changes anything.
    busy_timeout_s: how long a call waits for another writer before it raises ``StoreUnavailable``.
    Calls raise ``StoreUnavailable`` while the file is locked, full, unreadable or damaged, and work again by
    themselves when it is good again or replaced; ``StoreError`` for what will never work. Either way nothing was written.
    """

    def __init__(
        self, path: str | Path, clock: Clock | None = None, read_only: bool = False, busy_timeout_s: float = 10.0
    ) -> None:
        self._path = Path(path).absolute()
        self._clock = clock or SystemClock()
        self._busy_timeout_ms = round(busy_timeout_s * 1000)
        self._connections = Connections(
            self._path,
            read_only=read_only,
            busy_timeout_s=busy_timeout_s,
            prepare=lambda connection: prepare(connection, self._path, read_only),
        )
        self._catalog: tuple[int, Catalog] = (-1, Catalog())
        self._next_checkpoint_s = 0.0

    @property
    def replaced(self) -> tuple[int, str]:
        """How often the file was deleted or replaced while this instance used it, and where it is."""
        return self._connections.replaced, f"The store {self._path}"

    def write(self, points: Sequence[Point]) -> None:
        self.commit(points, {})

    def commit(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        for point in points:
            check_point(point)
        if self._connections.read_only:
            raise StoreError(f"The store {self._path} was opened for reading only.")
        if not points and not state:
            return
        with self._connections.lend() as (connection, generation):
            write_transaction(connection, self._catalog_of(generation), points, state)
            self._checkpoint_when_large(connection)

    def load_state(self, prefix: str) -> dict[str, bytes]:
        def read(connection: sqlite3.Connection, _catalog: Catalog) -> dict[str, bytes]:
            rows = connection.execute(
                "SELECT key, value FROM _state WHERE key >= ? AND substr(key, 1, ?) = ?", (prefix, len(prefix), prefix)
            )
            return {key: bytes(value) for key, value in rows}

        return self._read(read)

    def raw(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Where,
        start_ns: int,
        end_ns: int,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> pd.DataFrame:
        return self._read(
            lambda connection, catalog: sqlite_query.raw(
                connection, catalog, measurement, fields, where, start_ns, end_ns, limit, newest_first
            )
        )

    def buckets(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Where,
        start_ns: int,
        end_ns: int,
        count: int,
        by: str = "time_ns",
    ) -> pd.DataFrame:
        return self._read(
            lambda connection, catalog: sqlite_buckets.buckets(
                connection, catalog, measurement, fields, where, start_ns, end_ns, count, by
            )
        )

    def latest(self, measurement: str, fields: Sequence[str], where: Where, within_ns: int, now_ns: int) -> pd.DataFrame:
        return self._read(
            lambda connection, catalog: sqlite_query.latest(connection, catalog, measurement, fields, where, now_ns - within_ns)
        )

    def events(
        self,
        run: str | None,
        kinds: Sequence[str],
        start_ns: int,
        end_ns: int,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """Stored events of a run (None: of all); no ``kinds`` means every kind."""
        where: dict[str, str | Sequence[str]] = {}
        if run is not None:
            where["run"] = run
        if kinds:
            where["kind"] = tuple(kinds)
        frame = self.raw("event", tuple(SCHEMA["event"].fields), where, start_ns, end_ns, limit, newest_first)
        return [event_from_row({str(name): value for name, value in row.items()}) for row in frame.to_dict("records")]

    def tag_values(self, measurement: str, tag: str, within_ns: int, now_ns: int) -> list[str]:
        return self._read(
            lambda connection, catalog: sqlite_query.tag_values(connection, catalog, measurement, tag, now_ns - within_ns)
        )

    def stored_fields(self, measurement: str) -> list[str]:
        declared = sqlite_query.declared(measurement).fields
        there = self._read(lambda connection, catalog: catalog.columns(connection, measurement))
        return [*declared, *sorted(name for name in there if name not in declared and not name.startswith("_"))]

    def time_of_step(self, run: str, attempt: int, step: int) -> int | None:
        return self._read(lambda connection, catalog: sqlite_query.time_of_step(connection, catalog, run, attempt, step))

    def extra_metrics(self, run: str) -> list[str]:
        """Names of the metrics that a run logs beside ``TRAIN_METRICS``."""
        query = "SELECT name FROM _extra_metric WHERE run = ? ORDER BY name"
        return self._read(lambda connection, _: [str(row[0]) for row in connection.execute(query, (run,))])

    def delete_before(self, measurement: str, time_ns: int) -> int:
        declared = sqlite_query.declared(measurement)
        if self._connections.read_only:
            raise StoreError(f"The store {self._path} was opened for reading only.")
        with self._connections.lend() as (connection, generation):
            catalog = self._catalog_of(generation)
            series = list(catalog.series(connection, measurement).values()) if declared.series_first else [None]
            deleted = sum(self._delete_slices(connection, measurement, number, time_ns) for number in series)
            if declared.last_table:
                connection.execute(f"DELETE FROM {quoted(measurement + '_last')} WHERE _ts < ?", (time_ns,))  # noqa: S608
            self._checkpoint_when_large(connection)
        return deleted

    def health(self) -> StoreHealth:
        """Never raises; ``text`` says what is wrong, or where the file is and what was dropped."""
        try:
            dropped, why = self._read(_dropped)
            size = self._path.stat().st_size
        except (StoreError, OSError) as error:
            return StoreHealth("sqlite", sqlite3.sqlite_version, is_reachable=False, text=str(error))
        text = f"{self._path}, {size / 1e6:,.1f} MB"
        if dropped:
            text += f"; {dropped:,} values were not stored: {why}"
        return StoreHealth("sqlite", sqlite3.sqlite_version, is_reachable=True, dropped=dropped, text=text + ".")

    def close(self) -> None:
        self._connections.close()

    def _read(self, query: Callable[[sqlite3.Connection, Catalog], _T]) -> _T:
        """Run a query of several statements on one state of the file."""
        with self._connections.lend() as (connection, generation):
            catalog = self._catalog_of(generation)
            connection.execute("BEGIN")
            result = query(connection, catalog)
            connection.execute("COMMIT")
            return result

    def _catalog_of(self, generation: int) -> Catalog:
        """What is remembered of the file that this generation of connections reads; an old one gets an empty one."""
        known, catalog = self._catalog
        if known != generation:
            catalog = Catalog()
            if generation > known:
                self._catalog = (generation, catalog)
        return catalog

    def _delete_slices(self, connection: sqlite3.Connection, measurement: str, number: int | None, time_ns: int) -> int:
        """Short transactions, so that writers never wait long."""
        deleted = 0
        of_series = "" if number is None else f"_series = {number} AND "
        while True:
            end = sqlite_query.oldest_to_delete(connection, measurement, number, time_ns, _DELETE_SLICE_ROWS)
            cursor = connection.execute(f"DELETE FROM {quoted(measurement)} WHERE {of_series}_ts < ?", (end,))  # noqa: S608
            deleted += cursor.rowcount
            if end >= time_ns:
                return deleted

    def _checkpoint_when_large(self, connection: sqlite3.Connection) -> None:
        """Fold a large write-ahead log into the file. A reader may be in the way: then later, never waiting long."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_checkpoint_s:
            return
        with suppress(FileNotFoundError):
            if self._path.with_name(self._path.name + "-wal").stat().st_size <= WAL_LIMIT_BYTES:
                return
            self._next_checkpoint_s = now_s + _CHECKPOINT_PAUSE_S
            connection.execute(f"PRAGMA busy_timeout={_CHECKPOINT_WAIT_MS}")
            with suppress(sqlite3.OperationalError):  # what was committed is safe in the log; the next write meets a real fault
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute(f"PRAGMA busy_timeout={self._busy_timeout_ms}")


def _dropped(connection: sqlite3.Connection, _catalog: Catalog) -> tuple[int, str]:
    row = connection.execute("SELECT value, text FROM _counter WHERE name = ?", (DROPPED,)).fetchone()
    return (0, "") if row is None else (int(row[0]), str(row[1]))
