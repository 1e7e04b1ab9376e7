"""m4 (IDEFICS): ``iteration:   120/9000   1% | elapsed time: 01:02:03 | per_token_loss: 4.1000 | lr: 2.400E-06 | …``.

In bf16 the loss has only a few distinct values. Lines hold no time of day.
"""

from __future__ import annotations

import re
from typing import ClassVar

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

_MARKER = re.compile(r"\biteration:\s{1,12}(\d{1,15})/\d{1,15}\s{1,6}\d{1,3}% \| (?=elapsed time: )", re.ASCII)
_NAMES: Names = {
    "per_token_loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "num_tokens": ("tokens", 1.0),
    "elapsed time": LEFT_OUT,
    "eta": LEFT_OUT,
}
_MAX_CELLS = 200


class M4(LineByLine):
    """No state: each line stands for itself."""

    name = "m4"
    title = "m4, IDEFICS"
    example = "iteration:   120/9000   1% | elapsed time: 01:02:03 | per_token_loss: 4.1000 | lr: 2.400E-06 | num_tokens: 37800000 | grad_norm: 1.2"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("iteration: ",)

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times

    @staticmethod
    def claims(line: str) -> bool:
        return "iteration: " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _MARKER.search(line) if "iteration: " in line else None
        if found is None:
            return []
        cells = (cell.partition(":") for cell in line[found.end() :].split("|")[:_MAX_CELLS])
        metrics = metrics_of(((key.strip(), raw.strip()) for key, _, raw in cells), _NAMES)
        return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
