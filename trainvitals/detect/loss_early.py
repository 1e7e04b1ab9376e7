"""A run that goes wrong before it has a usual level: its loss stands far above the best it has shown and does not come back."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.blocks import SQRT2
from trainvitals.detect.findings import Context, format_change, format_step, format_value
from trainvitals.detect.loss import SPARSE_GAP_STEPS, LossDetector
from trainvitals.detect.statistics import MAD_TO_SIGMA, median
from trainvitals.records import Severity, Step

POINTS = 10
BACK_SHARE = 0.5  # of the rise
NOISE_POINTS = 40
NOISE_FACTOR = 5.0
DENSE_IN_A_ROW = 40
DENSE_POINTS = 400
DENSE_SHARE = 0.4  # of early_excess: it has stood there for long
EMPTY_POINTS = 20


class EarlyRiseDetector(FamilyDetector):
    """``loss_drift`` of the first points, where no other rule speaks yet; many sparse logs are only that long.

    Noise cannot do it: every one of the last ten points is high. Where every step is logged it must have been so for longer,
    and is looked at for longer: what went wrong there before it had a usual level would be its usual level. After twenty zeros
    and more (a replay buffer that was empty) an average logged at every step fills up, which is no rise.
    """

    family = "loss"
    rules = ("loss_drift",)
    STATE = ("ledger", "_recent", "_changes", "_points", "_best", "_best_step", "_limit", "_far", "_empty")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        drift = self.numbers["loss_drift"]
        self._loss = loss
        self._after = int(drift["early_points"])
        self._excess = drift["early_excess"] / drift["sensitivity"]
        self._recent: deque[float] = deque(maxlen=POINTS)
        self._changes: deque[float] = deque(maxlen=NOISE_POINTS)  # from point to point: noise without the trend
        self._points = 0
        self._best: float | None = None
        self._best_step = 0
        self._limit: float | None = None  # the finding is open until the median is below it
        self._far = 0  # such points in a row
        self._empty = 0  # points before the first loss that counts

    def on_step(self, step: Step) -> None:
        value = self.context.loss
        is_dense = self.context.gap_steps < SPARSE_GAP_STEPS
        is_over = self._points >= DENSE_POINTS if is_dense else self._loss.is_warm
        if value is None and self._points == 0 and "loss" in step.values:
            self._empty += 1
        if value is None or (is_over and self._limit is None) or (is_dense and self._empty >= EMPTY_POINTS):
            return
        self._points += 1
        if self._recent:
            self._changes.append(abs(value - self._recent[-1]))
        self._recent.append(value)
        if len(self._recent) < POINTS:
            return
        middle = median(self._recent)
        if self._limit is not None:
            if middle < self._limit:
                self._end(f"; back to {format_value(middle)} at step {format_step(step.step)}")
            return
        if self._best is None or middle < self._best:
            self._best, self._best_step = middle, step.step
            return
        if self._points < self._after or self._best <= 0.0 or self.context.is_silenced("loss_drift"):
            return
        noise = NOISE_FACTOR * MAD_TO_SIGMA / SQRT2 * median(self._changes)
        rise = self._best * (DENSE_SHARE if is_dense else 1.0) * self._excess
        is_far = middle > self._best + rise and min(self._recent) > self._best + 0.5 * rise
        self._far = self._far + 1 if is_far and middle - self._best > noise else 0
        if self._far >= (DENSE_IN_A_ROW if is_dense else 1) and self._loss.incident is None:
            message = f"loss {format_change(self._best, middle)} since step {format_step(self._best_step)}, before it has come to rest at all"
            self.ledger.open_finding(
                "loss_drift", Severity.WARNING, message, first_step=self._best_step, value=middle, expected=self._best
            )
            self._limit = middle - BACK_SHARE * (middle - self._best)

    def on_resume(self, from_step: int) -> None:
        self._recent.clear()
        self._far = 0
        if self._limit is not None and from_step <= self._best_step:
            self._end("; the run went back before it")
        if from_step < self._best_step:
            self._best = None  # what came after that step was lower because more had been learnt

    def _end(self, ending: str) -> None:
        self.ledger.close("loss_drift", ending=ending)
        self._limit = None
