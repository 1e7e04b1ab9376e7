"""detectron2: ``[01/02 03:04:05 d2.utils.events]:  eta: 0:05:00  iter: 19  total_loss: 1.986  loss_cls: 0.595  time: 1.1678  …``.

Values are medians over the last 20 iterations. Iterations are counted from 0.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of, pairs_of, with_iso_dates
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\.events\]:\s{1,4}(?:eta: .{1,60}?)?\biter: (\d{1,15})\s{1,4}(?=total_loss: )", re.ASCII)
_NAMES: Names = {
    "total_loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "time": ("step_time_s", 1.0),
    "grad_norm": ("grad_norm", 1.0),
}


class Detectron2(LineByLine):
    """No state: each line stands for itself."""

    name = "detectron2"
    title = "detectron2"
    example = (
        "[01/02 03:04:05 d2.utils.events]:  eta: 0:05:22  iter: 19  total_loss: 1.986  loss_cls: 0.595  loss_mask: 0.697  time: 1.1678  "
        "data_time: 0.0222  lr: 1.6068e-05  max_mem: 2725M"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = (".events]:",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return ".events]:" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if ".events]:" in line else None
        if found is None:
            return []
        metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
        time_ns = self._times.find(with_iso_dates(line[: found.start()][-200:]))
        return [Step(int(found[1]), 0, time_ns, metrics.values, metrics.nonfinite)]
