"""LitGPT, lit-gpt and what came of it (TinyLlama): iterations are micro-batches, the step is the optimizer's.

LitGPT  ``Epoch 1 | iter 10 step 10 | loss train: 10.123, val: n/a | iter time: 100.00 ms (step) remaining time: 1:00:00``
lit-gpt ``iter 100 step 25: loss 9.1234, iter time: 500.00ms (optimizer.step) remaining time: 12.34 hours …``

The loss is of one micro-batch on one rank. Of several lines of one step the first counts: it is the one that ends the step.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number
from trainvitals.records import Step

_N = r"([-+]?(?:\d[\d.]{0,40}(?:[eE][-+]?\d{1,4})?|nan|inf))"
_STEPS = (
    re.compile(
        rf"\bEpoch \d{{1,9}} \| iter\s{{1,12}}(\d{{1,15}}) step\s{{1,12}}(\d{{1,15}}) \| loss train:\s{{1,6}}{_N}[^|]{{0,40}}\| iter time:\s{{1,8}}{_N} ms( \(step\))?",
        re.ASCII,
    ),
    re.compile(
        rf"\biter (\d{{1,15}})(?:/\d{{1,15}})? step (\d{{1,15}})(?:/\d{{1,15}})?: loss {_N}, iter time: {_N} ?ms( \(optimizer\.step\))?",
        re.ASCII,
    ),
)
_VALIDATION = re.compile(rf"\b(?:iter|step) (\d{{1,15}}): val loss:? {_N}", re.ASCII)
_FINAL = re.compile(rf"\bFinal evaluation \| val loss: {_N}", re.ASCII)
_RESUME = "Resuming training from "


class LitGPT(LineByLine):
    """State: the last step."""

    name = "litgpt"
    title = "LitGPT, lit-gpt, TinyLlama"
    example = "Epoch 1 | iter 40 step 10 | loss train: 10.123, val: n/a | iter time: 100.00 ms (step) remaining time: 1:00:00"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("iter time:",)
    prelude: ClassVar[tuple[str, ...]] = (_RESUME,)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._last: int | None = None

    @staticmethod
    def claims(line: str) -> bool:
        found = _find(line)
        return found is not None and int(found[2]) > 0

    def feed(self, line: str) -> list[Record]:
        if found := _find(line):
            iteration, step, loss, milliseconds, _ = found.groups()
            if int(step) in (0, self._last):
                return []  # a micro-batch of a step that is not done yet
            self._last = int(step)
            metrics = Metrics()
            for name, raw, factor in (("loss", loss, 1.0), ("iter_time_s", milliseconds, 1e-3), ("iter", iteration, 1.0)):
                if (value := parse_number(raw)) is not None:
                    metrics.put(name, value * factor)
            return [Step(int(step), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
        if "val loss" in line and (found := _VALIDATION.search(line) or _FINAL.search(line)):
            value = parse_number(found[found.re.groups])
            return [message(line.strip(), json_safe({"validation_loss": value}), self._last)] if value is not None else []
        if not line.startswith(_RESUME):
            return []
        self._last = None
        return [phase("start", "begin", line.strip())]

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "last": self._last}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._last = state["last"]


def _find(line: str) -> re.Match[str] | None:
    if "iter time:" not in line:
        return None
    return next((found for pattern in _STEPS if (found := pattern.search(line))), None)
