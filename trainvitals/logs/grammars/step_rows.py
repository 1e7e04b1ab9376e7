"""Rows of metrics into records: the part that CSV, JSON lines and event files share.

Many loggers write one metric or one group a row, so what belongs to one step is joined before it is given out.
"""

from __future__ import annotations

from typing import Any

from trainvitals.logs.grammar import Record, message
from trainvitals.logs.grammars.metric_names import SUMMARY_MARKS, SUMMARY_RANK, Meaning, meaning_of
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import Metrics, as_number, json_safe
from trainvitals.records import Step
from trainvitals.schema import TRAIN_METRICS

MAX_STEP = 10**15
#: Metrics of one step that are kept; what a person can look at is far below.
_MAX_METRICS = 500
_MAX_EPOCHS = 10_000
_MAX_ROWS = 128
#: A number that tells a time: seconds, milliseconds, microseconds or nanoseconds of 2001 to 2100. What is smaller is a duration.
_UNITS_NS = ((10**9, 4_102_444_800), (10**6, 4_102_444_800_000), (10**3, 4_102_444_800_000_000), (1, 4_102_444_800_000_000_000))
_FIRST_EPOCH_S = 1_000_000_000


class Row:
    """What one line told of one step. ``values``: metric -> (rank of its name, value); ``names``: as they stood in the file."""

    __slots__ = ("attempt", "is_step", "names", "step", "time_ns", "validation", "values")

    def __init__(self, step: int, attempt: int = 0, time_ns: int | None = None) -> None:
        self.step = step
        self.attempt = attempt
        self.time_ns = time_ns
        self.values: dict[str, tuple[int, float]] = {}
        self.validation: dict[str, float] = {}
        self.names: set[str] = set()
        self.is_step = False

    def put(self, name: str, value: float) -> None:
        """A metric by the name it has in the file."""
        self.take(name, meaning_of(name), value)

    def take(self, name: str, meaning: Meaning, value: float) -> None:
        """A metric by its meaning: of several names of one metric the best, of one name the first value."""
        if len(self.names) < 2 * _MAX_METRICS:
            self.names.add(name)
        if meaning.kind == "validation":
            if len(self.validation) < _MAX_METRICS:
                self.validation.setdefault(meaning.metric, value)
        elif meaning.kind == "train" and (meaning.metric in self.values or len(self.values) < _MAX_METRICS):
            known = self.values.get(meaning.metric)
            if known is None or meaning.rank < known[0]:
                self.values[meaning.metric] = (meaning.rank, value * meaning.factor)
            self.is_step = self.is_step or meaning.is_of_a_step

    def repeats(self, other: Row) -> bool:
        """Whether both tell the same metric: then they are two reports of the step, not two parts of one."""
        return any(name in self.names and "epoch" not in name.lower() for name in other.names)

    def join(self, other: Row) -> None:
        """Take the other's metrics in as well."""
        for name, (rank, value) in other.values.items():
            known = self.values.get(name)
            if len(self.values) < _MAX_METRICS and (known is None or rank < known[0]):
                self.values[name] = (rank, value)
        if len(self.validation) < _MAX_METRICS:
            self.validation = {**other.validation, **self.validation}
        if len(self.names) < 2 * _MAX_METRICS:
            self.names |= other.names
        self.is_step = self.is_step or other.is_step
        self.time_ns = self.time_ns if self.time_ns is not None else other.time_ns

    def loss_like(self) -> list[str]:
        """Extra metrics that are losses by their name."""
        return [name for name in self.values if "loss" in name and name not in TRAIN_METRICS and meaning_of(name).is_of_a_step]

    def records(self) -> list[Record]:
        """The step, if the row tells one, and the validation as an event."""
        found: list[Record] = []
        if not SUMMARY_MARKS.isdisjoint(self.names):
            self.values = {name: pair for name, pair in self.values.items() if pair[0] < SUMMARY_RANK}
            self.is_step = any(meaning_of(name).is_of_a_step for name in self.values)
        if self.is_step:
            metrics = Metrics()
            for name, (_, value) in self.values.items():
                metrics.put(name, value)
            found.append(Step(self.step, self.attempt, self.time_ns, metrics.values, metrics.nonfinite))
        if self.validation:
            found.append(message("evaluation", json_safe(self.validation), self.step, self.time_ns))
        return found

    def to_state(self) -> list[Any]:
        values = [[name, rank, *_safe(value)] for name, (rank, value) in self.values.items()]
        validation = [[name, *_safe(value)] for name, value in self.validation.items()]
        return [self.step, self.attempt, self.time_ns, self.is_step, values, validation, sorted(self.names)]

    @staticmethod
    def of_state(state: list[Any]) -> Row:
        row = Row(int(state[0]), int(state[1]), state[2])
        row.is_step = bool(state[3])
        row.values = {name: (int(rank), float(value)) for name, rank, value in state[4]}
        row.validation = {name: float(value) for name, value in state[5]}
        row.names = set(state[6])
        return row


def _safe(value: float) -> tuple[float | str]:
    # JSON has no NaN; float() reads the text again.
    return (value if value - value == 0 else repr(value),)


class RowJoiner:
    """Holds the rows of the newest steps until they are complete.

    The rows of ``open_steps`` steps are held: of 1 for a file whose rows of one step follow each other. A row that repeats a metric
    of a step that is held, or goes back behind what was given out, is a new start: what is held is given out first.
    """

    def __init__(self, open_steps: int = 1) -> None:
        self._open_steps = open_steps
        self._rows: list[Row] = []  # in order of their steps
        self._given = -1  # the last step that was given out since the last start
        #: Extra metric that is taken as the loss: the only loss of the first step, where none has a usual name. "" = none
        self._loss: str | None = None

    def add(self, row: Row) -> list[Record]:
        """Records that are complete now."""
        if not row.values and not row.validation:
            return []
        rows = self._rows
        same = [held for held in rows if held.step == row.step and held.attempt == row.attempt]
        for held in same:
            if not held.repeats(row):
                held.join(row)
                return []
        found: list[Record] = []
        # A second report of the newest step (of another rank) is filled beside the first one, and told as a repetition.
        is_second_report = bool(same) and self._open_steps > 1 and rows[-1] is same[-1]
        is_new_start = bool(same) or self._open_steps == 1 or row.step <= self._given or (rows and rows[0].attempt != row.attempt)
        if is_new_start and not is_second_report:
            found = self.flush()
        rows.append(row)
        if len(rows) > 1 and rows[-2].step > row.step:
            rows.sort(key=lambda held: held.step)
        if len(rows) > self._open_steps and (len({held.step for held in rows}) > self._open_steps or len(rows) > _MAX_ROWS):
            oldest = rows.pop(0)
            self._given = oldest.step
            found.extend(self._records(oldest))
        return found

    def _records(self, row: Row) -> list[Record]:
        if "loss" in row.values:
            self._loss = ""
        elif self._loss is None and row.is_step and (losses := row.loss_like()):
            self._loss = losses[0] if len(losses) == 1 else ""
        if self._loss and self._loss in row.values:
            row.values["loss"] = row.values.pop(self._loss)
        return row.records()

    def flush(self, *, keeps_newest: bool = False) -> list[Record]:
        """Everything that is held, in order. ``keeps_newest``: but the newest step, of which more may come."""
        given = self._rows[:-1] if keeps_newest else self._rows
        found = [record for held in given for record in self._records(held)]
        del self._rows[: len(given)]
        if not keeps_newest:
            self._given = -1
        elif given:
            self._given = given[-1].step
        return found

    @property
    def held(self) -> int:
        """Number of steps held."""
        return len(self._rows)

    def to_state(self) -> dict[str, Any]:
        return {"rows": [row.to_state() for row in self._rows], "given": self._given, "loss": self._loss}

    def restore(self, state: dict[str, Any]) -> None:
        self._rows = [Row.of_state(row) for row in state["rows"]]
        self._given = int(state["given"])
        self._loss = state["loss"]


class EpochSteps:
    """Numbers steps on over the epochs, for trainers that count them in each epoch from the start.

    Only where the epoch rises while the step falls: a counter of the whole training never does that, and after a restart the
    epoch does not rise. Steps of an epoch that was seen before keep the numbers they had.
    """

    def __init__(self) -> None:
        self._starts: list[tuple[float, int]] = []  # epoch, what its steps are numbered on from
        self._epoch = -1.0
        self._raw = self._last = -1

    def number(self, step: int, epoch: float | None) -> int:
        """The step, numbered on; without an epoch, as in the epoch before."""
        offset = self._starts[-1][1] if self._starts else 0
        if epoch is not None and epoch == epoch:
            if epoch > self._epoch >= 0 and step < self._raw:
                offset = self._last + (step == 0)
                self._starts.append((epoch, offset))
                del self._starts[:-_MAX_EPOCHS]
            elif epoch < self._epoch:
                while self._starts and self._starts[-1][0] > epoch:
                    self._starts.pop()
                offset = self._starts[-1][1] if self._starts else 0
            self._epoch = epoch
        self._raw, self._last = step, step + offset
        return self._last

    @property
    def last(self) -> int:
        """The number that was given last, 0 before the first."""
        return max(self._last, 0)

    def to_state(self) -> list[Any]:
        return [[list(start) for start in self._starts], self._epoch, self._raw, self._last]

    def restore(self, state: list[Any]) -> None:
        self._starts = [(float(epoch), int(offset)) for epoch, offset in state[0]]
        self._epoch, self._raw, self._last = float(state[1]), int(state[2]), int(state[3])


def step_number(value: object) -> int | None:
    """The value as a step: a whole number, not negative; also ``120.0`` and ``"1,200"``."""
    number = as_number(value)
    if number is None or not 0 <= number < MAX_STEP or number != int(number):
        return None
    return int(number)


def time_of(value: object, times: LineTimes) -> int | None:
    """A time stamp as UTC nanoseconds: a number of seconds to nanoseconds since 1970, or a date and time as text."""
    if isinstance(value, str):
        found = times.find(value[:100]) if "-" in value or "/" in value else None
        if found is not None:
            return found
    number = as_number(value)
    if number is None or not _FIRST_EPOCH_S <= number < _UNITS_NS[-1][1]:
        return None
    exact = value if isinstance(value, int) else None
    for unit_ns, end in _UNITS_NS:
        if number < end:
            # A float of this size holds microseconds at best.
            return checked_time_ns(exact * unit_ns if exact is not None else round(number * unit_ns / 1000) * 1000)
    return None
