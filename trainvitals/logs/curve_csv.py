"""A curve as CSV: header ``step,loss,grad_norm,lr,throughput`` (+ ``attempt``, + any other metric), ``#`` comments.

An empty cell is "not logged"; ``nan`` is a non-finite value. Read sparsely, as Lightning's CSVLogger writes it.
"""

from __future__ import annotations

import csv
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, parse_number, slug
from trainvitals.records import Step
from trainvitals.schema import TRAIN_METRICS

_ALIASES = {
    "throughput": "tokens_per_s",
    "train_loss": "loss",
    "train_loss_step": "loss",
    "train/loss": "loss",
    "learning_rate": "lr",
    "iteration": "step",
}
_MAX_COLUMNS = 500
_MAX_STEP = 10**15


class CurveCsv:
    """State: the header's columns."""

    name = "curve_csv"
    title = "CSV with a header; Lightning metrics.csv"
    example = "step,loss,grad_norm,lr\\n1,2.5,0.9,0.0003"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("step", "iteration")
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._columns: list[str | None] | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """Only the first line that is no comment can be the header."""
        columns = _header(line)
        return columns is not None and "loss" in columns

    def feed(self, line: str) -> list[Record]:
        if line.startswith("#"):
            return []
        header = _header(line)
        if header is not None:
            self._columns = header  # again in the middle: two files were joined
            return []
        cells = _split(line)
        if self._columns is None or cells is None or len(cells) < 2:
            self.bad_records += 1
            return []
        step: int | None = None
        attempt = 0
        metrics = Metrics()
        for column, cell in zip(self._columns, cells, strict=False):
            if column is None or not cell or cell.lower() in ("null", "none"):
                continue
            value = parse_number(cell)
            if value is None:
                continue
            if column in ("step", "attempt"):
                number = int(value) if 0 <= value < _MAX_STEP and value == int(value) else None
                if column == "step":
                    step = number
                else:
                    attempt = number or 0
            else:
                metrics.put(column, value)
        if step is None:
            self.bad_records += 1
            return []
        return [Step(step, attempt, None, metrics.values, metrics.nonfinite)] if metrics else []

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"columns": self._columns, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._columns = state["columns"]
        self.bad_records = int(state["bad_records"])


def _split(line: str) -> list[str] | None:
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")[:_MAX_COLUMNS]]
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])[:_MAX_COLUMNS]]
    except csv.Error:
        return None


def _header(line: str) -> list[str | None] | None:
    """Column -> metric, None for columns that are none; None as a whole when the line is no header."""
    if "step" not in line and "iteration" not in line:
        return None
    names = [name.lower() for name in _split(line.removeprefix("\ufeff")) or []]
    if len(names) < 2 or not ("step" in names or "iteration" in names):
        return None
    columns: list[str | None] = []
    for name in names:
        metric = _ALIASES.get(name, name)
        if metric not in (*TRAIN_METRICS, "step", "attempt"):
            metric = "" if name in ("time", "timestamp", "date") else slug(metric) or ""
        columns.append(metric if metric and metric not in columns else None)
    return columns
