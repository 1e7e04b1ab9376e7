"""Records to points and back: pure, deterministic, and the same for every store.

Whatever stands in a record, the point that leaves here passes ``check_point``: non-finite values become codes
(``f_nf``: 1 NaN, 2 +Inf, 3 -Inf), text is cut at ``MAX_TEXT_BYTES``, and names that the schema does not allow are left out.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from typing import Any

from trainvitals.errors import StoreError
from trainvitals.identity import MILLISECOND_NS, event_time_ns
from trainvitals.records import (
    NONFINITE_CODES,
    Event,
    FieldValue,
    GpuSample,
    NodeSample,
    Point,
    Severity,
    Step,
    nonfinite_name,
)
from trainvitals.schema import EXTRA_METRIC_NAME, MAX_EXTRA_METRICS, SCHEMA, TRAIN_METRICS, FieldType, extra_metric_of, field_type

MAX_TEXT_BYTES = 64 * 1024
CUT_MARKER = "… [cut]"
CUT_KEY = "_cut"
_CUT_NAMES_BYTES = 4_096  # room for ten names of 60 bytes, each byte escaped to six
MAX_INT = 2**63 - 1
MAX_TAG_BYTES = 1024

#: Columns that every frame has; an extra metric of that name could not be told from them.
RESERVED_NAMES = frozenset({"time_ns", "bucket", "n", "run", "attempt", *SCHEMA["train"].fields} - set(TRAIN_METRICS))
_SEVERITIES = tuple(Severity)


def is_extra_metric(name: str) -> bool:
    """Whether a metric without a name of its own in the schema may be stored under this name."""
    return (
        EXTRA_METRIC_NAME.match(name) is not None
        and not name.endswith("_nf")
        and name not in TRAIN_METRICS
        and name not in RESERVED_NAMES
    )


def step_point(run: str, step: Step, time_ns: int, time_estimated: bool = False) -> Point:
    """A `train` point. ``nonfinite`` is always there, so a step without any finite value still has a field.

    Metrics that may not be stored are left out: ``dropped_metrics`` names them, the caller counts them.
    """
    dropped = set(dropped_metrics(step))
    fields: dict[str, FieldValue] = {"step": step.step}
    codes: dict[str, str] = {name: kind for name, kind in step.nonfinite.items() if name not in dropped}
    for name, value in step.values.items():
        if name in dropped or name in codes:
            continue
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        found = nonfinite_name(number)
        if found is not None:
            codes[name] = found
        elif name != "worst_rank":
            fields[name] = number
        elif abs(number) <= MAX_INT / 2:
            fields[name] = int(number)
    for name, kind in codes.items():
        if name != "worst_rank":
            fields[f"{name}_nf"] = NONFINITE_CODES[kind]
    fields["nonfinite"] = len(codes)
    if time_estimated:
        fields["time_estimated"] = 1
    return Point("train", {"run": run, "attempt": str(step.attempt)}, time_ns, fields)


def dropped_metrics(step: Step) -> tuple[str, ...]:
    """Names in a step that are not stored: not a metric's name, or more than ``MAX_EXTRA_METRICS`` extra ones."""
    dropped: list[str] = []
    extras = 0
    for name in dict.fromkeys([*step.values, *step.nonfinite]):
        if name in TRAIN_METRICS or name == "worst_rank":
            continue
        if not is_extra_metric(name) or extras == MAX_EXTRA_METRICS:
            dropped.append(name)
        else:
            extras += 1
    return tuple(dropped)


def event_point(run: str, event: Event) -> Point:
    """An `event` point at the event's time plus a checksum of its id below the millisecond.

    Raises ``StoreError`` when the event has no time. ``source`` may be a path from outside: control characters become "?".
    """
    if event.time_ns is None:
        raise StoreError(f"Event {event.kind!r} ({event.id!r}) has no time; the writer must choose one before it is stored.")
    fields: dict[str, FieldValue] = {
        "severity": event.severity.rank,
        "id": cut_text(event.id),
        "text": cut_text(event.text),
        "json": compact_json(event.data),
    }
    if event.step is not None:
        fields["step"] = event.step
    if event.attempt is not None:
        fields["attempt"] = event.attempt
    source = "".join("?" if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in _encodable(event.source))
    while len(source.encode()) > MAX_TAG_BYTES:
        source = source[:-16]
    return Point("event", {"run": run, "kind": event.kind, "source": source}, event_time_ns(event.time_ns, event.id), fields)


def event_from_row(row: Mapping[str, Any]) -> Event:
    """The event of a row of `event` (``time_ns``, tags, fields): the inverse of ``event_point``."""
    event_id = _text(row.get("id"))
    severity = _int(row.get("severity")) or 0
    return Event(
        kind=str(row["kind"]),
        time_ns=int(row["time_ns"]) - event_time_ns(0, event_id),
        step=_int(row.get("step")),
        attempt=_int(row.get("attempt")),
        id=event_id,
        severity=_SEVERITIES[min(max(severity, 0), len(_SEVERITIES) - 1)],
        source=_text(row.get("source")),
        text=_text(row.get("text")),
        data=_parsed(_text(row.get("json"))),
    )


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return {"_unreadable": text}
    return data if isinstance(data, dict) else {"_unreadable": text}


def node_point(sample: NodeSample) -> Point:
    """A `node` point; what is not known is absent."""
    return Point("node", {"node": sample.node}, sample.time_ns, _sample_fields("node", sample))


def gpu_point(sample: GpuSample) -> Point:
    """A `gpu` point; what the driver does not support is absent."""
    return Point("gpu", {"node": sample.node, "gpu": sample.gpu}, sample.time_ns, _sample_fields("gpu", sample))


def _sample_fields(measurement: str, sample: NodeSample | GpuSample) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {}
    for name, kind in SCHEMA[measurement].fields.items():
        value = getattr(sample, name, None)
        if value is None or (kind in ("float", "int") and not math.isfinite(value)):
            continue
        fields[name] = _CASTS[kind](value) if kind != "str" else cut_text(value)
    return fields


_CASTS: Mapping[str, Any] = {"float": float, "int": int, "bool": bool}


def node_from_row(row: Mapping[str, Any]) -> NodeSample:
    """The sample of a row of `node`; fields that are not there take the record's defaults."""
    known = _known("node", row, NodeSample)
    return NodeSample(node=str(row["node"]), time_ns=int(row["time_ns"]), state=known.pop("state", ""), **known)


def gpu_from_row(row: Mapping[str, Any]) -> GpuSample:
    """The sample of a row of `gpu`."""
    known = _known("gpu", row, GpuSample)
    return GpuSample(
        node=str(row["node"]),
        gpu=str(row["gpu"]),
        time_ns=int(row["time_ns"]),
        index=known.pop("index", -1),
        state=known.pop("state", ""),
        **known,
    )


def _known(measurement: str, row: Mapping[str, Any], record: type) -> dict[str, Any]:
    names = {f.name for f in dataclass_fields(record)}
    types = SCHEMA[measurement].fields
    return {
        name: str(value) if types[name] == "str" else _CASTS[types[name]](value)
        for name, value in row.items()
        if name in names and name in types and not _is_missing(value)
    }


def _is_missing(value: Any) -> bool:
    # pandas.NA has no truth value and NaN differs from itself; neither is worth importing pandas for.
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _int(value: Any) -> int | None:
    return None if _is_missing(value) else int(value)


def _text(value: Any) -> str:
    return "" if _is_missing(value) else str(value)


def _encodable(text: str) -> str:
    """Lone surrogates (bytes of a log that were no UTF-8) cannot be stored: they become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_text(text: str, limit_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text itself, or its start and a marker: at most ``limit_bytes`` in UTF-8, cut between characters."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode("utf-8")
    return raw[: limit_bytes - len(CUT_MARKER.encode())].decode("utf-8", "ignore") + CUT_MARKER


def compact_json(data: Mapping[str, Any], limit_bytes: int = MAX_TEXT_BYTES) -> str:
    """Compact JSON without NaN (null stands for it). Too large: the largest members go, ``_cut`` names the first of them."""
    members = {str(key): _dumps(value) for key, value in data.items()}
    text = _object(members)
    if len(text.encode()) <= limit_bytes:
        return text
    sizes = {key: len(_dumps(key).encode()) + len(value.encode()) + 2 for key, value in members.items()}
    room = limit_bytes - _CUT_NAMES_BYTES
    kept: set[str] = set()
    for key in sorted(sizes, key=lambda key: sizes[key]):
        room -= sizes[key]
        if room < 0:
            break
        kept.add(key)
    cut = [cut_text(key, 60) for key in members if key not in kept][:10]
    return _object({**{key: value for key, value in members.items() if key in kept}, CUT_KEY: _dumps(cut)})


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{_dumps(key)}:{value}" for key, value in members.items()) + "}"


def _dumps(value: Any) -> str:
    try:
        return _encodable(json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except RecursionError:
        return '"[nested too deep]"'


def _clean(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return str(value)


@lru_cache(maxsize=4096)
def stored_type(measurement: str, name: str) -> FieldType | None:
    """``schema.field_type`` without the names that would hide a frame's own columns; None when it may not be stored."""
    declared = SCHEMA[measurement].fields.get(name)
    if declared is not None:
        return declared
    metric, _kind = extra_metric_of(measurement, name)
    return field_type(measurement, name) if is_extra_metric(metric) else None


@lru_cache(maxsize=65536)
def _tag_fault(value: str) -> str | None:
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in value):
        return "holds control characters or line breaks"
    return f"is longer than {MAX_TAG_BYTES} bytes" if len(value.encode()) > MAX_TAG_BYTES else None


def check_point(point: Point) -> None:
    """Raise ``StoreError`` naming what is wrong when a point does not fit the schema."""
    measurement = SCHEMA.get(point.measurement)
    if measurement is None:
        raise StoreError(f"Measurement {point.measurement!r} is not in the schema; known are {', '.join(SCHEMA)}.")
    if len(point.tags) != len(measurement.tags) or any(tag not in point.tags for tag in measurement.tags):
        raise StoreError(
            f"A point of {point.measurement} must have exactly the tags {', '.join(measurement.tags)}, "
            f"not {', '.join(map(repr, point.tags)) or 'none'}."
        )
    for tag, text in point.tags.items():
        if not isinstance(text, str):
            raise StoreError(f"Tag {tag} of {point.measurement} must be text, not {text!r}.")
        fault = _tag_fault(text)
        if fault:
            raise StoreError(f"Tag {tag} of {point.measurement} {fault}: {text[:80]!r}. Use a printable name.")
    if type(point.time_ns) is not int or not -MAX_INT <= point.time_ns <= MAX_INT - MILLISECOND_NS:
        raise StoreError(
            f"The time of a point of {point.measurement} must be whole nanoseconds since 1970, not {point.time_ns!r}."
        )
    if not point.fields:
        raise StoreError(f"A point of {point.measurement} has no field; there is nothing to store.")
    if point.measurement == "train" and "step" not in point.fields:
        raise StoreError("A point of train has no step; the step is what names it.")
    for name, value in point.fields.items():
        kind = stored_type(point.measurement, name) if isinstance(name, str) else None
        fault = f"field {name!r} is not in the schema" if kind is None else _value_fault(kind, value)
        if fault:
            raise StoreError(
                f"A point of {point.measurement} cannot be stored: {name if kind else ''}{' ' if kind else ''}{fault}."
            )


def _value_fault(kind: FieldType, value: FieldValue) -> str | None:
    if kind == "bool":
        return None if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if kind == "str":
        if not isinstance(value, str):
            return f"must be text, not {value!r}"
        return None if value.isascii() or _encodable(value) == value else "holds text that is not Unicode"
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind == "float" else int):
        return f"must be {'a number' if kind == 'float' else 'a whole number'}, not {value!r}"
    if isinstance(value, int):
        return None if -MAX_INT - 1 <= value <= MAX_INT else "does not fit in 64 bits"
    return None if math.isfinite(value) else f"is {value}, which no store keeps; write the code {NONFINITE_CODES} in NAME_nf"
