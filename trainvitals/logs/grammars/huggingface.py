"""Hugging Face Trainer's stdout: ``{'loss': 1.505, 'grad_norm': 0.61, 'learning_rate': 4.5e-06, 'epoch': 0.03}``.

The line names no step. It comes, best first, from: the epoch, when the log says how many steps an epoch has (``Num
Epochs``, ``Total optimization steps``) and the epoch is printed finely enough; the progress bar ``38/500`` that tqdm draws
again right behind the line (the one before it may lag); counting by the distance of the last two lines or by
``logging_steps``. transformers 5 prints the numbers as strings of four digits.

Some trainers that build on it name the step in the line (``step``; ms-swift: ``'global_step/max_steps': '10/500'``, ``'iteration': '10/500'``). LLaMA-Factory
prints each line twice, first shortened by its logger: the two are one step, with the logger's time. With bars off every node
prints, so a line that is the same to the last digit is a repetition.

The Trainer masks a NaN loss as 0.0 (ModernBERT issue 233): exactly 0.0 with a non-finite grad norm is a NaN; with a finite
one it is a loss (GRPO).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.huggingface_entry import ZeroLoss, entry_pairs, is_same, metrics_of, number_pairs
from trainvitals.logs.grammars.huggingface_plan import TrainingPlan, distance_of_burst, last_bar, step_of_bars, without_bars
from trainvitals.logs.grammars.training_arguments import OPENINGS, TrainingArgumentsReader, is_opening
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe
from trainvitals.records import Event, Step

_LOGGING_STEPS = re.compile(r"\blogging_steps=(\d{1,9})\b", re.ASCII)
_RESUME = re.compile(
    r"\b(?:Continuing training from|Resuming training from checkpoint with epoch \d{1,9} and) global step (\d{1,15})", re.ASCII
)

#: The step, where a trainer says it.
_SAID = ("global_step/max_steps", "global_step", "iteration", "step")
#: Characters of a learning rate that is printed with all its digits.
_FULL_PRECISION = 10
#: How many of the newest lines a repetition is looked for in: nodes overtake each other.
_RECENT_LINES = 16
#: Entries that came at once: how many are worth a guess, and how many are held at most.
_BURST_ENTRIES = 3
_MAX_BURST = 300
_MAX_TORN = 8192
#: An epoch before those of so many lines belongs to a new start, not to a slow node.
_REWIND_LINES = 4
#: The bar is drawn right behind the line; a warning may come between.
_WAIT_LINES = 3


class HuggingFace:
    """State: what the log said about steps, the last step given out, and a line that waits for the bar behind it."""

    name = "huggingface"
    title = "Hugging Face Trainer, what it prints"
    example = "{'loss': 1.505, 'grad_norm': 0.61, 'learning_rate': 4.5e-06, 'epoch': 0.03}"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("'loss':", *OPENINGS)
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
        self._plan = TrainingPlan()
        self._bar: int | None = None  # steps done as the newest training bar shows them
        self._bar_total = 0
        self._steps_since_start = -1
        self._waiting: dict[str, Any] | None = None
        self._burst: list[dict[str, Any]] = []  # entries that came at once, while their distance is not known
        self._is_bursting = False
        self._torn = ""
        self._preview: list[Any] | None = None  # LLaMA-Factory's shortened line as text, its time
        self._recent: list[str] = []
        self._seen_epochs: list[float] = []
        self._is_finished = False
        self._arguments = TrainingArgumentsReader()
        self._bad_records = 0

    @property
    def bad_records(self) -> int:
        return self._bad_records + self._arguments.broken

    @bad_records.setter
    def bad_records(self, value: int) -> None:
        self._bad_records = value

    @staticmethod
    def claims(line: str) -> bool:
        return bool(entry_pairs(line)[1]) if "'loss':" in line else is_opening(line)

    def feed(self, line: str) -> list[Record]:
        if self._arguments.is_reading and (read := self._arguments.feed(line)) is not None:
            return list(read)
        records: list[Record] = []
        if self._torn or "{'" in line:
            line = self._joined(line)
        text, pairs, start = entry_pairs(line) if "{'" in line else ("", [], 0)
        bar = self._read_bar(line[:start] if text else line)
        if not pairs and "{'" in line and "%|" in line:
            text, pairs, start = entry_pairs(without_bars(line))
        if bar is not None and self._burst and not pairs:
            records += self._resolve()
        if self._waiting is not None and not (pairs and _digest(text) in self._recent and bar is None):
            self._waiting["lines"] += 1
            # The bar on the line of the next entry is that entry's own.
            behind = None if pairs else bar
            if behind is not None or text or self._waiting["lines"] >= _WAIT_LINES:
                records += self._settle(behind, bool(pairs) and bar is None)
        if text:
            records += self._entry(line[:start], text, pairs, bar) if pairs else self._other(text)
            if self._waiting is not None and (behind := self._read_bar(line[start + len(text) :])) is not None:
                self._waiting["lines"] = 1
                records += self._release(behind)
            return records
        if " = " in line or "logging_steps=" in line:
            self._plan.read(line)
            if found := _LOGGING_STEPS.search(line):
                self._every, self._is_every_said = max(1, int(found[1])), True
        elif "***** Running training *****" in line:
            if self._steps_since_start != 0:  # every rank may print it
                records += self._flush()
                self._start(0)
                records.append(phase("start", "begin", line.strip(), None, self._times.find(line)))
        elif (found := _RESUME.search(line)) and self._step != int(found[1]):
            records += self._flush()
            self._start(int(found[1]))
            records.append(Event("resume", self._times.find(line), step=self._step, text=line.strip()[:500]))
        elif is_opening(line):
            return records + self._arguments_begin(line)
        return records

    def _arguments_begin(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:200])
        self._arguments.begin(time_ns)
        if self._steps_since_start == 0:  # every rank may print them
            return []
        records = self._flush()
        self._start(0)
        return [*records, phase("start", "begin", line.strip(), None, time_ns)]

    def idle(self) -> list[Record]:
        # The bar that says which step it was is drawn when the next line comes; entries that came at once must not wait for ever.
        return self._flush() if len(self._burst) >= _BURST_ENTRIES else []

    def finish(self) -> list[Record]:
        return self._flush()

    def _joined(self, line: str) -> str:
        """An entry that was torn where Python's buffer was full is read when its rest comes."""
        torn, begin = self._torn, line.rfind("{'")
        if torn and begin < 0 and "}" in line and entry_pairs(torn + line)[1]:
            self._torn = ""
            return torn + line
        if begin >= 0:
            self._torn = without_bars(line[begin:])[:_MAX_TORN] if "}" not in line[begin:] else ""
        return line

    def _settle(self, behind: int | None, is_followed: bool) -> list[Record]:
        """Give out the entry that waits, or keep it with others that came at once: then no bar is that of a single one.

        ``is_followed``: the next entry came with no bar in between.
        """
        waiting = self._waiting
        if waiting is None:
            return []
        self._is_bursting = self._is_bursting or is_followed
        is_unknown = self._every is None and waiting["of_epoch"] is None and behind is None
        if is_unknown and (self._burst or is_followed):
            self._burst.append(waiting)
            self._waiting = None
            return self._resolve() if len(self._burst) >= _MAX_BURST else []
        return self._resolve() if self._burst else self._release(behind)

    def _resolve(self) -> list[Record]:
        """Give out the entries that came at once; the bar before them tells how many steps lie between them."""
        held = [*self._burst, *([self._waiting] if self._waiting is not None else [])]
        self._burst, self._is_bursting = [], True
        self._every = self._every or distance_of_burst(len(held), max(0, (held[0]["bar"] or 0) - self._step))
        records: list[Record] = []
        for waiting in held:
            self._waiting = waiting
            records += self._release(None)
        return records

    def _flush(self) -> list[Record]:
        records = self._resolve() if self._burst else self._release(None)
        preview, self._preview = self._preview, None
        if preview is not None:
            records += self._training(*entry_pairs(preview[0])[:2], *preview[1:])
            records += self._release(None)
        return records

    def _start(self, step: int) -> None:
        self._step, self._steps_since_start = step, 0
        self._bar, self._bar_total = None, 0
        self._recent, self._seen_epochs, self._is_finished = [], [], False
        self._is_bursting, self._torn = False, ""

    def _read_bar(self, text: str) -> int | None:
        found = last_bar(text, self._plan.total or self._bar_total)
        if found is None:
            return None
        self._bar = found[0]
        if self._waiting is not None:
            self._bar_total = found[1]
        return found[0]

    def _entry(self, head: str, text: str, pairs: list[tuple[str, float]], before: int | None) -> list[Record]:
        """``before``: the bar that stands on the line before the entry."""
        time_ns = self._times.find(head)
        values = dict(pairs)
        if _is_shortened(head, values):
            records = self._flush()
            self._preview = [text, time_ns, before]
            return records
        records = []
        preview, self._preview = self._preview, None
        if preview is not None:
            shortened = dict(entry_pairs(preview[0])[1])
            if is_same(shortened, values):
                time_ns = time_ns if time_ns is not None else preview[1]
                before = before if before is not None else preview[2]
                if "throughput" in shortened:
                    pairs = [*pairs, ("train_tokens_per_second", shortened["throughput"])]
            else:
                self._preview = preview
                records = self._flush()
        if self._is_repeated(text, values):
            if self._waiting is not None:
                self._waiting["copies"] += 1
                return records
            # Given out again, so that the repetition is counted.
            return [*records, *self._copy(text, pairs, time_ns)]
        records += self._rewound(text, values.get("epoch", math.nan), time_ns)
        return records + self._training(text, pairs, time_ns, before)

    def _rewound(self, text: str, epoch: float, time_ns: int | None) -> list[Record]:
        """A new start that nothing else tells of: the epoch goes back."""
        seen, step, every, bar = self._seen_epochs, self._step, self._every or 1, self._bar
        if not math.isfinite(epoch):
            return []
        is_back = epoch < seen[-1] if seen and self._is_finished else len(seen) == _REWIND_LINES and epoch < min(seen)
        if not is_back:
            self._seen_epochs = [*seen[1 - _REWIND_LINES :], epoch]
            return []
        records = self._flush()
        # The steps of an epoch are as many as before.
        base = max(0, round(epoch * step / seen[-1] / every) * every - every) if seen[-1] > 0 else 0
        self._start(base)
        self._seen_epochs = [epoch]
        self._bar = bar if bar is not None and bar <= base + 2 * every else None
        again = Event("resume", time_ns, step=base, text=text[:500]) if base else phase("start", "begin", text, None, time_ns)
        return [*records, again]

    def _is_repeated(self, text: str, values: Mapping[str, float]) -> bool:
        # A run whose loss is 0 may print the same line for ever.
        is_telling = bool(values.get("grad_norm")) or len(repr(values.get("learning_rate", 0.0))) > _FULL_PRECISION
        if not values.get("loss") or "epoch" not in values or not is_telling:
            return False
        digest = _digest(text)
        if digest in self._recent:
            return True
        self._recent = [*self._recent[1 - _RECENT_LINES :], digest]
        return False

    def _copy(self, text: str, pairs: list[tuple[str, float]], time_ns: int | None) -> list[Record]:
        metrics = metrics_of(pairs)
        return [Step(self._step, 0, time_ns, metrics.values, metrics.nonfinite)] if self._step else []

    def _training(self, text: str, pairs: list[tuple[str, float]], time_ns: int | None, before: int | None) -> list[Record]:
        metrics = metrics_of(pairs)
        self._zero.unmask(metrics)
        values = dict(pairs)
        epoch = values.get("epoch")
        said = next(
            (value for key in _SAID if (value := values.get(key, 0.0)) >= 1 and value < 10**15 and value == int(value)), None
        )
        self._waiting = {
            "lines": 0,
            "copies": 0,
            "time_ns": time_ns,
            "values": metrics.values,
            "nonfinite": metrics.nonfinite,
            "said": int(said) if said is not None else None,
            "before": before,
            "bar": self._bar,
            "of_epoch": None,
        }
        if epoch is not None:
            is_text = "'epoch': '" in text
            self._waiting["of_epoch"] = self._plan.step_of_epoch(epoch, is_text, self._step, self._every, self._is_every_said)
        if said is not None:
            return self._release(None)
        # Only a log that holds bars is worth waiting in, and only for what nothing else says.
        of_epoch = self._waiting["of_epoch"]
        if self._bar is not None and (of_epoch is None or not of_epoch[1]):
            return []
        return self._release(None)

    def _release(self, behind: int | None) -> list[Record]:
        """``behind``: the bar that was drawn behind the entry."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return []
        step = self._step + (self._every or 1)
        # Beside a bar on the entry's own line only one that follows at once is that of the same step.
        is_at_once = waiting["before"] is None or waiting["lines"] <= 1
        before, behind = waiting["before"], behind if is_at_once else None
        of_bars = None if self._is_bursting else step_of_bars(before, behind, self._step, self._every)
        epoch_step, is_exact = waiting["of_epoch"] or (0, False)
        if waiting["said"] is not None:
            step = waiting["said"]
        elif is_exact:
            step = max(epoch_step, self._step + 1)
        elif of_bars is not None:
            step = of_bars
        elif self._bar is not None and self._bar > self._step and self._every is None:
            step = self._bar
        elif epoch_step > self._step:
            step = epoch_step
        if not self._is_every_said and (self._step > 0 or step > 1):
            distance, every = max(1, step - self._step), self._every or 1
            self._every = every if every > 1 and distance % every == 0 else distance  # lines may be missing between two
        self._step = step
        self._steps_since_start += 1
        return [Step(step, 0, waiting["time_ns"], waiting["values"], waiting["nonfinite"])] * (1 + waiting["copies"])

    def _other(self, text: str) -> list[Record]:
        # Between entries that came at once it tells no more than they do.
        records = [] if self._burst else self._flush()
        values = {"validation_loss" if key == "eval_loss" else key: value for key, value in number_pairs(text)}
        # Several data sets, or another prefix.
        losses = [key for key in values if key.startswith(("eval_", "test_")) and key.endswith("loss")]
        if losses and "validation_loss" not in values:
            values["validation_loss"] = values[losses[0]]
        if "validation_loss" in values:
            return [*records, message(text, json_safe(values), self._step or None)]
        if "train_runtime" in values:
            self._is_finished = True
            return [*records, phase("finished", "begin", text, self._step or None, None, **json_safe(values))]
        return records

    def to_state(self) -> dict[str, Any]:
        return {
            "zero": [self._zero.last_nonzero, self._zero.zeros],
            "steps": [self._step, self._every, self._is_every_said],
            "plan": self._plan.to_state(),
            "bar": [self._bar, self._bar_total, self._steps_since_start],
            "waiting": self._waiting,
            "burst": [self._burst, self._is_bursting, self._torn],
            "preview": self._preview,
            "recent": self._recent,
            "seen_epochs": self._seen_epochs,
            "is_finished": self._is_finished,
            "arguments": self._arguments.to_state(),
            "bad_records": self._bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._zero.last_nonzero, self._zero.zeros = state["zero"]
        self._step, self._every, self._is_every_said = state["steps"]
        self._plan.restore(state["plan"])
        self._bar, self._bar_total, self._steps_since_start = state["bar"]
        self._waiting = state["waiting"]
        self._burst, self._is_bursting, self._torn = list(state["burst"][0]), bool(state["burst"][1]), str(state["burst"][2])
        self._preview = list(state["preview"]) if state["preview"] is not None else None
        self._recent, self._seen_epochs = list(state["recent"]), list(state["seen_epochs"])
        self._is_finished = bool(state["is_finished"])
        self._arguments.restore(state["arguments"])
        self._bad_records = int(state["bad_records"])


def _is_shortened(head: str, values: Mapping[str, float]) -> bool:
    """Whether LLaMA-Factory's logger printed this, and the Trainer's own line follows."""
    head = head.rstrip()
    is_logged = head.endswith(">>") and ("throughput" in values or "callbacks" in head)
    return (is_logged or head.endswith("extras.callbacks -")) and "grad_norm" not in values


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
