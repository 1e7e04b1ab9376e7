"""Loss that is not a number: written as such, masked as 0.0 (Hugging Face), or left out (Megatron-LM).

Runs first: it decides whether this point's loss may be believed by the other rules.
"""

from __future__ import annotations

from collections import deque

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_step
from trainvitals.records import Severity, Step

MASK_FROM = 0.05  # a loss that was above this and is exactly 0.0 next did not get there by learning
ALWAYS_LOGGED_POINTS = 64
#: A replay buffer is full by then: from the first point on, before it is critical.
NEVER_FINITE_POINTS = 20
NEVER_FINITE_S = 600.0
LARGEST = 1e100  # sums and ratios of such losses stay finite


class NonFiniteDetector(FamilyDetector):
    """``loss_nonfinite``; active from the first point on."""

    family = "loss"
    rules = ("loss_nonfinite",)
    STATE = (
        "ledger",
        "_in_a_row",
        "_seen_at",
        "_finite_in_a_row",
        "_zeros",
        "_absent",
        "_logged",
        "_last_positive",
        "_first_bad",
        "_first_bad_ns",
    )

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        numbers = self.numbers["loss_nonfinite"]
        self._critical_in_a_row = int(numbers["critical_in_a_row"])
        self._critical_in_window = int(numbers["critical_in_window"])
        self._window = int(numbers["window"])
        self._masked_in_a_row = int(numbers["masked_in_a_row"])
        self._absent_in_a_row = int(numbers["absent_in_a_row"])
        self._close_after = int(numbers["close_after_points"])
        self._in_a_row = 0
        self._seen_at: deque[int] = deque(maxlen=max(1, self._critical_in_window))
        self._finite_in_a_row = 0
        self._zeros = 0
        self._absent = 0
        self._logged = 0
        self._last_positive: float | None = None
        self._first_bad = 0
        self._first_bad_ns: int | None = None

    def on_step(self, step: Step) -> None:
        context = self.context
        loss = step.values.get("loss")
        kind = step.nonfinite.get("loss")
        gave_up = self._looks_masked(step, loss)
        is_skipped = step.values.get("skipped", 0.0) > 0
        if loss is not None and kind is None:
            context.has_had_loss = True
            self._logged += 1
            self._absent = 0
        believed = loss if kind is None and not gave_up else None
        context.loss = None if believed is None else max(-LARGEST, min(LARGEST, believed))
        context.loss_is_bad = False
        if kind is not None and not is_skipped:
            self._bad(step, {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}[kind], 1)
        elif gave_up:
            self._bad(step, "0.0 where a number above it was, as trainers that hide a NaN print it,", 1)
        elif loss is not None:
            self._finite(loss)
        elif kind is None and not is_skipped and self._looks_absent():
            self._bad(step, "missing though every step before had one (some trainers leave a NaN out)", self._absent)

    def on_resume(self, from_step: int) -> None:
        self._absent = self._zeros = self._in_a_row = 0
        if from_step < self._first_bad:
            self.ledger.close("loss_nonfinite", ending="; the run went back before it")

    def _looks_masked(self, step: Step, loss: float | None) -> bool:
        if loss != 0.0:
            if loss is not None:
                self._zeros = 0
                self._last_positive = loss
            return False
        if "grad_norm" in step.nonfinite:
            return True
        if "grad_norm" in step.values:
            return False  # zero with a finite grad norm is legal (reinforcement learning)
        if self._last_positive is None or self._last_positive <= MASK_FROM:
            return False
        self._zeros += 1
        return self._zeros >= self._masked_in_a_row

    def _looks_absent(self) -> bool:
        """Only a run that logged a loss at every point can be missing one; sparse logs are normal."""
        if self._logged < ALWAYS_LOGGED_POINTS:
            self._logged = 0
            return False
        self._absent += 1
        return self._absent >= self._absent_in_a_row

    def _bad(self, step: Step, what: str, weight: int) -> None:
        context, ledger = self.context, self.ledger
        context.loss_is_bad = True
        if self._in_a_row == 0 and "loss_nonfinite" not in ledger.open:
            self._first_bad, self._first_bad_ns = step.step, step.time_ns
        self._in_a_row = max(self._in_a_row + 1, weight)
        self._finite_in_a_row = 0
        self._seen_at.append(context.points)
        seen = self._seen_at
        often = len(seen) == seen.maxlen and seen[0] > context.points - self._window
        is_critical = self._in_a_row >= self._critical_in_a_row or often
        if not context.has_had_loss and not self._is_overdue(step):
            is_critical = False  # nothing is trained until a replay buffer is full; nothing is lost either
        elif is_critical:
            context.has_had_loss = True
        severity = Severity.CRITICAL if is_critical else Severity.WARNING
        data = {"in_a_row": self._in_a_row}
        first = format_step(self._first_bad)
        if "loss_nonfinite" not in ledger.open:
            message = f"loss is {what} at step {format_step(step.step)}"
            ledger.open_finding("loss_nonfinite", severity, message, first_step=self._first_bad, data=data)
        elif is_critical:
            times = (
                f"{format_count(self._in_a_row, 'point')} in a row"
                if not often
                else f"{len(seen)} times in {self._window:,} points"
            )
            ledger.escalate("loss_nonfinite", severity, f"loss is {what} since step {first}, {times}", data=data)

    def _is_overdue(self, step: Step) -> bool:
        """Whether a run that had no finite loss yet should have one by now."""
        waited_s = 0.0 if step.time_ns is None or self._first_bad_ns is None else (step.time_ns - self._first_bad_ns) / 1e9
        return self._in_a_row >= NEVER_FINITE_POINTS or waited_s >= NEVER_FINITE_S

    def _finite(self, loss: float) -> None:
        self._in_a_row = 0
        if "loss_nonfinite" in self.ledger.open:
            self._finite_in_a_row += 1
            if self._finite_in_a_row >= self._close_after:
                self.ledger.close("loss_nonfinite", ending="; finite again")
