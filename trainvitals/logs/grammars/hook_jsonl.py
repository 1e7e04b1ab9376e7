"""The hook's own file, one JSON record a line.

``{"type":"header","schema":1,"run":…,"pid":…,"host":…,"started_ns":…,"rank":…,"world_size":…,"hook_version":…}``
``{"type":"step","step":12,"time_ns":…,"values":{…},"nonfinite":{"loss":"nan"}}``
``{"type":"event","kind":…,"time_ns":…,"step":…,"text":…,"data":{…}}``
Any record may carry the cumulative counters ``lost`` and ``errors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.grammars.json_lines import json_object
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import Metrics, as_number, slug
from trainvitals.records import EVENT_KINDS, NONFINITE_CODES, Event, Severity, Step
from trainvitals.schema import TRAIN_METRICS

#: Header fields that ``attempt_start`` passes on.
HEADER_FIELDS = ("run", "pid", "host", "started_ns", "rank", "world_size", "hook_version", "job", "pid_namespace")
_NUMBERS = frozenset({"pid", "started_ns", "rank", "world_size"})
_MAX_HEADER_TEXT = 200
_MAX_STEP = 10**15
#: Attempts are numbered by whoever reads the file.
_KINDS = frozenset(EVENT_KINDS) - {"attempt_start"}
_MAX_DEPTH = 20
#: `worst_rank` is a field of its own in the stores, and no metric.
_OWN_NAMES = frozenset({*TRAIN_METRICS, "worst_rank"})


class HookJsonl:
    """``take_header`` gives a header to whoever numbers the attempts."""

    name = "hook_jsonl"
    title = "the file of Trainvitals' own hook"
    example = '{"type":"step","step":12,"time_ns":1770000000000000000,"values":{"loss":2.5}}'
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ('"type"',)
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._header: dict[str, Any] | None = None
        self._counts = {"lost": 0, "errors": 0}
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        if not line.startswith("{") or '"type"' not in line[:200]:
            return False
        record = json_object(line)
        return record is not None and (
            (record.get("type") == "header" and "schema" in record)
            or (record.get("type") == "step" and isinstance(record.get("values"), dict))
        )

    def take_header(self) -> dict[str, Any] | None:
        """The header read last, once."""
        header, self._header = self._header, None
        return header

    def feed(self, line: str) -> list[Record]:
        record = json_object(line)
        if record is None:
            self.bad_records += 1
            return []
        kind = record.get("type")
        time_ns = checked_time_ns(record.get("time_ns"))
        records: list[Record] = []
        if kind == "header":
            self._header = _header(record)
            self._counts = {"lost": 0, "errors": 0}
        elif kind == "step":
            step = _step(record.get("step"))
            if step is None:
                self.bad_records += 1
            else:
                metrics = _metrics(record)
                records.append(Step(step, 0, time_ns, metrics.values, metrics.nonfinite))
        elif kind == "event" and isinstance(record.get("kind"), str) and record["kind"] in _KINDS:
            data = record.get("data")
            severity = record.get("severity")
            records.append(
                Event(
                    str(record["kind"]),
                    time_ns,
                    step=_step(record.get("step")),
                    severity=Severity(severity) if severity in ("info", "warning", "critical") else Severity.INFO,
                    text=str(record.get("text") or "")[:500],
                    data=_finite(data) if isinstance(data, dict) else {},
                )
            )
        else:
            self.bad_records += 1
        return records + self._rising_counts(record, time_ns)

    def _rising_counts(self, record: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        rose = False
        for name in self._counts:
            count = record.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and self._counts[name] < count < _MAX_STEP:
                self._counts[name] = count
                rose = True
        if not rose:
            return []
        text = f"The hook lost {self._counts['lost']} records and met {self._counts['errors']} errors since its start."
        return [Event("watch", time_ns, severity=Severity.WARNING, text=text, data=dict(self._counts))]

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"header": self._header, "counts": self._counts, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._header = state["header"]
        self._counts = {"lost": int(state["counts"]["lost"]), "errors": int(state["counts"]["errors"])}
        self.bad_records = int(state["bad_records"])


def _header(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are of their kind; readers may rely on it."""
    header: dict[str, Any] = {}
    for name in HEADER_FIELDS:
        value = record.get(name)
        if name == "started_ns":
            value = checked_time_ns(value)
        elif name in _NUMBERS:
            value = _step(value)
        elif isinstance(value, str):
            value = value[:_MAX_HEADER_TEXT] or None
        elif name != "job" or isinstance(value, bool) or not isinstance(value, int):
            value = None
        if value is not None:
            header[name] = value
    return header


def _step(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_STEP:
        return value
    return None


def _metrics(record: Mapping[str, Any]) -> Metrics:
    metrics = Metrics()
    values, nonfinite = record.get("values"), record.get("nonfinite")
    if isinstance(nonfinite, dict):
        for key, kind in nonfinite.items():
            name = key if key in _OWN_NAMES else slug(key)
            if name and isinstance(kind, str) and kind in NONFINITE_CODES:
                metrics.put(name, float(kind))
    if isinstance(values, dict):
        for key, raw in values.items():
            name, value = key if key in _OWN_NAMES else slug(key), as_number(raw)
            if name and value is not None:
                metrics.put(name, value)
    return metrics


def _finite(value: Any, depth: int = 0) -> Any:
    """JSON without NaN: a non-finite number becomes null, and so does what is nested too deeply to be told."""
    if isinstance(value, (dict, list)) and depth >= _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: _finite(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item, depth + 1) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value
