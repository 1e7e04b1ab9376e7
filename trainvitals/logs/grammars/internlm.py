"""InternLM, InternEvo: ``… record_current_batch_training_metrics -- tflops=190.1,step=17,loss=9.81,tgs (tokens/gpu/second)=4399.9,…``.

Pairs are parted by commas, later by blanks; ``grad_norm`` became one number per parameter group, of which the first is taken.
Tokens per second are per GPU. Steps begin at 0. A data set that has no sample in the batch prints ``loss/cn=nan``: not logged.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

_FUNCTION = "record_current_batch_training_metrics"
_MARKER = re.compile(_FUNCTION + r"[\] ].{0,200}?[\s,]step=(\d{1,15})[\s,]", re.ASCII)
_PAIR = re.compile(r"(?<![\w/.])([A-Za-z_][\w/.-]{0,80})(?: \([\w/ ]{1,60}\))?=(\{[^{}]{0,500}\}|[^\s,{]{1,60})")
_FIRST_OF_GROUPS = re.compile(r"\{'[^']{1,60}': ([^,}]{1,60})")
#: Printed by every rank when it starts.
_START = re.compile(
    r"={3,40}(?:New Run|Resume training from `([^`]{1,1000})`|Load Model from `[^`]{1,1000}`) \S{1,60} on host:\S"
)
_STARTS = ("=New Run ", "=Resume training from ", "=Load Model from ")
_SAVING = re.compile(r"\bSaving checkpoint to `([^`]{1,1000})` at batch count:(\d{1,15})\.", re.ASCII)
_SAVED = re.compile(r"\bStep: (\d{1,15}), rank 0 save ckpt use [\d.]{1,20} s", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "tflops": ("tflops_per_gpu", 1.0),
    "tgs": ("tokens_per_s", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "num_consumed_tokens": ("tokens", 1.0),
    "step": LEFT_OUT,
    "pid": LEFT_OUT,
}


class InternLM(LineByLine):
    """State: whether a start was told that no step has followed yet."""

    name = "internlm"
    title = "InternLM, InternEvo"
    example = (
        "2026-01-02 03:04:05,148 INFO train.py:318 in record_current_batch_training_metrics -- tflops=190.1,step=17,loss=9.8125,"
        "tgs (tokens/gpu/second)=4399.93,lr=3.8e-06,loss_scale=65536.0,grad_norm=4.1772,micro_num=4,num_consumed_tokens=2359296"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = (_FUNCTION,)
    prelude: ClassVar[tuple[str, ...]] = _STARTS

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._is_starting = False

    @staticmethod
    def claims(line: str) -> bool:
        return _FUNCTION in line and "loss=" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if _FUNCTION in line and "loss=" in line else None
        if found is None:
            return self._side_line(line)
        self._is_starting = False
        at = found.start() + len(_FUNCTION)
        pairs: list[tuple[str, str]] = []
        for pair in _PAIR.finditer(line, at):
            key, value = pair[1], pair[2]
            if group := _FIRST_OF_GROUPS.match(value):
                value = group[1]
            if "/" not in key or value != "nan":
                pairs.append((key, value))
        metrics = metrics_of(pairs, _NAMES)
        return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]

    def _side_line(self, line: str) -> list[Record]:
        text, time_ns = line.strip(), self._times.find(line[:80])
        if "=" in line and any(literal in line for literal in _STARTS) and (found := _START.search(line)):
            if self._is_starting:
                return []
            self._is_starting = True
            if found[1]:
                return [Event("resume", time_ns, text=text[:500], data={"path": found[1]})]
            return [phase("start", "begin", text, None, time_ns)]
        if "Saving checkpoint to `" in line and (found := _SAVING.search(line)):
            return [phase("checkpoint", "begin", text, int(found[2]), time_ns, path=found[1])]
        if "save ckpt use" in line and (found := _SAVED.search(line)):
            return [phase("checkpoint", "end", text, int(found[1]), time_ns)]
        return []

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "is_starting": self._is_starting}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._is_starting = bool(state["is_starting"])
