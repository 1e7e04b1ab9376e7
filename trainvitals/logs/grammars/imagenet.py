"""PyTorch's ImageNet example, MoCo and their many heirs: ``Epoch: [3][  40/5004]\\tTime  0.5 ( 0.6)\\tData …\\tLoss 6.9e+00 (7.0e+00)…``.

The value comes first, its running mean in parentheses is ignored. The step is epoch x steps per epoch + index. Lines hold no time of
day, but some heirs' logger does.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bEpoch: \[\s{0,6}(\d{1,9})(?:/\d{1,9})?\]\s?\[\s{0,12}(\d{1,15})/(\d{1,15})\]", re.ASCII)
_PAIR = re.compile(
    r"(?<!\w)([A-Za-z][\w@]{0,30}):?\s{1,6}([-+]?(?:\d[\d.]{0,30}(?:e[-+]?\d{1,4})?|nan|inf))(?: ?\(\s{0,8}[^()\s]{1,30}\))?(?=[\s,]|\Z)",
    re.ASCII,
)
_HAS_LOSS = re.compile(r"(?<!\w)Loss:?\s{1,6}(?:[-+]?\d|nan|inf)\S{0,30} ?\(", re.ASCII)
_NAMES: Names = {
    "Loss": ("loss", 1.0),
    "LR": ("lr", 1.0),
    "lr": ("lr", 1.0),
    "Time": ("step_time_s", 1.0),
}


class ImageNet(LineByLine):
    """No state: each line stands for itself."""

    name = "imagenet"
    title = "PyTorch's ImageNet example, MoCo and heirs"
    example = (
        "Epoch: [3][  40/5004]\tTime  0.512 ( 0.630)\tData  0.010 ( 0.020)\tLoss 6.9000e+00 (7.0100e+00)\tAcc@1   1.56 (  0.90)"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Epoch: [",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return _find(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _find(line)
        if found is None:
            return []
        metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
        step = int(found[1]) * int(found[3]) + int(found[2])
        return [Step(step, 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]


def _find(line: str) -> re.Match[str] | None:
    found = _MARKER.search(line) if "Epoch: [" in line and "Loss" in line else None
    return found if found is not None and _HAS_LOSS.search(line, found.end()) else None
