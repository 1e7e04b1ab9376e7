"""OpenCLIP: ``Train Epoch: 0 [ 32768/10968539 (0%)] Data (t): 0.02 Batch (t): 1.31, 25010.1/s, … LR: 0.0001 … Loss: 8.31 (8.31)``.

The line counts samples of the epoch. How many make a step tells the first line: OpenCLIP logs the first step of each epoch, and
where the log begins later, the samples a second and the time of a step do. Steps count from 1 over all epochs. Of ``value (mean)``
the value is read. The samples of PyTorch's old MNIST example begin at 0 and have no ``Batch (t)``: they are not read.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Step

_HEAD = re.compile(r"\bTrain Epoch: (\d{1,9}) \[\s{0,20}(\d{1,15})/(\d{1,15}) \(\d{1,3}%\)\]\s", re.ASCII)
_RATE = re.compile(r"\bBatch \(t\): ([\d.]{1,20})(?:, ([\d.e+]{1,20})/s\b)?", re.ASCII)
_PAIR = re.compile(r"(?<!\S)([A-Z][A-Za-z_ ]{0,60}): ([-+]?[\d.]{1,30}(?:e[-+]?\d{1,4})?|nan|inf)(?=[\s,]|\Z)", re.ASCII)
_EVALUATION = re.compile(r"\bEval Epoch: (\d{1,9})\s.{0,2000}?\bclip_val_loss: (\S{1,40}?)(?:[\s,]|\Z)", re.ASCII)
_NAMES: Names = {"Loss": ("loss", 1.0), "LR": ("lr", 1.0)}
#: How far a step's size that the rate tells may be off, as a share.
_SPREAD = 0.3


class OpenClip(LineByLine):
    """State: the samples of a step, and the last step."""

    name = "open_clip"
    title = "OpenCLIP"
    example = (
        "2026-01-02,03:04:05 | INFO | Train Epoch: 0 [ 32768/1048576 (3%)] Data (t): 0.020 Batch (t): 1.310, 25010.1/s, 3126.2/s/gpu "
        "LR: 0.000100 Logit Scale: 14.286 Contrastive_loss: 8.3100 (8.3100) Loss: 8.3100 (8.3100)"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Train Epoch: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._batch = 0
        self._last: int | None = None

    @staticmethod
    def claims(line: str) -> bool:
        return "Batch (t): " in line and "Loss: " in line and _HEAD.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if "Train Epoch: " in line and "Batch (t): " in line and (found := _HEAD.search(line)):
            return self._training(line, found)
        if "clip_val_loss: " in line and (found := _EVALUATION.search(line)) and (loss := parse_number(found[2])) is not None:
            time_ns = self._times.find(line[: found.start()].replace(",", " "))
            return [message(line.strip(), json_safe({"validation_loss": loss}), self._last, time_ns)]
        return []

    def _training(self, line: str, found: re.Match[str]) -> list[Record]:
        epoch, samples, in_epoch = (int(group) for group in found.groups())
        text = line[found.end() : found.end() + 4000]
        rate = _RATE.search(text)
        if samples <= 0 or in_epoch <= 0:
            self.bad_records += 1
            return []
        if self._batch == 0 or samples % self._batch:
            self._batch = _samples_of_a_step(samples, rate)
        step = epoch * -(-in_epoch // self._batch) + samples // self._batch
        self._last = step
        metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(text)), _NAMES)
        if rate is not None:
            for name, raw in (("step_time_s", rate[1]), ("samples_per_s", rate[2])):
                if raw and (value := parse_number(raw)) is not None:
                    metrics.put(name, value)
        return [Step(step, 0, self._times.find(line[: found.start()].replace(",", " ")), metrics.values, metrics.nonfinite)]

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "batch": self._batch, "last": self._last}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._batch, self._last = int(state["batch"]), state["last"]


def _samples_of_a_step(samples: int, rate: re.Match[str] | None) -> int:
    """The size of a step that divides ``samples`` and fits the rate best; all of them where the line is that of the first step."""
    time_s, per_s = (parse_number(group or "") or 0.0 for group in rate.groups()) if rate is not None else (0.0, 0.0)
    size = time_s * per_s
    if not 0 < size < samples * (1 - _SPREAD):
        return samples
    first, last = int(samples / size * (1 - _SPREAD)), int(samples / size * (1 + _SPREAD)) + 1
    counts = [count for count in range(max(1, first), min(last, first + 2_000) + 1) if samples % count == 0]
    return samples // min(counts, key=lambda count: abs(samples / count - size)) if counts else samples
