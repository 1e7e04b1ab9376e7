"""MaxText: ``completed step: 7, seconds: 8.500, TFLOP/s/device: 300.1, Tokens/s/device: 15000.2, total_weights: …, loss: 9.750``.

The line is printed bare, or behind a glog prefix without a year. Older versions print neither tokens nor weights, forks add
``lm_loss``, ``lr``, ``grad_norm``. Tokens are per device, and stand as ``tokens_per_s`` because no other rate is printed.
A loss of 0.000 is a loss: MaxText's tests with synthetic data print it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event, Step

_MARKER = re.compile(r"(?<![A-Za-z])completed step: (\d{1,15}), (?=seconds: )", re.ASCII)
_EVAL = re.compile(r"\beval metrics after step: (\d{1,15}), ?", re.ASCII)
_SAVED = re.compile(r"\bsaved a checkpoint at step (\d{1,15})", re.ASCII)
_RESTORE = re.compile(r"\brestoring from this run's directory (?:latest )?step\s{1,20}(\d{1,15})", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "seconds": ("step_time_s", 1.0),
    "TFLOP/s/device": ("tflops_per_gpu", 1.0),
    "TFLOP/s": ("tflops_per_gpu", 1.0),
    "Tokens/s/device": ("tokens_per_s", 1.0),
    "Samples/s/device": ("samples_per_s", 1.0),
    "lr": ("lr", 1.0),
    "learning_rate": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
}


class MaxText(LineByLine):
    """No state: each line stands for itself."""

    name = "maxtext"
    title = "MaxText"
    example = (
        "I0102 03:04:05.678901 140000 metric_logger.py:226] completed step: 7, seconds: 8.500, TFLOP/s/device: 300.100, "
        "Tokens/s/device: 15000.250, total_weights: 1048576, loss: 9.750"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("completed step: ",)
    prelude: ClassVar[tuple[str, ...]] = ("restoring from this run's directory", "saved a checkpoint at step")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "completed step: " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = list(_MARKER.finditer(line)) if "completed step: " in line else []
        if found:
            # Two hosts may write into one line: each marker begins a record of its own.
            ends = [marker.start() for marker in found[1:]] + [len(line)]
            starts = [0] + [marker.end() for marker in found[:-1]]
            return [self._step(*cut, line) for cut in zip(found, starts, ends, strict=True)]
        return self._side_line(line) if "step" in line else []

    def _step(self, marker: re.Match[str], start: int, end: int, line: str) -> Step:
        time_ns = self._times.find(line[max(start, marker.start() - 200) : marker.start()])
        metrics = metrics_of(pairs_of(line[marker.end() : end]), _NAMES)
        return Step(int(marker[1]), 0, time_ns, metrics.values, metrics.nonfinite)

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        if found := _EVAL.search(line):
            values: dict[str, float] = {}
            for key, raw in pairs_of(line[found.end() :]):
                value = parse_number(raw)
                if value is not None:
                    values.setdefault("validation_loss" if key in ("loss", "avg_loss") else key[:64], value)
            return [message(line.strip(), json_safe(values), int(found[1]), time_ns)] if values else []
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", line.strip(), int(found[1]), time_ns)]
        if found := _RESTORE.search(line):
            return [Event("resume", time_ns, step=int(found[1]), text=line.strip()[:500])]
        return []
