"""Min, max, mean and last per bucket over rows of InfluxDB, with the meaning that the embedded store gives them.

Up to ``EXACT_ROWS`` rows are read and put into buckets here, exactly, in pages of bounded memory. InfluxQL cannot say when the
first row of a window was, nor group by a step. Beyond that, buckets by time of numbers are made by the server (``GROUP BY
time``): all is exact but ``time_ns``, which is then the start of the bucket (or of the data). Buckets by step are always read
row by row; charts of long runs read the roll-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.errors import StoreError
from trainvitals.schema import SCHEMA
from trainvitals.store.frames import bucket_width, column, series_of
from trainvitals.store.influx_connection import FileLimitExceeded
from trainvitals.store.influx_query import Reader, Rows, Where, clamp, condition, field_types, identifier, window
from trainvitals.store.line_protocol import decode_tag, marker, stored_field

EXACT_ROWS = 200_000
_SHORTEST_SPAN_NS = 600 * 10**9
_Piece = tuple[str, Mapping[str, str]]


@dataclass(frozen=True)
class _Query:
    reader: Reader
    measurement: str
    fields: tuple[str, ...]
    pieces: Sequence[_Piece]
    start_ns: int
    end_ns: int
    by_step: bool
    exact_rows: int

    @property
    def tags(self) -> tuple[str, ...]:
        return SCHEMA[self.measurement].tags

    @property
    def has_step(self) -> bool:
        return "step" in SCHEMA[self.measurement].fields

    @property
    def has_nonfinite(self) -> bool:
        return "nonfinite" in SCHEMA[self.measurement].fields

    @property
    def names(self) -> list[str]:
        always = ["step"] * self.has_step + ["nonfinite"] * self.has_nonfinite
        return list(dict.fromkeys([marker(self.measurement), *always, *map(stored_field, self.fields), *self.tags]))

    def pages(self) -> Iterator[pd.DataFrame]:
        for piece in self.pieces:
            for page in self.reader.pages(self.measurement, self.names, piece, self.start_ns, self.end_ns):
                yield self._frame(page)

    def _frame(self, page: Rows) -> pd.DataFrame:
        columns: dict[str, Any] = {"time_ns": np.array(page.column("time"), dtype=np.int64)}
        for tag in self.tags:
            # Rows without a tag (written by others) would be left out by a grouping.
            columns[tag] = ["" if value is None else value for value in page.column(tag)]
        columns["step"] = series_of(column(page.column("step") if self.has_step else [None] * len(page.rows), "int"), "int")
        if self.has_nonfinite:
            columns["nonfinite"] = [value or 0 for value in page.column("nonfinite")]
        for name in self.fields:
            columns[f"={name}"] = column(page.column(stored_field(name)), "float")[0]
        return pd.DataFrame(columns)


def buckets(
    reader: Reader, measurement: str, fields: Sequence[str], where: Where, start_ns: int, end_ns: int, count: int,
    by: str = "time_ns", exact_rows: int = EXACT_ROWS,
) -> pd.DataFrame:  # fmt: skip
    """See ``Store.buckets``. Rows ascend by time. Raises ``StoreError`` for fields of text and for an unknown ``by``."""
    types = field_types(measurement, fields)
    for name, kind in types.items():
        if kind == "str":
            raise StoreError(f"Field {name!r} of {measurement} is text and has no minimum or mean; read it with raw.")
    has_unique_step = SCHEMA[measurement].has_unique_step
    if by not in ("time_ns", "step") or (by == "step" and not has_unique_step):
        raise StoreError(f"Buckets of {measurement} cannot be made by {by!r}; use time_ns" + " or step." * has_unique_step)
    query = _Query(
        reader, measurement, tuple(types), condition(measurement, where).pieces, clamp(start_ns), clamp(end_ns), by == "step",
        exact_rows,
    )  # fmt: skip
    pages: list[pd.DataFrame] = []
    rows = 0
    for page in query.pages():
        pages.append(page)
        rows += len(page)
        if rows > exact_rows:
            break
    if not pages:
        return _frame(query, None)
    if rows <= exact_rows:
        low, high = (min(page[by].min() for page in pages), max(page[by].max() for page in pages))
        return _frame(query, _aggregated(query, iter(pages), bucket_width(int(high) - int(low) + 1, count), by))
    if by == "time_ns" and all(kind in ("float", "int") for kind in types.values()):
        return _by_server(query, int(min(page["time_ns"].min() for page in pages)), count)
    low, high = _extent(query, by)
    return _frame(query, _aggregated(query, query.pages(), bucket_width(high - low + 1, count), by))


def _extent(query: _Query, by: str) -> tuple[int, int]:
    """Lowest and highest step, or first and last time, of all rows."""
    low: list[int] = []
    high: list[int] = []
    for piece in query.pieces:
        for function, found in (("min", low), ("max", high)) if by == "step" else (("first", low), ("last", high)):
            selector = f"{function}({identifier('step' if by == 'step' else marker(query.measurement))})"
            for table in query.reader.grouped(query.measurement, selector, (), piece, query.start_ns, query.end_ns):
                found.extend(int(row[1 if by == "step" else 0]) for row in table.rows)
    return min(low), max(high)


def _aggregated(query: _Query, pages: Iterator[pd.DataFrame], width: int, by: str) -> pd.DataFrame:
    """Buckets of pages that come in order of time within each series."""
    total: pd.DataFrame | None = None
    keys = ["bucket", *query.tags]
    for page in pages:
        page.insert(0, "bucket", page[by].to_numpy(dtype=np.int64) // width * width)
        page["n"] = 1
        for name in query.fields:
            values = page[f"={name}"]
            for part in ("min", "max", "sum", "last"):
                page[f"{part}={name}"] = values
            page[f"count={name}"] = values.notna().astype(np.int64)
        kept = page[[c for c in page.columns if not c.startswith("=")]]
        both = kept if total is None else pd.concat([total, kept])
        total = both.groupby(keys, sort=False, as_index=False).agg(_functions(query))
    assert total is not None
    return total


def _functions(query: _Query) -> dict[str, str]:
    functions = {"time_ns": "min", "step": "min", "n": "sum"}
    if query.has_nonfinite:
        functions["nonfinite"] = "sum"
    for name in query.fields:
        functions |= {
            f"min={name}": "min",
            f"max={name}": "max",
            f"sum={name}": "sum",
            f"count={name}": "sum",
            f"last={name}": "last",
        }
    return functions


def _by_server(query: _Query, first_ns: int, count: int) -> pd.DataFrame:
    """``GROUP BY time``; the windows align to the epoch, as buckets do."""
    last_ns = max(
        int(row[0])
        for piece in query.pieces
        for table in query.reader.grouped(
            query.measurement, f"last({identifier(marker(query.measurement))})", (), piece, query.start_ns, query.end_ns
        )
        for row in table.rows
    )
    width = bucket_width(last_ns + 1 - first_ns, count)
    parts: list[pd.DataFrame] = []
    for piece in query.pieces:
        spans = [(first_ns, last_ns + 1)]
        while spans:
            low, high = spans.pop()
            try:
                parts += _windows(query, piece, low, high, width)
            except FileLimitExceeded:
                middle = (low + high) // 2 // width * width
                if high - low <= _SHORTEST_SPAN_NS or not low < middle < high:
                    raise
                spans += [(middle, high), (low, middle)]
    total = pd.concat(parts, ignore_index=True)
    total["time_ns"] = total["bucket"].clip(lower=first_ns)
    return _frame(query, total)


def _windows(query: _Query, piece: _Piece, low: int, high: int, width: int) -> list[pd.DataFrame]:
    selected = [f"count({identifier(marker(query.measurement))})"]
    names = ["n"]
    for name, function in (("step", "min"), ("nonfinite", "sum")):
        if name in SCHEMA[query.measurement].fields:
            selected.append(f"{function}({identifier(name)})")
            names.append(name)
    for field in query.fields:
        for part, function in (("min", "min"), ("max", "max"), ("sum", "sum"), ("count", "count"), ("last", "last")):
            selected.append(f"{function}({identifier(stored_field(field))})")
            names.append(f"{part}={field}")
    admitted, values = piece
    by = ", ".join([f"time({width}ns)", *map(identifier, query.tags)])
    statement = (
        f"SELECT {', '.join(selected)} FROM {identifier(query.measurement)} "  # noqa: S608 (names of the schema)
        f"{window(low, high, admitted)} GROUP BY {by} fill(none)"
    )
    (tables,) = query.reader.query(query.measurement, [statement], values)
    parts = []
    for table in tables:
        data = list(zip(*table.rows, strict=True))
        columns: dict[str, Any] = {"bucket": np.array(data[0], dtype=np.int64)}
        columns.update({tag: [table.tags.get(tag, "")] * len(table.rows) for tag in query.tags})
        for name, fetched in zip(names, data[1:], strict=True):
            if name in ("n", "step", "nonfinite"):
                columns[name] = series_of(column(fetched, "int"), "int")
            else:
                columns[name] = column(fetched, "float")[0]
        if "step" not in names:
            columns["step"] = series_of(column([None] * len(table.rows), "int"), "int")
        frame = pd.DataFrame(columns)
        parts.append(frame[frame["n"].notna()])
    return parts


def _frame(query: _Query, total: pd.DataFrame | None) -> pd.DataFrame:
    if total is None:
        empty = Rows(["time", *query.names])
        page = query._frame(empty)
        total = _aggregated(query, iter([page]), 1, "time_ns")
    total = total.sort_values(["time_ns", *query.tags], ignore_index=True)
    columns: dict[str, Any] = {"bucket": total["bucket"].to_numpy(dtype=np.int64)}
    for tag in query.tags:
        columns[tag] = pd.array([decode_tag(value) for value in total[tag]], dtype="str")
    columns["time_ns"] = total["time_ns"].to_numpy(dtype=np.int64)
    columns["step"] = total["step"].astype("Int64").array
    columns["n"] = total["n"].to_numpy(dtype=np.int64)
    if query.has_nonfinite:
        columns["nonfinite"] = total["nonfinite"].fillna(0).to_numpy(dtype=np.int64)
    for name in query.fields:
        low, high, summed, last = (total[f"{part}={name}"].to_numpy(dtype=np.float64) for part in ("min", "max", "sum", "last"))
        counted = total[f"count={name}"].to_numpy(dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            # A sum rounds (and may overflow): the mean is kept between the extremes it lies between.
            mean = np.clip(summed / counted, low, high)
        columns.update({f"{name}_min": low, f"{name}_max": high, f"{name}_mean": mean, f"{name}_last": last})
    return pd.DataFrame(columns)
