"""Rows of InfluxDB as they are, in InfluxQL: the one dialect that 1.x, 2.x and 3 share.

Values are bound (``$name``), identifiers come from the schema, both time bounds are always given. Rows come in pages, and a
range that InfluxDB 3 finds too long (a limit of files a query) is halved until it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.errors import StoreError
from trainvitals.records import NONFINITE_CODES
from trainvitals.schema import SCHEMA, FieldType
from trainvitals.store.encode import stored_type
from trainvitals.store.frames import column, series_of
from trainvitals.store.influx_connection import FileLimitExceeded, InfluxConnection, Table
from trainvitals.store.line_protocol import MAX_TIME_NS, MIN_TIME_NS, decode_tag, marker, read_field, stored_field, stored_tag

Where = Mapping[str, str | Sequence[str]]
#: influxd marks every answer of more than 10,000 rows of a series as partial, complete or not (measured on 1.6.7), and a
#: ``max-row-limit`` of old versions has the same size: with pages of this size the mark means what it says.
PAGE_ROWS = 10_000
_VALUES_A_QUERY = 200
#: A range that is refused although it is this short is refused for good (files of InfluxDB 3 hold up to ten minutes).
_SHORTEST_SPAN_NS = 600 * 10**9

#: Databases: hardware samples go after days, everything else is kept.
HARDWARE = frozenset({"node", "gpu", "heartbeat", "control"})
REQUESTS = "requests"


@dataclass(frozen=True)
class Databases:
    """Names of the databases (1.x, 3) or buckets (2.x). requests: has rights of its own, see docs/influxdb.md."""

    hardware: str = "health"
    long: str = "health_long"
    requests: str = "health_requests"

    def of(self, measurement: str) -> str:
        """The database of a measurement."""
        if measurement == REQUESTS:
            return self.requests
        return self.hardware if measurement in HARDWARE else self.long


def identifier(name: str) -> str:
    """A name of the schema (or a checked metric's name) for a statement."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def field_types(measurement: str, fields: Sequence[str]) -> dict[str, FieldType]:
    """Types of the asked fields; raises ``StoreError`` for a measurement or field that is not in the schema."""
    if measurement not in SCHEMA:
        raise StoreError(f"Measurement {measurement!r} is not in the schema; known are {', '.join(SCHEMA)}.")
    types: dict[str, FieldType] = {}
    for name in fields:
        kind = stored_type(measurement, name)
        if kind is None:
            raise StoreError(f"{measurement} has no field {name!r}; its fields are {', '.join(SCHEMA[measurement].fields)}.")
        types[name] = kind
    return types


@dataclass(frozen=True)
class Condition:
    """What ``where`` admits: one or more pieces of InfluxQL (long lists are split), each with its bound values."""

    pieces: Sequence[tuple[str, Mapping[str, str]]]


def condition(measurement: str, where: Where) -> Condition:
    """Raises ``StoreError`` for a tag that the measurement does not have. No piece = nothing is admitted."""
    declared = SCHEMA[measurement]
    per_tag: list[list[tuple[str, dict[str, str]]]] = []
    for tag, value in where.items():
        if tag not in declared.tags:
            raise StoreError(f"{measurement} has no tag {tag!r}; its tags are {', '.join(declared.tags)}.")
        wanted = [value] if isinstance(value, str) else list(dict.fromkeys(value))
        chunks = [wanted[at : at + _VALUES_A_QUERY] for at in range(0, len(wanted), _VALUES_A_QUERY)]
        choices = []
        for chunk in chunks:
            names = [f"{tag}_{at}" for at in range(len(chunk))]
            text = " OR ".join(f"{identifier(tag)} = ${name}" for name in names)
            choices.append((f"({text})", dict(zip(names, map(stored_tag, chunk), strict=True))))
        per_tag.append(choices)
    pieces: list[tuple[str, Mapping[str, str]]] = []
    for chosen in product(*per_tag):
        values: dict[str, str] = {}
        for _text, bound in chosen:
            values |= bound
        pieces.append((" AND ".join(text for text, _bound in chosen), values))
    return Condition(pieces)


def window(start_ns: int, end_ns: int, admitted: str) -> str:
    """The WHERE clause: both bounds, then what is admitted."""
    bounds = f"time >= {start_ns} AND time < {end_ns}"
    return f"WHERE {bounds} AND {admitted}" if admitted else f"WHERE {bounds}"


def clamp(time_ns: int) -> int:
    """A bound that InfluxDB can compare with."""
    return min(max(int(time_ns), MIN_TIME_NS), MAX_TIME_NS)


@dataclass
class Rows:
    """Fetched columns by their stored name, ``time`` first; tags are decoded when a frame is made."""

    names: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        at = self.names.index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True)
class Selection:
    """What is read of a measurement: asked fields, codes of their non-finite values, the tags, and a field every row has."""

    measurement: str
    types: Mapping[str, FieldType]
    codes: tuple[str, ...]

    @staticmethod
    def of(measurement: str, fields: Sequence[str], with_codes: bool = True) -> Selection:
        types = field_types(measurement, fields)
        codes = (name for name, kind in types.items() if kind == "float" and stored_type(measurement, f"{name}_nf") is not None)
        return Selection(measurement, types, tuple(codes) if with_codes else ())

    @property
    def names(self) -> list[str]:
        """Columns as stored, without the time."""
        fields = [*map(stored_field, self.types), *(f"{name}_nf" for name in self.codes)]
        return list(dict.fromkeys([marker(self.measurement), *fields, *SCHEMA[self.measurement].tags]))

    def frame(self, rows: Rows) -> pd.DataFrame:
        """Rows with the dtypes of the store protocol; codes stand in the fields again."""
        columns: dict[str, Any] = {"time_ns": np.array(rows.column("time"), dtype=np.int64)}
        for tag in SCHEMA[self.measurement].tags:
            columns[tag] = pd.array([decode_tag(value) for value in rows.column(tag)], dtype="str")
        for name, kind in self.types.items():
            data = column(rows.column(stored_field(name)), kind)
            if name in self.codes:
                codes = column(rows.column(f"{name}_nf"), "int")[0]
                # A code wins over a value: some sources print 0.0 for what another knew to be NaN.
                for code, number in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
                    data[0][codes == NONFINITE_CODES[code]] = number
            columns[name] = series_of(data, kind)
        return pd.DataFrame(columns)


class Reader:
    """Reads rows of one measurement from the database that holds it."""

    def __init__(self, connection: InfluxConnection, databases: Databases) -> None:
        self._connection = connection
        self._databases = databases

    def query(self, measurement: str, statements: Sequence[str], values: Mapping[str, Any]) -> list[list[Table]]:
        """Run statements on the measurement's database."""
        return self._connection.query(self._databases.of(measurement), "; ".join(statements), values)

    def pages(
        self, measurement: str, names: Sequence[str], piece: tuple[str, Mapping[str, str]], start_ns: int, end_ns: int,
        limit: int | None = None, newest_first: bool = False, page_rows: int = PAGE_ROWS,
    ) -> Iterator[Rows]:  # fmt: skip
        """Rows of [start, end) in order of time, at most ``page_rows`` at once (more only if so many share one moment)."""
        admitted, values = piece
        # Names of the schema or checked metrics' names stand in the text, everything else is bound.
        select = f"SELECT {', '.join(map(identifier, names))} FROM {identifier(measurement)}"  # noqa: S608
        order = "DESC" if newest_first else "ASC"
        left = limit
        spans = [(clamp(start_ns), clamp(end_ns))]
        rows_asked = page_rows
        while spans and (left is None or left > 0):
            low, high = spans.pop()
            if low >= high:
                continue
            asked = rows_asked if left is None else min(rows_asked, left)
            try:
                statement = f"{select} {window(low, high, admitted)} ORDER BY time {order} LIMIT {asked}"
                (tables,) = self.query(measurement, [statement], values)
            except FileLimitExceeded:
                if high - low <= _SHORTEST_SPAN_NS:
                    raise
                middle = (low + high) // 2
                halves = [(middle, high), (low, middle)]
                spans += halves[::-1] if newest_first else halves
                continue
            found = _rows(tables, names)
            if not found.rows:
                continue
            if len(found.rows) == asked and (left is None or left > asked):
                # The page is full: the rows of its last moment may not all be on it, so they come again with the next one.
                last = found.rows[-1][0]
                kept = [row for row in found.rows if row[0] != last]
                spans.append((low, last + 1) if newest_first else (last, high))
                if not kept:
                    rows_asked *= 2
                    continue
                found.rows[:] = kept
            rows_asked = page_rows
            if left is not None:
                left -= len(found.rows)
            yield found

    def rows(
        self, selection: Selection, where: Where, start_ns: int, end_ns: int, limit: int | None = None, newest_first: bool = False
    ) -> Rows:
        """All rows, or the first ``limit`` of each piece of ``where``, unordered between pieces."""
        collected = Rows(["time", *selection.names])
        for piece in condition(selection.measurement, where).pieces:
            for page in self.pages(selection.measurement, selection.names, piece, start_ns, end_ns, limit, newest_first):
                collected.rows.extend(page.rows)
        return collected

    def raw(
        self, measurement: str, fields: Sequence[str], where: Where, start_ns: int, end_ns: int, limit: int | None = None,
        newest_first: bool = False,
    ) -> pd.DataFrame:  # fmt: skip
        """See ``Store.raw``."""
        selection = Selection.of(measurement, fields)
        frame = selection.frame(self.rows(selection, where, start_ns, end_ns, limit, newest_first))
        tags = list(SCHEMA[measurement].tags)
        ascending = [not newest_first, *([True] * len(tags))]
        frame = frame.sort_values(["time_ns", *tags], ascending=ascending, kind="stable", ignore_index=True)
        return frame if limit is None else frame.head(max(0, limit))

    def tag_values(self, measurement: str, tag: str, since_ns: int) -> list[str]:
        """Values of a tag in rows since then: from the data, because SHOW TAG VALUES knows whole shards (weeks) only."""
        field_types(measurement, ())
        if tag not in SCHEMA[measurement].tags:
            raise StoreError(f"{measurement} has no tag {tag!r}; its tags are {', '.join(SCHEMA[measurement].tags)}.")
        tables = self.grouped(measurement, f"last({identifier(marker(measurement))})", [tag], ("", {}), since_ns, MAX_TIME_NS)
        return sorted({decode_tag(table.tags.get(tag)) for table in tables})

    def stored_fields(self, measurement: str) -> list[str]:
        """Declared fields, then the names of the extra metrics that the database has seen."""
        field_types(measurement, ())
        declared = SCHEMA[measurement].fields
        (tables,) = self.query(measurement, [f"SHOW FIELD KEYS FROM {identifier(measurement)}"], {})
        seen = {read_field(str(row[table.columns.index("fieldKey")])) for table in tables for row in table.rows}
        return [*declared, *sorted(name for name in seen if name not in declared and stored_type(measurement, name) is not None)]

    def grouped(
        self,
        measurement: str,
        selector: str,
        tags: Sequence[str],
        piece: tuple[str, Mapping[str, str]],
        start_ns: int,
        end_ns: int,
    ) -> list[Table]:
        """One selector a series (grouped by tags); a refused range is asked in halves, the later half first."""
        admitted, values = piece
        by = f" GROUP BY {', '.join(map(identifier, tags))}" if tags else ""
        spans = [(clamp(start_ns), clamp(end_ns))]
        found: list[Table] = []
        while spans:
            low, high = spans.pop()
            if low >= high:
                continue
            try:
                statement = f"SELECT {selector} FROM {identifier(measurement)} {window(low, high, admitted)}{by}"  # noqa: S608
                (tables,) = self.query(measurement, [statement], values)
            except FileLimitExceeded:
                if high - low <= _SHORTEST_SPAN_NS:
                    raise
                middle = (low + high) // 2
                spans += [(low, middle), (middle, high)]
                continue
            found.extend(tables)
        return found


def _rows(tables: Sequence[Table], names: Sequence[str]) -> Rows:
    """The one table of an ungrouped SELECT, its columns in the asked order."""
    wanted = ["time", *names]
    rows = Rows(wanted)
    for table in tables:
        if list(table.columns) == wanted:
            rows.rows.extend(table.rows)
        else:
            order = [table.columns.index(name) if name in table.columns else None for name in wanted]
            rows.rows.extend([None if at is None else row[at] for at in order] for row in table.rows)
    return rows
