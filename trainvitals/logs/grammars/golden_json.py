"""Megatron-LM's golden values: ``{"lm loss": {"start_step": 1, "end_step": 100, "step_interval": 5, "values": {"1": 10.8, "2": "nan"}}}``.

Metric by metric, each with its values by step (older files: a list), pretty-printed or on one line. The text ``"nan"`` is padding, "not
logged"; a bare NaN is a value. What belongs to one step is only known at the end, so the steps come at the end of the file.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.grammars.step_rows import Row, step_number
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import parse_number

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^"{}\[\],:\s]+')
_CLAIM = re.compile(r'"start_step"\s{0,9}:\s{0,9}\d')
_MAX_VALUES = 2_000_000
_MAX_DEPTH = 8


class GoldenJson:
    """State: where in the document the reader stands, and the values so far (at most ``_MAX_VALUES``; more count as broken)."""

    name = "golden_json"
    title = "Megatron-LM golden values (JSON)"
    example = '{"lm loss": {"start_step": 1, "end_step": 2, "step_interval": 1, "values": {"1": 10.8, "2": "nan", "3": 10.7}}}'
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ('"start_step"',)
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ('": {',)

    def __init__(self, times: LineTimes) -> None:
        self._names: list[str] = []
        self._key = ""
        self._has_key = False
        self._counts = {"start_step": 1, "step_interval": 1, "index": 0}
        self._values: dict[int, dict[str, float]] = {}
        self._kept = 0
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """Its first lines: ``"lm loss": {`` alone is anybody's, ``"start_step": 1`` is not."""
        return _CLAIM.search(line) is not None and ('"end_step"' in line or line.strip().startswith('"start_step"'))

    def feed(self, line: str) -> list[Record]:
        for found in _PIECE.finditer(line):
            self._piece(found[0])
        return []

    def _piece(self, text: str) -> None:
        if text in "{[":
            if len(self._names) < _MAX_DEPTH:
                self._names.append(self._key)
            if self._key != "values":
                self._counts = {"start_step": 1, "step_interval": 1, "index": 0}
            self._has_key, self._key = False, ""
        elif text in "}]":
            del self._names[-1:]
            self._has_key, self._key = False, ""
        elif text == ",":
            self._has_key, self._key = False, ""
        elif text == ":":
            self._has_key = True
        elif not self._has_key and text.startswith('"'):
            self._key = text[1:-1]
        else:
            self._value(text)

    def _value(self, text: str) -> None:
        if len(self._names) < 2 or self._names[-1] != "values":
            if self._key in self._counts and (number := step_number(text)) is not None:
                self._counts[self._key] = number
            return
        if self._has_key:
            step = step_number(self._key)
        else:
            step = self._counts["start_step"] + self._counts["index"] * self._counts["step_interval"]
            self._counts["index"] += 1
        is_padding = text.startswith('"') and text.strip('"').lower() == "nan"
        value = parse_number(text)
        if is_padding or value is None:
            return
        if step is None or self._kept >= _MAX_VALUES:
            self.bad_records += 1
            return
        self._kept += 1
        self._values.setdefault(step, {})[self._names[-2]] = value

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        records: list[Record] = []
        for step in sorted(self._values):
            row = Row(step)
            for name, value in self._values[step].items():
                row.put(name, value)
            records.extend(row.records())
        self._values.clear()
        return records

    def to_state(self) -> dict[str, Any]:
        values = [[step, [[name, repr(value)] for name, value in row.items()]] for step, row in self._values.items()]
        return {
            "names": list(self._names), "key": self._key, "has_key": self._has_key, "counts": dict(self._counts),
            "values": values, "kept": self._kept, "bad_records": self.bad_records,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._names, self._key, self._has_key = list(state["names"]), str(state["key"]), bool(state["has_key"])
        self._counts = {name: int(count) for name, count in state["counts"].items()}
        self._values = {int(step): {name: float(value) for name, value in row} for step, row in state["values"]}
        self._kept, self.bad_records = int(state["kept"]), int(state["bad_records"])
