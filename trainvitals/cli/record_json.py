"""Records as the command line prints them: one JSON object a line, times RFC 3339 in UTC or null, no NaN."""

from __future__ import annotations

import json
import math
from typing import Any

from trainvitals.logs.times import rfc3339
from trainvitals.records import Event, Step

_MINUTE_US = 60_000_000
_SECOND_US = 1_000_000
_MAX_LAYOUTS = 64


def as_json(record: Step | Event) -> dict[str, Any]:
    """The record as a mapping of JSON values."""
    if isinstance(record, Step):
        return {
            "type": "step",
            "step": record.step,
            "attempt": record.attempt,
            "time": rfc3339(record.time_ns),
            "values": dict(record.values),
            "nonfinite": dict(record.nonfinite),
        }
    return {
        "type": "event",
        "kind": record.kind,
        "step": record.step,
        "time": rfc3339(record.time_ns),
        "text": record.text.encode("utf-8", "replace").decode(),
        "data": dict(record.data),
    }


class RecordLines:
    """Writes records as ``json.dumps`` writes ``as_json``, several times as fast for the steps of a log.

    A log's steps have the same few sets of names: the text between their numbers is made once.
    """

    def __init__(self) -> None:
        self._encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._layouts: dict[tuple[str, ...], str] = {}
        self._minute = -1
        self._minute_text = ""

    def line(self, record: Step | Event) -> str:
        """One line with its end. Raises ``ValueError`` for a number that JSON does not have."""
        if isinstance(record, Step):
            values = record.values
            numbers = values.values()
            layout = self._layouts.get(tuple(values)) or self._layout(tuple(values))
            try:
                # A sum is finite only when all its parts are; an int's text is not a float's.
                texts = tuple(map(float.__repr__, numbers)) if math.isfinite(sum(numbers)) else None
            except (TypeError, OverflowError):
                texts = None
            if texts is not None:
                nonfinite = self._encoder.encode(dict(record.nonfinite)) if record.nonfinite else "{}"
                time = "null" if record.time_ns is None else self._time(record.time_ns)
                return (
                    f'{{"type":"step","step":{record.step},"attempt":{record.attempt},"time":{time},"values":{{{layout % texts}}},'
                    f'"nonfinite":{nonfinite}}}\n'
                )
        return self._encoder.encode(as_json(record)) + "\n"

    def _layout(self, names: tuple[str, ...]) -> str:
        layout = ",".join(self._encoder.encode(name).replace("%", "%%") + ":%s" for name in names)
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[names] = layout
        return layout

    def _time(self, time_ns: int) -> str:
        minute, rest = divmod(time_ns // 1000, _MINUTE_US)
        if minute != self._minute:
            self._minute_text = (rfc3339(minute * _MINUTE_US * 1000) or "")[: len("2026-01-02T03:04:")]
            self._minute = minute
        second, microsecond = divmod(rest, _SECOND_US)
        if microsecond:
            return f'"{self._minute_text}{second:02d}.{microsecond:06d}Z"'
        return f'"{self._minute_text}{second:02d}Z"'
