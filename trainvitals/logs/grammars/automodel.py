"""NeMo AutoModel: ``step 10 | epoch 0 | loss 2.1234 | grad_norm 1.2500 | lr 1.00e-05 | mem 30.12 GiB | tps 9876.00(1234.50/gpu) | …``.

``tps`` is that of all GPUs. Lines that begin with ``[val]`` are validations.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.cells import Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\bstep (\d{1,15}) \| epoch \d{1,9} \| (?=loss \S{1,40} \| )", re.ASCII)
_CELL = re.compile(r"\s{0,4}([A-Za-z_][\w ]{0,60}?) (?!\()([-+\w.]{1,40})")
_VALIDATION = "[val] "
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "lr": ("lr", 1.0),
    "tps": ("tokens_per_s", 1.0),
    "mem": ("mem_gib", 1.0),
}
_MAX_CELLS = 100


class AutoModel(LineByLine):
    """No state: each line stands for itself."""

    name = "automodel"
    title = "NeMo AutoModel"
    example = (
        "2026-01-02 03:04:05 | INFO | root | step 10 | epoch 0 | loss 2.1234 | grad_norm 1.2500 | lr 1.00e-05 | mem 30.12 GiB | "
        "tps 9876.00(1234.50/gpu) | num_label_tokens 4096"
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = (" | epoch ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return (
            " | epoch " in line and "num_label_tokens " in line and _VALIDATION not in line and _MARKER.search(line) is not None
        )

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if " | epoch " in line and "num_label_tokens " in line else None
        if found is None:
            return []
        cells = (_CELL.match(cell) for cell in line[found.end() :].split("|")[:_MAX_CELLS])
        metrics = metrics_of(((cell[1], cell[2]) for cell in cells if cell), _NAMES)
        time_ns = self._times.find(line[: found.start()][-200:])
        step = int(found[1])
        if _VALIDATION not in line:
            return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        loss = metrics.values.get("loss", metrics.nonfinite.get("loss"))
        return [message(line.strip(), {"validation_loss": loss}, step, time_ns)] if loss is not None else []
