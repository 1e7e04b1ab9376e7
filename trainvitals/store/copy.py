"""Moves the history of one store to another: in slices of time, restartable, counted at the end.

Rows keep their timestamps, so copying twice changes nothing. A training step that the target has already under another
timestamp keeps the target's. State of ``watch`` is not history: it reads its files again and makes the same rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.records import FieldValue, Point
from trainvitals.schema import SCHEMA, FieldType
from trainvitals.store.encode import stored_type
from trainvitals.store.protocol import Store

#: Rows of one slice; more when so many share one moment.
SLICE_ROWS = 20_000
END_NS = 2**62
#: Events first (they are few and tell what happened), then what is long-lived, then raw hardware.
ORDER = ("event", "train", "train_1h", "train_10m", "train_1m", "node_10m", "heartbeat", "node", "gpu")
#: A request that is copied would be asked again, and only the dashboard may write there.
LEFT_OUT = frozenset({"requests"})
Series = tuple[str, ...]
_CASTS: Mapping[FieldType, Callable[[Any], FieldValue]] = {"float": float, "int": int, "bool": bool, "str": str}


@dataclass(frozen=True)
class Difference:
    """A series of which the target does not hold what the source holds."""

    measurement: str
    series: Series
    source: int
    target: int


@dataclass(frozen=True)
class Report:
    """copied: rows sent in this call, by measurement. source, target: rows counted at the end."""

    copied: Mapping[str, int]
    source: Mapping[str, int]
    target: Mapping[str, int]
    differences: tuple[Difference, ...] = field(default=())

    @property
    def is_complete(self) -> bool:
        return not self.differences


#: (measurement, rows sent so far in this call, time reached in ns); what is before that time is in the target.
Tell = Callable[[str, int, int], None]


def copy_store(
    source: Store,
    target: Store,
    done_ns: Mapping[str, int],
    since_ns: Mapping[str, int],
    tell: Tell,
    slice_rows: int = SLICE_ROWS,
) -> Report:
    """Copy every row at or after ``done_ns[measurement]``, then count both stores.

    since_ns: measurement -> time before which rows are neither copied nor counted (the target would not keep them).
    Raises what the stores raise; what ``tell`` was told is safe, so the next call may go on from there.
    """
    copied: dict[str, int] = {}
    for name in measurements():
        copied[name] = 0
        start_ns = max(done_ns.get(name, 0), since_ns.get(name, 0))
        for points, reached_ns in slices(source, name, start_ns, slice_rows):
            target.write(points)
            copied[name] += len(points)
            tell(name, copied[name], reached_ns)
    return verified(source, target, copied, since_ns, slice_rows)


def measurements() -> tuple[str, ...]:
    """All measurements that are history, in the order they are copied."""
    return (*ORDER, *(name for name in SCHEMA if name not in ORDER and name not in LEFT_OUT))


def verified(
    source: Store, target: Store, copied: Mapping[str, int], since_ns: Mapping[str, int], slice_rows: int = SLICE_ROWS
) -> Report:
    """Count rows of every series in both. More rows in the target are no difference: it may have a history of its own."""
    totals: dict[str, tuple[int, int]] = {}
    differences = []
    for name in measurements():
        ours, theirs = (count_rows(store, name, since_ns.get(name, 0), slice_rows) for store in (source, target))
        totals[name] = (sum(ours.values()), sum(theirs.values()))
        differences += [
            Difference(name, series, rows, theirs[series]) for series, rows in sorted(ours.items()) if theirs[series] < rows
        ]
    return Report(
        dict(copied), {name: both[0] for name, both in totals.items()}, {name: both[1] for name, both in totals.items()},
        tuple(differences),
    )  # fmt: skip


def count_rows(store: Store, measurement: str, start_ns: int = 0, slice_rows: int = SLICE_ROWS) -> Counter[Series]:
    """Rows of each series, counted by reading them: no two stores count alike."""
    counted: Counter[Series] = Counter()
    for frame, _ in _frames(store, measurement, [], start_ns, slice_rows):
        for series, number in frame.groupby(list(SCHEMA[measurement].tags)).size().items():
            counted[tuple(map(str, series)) if isinstance(series, tuple) else (str(series),)] += int(number)
    return counted


def slices(store: Store, measurement: str, start_ns: int, slice_rows: int = SLICE_ROWS) -> Iterator[tuple[list[Point], int]]:
    """(points, time reached): all rows from ``start_ns`` on; every row before the time reached was given."""
    fields = all_fields(store, measurement)
    for frame, reached_ns in _frames(store, measurement, fields, start_ns, slice_rows):
        yield points_of(measurement, frame, fields), reached_ns


def all_fields(store: Store, measurement: str) -> list[str]:
    """Every field, and for every number that may be non-finite its code."""
    names = store.stored_fields(measurement)
    codes = [f"{name}_nf" for name in names if stored_type(measurement, f"{name}_nf") == "int"]
    return list(dict.fromkeys([*names, *(code for code in codes if code in names or code in SCHEMA[measurement].fields)]))


def _frames(
    store: Store, measurement: str, fields: Sequence[str], start_ns: int, slice_rows: int
) -> Iterator[tuple[pd.DataFrame, int]]:
    rows = slice_rows
    while True:
        frame = store.raw(measurement, fields, {}, start_ns, END_NS, limit=rows)
        if len(frame) < rows:
            if len(frame):
                yield frame, int(frame["time_ns"].iloc[-1]) + 1
            return
        last_ns = int(frame["time_ns"].iloc[-1])
        # Further rows of the last moment may be behind the limit: that moment belongs to the next slice.
        whole = frame[frame["time_ns"] < last_ns]
        if whole.empty:
            rows *= 2
            continue
        yield whole, last_ns
        start_ns, rows = last_ns, slice_rows


def points_of(measurement: str, frame: pd.DataFrame, fields: Sequence[str]) -> list[Point]:
    """Rows as points: what is not there is left out, and what is not finite stays as its code."""
    tags = SCHEMA[measurement].tags
    columns: list[tuple[str, list[Any]]] = []
    for name in fields:
        kind = stored_type(measurement, name)
        if kind is None:
            continue
        columns.append((name, _values(frame[name], kind)))
    columns = [(name, values) for name, values in columns if any(value is not None for value in values)]
    points = []
    of_tags = [frame[tag].tolist() for tag in tags]
    for at, time_ns in enumerate(frame["time_ns"].tolist()):
        fields_there = {name: values[at] for name, values in columns if values[at] is not None}
        if fields_there:
            points.append(
                Point(measurement, {tag: str(of[at]) for tag, of in zip(tags, of_tags, strict=True)}, time_ns, fields_there)
            )
    return points


def _values(column: pd.Series, kind: FieldType) -> list[Any]:
    if kind == "float":
        values = column.to_numpy(dtype=np.float64)
        return [value if math.isfinite(value) else None for value in values.tolist()]
    cast = _CASTS[kind]
    return [None if value is None or value is pd.NA else cast(value) for value in column.tolist()]
