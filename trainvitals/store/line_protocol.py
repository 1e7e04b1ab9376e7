"""Points as InfluxDB line protocol, typed by the declared schema: the same bytes for 1.x, 2.x and 3.

Three things differ from the plain format, and ``decode_tag`` and ``read_field`` undo them when rows are read:

- A tag value keeps its spaces, commas and equals signs (escaped with a backslash), but "%" and "\\" are percent-encoded and an
  empty value is ``%00``. Line protocol cannot end a tag value with a backslash, the versions differ in how they read one in the
  middle, and an empty value cannot be written; a tag that is always there also keeps the tag set of a table of InfluxDB 3 fixed.
- An extra metric called ``time`` is written as ``time.metric``: InfluxDB drops a field called ``time``.
- A line of a measurement without a field that is always there carries ``row=1i``: InfluxQL leaves out rows in which none of the
  asked fields is set, so what is asked always includes one that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from trainvitals.errors import StoreRejected
from trainvitals.records import Point
from trainvitals.schema import SCHEMA, FieldType
from trainvitals.store.encode import check_point, stored_type

#: Times that InfluxDB accepts (influxdb 1.x models/time.go: MinNanoTime, MaxNanoTime); the upper one as an exclusive end.
MIN_TIME_NS = -(2**63) + 2
MAX_TIME_NS = 2**63 - 2

ROW_FIELD = "row"
_TIME_METRIC = "time"
_TIME_FIELD = "time.metric"
_EMPTY_TAG = "%00"  # no tag may hold control characters, so no other value is written like this
_TAG_ESCAPES = str.maketrans({"%": "%25", "\\": "%5C", ",": "\\,", " ": "\\ ", "=": "\\="})
_STRING_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


def marker(measurement: str) -> str:
    """The field that every stored row of a measurement has."""
    return "step" if SCHEMA[measurement].name == "train" else ROW_FIELD


def stored_field(name: str) -> str:
    """Name of a field as InfluxDB knows it."""
    return _TIME_FIELD if name == _TIME_METRIC else name


def read_field(name: str) -> str:
    """The inverse of ``stored_field``."""
    return _TIME_METRIC if name == _TIME_FIELD else name


def stored_tag(value: str) -> str:
    """A tag value as InfluxDB stores it (and as a query must ask for it)."""
    return value.replace("%", "%25").replace("\\", "%5C") if value else _EMPTY_TAG


def decode_tag(stored: str | None) -> str:
    """The tag value behind a stored one; a tag that is not there (a row that others wrote) reads as empty."""
    if not stored or stored == _EMPTY_TAG:
        return ""
    return stored.replace("%5C", "\\").replace("%25", "%") if "%" in stored else stored


def encode_points(points: Iterable[Point]) -> bytes:
    """Lines joined by newlines. Raises ``StoreRejected`` (a sentence) for a point that does not fit the schema."""
    return b"\n".join(encode_point(point) for point in points)


def encode_point(point: Point) -> bytes:
    """One line without its newline; times in nanoseconds. Text may hold newlines, so a line may have several."""
    check_point(point)
    if not MIN_TIME_NS <= point.time_ns < MAX_TIME_NS:
        raise StoreRejected(f"The time of a point of {point.measurement}, {point.time_ns}, is outside of what InfluxDB keeps.")
    tags = _series_key(point.measurement, tuple(point.tags[tag] for tag in SCHEMA[point.measurement].tags))
    parts = [
        f"{stored_field(name)}={_value(stored_type(point.measurement, name), value)}" for name, value in point.fields.items()
    ]
    row = marker(point.measurement)
    if row == ROW_FIELD:
        parts.append(f"{ROW_FIELD}=1i")
    return f"{tags} {','.join(parts)} {point.time_ns}".encode()


@lru_cache(maxsize=65536)
def _series_key(measurement: str, tags: Sequence[str]) -> str:
    # Sorted by key, as InfluxDB's documentation asks for speed.
    pairs = sorted(zip(SCHEMA[measurement].tags, tags, strict=True))
    return measurement + "".join(f",{tag}={value.translate(_TAG_ESCAPES) or _EMPTY_TAG}" for tag, value in pairs)


def _value(kind: FieldType | None, value: float | int | str | bool) -> str:
    if kind == "float":
        return repr(float(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int":
        return f"{value}i"
    return f'"{str(value).translate(_STRING_ESCAPES)}"'
