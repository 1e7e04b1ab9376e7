"""Cerebras Model Zoo: ``… INFO:   | Train Device=CSX, Step=100, Loss=9.40000, Rate=1200.50 samples/sec, GlobalRate=1200.50 samples/sec``.

``Rate`` is of the last steps and stands as ``samples_per_s``; ``GlobalRate`` is a mean since the start, and an extra metric.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of, pairs_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Step

_MARKER = re.compile(r"\| Train Device=[^,|]{1,60}, (?:Global)?Step=(\d{1,15}), (?=Loss=)", re.ASCII)
_SAVING = re.compile(r"\bSaving checkpoint at (?:global )?step (\d{1,15})", re.ASCII)
_SAVED = re.compile(r"\bSaved checkpoint (\S{1,1000}?checkpoint_(\d{1,15})\S{0,60})", re.ASCII)
_EVAL = re.compile(r"\bAvg Eval Loss: (\S{1,40})")
_NAMES: Names = {
    "Loss": ("loss", 1.0),
    "Rate": ("samples_per_s", 1.0),
    "GlobalRate": ("global_rate", 1.0),
    "LoopTimeRemaining": LEFT_OUT,
    "TimeRemaining": LEFT_OUT,
}


class Cerebras(LineByLine):
    """No state: each line stands for itself."""

    name = "cerebras"
    title = "Cerebras Model Zoo"
    example = (
        "2026-01-02 03:04:05,894 INFO:   | Train Device=CSX, Step=100, Loss=9.40000, Rate=1200.50 samples/sec, "
        "GlobalRate=1200.50 samples/sec, LoopTimeRemaining=0:54:01, TimeRemaining=0:54:01"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("| Train Device=",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "| Train Device=" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if found := _MARKER.search(line) if "| Train Device=" in line else None:
            metrics = metrics_of(pairs_of(line[found.end() :]), _NAMES)
            return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
        if "checkpoint" not in line and "Avg Eval Loss" not in line:
            return []
        time_ns = self._times.find(line[:80])
        if found := _SAVING.search(line):
            return [phase("checkpoint", "begin", line.strip(), int(found[1]), time_ns)]
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", line.strip(), int(found[2]), time_ns, path=found[1])]
        if (found := _EVAL.search(line)) and (loss := parse_number(found[1])) is not None:
            return [message(line.strip(), json_safe({"validation_loss": loss}), None, time_ns)]
        return []
