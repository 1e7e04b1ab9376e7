"""A loss that falls faster than learning can explain: labels leaked, an empty batch, a mask that covers everything."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_change, format_step, format_value
from trainvitals.detect.loss import LossDetector
from trainvitals.records import Severity, Step

CLEAR_SHARE = 0.6
REBASE_POINTS = 400


class LossDropDetector(FamilyDetector):
    """``loss_implausible_drop``. While it is open the loss is not believed, or its end would look like a spike."""

    family = "loss"
    rules = ("loss_implausible_drop",)
    STATE = ("ledger", "_low", "_level", "_age")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        numbers = self.numbers["loss_implausible_drop"]
        self._loss = loss
        self._share = min(0.95, numbers["level_share"] * numbers["sensitivity"])
        self._needed = max(1, int(numbers["hot_points"]))
        self._z = numbers["z"] / numbers["sensitivity"]
        self._min_level = numbers["min_level"]
        self._low: deque[int] = deque(maxlen=max(1, int(numbers["of_points"])))  # step of a low point, -1 for another
        self._level: float | None = None  # usual level while the finding is open
        self._age = 0

    def on_step(self, step: Step) -> None:
        loss, value = self._loss, step.values.get("loss")
        if value is None:
            return
        if self._level is not None:
            self._age += 1
            if value > CLEAR_SHARE * self._level or self._age >= REBASE_POINTS:
                ending = f"; back to {format_value(value)}" if self._age < REBASE_POINTS else "; taken as the usual level"
                self.ledger.close("loss_implausible_drop", ending=ending)
                self._level = None
            else:
                self.context.loss = None
            return
        level, sigma = loss.level, loss.sigma
        if not loss.is_warm or level is None or sigma is None or level < self._min_level:
            return
        is_low = value < self._share * level and (level - value) / sigma > self._z and loss.baseline.lowest() > 0
        self._low.append(step.step if is_low else -1)
        if not is_low:
            return
        low = [at for at in self._low if at >= 0]
        if len(low) < self._needed:
            return
        message = f"loss {format_change(level, value)} within {len(self._low)} points of step {format_step(low[0])}: too fast to be learning"
        opened = self.ledger.open_finding(
            "loss_implausible_drop", Severity.WARNING, message, first_step=low[0], value=value, expected=level
        )
        self._low.clear()
        if opened is not None:
            self._level, self._age = level, 0
            self.context.loss = None

    def on_resume(self, from_step: int) -> None:
        self._low.clear()
        self._level = None
        self.ledger.close("loss_implausible_drop", ending="; the run was resumed")
