"""Composer and LLM Foundry: a header ``[batch=12/9000]:``, then indented ``Train loss/train/total: 9.1250`` lines.

The header counts finished batches, so ``time/batch`` inside the record is one less; where the header counts in another unit
(``[epoch=2][batch=3/100]:``, ``[token=…]:``) the step is ``time/batch`` + 1. Console lines hold no time.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.blocks import BlockByBlock
from trainvitals.logs.grammars.cells import LEFT_OUT, Names
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number, slug

_HEADER = re.compile(
    r"(?:^|[\s:|])(?:\[epoch=(\d{1,9})\])?\[(batch|token|sample|iteration|second)=(\d{1,20})(?:/(\d{1,20}))?\]:\s*(?=Train |\Z)",
    re.ASCII,
)
_PAIR = re.compile(r"\bTrain ([^:\t]{1,150}): (\S{1,60})")
_EVAL = re.compile(r"\s{1,40}Eval ([^:\t]{1,150}): (\S{1,60})\s*\Z")
#: Above the configuration that the console logger prints when training starts.
_STARS = "*" * 30
#: Another node's configuration may be written late: so many records must lie between two starts.
_RECORDS_OF_A_START = 5
_EVAL_LOSS = re.compile(r"CrossEntropy|loss", re.IGNORECASE)
_FIRST_LR = re.compile(r"lr-[\w.-]{1,60}/group0\Z")
_FIXED: Names = {
    "loss/train/total": ("loss", 1.0),
    "loss/train": ("loss", 1.0),
    "l2_norm/grad/global": ("grad_norm", 1.0),
    "throughput/tokens_per_sec": ("tokens_per_s", 1.0),
    "throughput/samples_per_sec": ("samples_per_s", 1.0),
    "throughput/device/flops_per_sec": ("tflops_per_gpu", 1e-12),
    "throughput/device/mfu": ("mfu", 100.0),
    "time/token": ("tokens", 1.0),
    "time/sample": ("samples", 1.0),
    "time/batch": LEFT_OUT,
}


class Composer(BlockByBlock):
    """State: the record that is open, the last step, and what of the start was seen."""

    name = "composer"
    title = "MosaicML Composer, LLM Foundry"
    example = (
        "[batch=12/9000]:\n"
        "\t Train time/batch: 11\n"
        "\t Train time/token: 24576\n"
        "\t Train loss/train/total: 9.1250\n"
        "\t Train metrics/train/LanguageCrossEntropy: 9.1250\n"
        "\t Train throughput/tokens_per_sec: 20082.5000\n"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("]:",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._last: int | None = None
        self._is_below_stars = False
        self._records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return "]:" in line and _HEADER.search(line) is not None

    def names(self, pairs: dict[str, str]) -> Names:
        first = next((key for key in pairs if _FIRST_LR.match(key)), None)
        return {**_FIXED, first: ("lr", 1.0)} if first is not None else _FIXED

    def step_of(self, step: int | None, pairs: dict[str, str]) -> int | None:
        batch = parse_number(pairs.get("time/batch", ""))
        if step is None and batch is not None and 0 <= batch < 1e15:
            step = int(batch) + 1
        self._last = step if step is not None else self._last
        return step

    def feed(self, line: str) -> list[Record]:
        if found := _HEADER.search(line) if "]:" in line else None:
            self._records = min(self._records + 1, _RECORDS_OF_A_START)
            epoch, unit, done, total = found.groups()
            step = int(done) if unit == "batch" and (epoch is None or epoch == "1") else None
            if unit == "batch" and step is None and total is not None:
                step = (int(epoch) - 1) * int(total) + int(done)
            records = self.begin(step, self._times.find(line[: found.start()][-100:]), line)
            self._put_all(line[found.end() :])
            return records
        if (
            self.is_open
            and "Train " in line
            and (found := _PAIR.search(line))
            and found.start() > 0
            and self.is_inside(line[: found.start()])
        ):
            self._put_all(line)
            return []
        return [*self.close(), *self._start(line), *self._evaluation(line)]

    def _start(self, line: str) -> list[Record]:
        is_start = self._is_below_stars and line == "Config:" and self._records == _RECORDS_OF_A_START
        self._is_below_stars = line == _STARS
        if is_start:
            self._records = 0
        return [phase("start", "begin", "training starts")] if is_start else []

    def _put_all(self, text: str) -> None:
        for pair in _PAIR.finditer(text):
            self.put(pair[1], pair[2])

    def _evaluation(self, line: str) -> list[Record]:
        found = _EVAL.match(line) if "Eval " in line else None
        value = parse_number(found[2]) if found else None
        if found is None or value is None or not _EVAL_LOSS.search(found[1]):
            return []
        data = json_safe({"validation_loss": value}) | {"validation_set": slug(found[1]) or ""}
        return [message(line.strip(), data, self._last)]

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "last": self._last, "is_below_stars": self._is_below_stars, "records": self._records}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._last = state["last"]
        self._is_below_stars, self._records = bool(state["is_below_stars"]), int(state["records"])
