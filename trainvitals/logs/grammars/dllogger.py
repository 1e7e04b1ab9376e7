"""DLLogger in NVIDIA's BERT examples: ``DLL 2026-01-02 03:04:05.123456 - Training Epoch: 0 Training Iteration: 120  step_loss : 7.1 …``.

The iteration counts the optimizer's steps through all epochs. ``step_loss`` is the loss, ``average_loss`` a mean over the log interval.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bDLL (.{10,40}?) - Training Epoch: \d{1,9} Training Iteration: (\d{1,15})\s{1,4}(?=[a-z])", re.ASCII)
_PAIR = re.compile(r"(?<![\w.])([a-z][\w.]{0,40}) : ([-+\w.]{1,40})", re.ASCII)
_NAMES: Names = {
    "step_loss": ("loss", 1.0),
    "learning_rate": ("lr", 1.0),
    "training_sequences_per_second": ("samples_per_s", 1.0),
    "grad_norm": ("grad_norm", 1.0),
}


class DLLogger(LineByLine):
    """No state: each line stands for itself."""

    name = "dllogger"
    title = "NVIDIA's BERT examples (DLLogger)"
    example = "DLL 2026-01-02 03:04:05.123456 - Training Epoch: 0 Training Iteration: 120  average_loss : 7.25  step_loss : 7.125  learning_rate : 7.5e-05"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Training Iteration: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "Training Iteration: " in line and "step_loss : " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "Training Iteration: " in line else None
        if found is None:
            return []
        metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
        step, time_ns = int(found[2]), self._times.find(found[1])
        if "loss" in metrics:
            return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        data = {**metrics.values, **metrics.nonfinite}
        return [message(line.strip(), data, step, time_ns)] if data else []
