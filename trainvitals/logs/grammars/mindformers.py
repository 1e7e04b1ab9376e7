"""MindFormers: ``{ Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms, lr: 1e-05, overflow cond: False, …``.

Older: ``loss:[2.244/2.244], time:507844.205 ms, lr:[0.]`` with the mean behind the value. The step is (epoch - 1) x steps per epoch +
step. A step with ``overflow cond: True`` was skipped, and gives a message too. ``train_throughput_per_npu`` is in TFLOP/s.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe
from trainvitals.records import Step

_MARKER = re.compile(
    r"\bEpoch:\[\s{0,8}(\d{1,9})/\s{0,8}\d{1,9}\], step:\[\s{0,12}(\d{1,15})/\s{0,12}(\d{1,15})\], (?=loss:)", re.ASCII
)
_PAIR = re.compile(r"(?<!\w)([a-z][a-z_ ]{0,40}):\s?\[?([-+\w.]{1,40})", re.ASCII)
_OVERFLOW = "overflow cond: True"
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "per_step_time": ("step_time_s", 1e-3),
    "time": ("step_time_s", 1e-3),
    "loss_scale": ("loss_scale", 1.0),
    "global_norm": ("grad_norm", 1.0),
    "train_throughput_per_npu": ("tflops_per_gpu", 1e-12),
    "overflow cond": LEFT_OUT,
}


class MindFormers(LineByLine):
    """No state: each line stands for itself."""

    name = "mindformers"
    title = "MindFormers"
    example = (
        "2026-01-02 03:04:05,173 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, "
        "per_step_time: 1752ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [8.834], train_throughput_per_npu: 170.738T"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Epoch:[",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "Epoch:[" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "Epoch:[" in line else None
        if found is None:
            return []
        step = max(0, (int(found[1]) - 1) * int(found[3]) + int(found[2]))
        time_ns = self._times.find(line[: found.start()][-200:])
        metrics = metrics_of(((pair[1].strip(), pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
        records: list[Record] = [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        if _OVERFLOW in line:
            scale = {"loss_scale": metrics.values["loss_scale"]} if "loss_scale" in metrics.values else {}
            records.append(message(line.strip(), {"overflow": True, **json_safe(scale)}, step, time_ns))
        return records
