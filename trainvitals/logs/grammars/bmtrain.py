"""BMTrain, CPM: ``| Iter:    100 | loss: 3.2000 | lr: 1.0000e-03, scale: 1048576.0000 | time: 1.5000 | … | grad_norm: 1.2000``.

Lines hold no time of day. ``time`` is a running mean of the step time.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"(?:^|\s)\| Iter:\s{1,12}(\d{1,15}) \| (?=loss: )", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "scale": ("loss_scale", 1.0),
    "time": ("step_time_s", 1.0),
    "grad_norm": ("grad_norm", 1.0),
}


class BMTrain(LineByLine):
    """No state: each line stands for itself."""

    name = "bmtrain"
    title = "BMTrain, CPM"
    example = "| Iter:    100 | loss: 3.2000 | lr: 1.0000e-03, scale: 1048576.0000 | time: 1.5000 | token/max: 0.9800 | grad_norm: 1.2000"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("| Iter:",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "| Iter:" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "| Iter:" in line else None
        if found is None:
            return []
        metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
        return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
