"""Meta Lingua and its forks: ``step: 10  acc: 0  loss: 10.1234  grad: 1.20e+00  flops: 3.50e+14  wps: 5.50e+04  iter:  0.5  …``.

``wps`` (tokens per second) and ``flops`` are per GPU. The logger's date has a year of two digits: ``26-01-02 03:04:05.123456``.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bstep: (\d{1,15})  (?=acc: \d{1,9}  [a-z]\w{0,30}: )", re.ASCII)
_SHORT_YEAR = re.compile(r"(?<![\d-])(\d\d-\d\d-\d\d)(?= \d\d:\d\d:\d\d)", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "grad": ("grad_norm", 1.0),
    "flops": ("tflops_per_gpu", 1e-12),
    "wps": ("tokens_per_s", 1.0),
    "iter": ("step_time_s", 1.0),
    "lr": ("lr", 1.0),
    "acc": LEFT_OUT,
}


class Lingua(LineByLine):
    """No state: each line stands for itself."""

    name = "lingua"
    title = "Meta Lingua"
    example = (
        "0: INFO    26-01-02 03:04:05.123456 - 0:01:10 - step: 10  acc: 0  loss: 10.1234  grad: 1.20e+00  flops: 3.50e+14  "
        "wps: 5.50e+04  iter:  0.5012  data:  0.01  lr: 3.00e-04  mem: 50%  pow: 512.5 W"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("step: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "step: " in line and "loss" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "step: " in line and "loss" in line else None
        if found is None:
            return []
        metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
        time_ns = self._times.find(_SHORT_YEAR.sub(r"20\1", line[: found.start()][-200:]))
        return [Step(int(found[1]), 0, time_ns, metrics.values, metrics.nonfinite)]
