"""PaddleNLP, PaddleFormers: ``loss: 10.99, learning_rate: 1e-06, global_step: 1, interval_runtime: 5.2, …``.

Before version 2.4: ``global step 10, epoch: 0, batch: 9, loss: 10.99, …, ips_total: 5000 tokens/s, ips: 600 tokens/s, learning rate: 1e-05``.
``interval_tokens_per_second_per_device`` is per device. ``interval_runtime`` is that of a whole log interval, so the step time
comes from ``interval_steps_per_second``.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

_STEP = re.compile(r"(?:^|\s)(loss: [^\s,]{1,40}, .{0,300}?\bglobal_step: (\d{1,15}),)", re.ASCII)
_OLD = re.compile(r"\bglobal step (\d{1,15}), epoch: \d{1,9}, batch: \d{1,15}, (?=loss: )", re.ASCII)
_EVAL = re.compile(r"\beval_loss: ")
_RESUMED = re.compile(r"\bContinuing training from global step (\d{1,15})", re.ASCII)
_START = "***** Running training *****"
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "learning_rate": ("lr", 1.0),
    "rate": ("lr", 1.0),
    "global_norm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "interval_samples_per_second": ("samples_per_s", 1.0),
    "interval_tokens_per_second_per_device": ("tokens_per_s", 1.0),
    "interval_hardware_tflops_per_device": ("tflops_per_gpu", 1.0),
    "ips_total": ("tokens_per_s", 1.0),
    "avg_batch_cost": ("step_time_s", 1.0),
    "global_step": LEFT_OUT,
}


class PaddleNLP(LineByLine):
    """No state: each line stands for itself."""

    name = "paddlenlp"
    title = "PaddleNLP, PaddleFormers"
    example = (
        "[2026-01-02 03:04:05,123] [    INFO] - loss: 10.9912, learning_rate: 1e-06, global_step: 10, interval_runtime: 5.2, "
        "interval_samples_per_second: 24.6, interval_steps_per_second: 1.9, epoch: 0.0265"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("global_step: ", "global step ")
    prelude: ClassVar[tuple[str, ...]] = ("Continuing training from global step", _START)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return _find(line) is not None

    def feed(self, line: str) -> list[Record]:
        if found := _find(line):
            step, at = found
            metrics = metrics_of(pairs_of(line[at:]), _NAMES)
            if (rate := metrics.values.get("interval_steps_per_second", 0.0)) > 0:
                metrics.put("step_time_s", 1.0 / rate)
            return [Step(step, 0, self._times.find(line[:at][-200:]), metrics.values, metrics.nonfinite)]
        if "eval_loss: " in line and (evaluation := _EVAL.search(line)):
            metrics = metrics_of(pairs_of(line[evaluation.start() :]), {"eval_loss": ("validation_loss", 1.0)})
            return [message(line.strip(), {**metrics.values, **metrics.nonfinite}, None, self._times.find(line[:80]))]
        if _START in line:
            return [phase("start", "begin", line.strip(), None, self._times.find(line[:80]))]
        if "Continuing training" in line and (resumed := _RESUMED.search(line)):
            return [Event("resume", self._times.find(line[:80]), step=int(resumed[1]), text=line.strip()[:500])]
        return []


def _find(line: str) -> tuple[int, int] | None:
    """(step, where the values begin)."""
    if "global_step: " in line and "interval_" in line and (found := _STEP.search(line)):
        return int(found[2]), found.start(1)
    if "global step " in line and (found := _OLD.search(line)):
        return int(found[1]), found.end()
    return None
