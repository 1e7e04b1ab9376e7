"""Orbit, the training loop of TensorFlow's Model Garden: ``train | step:   1000 | steps/sec:    5.2 | output: {'training_loss': 2.3}``.

A long output follows on indented lines, up to its closing brace. Orbit both logs and prints each line: the second is a repetition.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.blocks import BlockByBlock
from trainvitals.logs.grammars.cells import Names
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number, slug
from trainvitals.records import Event

_HEADER = re.compile(r"\btrain \| step:\s{1,12}(\d{1,15}) \| steps/sec:\s{1,12}(\S{1,40}) \| output:", re.ASCII)
_EVAL = re.compile(r"\beval \| step:\s{1,12}(\d{1,15}) \| .{0,60}?\| output: \{", re.ASCII)
_SAVED = re.compile(r"\bsaved checkpoint to (\S{1,1000}?-(\d{1,15}))\.\s*\Z", re.ASCII)
_RESTORED = re.compile(r"\brestored from checkpoint: (\S{1,1000}?-(\d{1,15}))\.?\s*\Z", re.ASCII)
_PAIR = re.compile(r"'([A-Za-z][\w/ .-]{0,80})': (?:[\w.]{1,40}\()?([-+]?(?:\d[\d.]{0,40}(?:e[-+]?\d{1,4})?|nan|inf))", re.ASCII)
_RATE = "steps/sec"
_LOSSES = ("training_loss", "train_loss", "total_loss", "loss")


class Orbit(BlockByBlock):
    """State: the record that is open."""

    name = "orbit"
    title = "TensorFlow Model Garden (Orbit)"
    example = (
        "I0102 03:04:05.597360 140348 controller.py:479] train | step:   1000 | steps/sec:    4.0 | output: \n"
        "    {'learning_rate': 0.0001,\n"
        "     'masked_lm_accuracy': 0.21,\n"
        "     'training_loss': 7.125}"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("train | step:",)
    prelude: ClassVar[tuple[str, ...]] = ("restored from checkpoint: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "train | step:" in line and _HEADER.search(line) is not None

    def names(self, pairs: dict[str, str]) -> Names:
        loss = next((key for key in _LOSSES if key in pairs), "loss")
        return {
            loss: ("loss", 1.0),
            "learning_rate": ("lr", 1.0),
            "grad_norm": ("grad_norm", 1.0),
            "step_time_s": ("step_time_s", 1.0),
        }

    def feed(self, line: str) -> list[Record]:
        if found := _HEADER.search(line) if "train | step:" in line else None:
            records = [*self.close(), *self.begin(int(found[1]), self._times.find(line[: found.start()][-200:]))]
            rate = parse_number(found[2])
            if rate is not None and 1e-9 < rate < 1e9:
                self.put("step_time_s", repr(1.0 / rate))
            return [*records, *self._output(line[found.end() :])]
        if self.is_open and ("'" in line or "}" in line):
            return self._output(line)
        return [*self.close(), *self._side_line(line)]

    def _output(self, text: str) -> list[Record]:
        for pair in _PAIR.finditer(text):
            self.put(pair[1], pair[2])
        return self.close() if "}" in text else []

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        if found := _EVAL.search(line) if "eval | step:" in line else None:
            values = {pair[1]: parse_number(pair[2]) for pair in _PAIR.finditer(line, found.end() - 1)}
            loss = next((values[key] for key in ("validation_loss", "test_loss", *_LOSSES) if key in values), None)
            others = {slug(key) or key[:64]: value for key, value in values.items() if value is not None and "loss" not in key}
            data = json_safe({**({"validation_loss": loss} if loss is not None else {}), **others})
            return [message(line.strip(), data, int(found[1]), time_ns)] if data else []
        if "checkpoint" not in line:
            return []
        if found := _SAVED.search(line):
            return [phase("checkpoint", "end", line.strip(), int(found[2]), time_ns, path=found[1])]
        if found := _RESTORED.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=line.strip()[:500], data={"path": found[1]})]
        return []
