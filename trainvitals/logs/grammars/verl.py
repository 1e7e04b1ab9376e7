"""verl, console logger: ``step:1 - actor/pg_loss:-0.017 - actor/grad_norm:0.25 - actor/lr:1e-06 - timing_s/step:104.7 - …``.

The loss is the policy's (``actor/pg_loss``), in supervised fine-tuning ``train/loss``. ``perf/throughput`` is tokens per second and
GPU. numpy's ``np.float64(1.5)`` stands for its number. A line with validation scores only is an event.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import slug
from trainvitals.records import Step

_MARKER = re.compile(r"(?:^|\s)step:(\d{1,15}) - (?=[a-z][\w.-]{0,60}/\S{1,200}:\S)", re.ASCII)
_PAIR = re.compile(r"([A-Za-z][\w/.@()-]{0,150}):(?:np\.float\d{1,3}\()?([-+\w.]{1,40})")
_VALIDATION = ("val/", "val-core/", "val-aux/")
_NAMES: Names = {
    "actor/pg_loss": ("loss", 1.0),
    "train/loss": ("loss", 1.0),
    "actor/grad_norm": ("grad_norm", 1.0),
    "train/grad_norm": ("grad_norm", 1.0),
    "actor/lr": ("lr", 1.0),
    "train/lr": ("lr", 1.0),
    "train/lr(1e-3)": ("lr", 1e-3),
    "perf/throughput": ("tokens_per_s", 1.0),
    "perf/mfu/actor": ("mfu", 100.0),
    "mfu/actor": ("mfu", 100.0),
    "perf/total_num_tokens": ("step_tokens", 1.0),
    "timing_s/step": ("step_time_s", 1.0),
    "training/global_step": LEFT_OUT,
}
_MAX_PAIRS = 300


class Verl(LineByLine):
    """No state: each line stands for itself."""

    name = "verl"
    title = "verl"
    example = (
        "(TaskRunner pid=4711) step:12 - actor/pg_loss:-0.0171 - actor/grad_norm:0.25 - actor/lr:1e-06 - critic/score/mean:0.42 - "
        "perf/throughput:2150.5 - timing_s/step:104.7"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("step:",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "step:" in line and ("actor/pg_loss:" in line or "train/loss:" in line) and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "step:" in line else None
        if found is None:
            return []
        step = int(found[1])
        cells = (_PAIR.match(cell) for cell in line[found.end() :].split(" - ")[:_MAX_PAIRS])
        pairs = [(cell[1], cell[2]) for cell in cells if cell]
        validation = metrics_of(
            (pair for pair in pairs if pair[0].startswith(_VALIDATION)), {"val/loss": ("validation_loss", 1.0)}
        )
        metrics = metrics_of((pair for pair in pairs if not pair[0].startswith(_VALIDATION)), _NAMES)
        time_ns = self._times.find(line[: found.start()][-200:])
        records: list[Record] = []
        if metrics and any(pair[0] in _NAMES or slug(pair[0]) == "loss" for pair in pairs):
            records.append(Step(step, 0, time_ns, metrics.values, metrics.nonfinite))
        if validation:
            records.append(message(line.strip(), {**validation.values, **validation.nonfinite}, step, time_ns))
        return records
