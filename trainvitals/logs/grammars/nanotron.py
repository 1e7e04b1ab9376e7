"""nanotron: ``iteration: 1200 / 9000 | consumed_tokens: 1.5G | … | lm_loss: 2.61 | lr: 2e-05 | … | grad_norm: 0.91``.

Numbers are printed with three digits and a unit (``human_format`` in nanotron/logging), so exact repeats are normal.
Older versions print plain numbers. ``tokens_per_sec`` is that of all GPUs. The last pipeline stage prints.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, parse_large_number, with_iso_dates
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe
from trainvitals.records import Event, Step

_MARKER = re.compile(r"\biteration: (\d{1,15}) / \d{1,15} \| (?=[a-z_]{2,60}: )", re.ASCII)
_SAVE = re.compile(r"\bSaving checkpoint at (\S{1,1000})")
_LOAD = re.compile(r"\bLoading (?:checkpoint|weights) from (\S{1,1000})")
_START_STEP = re.compile(r"\bstart_iteration_step: (\d{1,15})\b", re.ASCII)
_LAST_NUMBER = re.compile(r"(\d{1,15})[/:]*\Z", re.ASCII)
_START = "[Start training]"
_NAMES: Names = {
    "lm_loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "elapsed_time_per_iteration_ms": ("step_time_s", 1e-3),
    "time_per_iteration_ms": ("step_time_s", 1e-3),
    "tokens_per_sec": ("tokens_per_s", 1.0),
    "model_tflops_per_gpu": ("tflops_per_gpu", 1.0),
    "consumed_tokens": ("tokens", 1.0),
    "consumed_samples": ("samples", 1.0),
    "eta": LEFT_OUT,
}
_MAX_CELLS = 200


class Nanotron(LineByLine):
    """State: the checkpoint that was loaded last."""

    name = "nanotron"
    title = "nanotron"
    example = (
        "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0]: iteration: 1200 / 9000 | consumed_tokens: 1.5G | "
        "elapsed_time_per_iteration_ms: 9.8K | tokens_per_sec: 214K | tokens_per_sec_per_gpu: 6.7K | global_batch_size: 512 | "
        "lm_loss: 2.61 | lr: 2e-05 | model_tflops_per_gpu: 190 | hardware_tflops_per_gpu: 190 | grad_norm: 0.91"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("iteration: ",)
    prelude: ClassVar[tuple[str, ...]] = (_START, "Loading checkpoint from", "Loading weights from")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._loaded: str | None = None

    @staticmethod
    def claims(line: str) -> bool:
        return "iteration: " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if found := _MARKER.search(line) if "iteration: " in line else None:
            time_ns = self._time(line[: found.start()])
            pairs = [_pair(cell) for cell in line[found.end() :].split("|")[:_MAX_CELLS]]
            metrics = metrics_of(pairs, _NAMES, parse_large_number)
            if "loss" not in metrics and any(key.startswith("val") for key, _ in pairs):
                data = json_safe(metrics.values)
                return [message(line.strip(), data, int(found[1]), time_ns)]
            return [Step(int(found[1]), 0, time_ns, metrics.values, metrics.nonfinite)]
        return self._side_line(line)

    def _time(self, text: str) -> int | None:
        return self._times.find(with_iso_dates(text[-200:]))

    def _side_line(self, line: str) -> list[Record]:
        if _START in line:
            return [self._start(line)]
        if found := _SAVE.search(line):
            return [phase("checkpoint", "begin", line.strip(), _step_of(found[1]), self._time(line[:80]), path=found[1])]
        if found := _LOAD.search(line):
            self._loaded = found[1].rstrip(":")
        return []

    def _start(self, line: str) -> Record:
        time_ns = self._time(line[:200])
        found = _START_STEP.search(line)
        loaded, self._loaded = self._loaded, None
        if found is None or int(found[1]) == 0:
            return phase("start", "begin", line.strip(), None, time_ns)
        data = {"path": loaded} if loaded else {}
        return Event("resume", time_ns, step=int(found[1]), text=line.strip()[:500], data=data)

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "loaded": self._loaded}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._loaded = state["loaded"]


def _pair(cell: str) -> tuple[str, str]:
    key, _, value = cell.partition(":")
    return key.strip(), value.strip()


def _step_of(path: str) -> int | None:
    found = _LAST_NUMBER.search(path)
    return int(found[1]) if found else None
