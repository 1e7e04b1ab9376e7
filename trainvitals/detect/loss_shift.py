"""Small lasting rises of the loss: a running sum (CUSUM) of clipped excess over the best recent block level."""

from __future__ import annotations

from collections import deque

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.blocks import BlockMedians
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.statistics import median
from trainvitals.records import Event, Severity, Step

CLIP_SIGMA = 4.0  # one point can never decide
RECENT_POINTS = 20
CHECK_EVERY = 8
BACK_OFF = 0.8


class LevelShiftDetector(FamilyDetector):
    """``loss_level_shift`` of slow onset; quiet while a spike is open, which watches the same rise."""

    family = "loss"
    rules = ("loss_level_shift",)
    STATE = ("ledger", "_blocks", "_sum", "_since_step", "_since_sigma", "_recent", "_points", "_returns")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        numbers = self.numbers["loss_level_shift"]
        self._loss = loss
        self._slack = numbers["cusum_slack"]
        self._limit = numbers["cusum_limit"] / numbers["sensitivity"]
        self._info_excess = numbers["info_excess"] / numbers["sensitivity"]
        self._warning_excess = numbers["warning_excess"] / numbers["sensitivity"]
        self._blocks = BlockMedians(int(numbers["block_points"]))
        self._sum = 0.0
        self._since_step = 0
        self._since_sigma: float | None = None  # spread before the rise, which widens it
        self._recent: deque[float] = deque(maxlen=RECENT_POINTS)
        self._points = 0
        self._returns = 0

    def on_step(self, step: Step) -> None:
        value, loss = self.context.loss, self._loss
        if value is None:
            return
        if loss.returns != self._returns:
            self._returns = loss.returns
            self._forget("; it is the usual level")
            self._blocks.reset()
        self._points += 1
        self._recent.append(value)
        reference = self._blocks.reference
        if self.context.is_silenced("loss_level_shift"):
            # A note says that the level changes: what it comes to is usual, and not what it was on the way.
            self._sum, self._since_step = 0.0, step.step
            self._blocks.keep_newest()
        elif reference is not None and loss.is_warm and loss.incident is None and loss.sigma is not None:
            self._add(step, value, reference, max(loss.sigma, self._blocks.point_sigma))
        self._blocks.push(step.step, value, is_usual=loss.incident is None, is_warm=loss.is_warm)

    def on_resume(self, from_step: int) -> None:
        self._forget("; the run was resumed")
        self._blocks.rewind(from_step)

    def on_event(self, event: Event) -> None:
        if event.kind == "annotation" and self.context.is_silenced("loss_level_shift"):
            self._forget(EXPECTED)
            self._blocks.reset()

    def _forget(self, ending: str) -> None:
        self._sum = 0.0
        self._recent.clear()
        self.ledger.close("loss_level_shift", ending=ending)

    def _add(self, step: Step, value: float, reference: float, sigma: float) -> None:
        excess = max(-CLIP_SIGMA, min(CLIP_SIGMA, (value - reference) / sigma))
        self._sum = max(0.0, self._sum + excess - self._slack)
        if self._sum == 0.0:
            self._since_step, self._since_sigma = step.step, sigma
            self.ledger.close("loss_level_shift", ending="; back to the usual level, or that is it now")
            return
        if self._sum <= self._limit:
            return
        known = self.ledger.open.get("loss_level_shift")
        if known is not None and self._points % CHECK_EVERY:
            return
        typical = median(self._recent)
        rise = (typical - reference) / max(abs(reference), sigma, 1e-12)
        if rise <= self._info_excess or self._loss.scale.is_negligible(typical):
            if known is None:
                self._sum = BACK_OFF * self._limit
            return
        if self._loss.is_return(step, typical, reference):
            self._loss.open_return(step, self._since_step, reference, sigma, typical)
            return
        wander, best = self._blocks.wander, self._blocks.best
        is_known = wander.is_known and self._loss.scale.is_news(reference)
        if self._since_sigma is not None and is_known and typical - reference > wander.allowance:
            self._loss.open_from_shift(step, self._since_step, reference, self._since_sigma, typical)
        # A rise slower than the reference, which follows it, must not pass below what the run's wander allows at any one time.
        is_news = is_known and best is not None and typical - min(best, reference) > wander.allowance
        if known is not None and known.severity is not Severity.INFO:
            return
        severity = Severity.WARNING if rise > self._warning_excess and is_news else Severity.INFO
        message = (
            f"loss {format_change(reference, typical)} ({100 * rise:.1f} % higher) since step {format_step(self._since_step)}: "
            "did the data mix change?"
        )
        data = {"excess": round(rise, 4)}
        if known is None:
            self.ledger.open_finding(
                "loss_level_shift", severity, message, first_step=self._since_step, value=typical, expected=reference, data=data
            )
        else:
            self.ledger.escalate("loss_level_shift", severity, message, value=typical, data=data)
