"""Swin Transformer, SimMIM and their relatives: ``Train: [0/300][40/1251]\\teta 1:00:00 lr 0.000001\\t wd 0.05\\ttime 0.5 (0.6)\\tloss 6.9 (7.0)…``.

The value comes first, its running mean in parentheses is ignored. The step is epoch x steps per epoch + index, from 0.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

_TRAIN = re.compile(r"\bTrain: \[(\d{1,9})/\d{1,9}\]\[(\d{1,15})/(\d{1,15})\]\s{1,4}(?=eta \d)", re.ASCII)
_PAIR = re.compile(r"(?<!\w)([a-z]\w{0,60}) ([-+]?[\d.]{1,40}(?:e[-+]?\d{1,4})?|nan|inf)(?=[\s,]|\Z)", re.ASCII)
_SAVED = re.compile(r"\b(\S{1,1000}\.pth) saved !{1,3}")
_RESUMED = re.compile(r"=> loaded successfully '([^']{1,1000})' \(epoch (\d{1,9})\)", re.ASCII)
_ACCURACY = re.compile(r"\* Acc@1 (\d{1,3}(?:\.\d{1,9})?) Acc@5 (\d{1,3}(?:\.\d{1,9})?)", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "time": ("step_time_s", 1.0),
    "eta": LEFT_OUT,
}


class Swin(LineByLine):
    """No state: each line stands for itself."""

    name = "swin"
    title = "Swin Transformer, SimMIM and relatives"
    example = (
        "[2026-01-02 03:04:05 swin_base] (main.py 223): INFO Train: [3/300][40/1251]\teta 0:10:00 lr 0.000125\t wd 0.0500\t"
        "time 0.4900 (0.5100)\tloss 6.9000 (7.0100)\tgrad_norm 1.5000 (inf)\tloss_scale 65536.0000 (65536.0000)\tmem 23450MB"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("Train: [",)
    prelude: ClassVar[tuple[str, ...]] = ("=> loaded successfully",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "Train: [" in line and "loss" in line and _TRAIN.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if found := _TRAIN.search(line) if "Train: [" in line else None:
            step = int(found[1]) * int(found[3]) + int(found[2])
            metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
            return [Step(step, 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
        if "=> loaded successfully" in line and (found := _RESUMED.search(line)):
            return [Event("resume", self._times.find(line[:80]), text=line.strip()[:500], data={"path": found[1]})]
        if " saved !" in line and (found := _SAVED.search(line)):
            return [phase("checkpoint", "end", line.strip(), None, self._times.find(line[:80]), path=found[1])]
        if "* Acc@1 " in line and (found := _ACCURACY.search(line)):
            data = {"accuracy_top1": float(found[1]), "accuracy_top5": float(found[2])}
            return [message(line.strip(), data, None, self._times.find(line[:80]))]
        return []
