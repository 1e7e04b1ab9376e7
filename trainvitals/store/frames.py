"""Rows of a store as data frames with the dtypes that the store protocol promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from trainvitals.schema import SCHEMA, FieldType

#: One fetched column: values, and for ints and bools where they are missing.
Column = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]


def bucket_width(span: int, count: int) -> int:
    """Width for at most ``count`` buckets over ``span``, two digits long so that a growing run seldom changes its grid."""
    width = max(1, -(-span // max(1, count)))
    unit = int(10 ** max(0, len(str(width)) - 2))
    return -(-width // unit) * unit


def column(values: Sequence[Any], kind: FieldType) -> Column:
    """A fetched column (None = not there) as arrays."""
    if kind == "float":
        return np.array(values, dtype=np.float64), None
    if kind == "str":
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array, None
    dtype = np.int64 if kind == "int" else np.bool_
    missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
    if missing.any():
        values = [0 if value is None else value for value in values]
    return np.array(values, dtype=dtype), missing


def joined(parts: Sequence[Column], kind: FieldType) -> Column:
    """Chunks of one column, one after the other."""
    if not parts:
        return column([], kind)
    if len(parts) == 1:
        return parts[0]
    masks = [part[1] for part in parts if part[1] is not None]
    return np.concatenate([part[0] for part in parts]), np.concatenate(masks) if masks else None


def series_of(data: Column, kind: FieldType) -> Any:
    """The pandas array of a column."""
    values, missing = data
    if kind == "int":
        return pd.arrays.IntegerArray(values, np.zeros(len(values), np.bool_) if missing is None else missing)
    if kind == "bool":
        return pd.arrays.BooleanArray(values, np.zeros(len(values), np.bool_) if missing is None else missing)
    return pd.Series(values, dtype=object) if kind == "str" else values


def tag_columns(measurement: str, series: np.ndarray[Any, Any], names: Mapping[int, tuple[str, ...]]) -> dict[str, pd.Series]:
    """The tag columns of rows that name their series by id."""
    ids, positions = np.unique(series, return_inverse=True)
    columns = {}
    for at, tag in enumerate(SCHEMA[measurement].tags):
        values = pd.array([names[int(number)][at] for number in ids], dtype="str")
        columns[tag] = pd.Series(values.take(positions))
    return columns


def row_frame(
    measurement: str,
    names: Mapping[int, tuple[str, ...]],
    series: np.ndarray[Any, Any],
    time_ns: np.ndarray[Any, Any],
    fields: Mapping[str, tuple[Column, FieldType]],
) -> pd.DataFrame:
    """``time_ns``, the tags, the fields."""
    columns: dict[str, Any] = {"time_ns": np.asarray(time_ns, dtype=np.int64)}
    columns.update(tag_columns(measurement, series, names))
    columns.update({name: series_of(data, kind) for name, (data, kind) in fields.items()})
    return pd.DataFrame(columns)
