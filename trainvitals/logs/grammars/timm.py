"""timm: ``Train: 3 [  40/1251 (  3%)]  Loss:  6.95 (7.01)  Time: 0.500s, 2048.00/s  (0.510s, 2007.84/s)  LR: 1.000e-06  Data: 0.010 (0.020)``.

The value comes first, its running mean in parentheses is ignored. The step is epoch x updates per epoch + index, from 0. Lines hold
no time of day.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bTrain: (\d{1,9}) \[\s{0,12}(\d{1,15})/(\d{1,15}) \(\s{0,4}\d{1,3}%\)\]\s{1,4}(?=Loss:)", re.ASCII)
_PAIR = re.compile(r"(?<!\w)([A-Z][A-Za-z]{0,30}):\s{1,6}([-+\w.#]{1,40})", re.ASCII)
_RATE = re.compile(r"Time: [^,(]{1,40},\s{0,8}([\d.]{1,40})/s", re.ASCII)
_NAMES: Names = {
    "Loss": ("loss", 1.0),
    "Time": ("step_time_s", 1.0),
    "LR": ("lr", 1.0),
    "Rate": ("samples_per_s", 1.0),
}


class Timm(LineByLine):
    """No state: each line stands for itself."""

    name = "timm"
    title = "timm"
    example = "Train: 3 [  40/1251 (  3%)]  Loss:  6.95 (7.01)  Time: 0.500s, 2048.00/s  (0.510s, 2007.84/s)  LR: 1.000e-06  Data: 0.010 (0.020)"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Train: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "Train: " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "Train: " in line else None
        if found is None:
            return []
        pairs = [(pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())]
        if rate := _RATE.search(line, found.end()):
            pairs.append(("Rate", rate[1]))
        metrics = metrics_of(pairs, _NAMES)
        step = int(found[1]) * int(found[3]) + int(found[2])
        return [Step(step, 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
