"""A table with a header: ``step,loss,grad_norm,lr,throughput`` (+ ``attempt``, + any other metric), and what loggers write.

Read as well: Lightning's ``metrics.csv`` in all its shapes, Keras' CSVLogger (one row an epoch: the step is the epoch), exports of
Weights & Biases and pandas, TensorBoard's ``Wall time,Step,Value`` (one tag that is not named: read as the loss), tables with the
columns name and value; commas, semicolons or tabs; ``#`` comments. Rows of one step that tell different metrics are one step.

An empty cell is "not logged". ``nan`` is a non-finite value, with two exceptions in tables that hold other columns than a plain
curve's, because joined tables are padded with it: (1) a row of which no cell is a number that was one in the last row with a
loss: another part of the program wrote it; (2) a loss that is ``nan`` from the first row on and is a number within ``_MAX_LEADING``
rows is logged every few rows: its ``nan`` is padding until it was missing four times as long as ever before.
"""

from __future__ import annotations

import csv
import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.grammars.metric_names import Meaning, meaning_of
from trainvitals.logs.grammars.step_rows import EpochSteps, Row, RowJoiner, step_number, time_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import parse_number, slug
from trainvitals.schema import TRAIN_METRICS

_MAX_COLUMNS = 500
_MAX_LEADING = 200
_SEPARATORS = (",", ";", "\t")
_NONE = Meaning("none")
_OF_EPOCH = re.compile(r"(?<=loss)[_/. -]epoch\Z", re.IGNORECASE)
#: The columns of a plain curve: there every row is a step, and ``nan`` always a non-finite value.
_PLAIN = frozenset({*TRAIN_METRICS, "step", "iteration", "throughput", "attempt", "learning_rate"})
_BATCH_COLUMNS = frozenset({"batch", "batch_id", "batch id", "batch_index", "minibatch", "mini_batch"})
_NAME_COLUMNS = frozenset({"tag", "metric", "metric_name", "name", "key"})


class CurveCsv:
    """State: the header, the step that is held, and what is known of the padding."""

    name = "curve_csv"
    title = "CSV with a header: curves, Lightning metrics.csv, Keras CSVLogger, exports of trackers"
    example = "step,loss,grad_norm,lr\n1,2.5,0.9,0.0003"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("step", "Step", "STEP", "iter", "Iter", "epoch", "Epoch", "update", "Update")
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._table: _Table | None = None
        self._joiner = RowJoiner()
        self._epochs = EpochSteps()
        self._padding = _Padding()
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """Only the first line that is no comment can be the header."""
        return _Table.of_header(line) is not None

    def feed(self, line: str) -> list[Record]:
        if line.startswith("#"):
            return []
        if self._table is None or line[:1].isalpha() or line[:1] in '"_,\ufeff':
            table = _Table.of_header(line)
            if table is not None:  # again in the middle: it grew, its columns moved, or two files were joined
                found = self._joiner.flush()
                if self._table is None or set(table.meanings) != set(self._table.meanings):
                    self._padding.columns_changed()
                self._table = table
                return found
        cells = _split(line, self._table.separator) if self._table is not None else None
        if self._table is None or cells is None or len(cells) < 2:
            self.bad_records += 1
            return []
        row, is_full = self._table.row(cells, self._times)
        if row is None:
            self.bad_records += 1
            return []
        if "epoch" in row.values and self._table.has_step:
            row.step = self._epochs.number(row.step, row.values["epoch"][1])
        if self._table.is_plain:
            row.is_step = bool(row.values)
            return [*self._joiner.flush(), *row.records()] if is_full else self._joiner.add(row)
        return [record for ready in self._padding.judge(row) for record in self._joiner.add(ready)]

    def idle(self) -> list[Record]:
        return self.finish()

    def finish(self) -> list[Record]:
        found = [record for row in self._padding.give_up() for record in self._joiner.add(row)]
        return found + self._joiner.flush()

    def to_state(self) -> dict[str, Any]:
        return {
            "header": self._table.header if self._table is not None else None,
            "joiner": self._joiner.to_state(),
            "padding": self._padding.to_state(),
            "epochs": self._epochs.to_state(),
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._table = _Table.of_header(state["header"]) if state["header"] is not None else None
        self._joiner.restore(state["joiner"])
        self._padding.restore(state["padding"])
        self._epochs.restore(state["epochs"])
        self.bad_records = int(state["bad_records"])


class _Table:
    """A header, understood."""

    def __init__(self, header: str, separator: str, names: list[str]) -> None:
        self.header = header
        self.separator = separator
        self.names = names
        lower = [name.lower() for name in names]
        self.is_plain = set(lower) <= _PLAIN
        self.meanings = [meaning_of(name) for name in names]
        self.name_at = next((at for at, name in enumerate(lower) if name in _NAME_COLUMNS), None)
        self.value_at = lower.index("value") if "value" in lower else None
        if self.value_at is not None and {meaning.kind for meaning in self.meanings} <= {"step", "time", "none"}:
            self.meanings[self.value_at] = meaning_of("loss")
        if not any(meaning.kind == "train" and meaning.is_of_a_step and "loss" in meaning.metric for meaning in self.meanings):
            # Lightning with fewer batches an epoch than it logs steps: the mean of the epoch is the only training loss.
            self.meanings = [meaning_of(_OF_EPOCH.sub("", name)) for name in names]
        told = {meaning.metric for meaning in self.meanings if meaning.kind == "train"}
        if "total" in lower and not any("loss" in metric for metric in told) and {"lr", "grad_norm"} & told:
            # Beside what only a training loop logs, the total is that of the losses.
            self.meanings[lower.index("total")] = meaning_of("loss")
        steps = [(meaning.rank, at) for at, meaning in enumerate(self.meanings) if meaning.kind == "step"]
        if not steps and "epoch" in lower:  # a batch within its epoch is numbered on
            steps = [(0, at) for at, name in enumerate(lower) if name in _BATCH_COLUMNS][:1]
        self.has_step = bool(steps)
        self.step_at = min(steps)[1] if steps else (lower.index("epoch") if "epoch" in lower else None)
        seen: set[str] = set()
        for at, meaning in enumerate(self.meanings):
            # Two runs in one export: the second run's column keeps its own name.
            if meaning.kind == "train" and meaning.metric in seen and " - " in names[at]:
                self.meanings[at] = Meaning("train", slug(names[at]) or "x_other_run", is_of_a_step=False)
            seen.add(meaning.metric)

    @property
    def is_long(self) -> bool:
        return self.name_at is not None and self.value_at is not None

    @staticmethod
    def of_header(line: str) -> _Table | None:
        """None when the line is no header of a curve: it needs a step (or an epoch) and a training loss."""
        lower = line[:20_000].lower()
        if "step" not in lower and "iter" not in lower and "epoch" not in lower and "update" not in lower:
            return None
        text = line.removeprefix("\ufeff")
        for separator in _SEPARATORS:
            names = _split(text, separator) if separator in text else None
            if names is None or len(names) < 2 or any(parse_number(name) is not None for name in names if name):
                continue
            table = _Table(line, separator, names)
            has_loss = any(m.kind == "train" and m.metric == "loss" for m in table.meanings) or any(
                m.kind == "train" and m.is_of_a_step and "loss" in m.metric for m in table.meanings
            )
            is_counted = any(meaning.kind == "step" for meaning in table.meanings)
            if table.step_at is not None and (has_loss or (table.is_long and is_counted)):
                return table
        return None

    def row(self, cells: list[str], times: LineTimes) -> tuple[Row | None, bool]:
        """The row, None without a step; and whether each cell holds something."""
        assert self.step_at is not None
        step = step_number(cells[self.step_at]) if self.step_at < len(cells) else None
        if step is None:
            return None, False
        row = Row(step)
        is_full = True
        if self.is_long and self.name_at is not None and self.value_at is not None:
            value = _number(cells[self.value_at], self.separator) if max(self.name_at, self.value_at) < len(cells) else None
            if value is not None:
                row.put(cells[self.name_at], value)
        for at, (meaning, cell) in enumerate(zip(self.meanings, cells, strict=False)):
            if at == self.step_at or meaning is _NONE or meaning.kind == "none":
                continue
            if not cell or cell.lower() in ("null", "none"):
                is_full = False
            elif meaning.kind == "time":
                row.time_ns = time_of(cell, times) if row.time_ns is None else row.time_ns
            elif meaning.kind == "attempt":
                row.attempt = step_number(cell) or 0
            elif (value := _number(cell, self.separator)) is not None:
                row.take(self.names[at], meaning, value)
        return row, is_full


class _Padding:
    """Tells a ``nan`` that only fills a cell from one that was logged; the rules stand at the top of the file."""

    def __init__(self) -> None:
        self._companions: set[str] = set()
        self._leading: list[Row] = []
        self._is_sparse = False
        self._has_loss = False
        self._gap = self._longest = 0

    def columns_changed(self) -> None:
        self._companions.clear()

    def judge(self, row: Row) -> list[Row]:
        """The rows that are certain now, in order."""
        loss = row.values.get("loss")
        if loss is None or loss[1] == loss[1]:
            if loss is not None:
                self._companions = _finite(row)
                self._longest = max(self._longest, self._gap) if self._has_loss else self._longest
                self._has_loss, self._gap = True, 0
                return [*self._padded_leading(), row]
            return [row] if not self._leading else self._hold(row)
        finite = _finite(row)
        if finite and self._companions and not finite & self._companions:
            return [_without_nan(row)]
        if self._has_loss and self._is_sparse:
            self._gap += 1
            return [_without_nan(row)] if self._gap <= 4 * max(self._longest, len(self._leading), 1) else [row]
        return self._hold(row) if not self._has_loss and finite else [row]

    def _hold(self, row: Row) -> list[Row]:
        self._leading.append(row)
        if len(self._leading) <= _MAX_LEADING:
            return []
        return self.give_up()

    def _padded_leading(self) -> list[Row]:
        if not self._leading:
            return []
        self._is_sparse = True
        self._longest = max(self._longest, len(self._leading))
        held, self._leading = self._leading, []
        return [_without_nan(row) for row in held]

    def give_up(self) -> list[Row]:
        """The rows that were held, as they stand: no loss came."""
        self._has_loss = self._has_loss or bool(self._leading)
        held, self._leading = self._leading, []
        return held

    def to_state(self) -> dict[str, Any]:
        return {
            "companions": sorted(self._companions), "leading": [row.to_state() for row in self._leading],
            "is_sparse": self._is_sparse, "has_loss": self._has_loss, "gap": self._gap, "longest": self._longest,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._companions = set(state["companions"])
        self._leading = [Row.of_state(row) for row in state["leading"]]
        self._is_sparse, self._has_loss = bool(state["is_sparse"]), bool(state["has_loss"])
        self._gap, self._longest = int(state["gap"]), int(state["longest"])


def _finite(row: Row) -> set[str]:
    """Metrics of the row that are numbers, but for the loss and the epoch, which stand in every row."""
    found = {name for name, (_, value) in row.values.items() if value - value == 0 and name not in ("loss", "epoch")}
    return found | {f"validation/{name}" for name, value in row.validation.items() if value - value == 0}


def _without_nan(row: Row) -> Row:
    row.values = {name: pair for name, pair in row.values.items() if pair[1] == pair[1]}
    row.validation = {name: value for name, value in row.validation.items() if value == value}
    row.is_step = any(meaning_of(name).is_of_a_step for name in row.values)
    return row


def _number(cell: str, separator: str) -> float | None:
    if separator == ";" and "." not in cell:
        cell = cell.replace(",", ".")  # a decimal comma
    return parse_number(cell[7:].rstrip(")") if cell.startswith("tensor(") else cell)


def _split(line: str, separator: str) -> list[str] | None:
    if '"' not in line:
        return [cell.strip() for cell in line.split(separator)[:_MAX_COLUMNS]]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])[:_MAX_COLUMNS]]
    except csv.Error:
        return None
