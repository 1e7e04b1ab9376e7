"""TensorBoard event files, as lines of ``tensorboard_records``: one scalar a line, joined to steps.

The newest ``_OPEN_STEPS`` steps are held, because writers in threads, and tags of different loggers, come a little out of order;
memory does not grow with the file. The newest one waits for the next, or for a long silence: a writer's first tag after its flush time
is flushed alone, and the others of that step come with the next flush (two minutes, as a rule). Steps that go back are a new attempt, as in any log. Validation tags are events. Tags over another axis
(Megatron-LM's ``lm loss vs samples``) are left out, and so are steps of which no loss, gradient norm, throughput or time is told.
Texts in front of a writer's first scalar are its configuration (Megatron-LM's arguments, Hugging Face's ``args``): ``metadata``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, phase
from trainvitals.logs.grammars.config_dump import config_events, read_mapping, scalar
from trainvitals.logs.grammars.json_lines import json_object
from trainvitals.logs.grammars.metric_names import Meaning, meaning_of
from trainvitals.logs.grammars.step_rows import MAX_STEP, Row, RowJoiner
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import as_number

_OPEN_STEPS = 8
_MAX_TEXTS = 3900
_MAX_TEXT_CHARACTERS = 256 * 1024
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
        self._texts: dict[str, str] | None = {}  # None once the first scalar came
        self._was_silent = False
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return line.startswith('{"tfevents":1,') and _load(line) is not None

    def feed(self, line: str) -> list[Record]:
        self._was_silent = False
        record = _load(line)
        if record is None:
            self.bad_records += 1
            return []
        if "damaged" in record:
            self.bad_records += 1
            return []
        time_ns = checked_time_ns(record.get("time_ns"))
        if "text" in record:
            self._take_text(str(record["text"]), str(record.get("value")))
            return []
        if "start" in record:
            found = self._joiner.flush()
            self._texts = {}
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
        told = self._configuration(step, time_ns) if self._texts is not None else []
        return told + self._joiner.add(row)

    def _take_text(self, tag: str, text: str) -> None:
        if self._texts is None:
            return  # samples and notes of the training
        if len(self._texts) >= _MAX_TEXTS or sum(map(len, self._texts.values())) + len(text) > _MAX_TEXT_CHARACTERS:
            self.bad_records += 1
            return
        self._texts[tag] = text

    def _configuration(self, step: int, time_ns: int | None) -> list[Record]:
        texts, self._texts = self._texts or {}, None
        values: dict[str, Any] = {}
        for tag, text in texts.items():
            mapping = read_mapping(text) if text.lstrip().startswith("{") else None
            values[tag] = mapping if mapping is not None else scalar(text)
        return (
            [*config_events(values, f"configuration in the event file, {len(texts)} text{'s' * (len(texts) > 1)}", time_ns, step)]
            if texts
            else []
        )

    def idle(self) -> list[Record]:
        was_silent, self._was_silent = self._was_silent, True
        return self._joiner.flush(keeps_newest=not was_silent)

    def finish(self) -> list[Record]:
        return self._joiner.flush()

    def to_state(self) -> dict[str, Any]:
        return {
            "joiner": self._joiner.to_state(), "texts": self._texts, "was_silent": self._was_silent, "bad_records": self.bad_records,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._joiner.restore(state["joiner"])
        self._texts = dict(state["texts"]) if state["texts"] is not None else None
        self._was_silent = bool(state["was_silent"])
        self.bad_records = int(state["bad_records"])


def _load(line: str) -> dict[str, Any] | None:
    record = json_object(line)
    return record if record is not None and record.get("tfevents") == 1 else None
