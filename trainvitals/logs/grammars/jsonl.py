"""Plain JSON lines: one object a line with a step and a loss, as loggers, experiment trackers and home-made scripts write it.

Nested objects are flattened with ``/``. Known by their keys: Weights & Biases' history, LLaMA-Factory's ``trainer_log.jsonl``,
mmengine's ``scalars.json`` and mmcv's ``*.log.json``, detectron2's ``metrics.json``, exports ``{"name": …, "value": …, "step": …}``.
Between them may stand whatever a launcher prints. Bare NaN and Infinity are accepted; null is "not logged".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record
from trainvitals.logs.grammars.metric_names import STEP_NAMES, SUMMARY_MARKS, meaning_of
from trainvitals.logs.grammars.step_rows import MAX_STEP, EpochSteps, Row, RowJoiner, step_number, time_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import as_number

_STEP_KEY = re.compile(r'step|iter|update|"it"|"epoch"', re.IGNORECASE)
#: In front of an object: nothing, or what a logger puts there. Cells (``|``) and ``:::MLLOG`` are other formats.
_OBJECT = re.compile(r'(?!:::)[^{|\[]{0,200}(?:\[[^\[\]{|]{0,100}\][^{|\[]{0,100}){0,4}((?:\[\s{0,4})?\{\s{0,4}")')
_MAX_OBJECTS = 100_000
_MAX_DEPTH = 6
_MAX_KEYS = 1000
#: Keys that name the metric whose value stands under ``value``.
_NAME_KEYS = ("tag", "metric", "metric_name", "name", "key")


class Jsonl:
    """State: the step that is held, and where the epoch began."""

    name = "jsonl"
    title = "JSON lines with a step and a loss: wandb history, LLaMA-Factory, mmengine, detectron2, home-made loggers"
    example = '{"step": 120, "loss": 2.5, "lr": 0.0003, "grad_norm": 0.9, "time": 1770000000.5}'
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = (
        'step"',
        'steps"',
        'Step"',
        'Steps"',
        '"iter',
        '"Iter',
        'update"',
        'updates"',
        '"it"',
        '"epoch"',
    )
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._joiner = RowJoiner()
        self._epochs = EpochSteps()
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """An object with a step and a training loss: no other program's JSON has both."""
        for flat in _objects(line) or ():
            row = _row(flat, LineTimes())
            if row is not None and row.is_step and any("loss" in name for name in row.values):
                return True
        return False

    def feed(self, line: str) -> list[Record]:
        objects = _objects(line)
        if objects is None:
            self.bad_records += 1
            return []
        records: list[Record] = []
        for flat in objects:
            row = _row(flat, self._times) if SUMMARY_MARKS.isdisjoint(flat) else None
            if row is None:
                self.bad_records += _has_no_real_step(flat)
                continue
            if row.time_ns is None:
                row.time_ns = self._times.find(line[: line.find("{")])
            if (flat.get("mode") == "val" and "iter" in flat) or (_is_evaluation(flat) and row.step < self._epochs.last):
                row.step = self._epochs.last  # mmcv's ``iter`` is that of the validation, mmengine's ``step`` the epoch
            elif not _counts_epochs(flat):
                row.step = self._epochs.number(row.step, as_number(flat.get("epoch")))
            records.extend(self._joiner.add(row))
        return records

    def idle(self) -> list[Record]:
        return self._joiner.flush()

    def finish(self) -> list[Record]:
        return self._joiner.flush()

    def to_state(self) -> dict[str, Any]:
        return {"joiner": self._joiner.to_state(), "epochs": self._epochs.to_state(), "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._joiner.restore(state["joiner"])
        self._epochs.restore(state["epochs"])
        self.bad_records = int(state["bad_records"])


def _has_no_real_step(flat: Mapping[str, Any]) -> bool:
    """Metrics of a step whose number is none (negative, 4.5, NaN, beyond all bounds); null and texts are "not logged"."""
    if not SUMMARY_MARKS.isdisjoint(flat):
        return False
    has_number = any(meaning_of(name).kind == "step" and as_number(value) is not None for name, value in flat.items())
    return has_number and any(meaning_of(name).is_of_a_step and as_number(value) is not None for name, value in flat.items())


def _counts_epochs(flat: Mapping[str, Any]) -> bool:
    return not any(meaning_of(name).kind == "step" for name in flat)


def _is_evaluation(flat: Mapping[str, Any]) -> bool:
    """mmengine's rows of an evaluation have the times of one, and nothing that is of a training."""
    return "data_time" in flat and "time" in flat and not any("loss" in name or name in ("lr", "iter") for name in flat)


def _objects(line: str) -> list[dict[str, Any]] | None:
    """The objects of a line, flat, mostly one; none when it is no JSON, None when it is torn JSON.

    A list of objects, and an object behind the prefix of a logger, are taken too.
    """
    found = _OBJECT.match(line) if "{" in line else None
    if found is None or _STEP_KEY.search(line) is None:
        return []
    try:
        loaded = json.loads(line[found.start(1) :].strip(" \t,"))
    except (ValueError, RecursionError):
        return [] if found.start(1) > 1 else None
    items = loaded if isinstance(loaded, list) else [loaded]
    return [dict(_flat(item, "", 0)) for item in items[:_MAX_OBJECTS] if isinstance(item, dict) and not _is_of_others(item)]


def _is_of_others(item: Mapping[str, Any]) -> bool:
    """The hook's own file, an event file and trainer_state.json have grammars of their own."""
    return "tfevents" in item or "log_history" in item or ("type" in item and "values" in item)


def _flat(item: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for count, (key, value) in enumerate(item.items()):
        if count >= _MAX_KEYS:
            return
        if isinstance(value, dict):
            if depth < _MAX_DEPTH:
                yield from _flat(value, f"{prefix}{key}/", depth + 1)
        elif not isinstance(value, list):
            yield prefix + key, value


def _row(flat: Mapping[str, Any], times: LineTimes) -> Row | None:
    """The row that the keys tell; None without a step."""
    best: tuple[int, int] | None = None
    time_ns: int | None = None
    cells: list[tuple[str, float]] = []
    for name, value in flat.items():
        if name == "global_step/max_steps" and isinstance(value, str):  # ms-swift: "601/2161"
            name, value = "global_step", value.partition("/")[0]
        meaning = meaning_of(name.rpartition("/")[2] if name.startswith(("metrics/", "data/")) else name)
        if meaning.kind == "step":
            step = step_number(value)
            if step is not None and (best is None or meaning.rank < best[0]):
                best = (meaning.rank, step)
            continue
        if meaning.kind == "time":
            found = time_of(value, times)
            if found is not None:
                time_ns = found if time_ns is None else time_ns
                continue
            if name != "time" or "data_time" not in flat:
                continue
            name = "step_time_s"  # mmengine and detectron2: seconds of an iteration
        number = as_number(value)
        if number is not None:
            cells.append((name, number))
    if best is None:
        epoch = flat.get("epoch")  # one line an epoch; a share of an epoch (0.25, 1.0) counts nothing
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < MAX_STEP:
            return None
        best = (len(STEP_NAMES), epoch)
    row = Row(best[1], 0, time_ns)
    named = next((flat[key] for key in _NAME_KEYS if isinstance(flat.get(key), str)), None)
    if named is not None and (number := as_number(flat.get("value"))) is not None:
        row.put(named, number)
        return row
    is_validation = flat.get("mode") == "val" or flat.get("split") in ("val", "valid", "validation", "eval", "test")
    is_validation = is_validation or _is_evaluation(flat)
    for name, number in cells:
        row.put(f"val/{name}" if is_validation else name, number)
    return row
