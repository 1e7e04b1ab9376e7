"""TensorBoard event files, as lines of ``tensorboard_records``: one scalar a line, joined to steps.

The newest ``_OPEN_STEPS`` steps are held, because writers in threads, and tags of different loggers, come a little out of order;
memory does not grow with the file. Steps that go back are a new attempt, as in any log. Validation tags are events. Tags over another axis
(Megatron-LM's ``lm loss vs samples``) are left out, and so are steps of which no loss, gradient norm, throughput or time is told.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, phase
from trainvitals.logs.metric_names import Meaning, meaning_of
from trainvitals.logs.step_rows import MAX_STEP, Row, RowJoiner
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import as_number

_OPEN_STEPS = 8
#: Megatron-LM's tag of that name is its TFLOP/s per GPU (``--log-throughput``); a curve's column of that name is tokens per second.
_MEGATRON_THROUGHPUT = Meaning("train", "tflops_per_gpu", 50, is_of_a_step=True)


class TensorBoard:
    """State: the steps that are held."""

    name = "tensorboard"
    title = "TensorBoard event files (events.out.tfevents.*), one file or the directory of a run"
    example = '{"tfevents":1,"step":120,"time_ns":1770000000000000000,"tag":"train/loss","value":2.5}'
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ('{"tfevents":1,',)
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._joiner = RowJoiner(_OPEN_STEPS)
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return line.startswith('{"tfevents":1,') and _load(line) is not None

    def feed(self, line: str) -> list[Record]:
        record = _load(line)
        if record is None:
            self.bad_records += 1
            return []
        if "damaged" in record:
            self.bad_records += 1
            return []
        time_ns = checked_time_ns(record.get("time_ns"))
        if "start" in record:
            found = self._joiner.flush()
            step = record["start"]
            if isinstance(step, int) and 0 < step < MAX_STEP:
                text = f"the writer starts again at step {step}, what was written behind it is void"
                found.append(phase("start", "begin", text, step, time_ns))
            return found
        step, tag, value = record.get("step"), record.get("tag"), as_number(record.get("value"))
        if (
            not isinstance(step, int)
            or isinstance(step, bool)
            or not 0 <= step < MAX_STEP
            or not isinstance(tag, str)
            or value is None
        ):
            self.bad_records += 1
            return []
        row = Row(step, 0, time_ns)
        row.take(tag, _MEGATRON_THROUGHPUT if tag == "throughput" else meaning_of(tag), value)
        return self._joiner.add(row)

    def idle(self) -> list[Record]:
        return self._joiner.flush()

    def finish(self) -> list[Record]:
        return self._joiner.flush()

    def to_state(self) -> dict[str, Any]:
        return {"joiner": self._joiner.to_state(), "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._joiner.restore(state["joiner"])
        self.bad_records = int(state["bad_records"])


def _load(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("tfevents") == 1 else None
