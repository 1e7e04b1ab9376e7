"""``trainer_state.json``: the rows of ``log_history``, read line by line as the Trainer writes it (``indent=2``).

A document on one line is read too, if it is shorter than the framer's cap. Bare NaN and Infinity are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message
from trainvitals.logs.grammars.huggingface_entry import ZeroLoss, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import as_number, json_safe, parse_number
from trainvitals.records import Step

_ENTRY = re.compile(r'"([^"\\]{1,200})":\s*(.{1,200}?),?\Z')
_KNOWN = re.compile(r'"(?:best_metric|best_global_step|best_model_checkpoint|log_history)":')
#: Where a document on one line does not begin with one of those.
_HISTORY = re.compile(r'"log_history":\s{0,4}\[\s{0,4}\{"')
_MAX_KEYS = 500


class HuggingFaceState:
    """State: whether the list was reached, and the row being read."""

    name = "huggingface_state"
    title = "Hugging Face Trainer, trainer_state.json"
    example = '{"log_history": [{"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 1e-05, "loss": 2.5, "step": 10}]}'
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ('"best_', '"log_history"')
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._is_inside = False
        self._row: dict[str, float] | None = None
        self._zero = ZeroLoss()
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        if '"' not in line:
            return False
        return _KNOWN.match(line.lstrip(" {")) is not None or (
            line.lstrip().startswith('{"') and _HISTORY.search(line) is not None
        )

    def feed(self, line: str) -> list[Record]:
        text = line.strip()
        if not self._is_inside:
            if '"log_history"' not in text:
                return []
            if text.endswith("["):
                self._is_inside = True
                return []
            return self._document(text)
        if text == "{":
            self._row = {}
        elif text in ("}", "},"):
            row, self._row = self._row, None
            return self._entry(row) if row else []
        elif text in ("]", "],") and self._row is None:
            self._is_inside = False
        elif self._row is not None and len(self._row) < _MAX_KEYS and (found := _ENTRY.match(text)):
            value = parse_number(found[2])
            if value is not None:
                self._row[found[1]] = value
        return []

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def _document(self, text: str) -> list[Record]:
        try:
            history = json.loads(text)["log_history"]
            rows = [row for row in history if isinstance(row, dict)]
        except (ValueError, RecursionError, KeyError, TypeError):
            self.bad_records += 1
            return []
        numbers = [{key: number for key, raw in row.items() if (number := as_number(raw)) is not None} for row in rows]
        return [record for row in numbers for record in self._entry(row)]

    def _entry(self, row: Mapping[str, float]) -> list[Record]:
        step = row.get("step", -1.0)
        if not 0 <= step < 10**15:
            self.bad_records += 1
            return []
        if "loss" in row:
            metrics = metrics_of([(key, value) for key, value in row.items() if key != "step"])
            self._zero.unmask(metrics)
            return [Step(int(step), 0, None, metrics.values, metrics.nonfinite)]
        if "eval_loss" in row:
            values = {"validation_loss" if key == "eval_loss" else key: value for key, value in row.items() if key != "step"}
            return [message("evaluation", json_safe(values), int(step))]
        return []

    def to_state(self) -> dict[str, Any]:
        zero = [self._zero.last_nonzero, self._zero.zeros]
        return {"is_inside": self._is_inside, "row": self._row, "zero": zero, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._is_inside = bool(state["is_inside"])
        self._row = state["row"]
        self._zero.last_nonzero, self._zero.zeros = state["zero"]
        self.bad_records = int(state["bad_records"])
