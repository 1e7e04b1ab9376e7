"""Hugging Face Trainer's stdout: ``{'loss': 1.505, 'grad_norm': 0.61, 'learning_rate': 4.5e-06, 'epoch': 0.03}``.

The line names no step. It comes, best first, from: the epoch, when the log says how many steps an epoch has (``Num
Epochs``, ``Total optimization steps``) and the epoch is printed finely enough; the progress bar ``38/500`` that tqdm draws
again right behind the line (the one before it may lag); counting by the distance of the last two lines or by
``logging_steps``. transformers 5 prints the numbers as strings of four digits.

The Trainer masks a NaN loss as 0.0 (ModernBERT issue 233): exactly 0.0 with a non-finite grad norm is a NaN; with a finite
one it is a loss (GRPO).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Event, Step

_DICT = re.compile(r"\{'[^{}]{1,20000}\}")
_PAIR = re.compile(r"'([^']{1,100})':\s*('[^']{0,60}'|[^,'{}\[\]]{1,60})")
_BAR = re.compile(r"(\d{1,3})%\|[^|]{0,400}\|\s*(\d{1,15})/(\d{1,15}) \[", re.ASCII)
_NUM_EPOCHS = re.compile(r"\bNum Epochs = ([\d,]{1,15})", re.ASCII)
_TOTAL = re.compile(r"\bTotal optimization steps = ([\d,]{1,15})", re.ASCII)
_PER_EPOCH = re.compile(r"\bNum update steps per epoch = ([\d,]{1,15})", re.ASCII)
_EXAMPLES = re.compile(r"\bNum examples = ([\d,]{1,15})", re.ASCII)
_BATCH = re.compile(r"\bTotal train batch size \([^()]{1,60}\) = ([\d,]{1,15})", re.ASCII)
_LOGGING_STEPS = re.compile(r"\blogging_steps=(\d{1,9})\b", re.ASCII)
_RESUME = re.compile(
    r"\b(?:Continuing training from|Resuming training from checkpoint with epoch \d{1,9} and) global step (\d{1,15})", re.ASCII
)

_NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "num_tokens": "tokens",
    "num_input_tokens_seen": "tokens",
    "train_tokens_per_second": "tokens_per_s",
    "mfu": "mfu",
}
#: The bar is drawn right behind the line; a warning may come between.
_WAIT_LINES = 3
#: Without a grad norm (older versions): a loss above this that falls to exactly 0.0 and stays for 3 logs is a masked NaN.
_MASKED_FROM = 0.05
_MASKED_LOGS = 3


def metrics_of(pairs: Sequence[tuple[str, float]]) -> Metrics:
    """The metrics of one log entry; also used for ``trainer_state.json``. Zero losses are not judged here."""
    metrics = Metrics()
    for key, value in pairs:
        name = _NAMES.get(key) or slug(key)
        if name is not None:
            metrics.put(name, value)
    return metrics


class ZeroLoss:
    """Tells a masked NaN from a loss that is zero."""

    def __init__(self) -> None:
        self.last_nonzero = 0.0
        self.zeros = 0

    def unmask(self, metrics: Metrics) -> None:
        """Replace a masked 0.0 by the non-finite mark."""
        loss = metrics.values.get("loss")
        if loss is None:
            return
        if loss != 0.0:
            self.last_nonzero, self.zeros = loss, 0
            return
        self.zeros += 1
        silent = "grad_norm" not in metrics and self.last_nonzero > _MASKED_FROM and self.zeros >= _MASKED_LOGS
        if silent or "grad_norm" in metrics.nonfinite:
            del metrics.values["loss"]
            metrics.nonfinite["loss"] = "nan"


class HuggingFace:
    """State: what the log said about steps, the last step given out, and a line that waits for the bar behind it."""

    name = "huggingface"
    title = "Hugging Face Trainer, what it prints"
    example = "{'loss': 1.505, 'grad_norm': 0.61, 'learning_rate': 4.5e-06, 'epoch': 0.03}"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("'loss':",)
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = (
        "%|",
        "Num Epochs = ",
        "Num examples = ",
        "Num update steps per epoch = ",
        "Total train batch size (",
        "Total optimization steps = ",
        "logging_steps=",
        "***** Running training *****",
        "Continuing training from",
        "Resuming training from",
    )

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._zero = ZeroLoss()
        self._step = 0
        self._every: int | None = None
        self._is_every_said = False
        self._epochs = 0
        self._total = 0
        self._sizes = [0, 0, 0]  # examples, samples of a step, steps of an epoch as transformers 5 says them
        self._examples = 0
        self._bar: int | None = None  # steps done as the newest training bar shows them
        self._bar_total = 0
        self._decimals = 0
        self._steps_since_start = -1
        self._waiting: dict[str, Any] | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return "'loss':" in line and bool(_pairs(line)[1])

    def feed(self, line: str) -> list[Record]:
        has_bar = "%|" in line and self._read_bar(line)
        text, pairs = _pairs(line) if "{'" in line else ("", [])
        records: list[Record] = []
        if self._waiting is not None:
            self._waiting["lines"] += 1
            if has_bar or text or self._waiting["lines"] >= _WAIT_LINES:
                records = self._release(has_bar)
        if text:
            return records + (self._training(line, text, pairs) if pairs else self._other(text))
        if " = " in line or "logging_steps=" in line:
            self._read_plan(line)
        elif "***** Running training *****" in line:
            if self._steps_since_start != 0:  # every rank may print it
                self._start(0)
                records.append(phase("start", "begin", line.strip(), None, self._times.find(line)))
        elif (found := _RESUME.search(line)) and self._step != int(found[1]):
            self._start(int(found[1]))
            records.append(Event("resume", self._times.find(line), step=self._step, text=line.strip()[:500]))
        return records

    def idle(self) -> list[Record]:
        return []  # the bar that says which step it was is drawn when the next line comes

    def finish(self) -> list[Record]:
        return self._release(False) if self._waiting is not None else []

    def _start(self, step: int) -> None:
        self._step, self._steps_since_start = step, 0
        self._bar, self._bar_total = None, 0

    def _read_plan(self, line: str) -> None:
        if found := _NUM_EPOCHS.search(line):
            self._epochs = int(found[1].replace(",", "") or 0)
        elif found := _TOTAL.search(line):
            self._total = int(found[1].replace(",", "") or 0)
        elif found := _PER_EPOCH.search(line):
            self._sizes[2] = int(found[1].replace(",", "") or 0)
        elif found := _EXAMPLES.search(line):
            self._examples = int(found[1].replace(",", "") or 0)  # an evaluation says its own
        elif found := _BATCH.search(line):
            self._sizes = [self._examples, int(found[1].replace(",", "") or 0), self._sizes[2]]
        elif found := _LOGGING_STEPS.search(line):
            self._every, self._is_every_said = max(1, int(found[1])), True

    def _read_bar(self, line: str) -> bool:
        is_new = False
        for found in _BAR.finditer(line):
            done, total = int(found[2]), int(found[3])
            wanted = self._total or self._bar_total
            # A bar with a name in front ("Map: 38%|") is no training bar; evaluation has another total.
            if line[: found.start(1)].rstrip().endswith(":") or (wanted and total != wanted):
                continue
            self._bar, is_new = done, True
            if self._waiting is not None:
                self._bar_total = total
        return is_new

    def _training(self, line: str, text: str, pairs: list[tuple[str, float]]) -> list[Record]:
        metrics = metrics_of(pairs)
        self._zero.unmask(metrics)
        epoch = dict(pairs).get("epoch")
        self._waiting = {
            "lines": 0,
            "time_ns": self._times.find(line[: line.find("{'")]),
            "values": metrics.values,
            "nonfinite": metrics.nonfinite,
            "of_epoch": self._step_of_epoch(epoch, "'epoch': '" in text) if epoch is not None else None,
        }
        # Only a log that holds bars is worth waiting in, and only for what nothing else says.
        of_epoch = self._waiting["of_epoch"]
        if self._bar is not None and (of_epoch is None or not of_epoch[1]):
            return []
        return self._release(False)

    def _release(self, has_bar: bool) -> list[Record]:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return []
        counted = self._step + (self._every or 1)
        step = counted
        epoch_step, is_exact = waiting["of_epoch"] or (0, False)
        if is_exact:
            step = max(epoch_step, self._step + 1)
        elif self._bar is not None and self._bar > self._step and (has_bar or self._every is None):
            step = self._bar
        elif epoch_step > self._step:
            step = epoch_step
        if not self._is_every_said and (self._step > 0 or step > 1):
            self._every = step - self._step
        self._step = step
        self._steps_since_start += 1
        return [Step(step, 0, waiting["time_ns"], waiting["values"], waiting["nonfinite"])]

    def _step_of_epoch(self, epoch: float, is_text: bool) -> tuple[int, bool] | None:
        """The step, and whether the epoch is printed finely enough for it to be exact; None without a plan in the log.

        transformers 5 prints four digits as text, older versions two decimals, those between all of them.
        """
        if not (self._epochs and self._total and 0 < epoch <= self._epochs):
            return None
        self._decimals = max(2, self._decimals, len(repr(epoch).partition("e")[0].partition(".")[2]))
        digits = 3 - math.floor(math.log10(epoch)) if is_text else self._decimals
        per_epoch = self._steps_per_epoch()
        error = 0.5 * 10.0**-digits * per_epoch
        step = epoch * per_epoch
        if error < 0.5:
            return round(step), True
        if self._every is not None:
            multiple = round(step / self._every) * self._every
            if self._is_every_said and error < self._every / 2:
                return multiple, True
            if abs(self._step + self._every - step) <= error + 0.5:
                return self._step + self._every, False
        return max(1, round(step)), False

    def _steps_per_epoch(self) -> float:
        """With ``max_steps`` the last epoch is cut short: then the sizes tell, where they fit the plan."""
        examples, samples, per_epoch = self._sizes
        if per_epoch == 0 and samples > 0:
            per_epoch = math.ceil(examples / samples)
        if per_epoch > 0 and math.ceil(self._total / per_epoch) == self._epochs:
            return per_epoch
        return self._total / self._epochs

    def _other(self, text: str) -> list[Record]:
        values: dict[str, float] = {}
        for key, raw in _PAIR.findall(text):
            value = parse_number(raw)
            if value is not None:
                values["validation_loss" if key == "eval_loss" else key] = value
        if "validation_loss" in values:
            return [message(text, json_safe(values), self._step or None)]
        if "train_runtime" in values:
            return [phase("finished", "begin", text, self._step or None, None, **json_safe(values))]
        return []

    def to_state(self) -> dict[str, Any]:
        return {
            "zero": [self._zero.last_nonzero, self._zero.zeros],
            "plan": [self._step, self._every, self._is_every_said, self._epochs, self._total, self._decimals],
            "sizes": [*self._sizes, self._examples],
            "bar": [self._bar, self._bar_total, self._steps_since_start],
            "waiting": self._waiting,
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._zero.last_nonzero, self._zero.zeros = state["zero"]
        self._step, self._every, self._is_every_said, self._epochs, self._total, self._decimals = state["plan"]
        *self._sizes, self._examples = (int(size) for size in state["sizes"])
        self._bar, self._bar_total, self._steps_since_start = state["bar"]
        self._waiting = state["waiting"]
        self.bad_records = int(state["bad_records"])


def _pairs(line: str) -> tuple[str, list[tuple[str, float]]]:
    """The dict in the line as text, and its pairs if it is a training log entry: a numeric loss and an epoch or rate."""
    found = _DICT.search(line)
    if found is None:
        return "", []
    text = found[0]
    if "'loss':" not in text or ("'epoch':" not in text and "'learning_rate':" not in text):
        return text, []
    pairs = [(key, value) for key, raw in _PAIR.findall(text) if (value := parse_number(raw)) is not None]
    return text, pairs if any(key == "loss" for key, _ in pairs) else []
