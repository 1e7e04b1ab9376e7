"""AWS Neuron's training examples: ``LOG Fri Jan  2 03:04:05 2026 - (0, 14) step_loss : 11.25 learning_rate : 2.80e-06 throughput : 649.86``.

The pair is (epoch, step), the step counts through. Throughput is sequences per second of all devices.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bLOG (.{10,60}?) - \(\d{1,9}, (\d{1,15})\) (?=step_loss : )", re.ASCII)
_PAIR = re.compile(r"(?<![\w-])([a-z][\w-]{0,40}) : ([-+\w.]{1,40})", re.ASCII)
_CTIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2})  ?(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NAMES: Names = {
    "step_loss": ("loss", 1.0),
    "learning_rate": ("lr", 1.0),
    "throughput": ("samples_per_s", 1.0),
    "grad-norm": ("grad_norm", 1.0),
}


class NeuronX(LineByLine):
    """No state: each line stands for itself."""

    name = "neuronx"
    title = "AWS Neuron, neuronx-distributed examples"
    example = (
        "LOG Fri Jan  2 03:04:05 2026 - (0, 14) step_loss : 11.2500 learning_rate : 2.80e-06 throughput : 649.86 grad-norm : 1.5"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("step_loss : ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "step_loss : " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "step_loss : " in line else None
        if found is None:
            return []
        metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
        return [Step(int(found[2]), 0, self._time(found[1]), metrics.values, metrics.nonfinite)]

    def _time(self, text: str) -> int | None:
        found = _CTIME.search(text)
        if found is None or found[1] not in _MONTHS:
            return None
        return self._times.find(f"{found[4]}-{_MONTHS.index(found[1]) + 1:02d}-{int(found[2]):02d} {found[3]}")
