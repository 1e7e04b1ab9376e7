"""The meters of torchvision's references, as DeiT, BEiT, MAE, DINO and many others print them.

``Epoch: [3]  [40/500]  eta: 0:05:00  lr: 0.001000  loss: 6.9000 (7.0100)  grad_norm: 0.5000 (nan)  time: 0.6  max mem: 12000``

The value comes first: a median over the last steps, mostly 20. The running mean in parentheses is ignored, because it stays NaN for
ever after one skipped step. The step is epoch x length + index, from 0. DINOv2 counts through: ``Training  [  40/125000]``.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of, with_iso_dates
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

_TRAIN = re.compile(
    r"(?<![\w(])(?:(?:Train )?Epoch: \[\s{0,6}(\d{1,9})(?:/\d{1,9})?\]:?|Training)\s{1,4}\[\s{0,12}(\d{1,15})/(\d{1,15})\]\s{1,4}eta: ",
    re.ASCII,
)
_TEST = re.compile(r"(?<![\w(])(?:Test|Val|Eval|Validation):\s{1,4}\[\s{0,12}(\d{1,15})/(\d{1,15})\]\s{1,4}eta: ", re.ASCII)
_RESUMED = re.compile(r"\bResume checkpoint (\S{1,1000})\s*\Z")
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "total_loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "time": ("step_time_s", 1.0),
    "img/s": ("samples_per_s", 1.0),
    "eta": LEFT_OUT,
    "mem": ("max_mem", 1.0),
}


class Meters(LineByLine):
    """No state: each line stands for itself."""

    name = "meters"
    title = "DeiT, BEiT, MAE, DINO and others with torchvision's meters"
    example = "Epoch: [3]  [ 40/500]  eta: 0:05:00  lr: 0.001000  loss: 6.9000 (7.0100)  grad_norm: 0.5000 (nan)  time: 0.6200  data: 0.0003  max mem: 12000"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("eta: ",)
    prelude: ClassVar[tuple[str, ...]] = ("Resume checkpoint ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "eta: " in line and "loss" in line and _TRAIN.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if "eta: " not in line:
            found = _RESUMED.search(line) if "Resume checkpoint" in line else None
            return [Event("resume", None, text=line.strip()[:500], data={"path": found[1]})] if found else []
        if found := _TRAIN.search(line):
            epoch, index, length = found.groups()
            step = int(index) + (int(epoch) * int(length) if epoch is not None else 0)
            metrics = metrics_of(pairs_of(line[found.end() - 5 :]), _NAMES)
            time_ns = self._times.find(with_iso_dates(line[: found.start()][-200:]))
            return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        if (found := _TEST.search(line)) and int(found[1]) == int(found[2]) - 1:
            metrics = metrics_of(pairs_of(line[found.end() - 5 :]), {**_NAMES, "loss": ("validation_loss", 1.0)})
            if "validation_loss" in metrics:
                data = {"validation_loss": metrics.values.get("validation_loss", metrics.nonfinite.get("validation_loss"))}
                return [message(line.strip(), data)]
        return []
