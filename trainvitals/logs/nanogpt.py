"""nanoGPT and its relatives: one short line per step, one regular expression per relative.

nanoGPT        ``iter 120: loss 3.9000, time 500.25ms, mfu 30.00%``
build-nanogpt  ``step    12 | loss: 9.700000 | lr 1.1000e-05 | norm: 3.1000 | dt: 420.00ms | tok/sec: 1248304.76``
llm.c          ``s:150 trl:5.4321 lr:0.000210 norm:0.55``
modded-nanogpt ``step:500/9000 train_loss:3.9000 train_time:850000ms step_avg:1700.00ms``

Lines of validation are no steps. Some of these logs begin with the whole source of the trainer: only digits match.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number
from trainvitals.records import Step

_N = r"([-+]?(?:\d[\d.]{0,40}(?:[eE][-+]?\d{1,4})?|nan|inf))"
_S = r"(?<![\w.])"
#: (regex, metric and factor of each group behind the step)
_STEPS: tuple[tuple[re.Pattern[str], tuple[tuple[str, float], ...]], ...] = (
    (
        re.compile(rf"{_S}iter (\d{{1,15}}): loss {_N}, time {_N}ms(?:, mfu {_N}%)?", re.ASCII),
        (("loss", 1.0), ("step_time_s", 1e-3), ("mfu", 1.0)),
    ),
    (
        re.compile(
            rf"{_S}step\s+(\d{{1,15}}) \| loss: {_N} \|(?: lr:? {_N} \|)?(?: norm: {_N} \|)?(?: dt: {_N}ms \|)?(?: tok/sec: {_N})?",
            re.ASCII,
        ),
        (("loss", 1.0), ("lr", 1.0), ("grad_norm", 1.0), ("step_time_s", 1e-3), ("tokens_per_s", 1.0)),
    ),
    (
        re.compile(rf"{_S}s:(\d{{1,15}}) trl:{_N} lr:{_N}(?: norm:{_N})?", re.ASCII),
        (("loss", 1.0), ("lr", 1.0), ("grad_norm", 1.0)),
    ),
    (
        re.compile(rf"{_S}step:(\d{{1,15}})/\d{{1,15}} train_loss:{_N} train_time:\S+(?: step_avg:{_N}ms)?", re.ASCII),
        (("loss", 1.0), ("step_avg_s", 1e-3)),
    ),
)  # fmt: skip
#: A running mean is not the time of a step: modded-nanogpt's ``step_avg`` stays an extra metric.
_TIMINGS = ("mfu", "step_time_s", "step_avg_s", "tokens_per_s")
_VALIDATIONS = (
    re.compile(rf"{_S}step (\d{{1,15}}): train loss (?:\S+), val loss {_N}", re.ASCII),
    re.compile(rf"{_S}step:(\d{{1,15}})/\d{{1,15}} val_loss:{_N}", re.ASCII),
    re.compile(rf"{_S}s:(\d{{1,15}}) tel:{_N}", re.ASCII),
)


class NanoGPT:
    """No state: each line stands for itself."""

    name = "nanogpt"
    title = "nanoGPT, build-nanogpt, llm.c, modded-nanogpt"
    example = "iter 120: loss 3.9000, time 500.25ms, mfu 30.00%"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("loss", " trl:")
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ("Resuming training from ", "val loss")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return _find(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _find(line)
        if found is not None:
            step, names = found
            metrics = Metrics()
            for raw, (name, factor) in zip(step.groups()[1:], names, strict=True):
                value = parse_number(raw) if raw else None
                # A timing that is not known yet is printed as nan or -100 %, and is no fault of the run.
                if value is None or (name in _TIMINGS and not 0 <= value < float("inf")):
                    continue
                metrics.put(name, value * factor)
            return [Step(int(step[1]), 0, self._times.find(line[: step.start()]), metrics.values, metrics.nonfinite)]
        for pattern in _VALIDATIONS if "loss" in line or "tel:" in line else ():
            if validation := pattern.search(line):
                value = parse_number(validation[2])
                if value is not None:
                    return [message(line.strip(), json_safe({"validation_loss": value}), int(validation[1]))]
        if line.startswith("Resuming training from "):
            return [phase("start", "begin", line)]
        return []

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self.bad_records = int(state["bad_records"])


def _find(line: str) -> tuple[re.Match[str], tuple[tuple[str, float], ...]] | None:
    if "loss" not in line and " trl:" not in line:
        return None
    for pattern, names in _STEPS:
        if found := pattern.search(line):
            return found, names
    return None
