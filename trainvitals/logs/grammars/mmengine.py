"""mmengine and the older mmcv: ``Epoch(train) [1][40/500]  lr: 1.5e-04  eta: 1:00:00  time: 2.10  loss: 2.90  grad_norm: nan``.

By iteration: ``Iter(train) [ 40/500]  …``; mmcv: ``Epoch [1][40/500]\\tlr: 1.5e-04, eta: …``. With epochs the step is (epoch - 1) x
iterations per epoch + iteration. Values are means over the log interval: one infinite gradient makes a ``grad_norm: nan`` beside
a finite loss, and stays what it is (InternLM/xtuner issue 187).
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of, with_iso_dates
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

_TRAIN = re.compile(
    r"\b(?:Epoch(?:\(train\))?\s{0,6}\[\s{0,6}(\d{1,9})\]|Iter(?:\(train\))?\s{0,6})\[\s{0,12}(\d{1,15})/(\d{1,15})\](?=\s{1,20}[a-z]\w{0,30}: )",
    re.ASCII,
)
_LOGGER = re.compile(r" - [A-Z]{4,8} - \s{0,6}\Z")
_VALIDATION = re.compile(
    r"\b(?:Epoch|Iter)\((?:val|test)\)\s{0,6}(?:\[\s{0,6}(\d{1,9})\])?\[\s{0,12}\d{1,15}(?:/\d{1,15})?\]\s", re.ASCII
)
_SAVING = re.compile(r"\bSaving checkpoint at (\d{1,15}) (epochs|iterations)", re.ASCII)
_RESUMED = re.compile(r"\bresumed (?:from )?epoch:? (\d{1,9}), iter:? (\d{1,15})", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "lr_0": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "time": ("step_time_s", 1.0),
    "tokens_per_sec": ("tokens_per_s", 1.0),
    "tflops": ("tflops_per_gpu", 1.0),
    "eta": LEFT_OUT,
}
_PROGRESS_ONLY = frozenset({"step_time_s", "data_time", "memory"})


class MMEngine(LineByLine):
    """No state: each line stands for itself."""

    name = "mmengine"
    title = "mmengine, mmcv, XTuner"
    example = (
        "01/02 03:04:05 - mmengine - INFO - Epoch(train) [1][40/500]  lr: 1.5000e-04  eta: 1:00:00  time: 2.1000  data_time: 0.0030  "
        "memory: 9000  loss: 2.9000  grad_norm: nan"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Epoch", "Iter")
    prelude: ClassVar[tuple[str, ...]] = ("resumed epoch", "resumed from epoch")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        found = _train(line)
        return found is not None and "loss" in line

    def feed(self, line: str) -> list[Record]:
        if found := _train(line):
            epoch, done, total = found.groups()
            step = int(done) + ((int(epoch) - 1) * int(total) if epoch is not None else 0)
            metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
            time_ns = self._times.find(with_iso_dates(line[: found.start()][-200:]))
            return [Step(max(step, 0), 0, time_ns, metrics.values, metrics.nonfinite)]
        return self._side_line(line) if "(val)" in line or "(test)" in line or "checkpoint" in line or "resumed" in line else []

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(with_iso_dates(line[:80]))
        text = line.strip()
        if found := _VALIDATION.search(line):
            metrics = metrics_of(pairs_of(line[found.end() :]), {**_NAMES, "loss": ("validation_loss", 1.0)})
            values = {**metrics.values, **metrics.nonfinite}
            data = {name: value for name, value in values.items() if name not in _PROGRESS_ONLY}
            return [message(text, data, None, time_ns)] if data else []
        if found := _RESUMED.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=text[:500])]
        if found := _SAVING.search(line):
            step = int(found[1]) if found[2] == "iterations" else None
            return [phase("checkpoint", "begin", text, step, time_ns)]
        return []


def _train(line: str) -> re.Match[str] | None:
    """The header of a training line. Without ``(train)`` a logger's prefix must stand before it: others write the same."""
    found = _TRAIN.search(line) if "Epoch" in line or "Iter" in line else None
    if found is None or "(train)" in found[0] or _LOGGER.search(line[: found.start()][-40:]):
        return found
    return None
