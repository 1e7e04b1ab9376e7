"""OLMo and OLMo-core: a header ``[step=2/1000,epoch=0]`` behind a logger's prefix, then indented ``name=value`` lines.

Ends at the next line that is not indented. Numbers have thousands commas, small ones an exponent (allenai/OLMo issue 692:
``1.78e-06``). A header with no lines is a step of which OLMo-core logs no metrics. Tokens per second are per device.
Evaluations follow as a block with a label for a header: its losses are events.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.blocks import BlockByBlock
from trainvitals.logs.grammars.cells import Names, parse_large_number
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number, slug
from trainvitals.records import Event

_HEADER = re.compile(
    r"(?:^|[\s\]])\[step=([\d,]{1,20})/(?:[\d,]{1,20}|\?\?\?)(?:, ?(?:epoch|eta)=[^\]\[]{1,80})?\]\s*\Z", re.ASCII
)
_PAIR = re.compile(r"(?<!\s)\s{2,40}([A-Za-z][^=]{0,150})=(\S{1,60})\s*\Z")
_LOSS = re.compile(r"CrossEntropyLoss\Z|CE loss\Z")
_SAVING = re.compile(r"\bSaving checkpoint for step ([\d,]{1,20}) to '?([^\s']{1,1000})", re.ASCII)
_SAVED = re.compile(r"\bCheckpoint for step ([\d,]{1,20}) saved successfully", re.ASCII)
_SAVED_TO = re.compile(r"\b[cC]heckpoint saved to (\S{1,1000}?step(\d{1,15})\S{0,100})", re.ASCII)
_SAVING_KIND = re.compile(r"\bSaving (?:(?:un)?sharded |ephemeral |permanent )?checkpoint\.\.\.\s*\Z", re.ASCII)
_RESUMED = re.compile(r"\b[wW]ill resume training from step ([\d,]{1,20})", re.ASCII)
_LOADING = re.compile(r"\bLoading checkpoint from '?(\S{1,1000}?step(\d{1,15})[^\s'.]{0,100})", re.ASCII)
_START = re.compile(
    r"(?<![\w.])(?:olmo[\w.]{0,200}|train):\d{1,6}(?:, rank=\d{1,7}\])?\s{1,20}(?:INFO\s{1,4})?Starting training\.\.\.\s*\Z",
    re.ASCII,
)
_SIDE = re.compile(r"heckpoint(?: |\.\.\.)|resume training from step|Starting training\.\.\.")
_FIXED: Names = {
    "train/CrossEntropyLoss": ("loss", 1.0),
    "train/CE loss": ("loss", 1.0),
    "optim/total_grad_norm": ("grad_norm", 1.0),
    "optim/total grad norm": ("grad_norm", 1.0),
    "optim/learning_rate_group0": ("lr", 1.0),
    "optim/LR (group 0)": ("lr", 1.0),
    "optim/LR": ("lr", 1.0),
    "throughput/device/tokens_per_second": ("tokens_per_s", 1.0),
    "throughput/device/TPS": ("tokens_per_s", 1.0),
    "throughput/device/MFU": ("mfu", 1.0),
    "throughput/total_tokens": ("tokens", 1.0),
    "throughput/total tokens": ("tokens", 1.0),
    "optim/step skipped": ("skipped", 1.0),
}


class Olmo(BlockByBlock):
    """State: the record that is open, and the last step."""

    name = "olmo"
    title = "OLMo, OLMo-core"
    example = (
        "2026-01-02 03:04:05.678\thost-1:0\tolmo.train:908\tINFO\t[step=2/1000,epoch=0]\n"
        "    optim/total_grad_norm=0.9120\n"
        "    train/CrossEntropyLoss=9.412\n"
        "    throughput/total_tokens=8,388,608\n"
        "    throughput/device/tokens_per_second=26,000\n"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("[step=",)
    prelude: ClassVar[tuple[str, ...]] = ("ill resume training from step", "Loading checkpoint from", "Starting training...")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._last: int | None = None

    @staticmethod
    def claims(line: str) -> bool:
        return "[step=" in line and _HEADER.search(line) is not None

    def names(self, pairs: dict[str, str]) -> Names:
        return _FIXED

    def feed(self, line: str) -> list[Record]:
        if found := _HEADER.search(line) if "[step=" in line else None:
            self._last = int(found[1].replace(",", "") or 0)
            return self.begin(self._last, self._times.find(line[: found.start()][-300:]), line)
        if "=" in line[:400] and (pair := _PAIR.search(line)) and self.is_inside(line[: pair.start()]):
            return self._pair(pair[1], pair[2], line)
        return [*self.close(), *(self._side_line(line) if _SIDE.search(line) else ())]

    def _pair(self, key: str, value: str, line: str) -> list[Record]:
        is_evaluation = key.startswith("eval/") or (not self.is_open and not key.startswith("train/"))
        if not is_evaluation:
            self.put(key, value)
            return []
        number = parse_large_number(value)
        if number is None or not _LOSS.search(key):
            return []
        data = json_safe({"validation_loss": number}) | {"validation_set": slug(_LOSS.sub("", key)) or ""}
        return [message(line.strip(), data, self._last)]

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        text = line.strip()
        if found := _RESUMED.search(line):
            return [Event("resume", time_ns, step=_integer(found[1]), text=text[:500])]
        if _START.search(line):
            return [phase("start", "begin", text, None, time_ns)]
        if found := _LOADING.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=text[:500], data={"path": found[1]})]
        if found := _SAVING.search(line):
            return [phase("checkpoint", "begin", text, _integer(found[1]), time_ns, path=found[2])]
        if _SAVING_KIND.search(line):
            return [phase("checkpoint", "begin", text, self._last, time_ns)]
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", text, _integer(found[1]), time_ns)]
        if found := _SAVED_TO.search(line):
            return [phase("checkpoint", "end", text, int(found[2]), time_ns, path=found[1])]
        return []

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "last": self._last}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._last = state["last"]


def _integer(text: str) -> int | None:
    number = parse_number(text)
    return int(number) if number is not None else None
