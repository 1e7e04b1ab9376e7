"""The production store: an InfluxDB server of version 1.6 and later, 2.5 and later, or 3 (see ``Store``, docs/influxdb.md).

It keeps points only. What ``watch`` keeps with them (``Sink.commit``) cannot be in one transaction with a server far away: a
spool in front of this store has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pandas as pd

from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import StoreError
from trainvitals.records import Event, Point
from trainvitals.schema import MAX_EXTRA_METRICS, SCHEMA
from trainvitals.store import influx_buckets
from trainvitals.store.encode import check_point, event_from_row
from trainvitals.store.influx_connection import InfluxConnection
from trainvitals.store.influx_latest import Latest
from trainvitals.store.influx_query import Databases, Reader, Where, clamp, identifier
from trainvitals.store.influx_rights import Rights
from trainvitals.store.influx_steps import MEASUREMENT, StepTimes
from trainvitals.store.line_protocol import MAX_TIME_NS, MIN_TIME_NS, encode_point, marker
from trainvitals.store.protocol import StoreHealth

if TYPE_CHECKING:
    from trainvitals.settings import InfluxdbSettings

#: Bytes of lines a request: InfluxDB 3 Core takes 10 MiB, 1.x 25 MB, proxies often less.
MAX_BODY_BYTES = 4 * 1024 * 1024
_WRITE_PATHS = {"auto": None, "v1": False, "v2": True}


class InfluxStore:
    """``Store`` on an InfluxDB server. Threads may share an instance; a forked child may go on using it.

    url: ``http://host:8086``. read_only: for pages. Nothing is sent before the first call. Calls raise ``StoreUnavailable``
    while the server is away, overloaded, or refuses the rights, and work again by themselves; ``StoreRejected`` for points
    that it will never take (others of the batch may be stored, writing them again changes nothing); ``StoreError`` otherwise.
    """

    def __init__(self, url: str, settings: InfluxdbSettings, clock: Clock | None = None, read_only: bool = False) -> None:
        self._clock = clock or SystemClock()
        self._read_only = read_only
        self._databases = Databases(settings.database, settings.database_long, settings.database_requests)
        self.connection = InfluxConnection(
            url, Rights(settings.token_file, settings.user, settings.password_file), org=settings.org, timeout_s=settings.timeout_s,
            verify=settings.verify, ca_file=settings.ca_file, compress=settings.compress, v2_write=_WRITE_PATHS[settings.write_path],
        )  # fmt: skip
        self._reader = Reader(self.connection, self._databases)
        self._latest = Latest(self._reader, self._clock)
        self._steps = StepTimes(self._reader, self._clock)
        self._extra = _ExtraMetrics()

    @property
    def url(self) -> str:
        return self.connection.url

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            check_point(point)
        if self._read_only:
            raise StoreError(f"The store {self.url} was opened for reading only.")
        if not points:
            return
        admitted = self._extra.admitted(points)
        # Two threads that write one new step must not both find it new.
        held: AbstractContextManager[object] = nullcontext()
        if any(point.measurement == MEASUREMENT for point in admitted):
            held = self._steps.lock
        with held:
            try:
                settled = self._steps.settled(admitted)
                for database, body in self._bodies(settled):
                    self.connection.write(database, body)
            except StoreError:
                self._steps.forget()
                raise
            self._steps.stored(settled)

    def _bodies(self, points: Sequence[Point]) -> Iterator[tuple[str, bytes]]:
        """(database, lines) of at most ``MAX_BODY_BYTES``, in the points' order within a database."""
        lines: dict[str, list[bytes]] = {}
        sizes: dict[str, int] = {}
        for point in points:
            database, line = self._databases.of(point.measurement), encode_point(point)
            if sizes.get(database, 0) + len(line) > MAX_BODY_BYTES and lines[database]:
                yield database, b"\n".join(lines.pop(database))
                sizes[database] = 0
            lines.setdefault(database, []).append(line)
            sizes[database] = sizes.get(database, 0) + len(line) + 1
        for database, rest in lines.items():
            yield database, b"\n".join(rest)

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
        return self._reader.raw(measurement, fields, where, start_ns, end_ns, limit, newest_first)

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
        return influx_buckets.buckets(self._reader, measurement, fields, where, start_ns, end_ns, count, by)

    def latest(self, measurement: str, fields: Sequence[str], where: Where, within_ns: int, now_ns: int) -> pd.DataFrame:
        return self._latest.read(measurement, fields, where, clamp(now_ns - within_ns), now_ns)

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
        return self._reader.tag_values(measurement, tag, clamp(now_ns - within_ns))

    def stored_fields(self, measurement: str) -> list[str]:
        return self._reader.stored_fields(measurement)

    def extra_metrics(self, run: str) -> list[str]:
        """Names of metrics beside the usual ones. The server knows fields of a measurement, not of a series: those of all runs."""
        declared = SCHEMA["train"].fields
        return sorted(name for name in self.stored_fields("train") if name not in declared and not name.endswith("_nf"))

    def time_of_step(self, run: str, attempt: int, step: int) -> int | None:
        return self._steps.time_of(run, attempt, step)

    def delete_before(self, measurement: str, time_ns: int) -> int:
        """See ``Store``. InfluxDB 3 cannot delete rows: ``StoreError`` says what to set instead."""
        if measurement not in SCHEMA:
            raise StoreError(f"Measurement {measurement!r} is not in the schema; known are {', '.join(SCHEMA)}.")
        if self._read_only:
            raise StoreError(f"The store {self.url} was opened for reading only.")
        if self.connection.flavour().major == 3:
            raise StoreError(
                f"InfluxDB 3 at {self.url} cannot delete rows of {measurement}; give its database a retention period instead "
                "(influxdb3 create database --retention-period)."
            )
        before_ns = clamp(time_ns)
        selector = f"count({identifier(marker(measurement))})"
        tables = self._reader.grouped(measurement, selector, (), ("", {}), MIN_TIME_NS, before_ns)
        rows = sum(int(row[1]) for table in tables for row in table.rows)
        if rows:
            statement = f"DELETE FROM {identifier(measurement)} WHERE time < {before_ns}"  # noqa: S608 (a name of the schema)
            self.connection.query(self._databases.of(measurement), statement, changes=True)
        self._latest.forget()
        with self._steps.lock:
            self._steps.forget()
        return rows

    def health(self) -> StoreHealth:
        """Never raises; ``text`` says what is wrong, or where the server is and what was dropped."""
        version = ""
        try:
            flavour = self.connection.flavour()
            version = flavour.version
            for measurement in ("node", MEASUREMENT):
                self._reader.grouped(
                    measurement, f"last({identifier(marker(measurement))})", (), ("", {}), MAX_TIME_NS - 1, MAX_TIME_NS
                )
        except StoreError as error:
            return StoreHealth("influxdb", version, is_reachable=False, text=str(error))
        dropped, why = self._extra.dropped()
        text = f"InfluxDB {version} at {self.url}, databases {self._databases.hardware} and {self._databases.long}"
        if dropped:
            text += f"; {dropped:,} values were not stored: {why}"
        return StoreHealth(flavour.name, version, is_reachable=True, dropped=dropped, text=text + ".")

    def close(self) -> None:
        self.connection.close()


class _ExtraMetrics:
    """At most ``MAX_EXTRA_METRICS`` extra metrics a run and process: a table of InfluxDB 3 holds 500 columns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, set[str]] = {}
        self._dropped, self._why = 0, ""

    def dropped(self) -> tuple[int, str]:
        """(values, the last reason)"""
        return self._dropped, self._why

    def admitted(self, points: Sequence[Point]) -> list[Point]:
        return [self._admitted(point) if point.measurement == MEASUREMENT else point for point in points]

    def _admitted(self, point: Point) -> Point:
        declared = SCHEMA[MEASUREMENT].fields
        extra = [name for name in point.fields if name not in declared]
        if not extra:
            return point
        run = point.tags["run"]
        with self._lock:
            known = self._known.setdefault(run, set())
            refused = set()
            for name in extra:
                metric = name.removesuffix("_nf")
                if metric not in known and len(known) >= MAX_EXTRA_METRICS:
                    refused.add(name)
                    self._dropped += 1
                    self._why = (
                        f"run {run!r} logs more extra metrics than are stored ({MAX_EXTRA_METRICS} a run), for example {name!r}"
                    )
                else:
                    known.add(metric)
        if not refused:
            return point
        return Point(point.measurement, point.tags, point.time_ns, {k: v for k, v in point.fields.items() if k not in refused})
