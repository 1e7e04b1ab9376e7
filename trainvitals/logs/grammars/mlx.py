"""MLX LM: ``Iter 30: Train loss 2.710, Learning Rate 1.000e-05, It/sec 16.846, Tokens/sec 1699.733, Trained Tokens 2768, …``."""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Step

_MARKER = re.compile(r"\bIter (\d{1,15}): (?=Train loss )", re.ASCII)
_PAIR = re.compile(r"(?:^|, )([A-Z][A-Za-z/ ]{0,40}?) ([-+]?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,4})?|nan|inf))(?=[\s,]|\Z)", re.ASCII)
_VALIDATION = re.compile(r"\bIter (\d{1,15}): Val loss ([^\s,]{1,40}),", re.ASCII)
_SAVED = re.compile(r"\bIter (\d{1,15}): Saved adapter weights to (\S{1,1000})", re.ASCII)
_NAMES: Names = {
    "Train loss": ("loss", 1.0),
    "Learning Rate": ("lr", 1.0),
    "Tokens/sec": ("tokens_per_s", 1.0),
    "Trained Tokens": ("tokens", 1.0),
}


class MLX(LineByLine):
    """No state: each line stands for itself."""

    name = "mlx"
    title = "MLX LM"
    example = "Iter 30: Train loss 2.710, Learning Rate 1.000e-05, It/sec 16.846, Tokens/sec 1699.733, Trained Tokens 2768, Peak mem 1.437 GB"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = (": Train loss ",)
    prelude: ClassVar[tuple[str, ...]] = (": Val loss ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return ": Train loss " in line and "It/sec" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if "Iter " not in line:
            return []
        time_ns = self._times.find(line[:80])
        if found := _MARKER.search(line) if "It/sec" in line else None:
            metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line[found.end() :])), _NAMES)
            rate = metrics.values.get("it_sec", 0.0)
            if rate > 0:
                metrics.put("step_time_s", 1.0 / rate)
            return [Step(int(found[1]), 0, time_ns, metrics.values, metrics.nonfinite)]
        if (found := _VALIDATION.search(line)) and (loss := parse_number(found[2])) is not None:
            return [message(line.strip(), json_safe({"validation_loss": loss}), int(found[1]), time_ns)]
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", line.strip(), int(found[1]), time_ns, path=found[2])]
        return []
