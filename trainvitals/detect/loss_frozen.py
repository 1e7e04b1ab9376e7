"""A training loss that is the same number again and again: a loader that gives one batch for ever, a stale tensor in the log."""

from __future__ import annotations

import math

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.records import Severity, Step

_RULE = "loss_frozen"
SURE_DIGITS = 5
#: Chance of so many repetitions in a run that repeats as often as this one did.
LOG_CHANCE = math.log(1e-12)
#: A log of few digits repeats itself more and more while a task converges.
FEW_DIGITS_FACTOR = 10
#: Times the usual number of points, where the run never changed yet: a progress bar shows one loss until the next is computed.
NEVER_CHANGED_FACTOR = 30


class LossFrozenDetector(FamilyDetector):
    """``loss_frozen``. What is usual is measured: how often a value follows itself in this run, and for how long at most.

    A bf16 loss or one of a few printed digits repeats itself, a loss that is logged at every step and computed at every fiftieth does so
    for fifty points: both are judged by their own longest repetition. Zero, and what is as good as zero, is never judged.
    """

    family = "loss"
    rules = (_RULE,)
    STATE = ("ledger", "_value", "_first_step", "_length", "_longest", "_changes", "_repeats")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        numbers = self.numbers[_RULE]
        self._loss = loss
        self._points = max(2.0, numbers["points"] / numbers["sensitivity"])
        self._longest_factor = max(1.0, numbers["longest_factor"] / numbers["sensitivity"])
        self._min_changes = int(numbers["min_changes"])
        self._value: float | None = None
        self._first_step = 0
        self._length = 0
        self._longest = 1  # of the repetitions that ended
        self._changes = 0
        self._repeats = 0

    def on_step(self, step: Step) -> None:
        value = step.values.get("loss")
        if value is None:
            return
        if value != self._value:
            self._end(f"; it changes again at step {format_step(step.step)}")
            self._value, self._first_step, self._length = value, step.step, 1
            return
        self._length += 1
        if self._length >= self._points and _RULE not in self.ledger.open:
            self._judge(value)

    def on_resume(self, from_step: int) -> None:
        self.ledger.close(_RULE, ending="; the run was resumed")
        self._value, self._length = None, 0

    def _end(self, ending: str) -> None:
        if self._value is None:
            return
        if self.ledger.close(_RULE, ending=ending) is None:
            self._longest = max(self._longest, self._length)
            self._changes += 1
            self._repeats += self._length - 1

    def _judge(self, value: float) -> None:
        if value == 0.0 or self._loss.scale.is_negligible(value):
            return
        if self._changes == 0:
            self._judge_never_changed(value)
        if self._changes < self._min_changes:
            return
        chance = (self._repeats + 1) / (self._repeats + self._changes + 2)
        if self._length * math.log(chance) > LOG_CHANCE:
            return
        if self._longest > 1 and self._length < self._longest_factor * self._longest:
            return
        if _digits(value) < SURE_DIGITS and self._length < FEW_DIGITS_FACTOR * self._points:
            return
        self.ledger.open_finding(
            _RULE,
            Severity.WARNING,
            f"loss is exactly {value!r} for {format_count(self._length, 'point')} since step {format_step(self._first_step)}; "
            f"it was never the same for more than {format_count(self._longest, 'point')} before: is it logged from a stale value, "
            "or does the loader give one batch for ever?",
            first_step=self._first_step,
            value=value,
            data={"points": self._length, "longest_before": self._longest},
        )

    def _judge_never_changed(self, value: float) -> None:
        """What is usual is not known: only a value that no rounding explains, and many more points."""
        if self._length < NEVER_CHANGED_FACTOR * self._points or _digits(value) < SURE_DIGITS or _is_bfloat16(value):
            return
        self.ledger.open_finding(
            _RULE,
            Severity.WARNING,
            f"loss is exactly {value!r} since its first value, for {format_count(self._length, 'point')}: does the optimizer step, is the "
            "learning rate 0, is it logged from a stale value?",
            first_step=self._first_step,
            value=value,
            data={"points": self._length},
        )


def _is_bfloat16(value: float) -> bool:
    """Whether 8 bits hold its mantissa: a loss that hardly moves yet is rounded to the same such number again and again."""
    return math.ldexp(math.frexp(value)[0], 8).is_integer()


def _digits(value: float) -> int:
    """Significant digits of the shortest text that is this number."""
    return len(repr(abs(value)).partition("e")[0].replace(".", "").strip("0"))
