"""torchtune: its log lines ``Step 40 | loss:1.9234 lr:2e-05 tokens_per_second_per_gpu:512.3`` and its bar ``1|40|Loss: 1.9234:  10%|…``.

The bar tells step and loss only, so it counts as long as no log line was seen. Tokens per second are per GPU.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, parse_number
from trainvitals.records import Step

_LINE = re.compile(r"(?:^|\s)Step (\d{1,15}) \| (?=[a-z][\w/]{0,60}:\S)", re.ASCII)
_BAR = re.compile(r"(?<!\d)\d{1,9}\|(\d{1,15})\|Loss: ([\d.eE+-]{1,40}|nan|inf):\s{0,4}(?:\d{1,3}%\||\d{1,15}it \[)", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "tokens_per_second_per_gpu": ("tokens_per_s", 1.0),
    "time_per_step": ("step_time_s", 1.0),
}


class TorchTune(LineByLine):
    """State: whether a log line was seen."""

    name = "torchtune"
    title = "torchtune"
    example = "Step 40 | loss:1.9234 lr:2e-05 tokens_per_second_per_gpu:512.3 grad_norm:0.61"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Step ", "|Loss: ")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._has_lines = False

    @staticmethod
    def claims(line: str) -> bool:
        return ("Step " in line and "loss:" in line and _LINE.search(line) is not None) or (
            "|Loss: " in line and _BAR.search(line) is not None
        )

    def feed(self, line: str) -> list[Record]:
        found = _LINE.search(line) if "Step " in line and "loss:" in line else None
        if found is not None:
            self._has_lines = True
            metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
            return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
        if "|Loss: " not in line or self._has_lines or (found := _BAR.search(line)) is None:
            return []
        metrics = Metrics()
        if (loss := parse_number(found[2])) is not None:
            metrics.put("loss", loss)
        return [Step(int(found[1]), 0, None, metrics.values, metrics.nonfinite)]

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "has_lines": self._has_lines}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._has_lines = bool(state["has_lines"])
