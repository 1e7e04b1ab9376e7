"""The last resort: lines of a trainer that nobody has described, read by their shape when several in a row tell a rising step and a loss.

One line proves nothing: a document, a program or another tool may hold it. So lines of each shape are kept until enough of one and the same shape
have told steps that rise, with the fewer doubts the better: a number that is called a step needs ``_WANTED`` lines, a progress bar more. Then what was
kept is read, and an event says from which names step and loss were taken, because a person must see that this was guessed.

A position in an epoch is numbered on over the training (``epoch_counter``). Lines of a validation, of a saved checkpoint or of a summary are no steps.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message
from trainvitals.logs.grammars.cells import with_iso_dates
from trainvitals.logs.grammars.epoch_counter import EpochCounter
from trainvitals.logs.grammars.line_shapes import MAX_LINE, Reading, epoch_line, read_line, step_line
from trainvitals.logs.grammars.shape_metrics import metrics_of_reading
from trainvitals.logs.grammars.shape_tables import ShapeTables
from trainvitals.logs.grammars.validation_block import Place, ValidationBlock
from trainvitals.logs.quoted import is_quoted
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event, Step
from trainvitals.schema import TRAIN_METRICS

#: Best kind first; how many lines with a rising step make a shape that of the trainer.
_WANTED = {"step": 3, "batch": 3, "table": 3, "block": 3, "bar": 30, "bare": 5, "epoch": 6}
_RANK = {kind: rank for rank, kind in enumerate(_WANTED)}
#: At the end of the file, where no better shape can come.
_WANTED_AT_END = 3
#: And of lines that tell one of the schema's other metrics, or their step's total, too.
_WANTED_OF_RICH = 2
#: In a file that begins as a document or a program does.
_WANTED_OF_DOCUMENT = 20
_MAX_SHAPES = 40
#: Lines between a step and its loss.
_MAX_BELOW = 8
_MAX_JOINED = 60
_STEPS_OF_A_RESUME = 20
_RESUMED = re.compile(
    r"\b(?:resum(?:e|ed|ing)|restor(?:ed|ing)|continuing)\b[^=]{0,200}?\b(?:global[ _])?(?:step|iter|iteration)\b[\s=:#]{1,4}(\d[\d,]{0,14})(?![\d.])",
    re.ASCII | re.IGNORECASE,
)
_MAX_LINES = 240
_MAX_CHARACTERS = 64 * 1024
#: So many steps of another shape, with none of the one in use between them, are the trainer's new way of writing: of one that goes on behind
#: the last step, and of one that counts from the beginning again, as samples and validations do.
_TO_CHANGE = 12
_TO_CHANGE_BACK = 100
_DOCUMENT = re.compile(r"#{1,4} \w|<[!a-zA-Z]|!\[|---\s*\Z|\"\"\"|(?:import|from|def|class) \w|#!|%YAML|```")
#: Above an example in a document; an item of a list.
_EXAMPLE = re.compile(r"\s{0,8}(?:(?:example|sample|expected|typical)\b.{0,60}:\s{0,8}\Z|usage: )", re.IGNORECASE)
_ITEM = re.compile(r"\s{0,8}[-*\u2022] \S")
#: One pair a line, indented: a configuration.
_SETTING = re.compile(r"(\s{1,40})(?:- )?[\w.-]{1,60}:\s{1,8}\S{1,60}\s{0,8}\Z")


class ByShape:
    """State: the shapes met so far, the lines that may have to be read again, the shape in use, the epoch, a bar that waits."""

    name = "by_shape"
    title = "unknown trainers whose lines tell a step and a loss, read by their shape"
    example = (
        "epoch 1/5, step 110/5000, train_loss=2.4125, lr=3.00e-04, gnorm=0.91, 12.5k tok/s\n"
        "epoch 1/5, step 120/5000, train_loss=2.4033, lr=3.00e-04, gnorm=0.88, 12.4k tok/s\n"
        "epoch 1/5, step 130/5000, train_loss=2.3986, lr=2.99e-04, gnorm=0.90, 12.5k tok/s"
    )
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("\0no line by itself\0",)
    prelude: ClassVar[tuple[str, ...]] = ()
    is_document = False
    is_weak = True

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._counts: dict[
            str, list[Any]
        ] = {}  # shape -> [rising lines, epoch, position, kind, since the last step in use, went on behind it, was a side line]
        self._lines: list[str] = []
        self._characters = 0
        self._shape = ""
        self._kind = ""
        self._epoch: list[int | None] = [None, None]  # of the last line that only named it
        self._counter = EpochCounter()
        self._waiting: str | None = None  # a bar is drawn with its old numbers first
        self._waiting_epoch: list[int | None] = [None, None]
        self._last: int | None = None
        self._interval = 1
        self._since_resume = _STEPS_OF_A_RESUME
        self._is_document_like: bool | None = None
        self._has_example = False  # a line said that one follows
        self._tables = ShapeTables()
        self._block = ValidationBlock()
        self._place: Place | None = None  # of the last step of the shape in use
        self._total: int | None = None
        self._above: tuple[str, int] = ("", 0)  # a line that told a step only, and how many lines ago
        self._joined: list[str] = []  # the lines of a dictionary that is printed over several
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """Never: no single line of an unknown trainer can be told from a document's."""
        return False

    def feed(self, line: str) -> list[Record]:
        if self._is_document_like is None:
            self._is_document_like = _DOCUMENT.match(line) is not None
        line = self._whole(line)
        reading = self._read(line) if line else None
        if reading is None:
            if (named := epoch_line(line)) is not None:
                self._epoch = [*named]
            if line:
                self._look_around(line)
            resumed = self._resume(line) if self._shape else []
            if not self._shape and (named is not None or self._above == (line, 0) or _RESUMED.search(line)):
                self._keep(line)
            return resumed
        if reading.is_validation:
            return self._validation(reading, line) if self._shape else []
        place = (reading.epoch if reading.epoch is not None else self._epoch[0] or 0, reading.position)
        entry = self._counts.get(reading.shape)
        last = self._place if self._shape else (entry[1], entry[2]) if entry is not None else None
        if self._block.holds(reading, place, last, self._interval, self._total):
            return []
        if reading.shape != self._shape:
            return self._candidate(reading, line, place)
        for other in self._counts.values():
            other[6] = other[6] or other[4] > 0
            other[4] = 0
        if self._kind in ("step", "batch"):  # what stood between two of them is no way of writing on
            self._lines, self._characters = [], 0
        self._place, self._total = place, reading.total
        return self._step(reading, line)

    def _look_around(self, line: str) -> None:
        self._block.look(line, bool(self._shape))
        if not self._shape and _EXAMPLE.match(line):
            self._has_example = True

    def idle(self) -> list[Record]:
        return self._release()

    def finish(self) -> list[Record]:
        """What waits; and with nothing chosen, the best shape of a short log."""
        if self._shape:
            return self._release()
        rich = (
            set()
            if self._is_document_like
            else {reading.shape for line in self._lines if (reading := self._read(line)) and _is_rich(reading)}
        )
        wanted = _WANTED_OF_DOCUMENT if self._is_document_like else _WANTED_AT_END
        ready = [
            (_RANK[entry[3]], -entry[0], shape)
            for shape, entry in self._counts.items()
            if entry[0] >= (_WANTED_OF_RICH if shape in rich else wanted)
        ]
        if not ready:
            return []
        return self._choose(min(ready)[2]) + self._release()

    def _read(self, line: str) -> Reading | None:
        if (row := self._tables.look(line)) is not None:
            return row
        reading = read_line(line)
        text, age = self._above
        if reading is None and text:
            reading = None if _is_setting(text, line) else read_line(line, step_line(text))
            self._above = (text, age + 1) if reading is None and age < _MAX_BELOW else ("", 0)
        if reading is None and step_line(line) is not None:
            self._above = (line, 0)
        return reading if reading is not None and not is_quoted(line) else None

    def _whole(self, line: str) -> str:
        """A dictionary that is printed over several lines, as one; "" while it goes on."""
        if not self._joined and not (line.startswith("{") and line[-1:] in (",", "{")):
            return line
        if self._joined and read_line(line) is not None:  # it was torn: what follows stands for itself
            self._joined = []
            return line
        self._joined.append(line[:MAX_LINE])
        if not line.endswith("}") and len(self._joined) < _MAX_JOINED:
            return ""
        joined, self._joined = " ".join(part.strip() for part in self._joined)[:MAX_LINE], []
        return joined

    def _candidate(self, reading: Reading, line: str, place: Place) -> list[Record]:
        """Evidence for a shape; records when it is enough, those of the lines kept first."""
        entry = self._counts.get(reading.shape)
        if entry is None:
            if len(self._counts) >= _MAX_SHAPES:
                del self._counts[next(shape for shape in self._counts if shape != self._shape)]
            entry = self._counts[reading.shape] = [0, -1, -1, reading.kind, 0, False, False]
        if place > (entry[1], entry[2]):
            if entry[4] == 0:
                entry[5] = self._place is None or place > self._place
            entry[0] += 1
            entry[4] = min(entry[4] + 1, _MAX_LINES)
            entry[1], entry[2] = place
        if not self._shape and (_ITEM.match(line) or (self._has_example and line[:1].isspace())):
            self._is_document_like = True
        self._keep(line)
        wanted = max(_WANTED[reading.kind], _WANTED_OF_DOCUMENT if self._is_document_like else 0)
        return self._choose(reading.shape) if self._is_enough(entry, wanted) else []

    def _is_enough(self, entry: list[Any], wanted: int) -> bool:
        """Whether the shape is to be read from now on. Nothing that counts less well takes the place of the shape in use."""
        if not self._shape:
            return bool(entry[0] >= wanted)
        better = _RANK[entry[3]] - _RANK[self._kind]
        # A batch is as good as a step: the lines that tell steps beside it may be rare ones.
        if better < 0 and self._kind not in ("step", "batch") and entry[0] >= wanted:
            return True
        if better > 0 or (better == 0 and not entry[5] and entry[6]):
            return False
        goes_on = entry[5] or better < 0
        return bool(entry[4] >= max(_TO_CHANGE if goes_on else _TO_CHANGE_BACK, wanted))

    def _keep(self, line: str) -> None:
        line = line[: 2 * MAX_LINE]
        self._lines.append(line)
        self._characters += len(line)
        while len(self._lines) > _MAX_LINES or self._characters > _MAX_CHARACTERS:
            self._characters -= len(self._lines.pop(0))

    def _choose(self, shape: str) -> list[Record]:
        records = self._release()
        is_first = not self._shape
        kept, self._lines, self._characters = self._lines, [], 0
        self._shape, self._kind = shape, self._counts[shape][3]
        self._counts = {shape: self._counts[shape]}
        if is_first:
            self._counter, self._epoch = EpochCounter(), [None, None]
        self._above = ("", 0)
        entry = self._counts[shape]
        self._place = (entry[1], entry[2])
        told: list[Record] = []
        first: Reading | None = None
        for line in kept:
            reading = self._read(line)
            if reading is None:
                self._epoch = [*named] if (named := epoch_line(line)) is not None else self._epoch
                told += self._resume(line)
            elif reading.shape == shape and not reading.is_validation:
                first = first or reading
                self._total = reading.total
                told += self._step(reading, line)
        if first is not None:
            step = next((record.step for record in told if isinstance(record, Step)), None)
            time_ns = next((record.time_ns for record in told if isinstance(record, Step)), None)
            data = {"format": self.name, "step_from": first.step_name, "loss_from": first.loss.key, "kind": first.kind}
            text = (
                f"read by shape: step from '{first.step_name}', loss from '{first.loss.key}'. No known trainer writes these lines; "
                "where that is wrong, describe them under [formats.NAME] in the settings (docs/formats.md)."
            )
            if first.step_name == "[a/b]":
                text += " The step counts what stands there: batches, or samples where the trainer prints those."
            records.append(message(text, data, step, time_ns))
        return records + told

    def _resume(self, line: str) -> list[Record]:
        """A trainer that says from which step it goes on; what other ranks and parts of it say soon after is the same."""
        found = _RESUMED.search(line) if len(line) <= MAX_LINE else None
        if found is None or self._since_resume < _STEPS_OF_A_RESUME or is_quoted(line):
            return []
        self._since_resume = 0
        step = int(found[1].replace(",", ""))
        return [*self._release(), Event("resume", self._times.find(line[:80]), step=step, text=line.strip()[:500])]

    def _step(self, reading: Reading, line: str) -> list[Record]:
        if reading.kind == "bar":
            records: list[Record] = []
            if self._waiting is not None:
                held = read_line(self._waiting)
                if held is None or (held.position, held.total, held.epoch) != (reading.position, reading.total, reading.epoch):
                    records = self._release()
            self._waiting, self._waiting_epoch = line[: 2 * MAX_LINE], list(self._epoch)
            return records
        return self._records(reading, line)

    def _release(self) -> list[Record]:
        if self._waiting is None:
            return []
        line, self._waiting = self._waiting, None
        reading = read_line(line)
        if reading is None:
            return []
        now, self._epoch = self._epoch, self._waiting_epoch
        records = self._records(reading, line)
        self._epoch = now
        return records

    def _records(self, reading: Reading, line: str) -> list[Record]:
        epoch, epochs = (reading.epoch, reading.epochs) if reading.epoch is not None else self._epoch
        step = reading.position
        if reading.rounded_to == 1:
            step = self._counter.number(step, reading.total, epoch, epochs, reading.kind in ("batch", "bar"))
        step, self._interval = counted_on(step, self._last, self._interval, reading.rounded_to)
        self._last = step
        self._since_resume = min(self._since_resume + 1, _STEPS_OF_A_RESUME)
        time_ns = self._times.find(with_iso_dates(line[: max(reading.start, 40)][-200:]))
        metrics, validation = metrics_of_reading(reading)
        records: list[Record] = [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        if validation:
            records.append(message(line.strip(), json_safe(validation), step, time_ns))
        return records

    def _validation(self, reading: Reading, line: str) -> list[Record]:
        value = parse_number(reading.loss.raw)
        if value is None:
            return []
        time_ns = self._times.find(with_iso_dates(line[: max(reading.start, 40)][-200:]))
        return [message(line.strip(), json_safe({"validation_loss": value}), self._last, time_ns)]

    def to_state(self) -> dict[str, Any]:
        return {
            "counts": [[shape, *entry] for shape, entry in self._counts.items()], "lines": list(self._lines),
            "shape": self._shape, "kind": self._kind, "epoch": list(self._epoch), "counter": self._counter.to_state(),
            "waiting": [self._waiting, list(self._waiting_epoch)], "last": [self._last, self._interval, self._since_resume], "is_document_like": self._is_document_like,
            "block": [self._block.to_state(), list(self._place) if self._place else None, self._total, self._has_example],
            "tables": self._tables.to_state(), "open": [list(self._above), list(self._joined)], "bad_records": self.bad_records,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._counts = {str(shape): list(entry) for shape, *entry in state["counts"]}
        self._lines = [str(line) for line in state["lines"]]
        self._characters = sum(map(len, self._lines))
        self._shape, self._kind, self._epoch = state["shape"], state["kind"], list(state["epoch"])
        self._counter.restore(state["counter"])
        self._waiting, self._waiting_epoch = state["waiting"]
        self._last, self._interval, self._since_resume = state["last"]
        self._is_document_like = state["is_document_like"]
        self._tables.restore(state["tables"])
        block, place, self._total, self._has_example = state["block"]
        self._block.restore(block)
        self._place = (int(place[0]), int(place[1])) if place else None
        above, joined = state["open"]
        self._above, self._joined = (str(above[0]), int(above[1])), [str(line) for line in joined]
        self.bad_records = int(state["bad_records"])


def _is_setting(above: str, line: str) -> bool:
    """Whether the two lines stand in one block of a configuration."""
    first, second = _SETTING.match(above), _SETTING.match(line)
    return first is not None and second is not None and len(first[1]) == len(second[1])


def _is_rich(reading: Reading) -> bool:
    if reading.kind not in ("step", "batch"):
        return False
    values, validation = metrics_of_reading(reading)
    known = sum(name in TRAIN_METRICS for name in (*values.values, *values.nonfinite)) + bool(validation)
    return known > 1 or reading.total is not None or reading.epoch is not None


def counted_on(step: int, last: int | None, interval: int, rounded_to: int) -> tuple[int, int]:
    """(step, interval): a step printed as ``2K`` is the last one and the interval, where that fits what was printed."""
    if rounded_to > 1 and last is not None and abs(last + interval - step) <= rounded_to / 2:
        return last + interval, interval
    if rounded_to == 1 and last is not None and step > last:
        interval = step - last
    return step, interval


def may_read(line: str) -> bool:
    """Whether the line alone tells a training step and its loss; that does not yet say that a trainer wrote it."""
    reading = read_line(line)
    return reading is not None and not reading.is_validation and reading.kind in ("step", "batch") and not is_quoted(line)
