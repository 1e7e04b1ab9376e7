"""What only block medians can see: slow drift upwards, a plateau, a run that never learns."""

from __future__ import annotations

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.blocks import BlockMedians
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_count, format_step, format_value
from trainvitals.detect.loss import LossDetector
from trainvitals.records import Event, Severity, Step

LONG_SCALE = 8  # the second drift scale, in blocks of the first
CLEAR_SIGMA = 1.5
PLATEAU_TOLERANCE = 0.0005
SPENT_LR_SHARE = 0.02  # of the highest learning rate so far


class LossTrendDetector(FamilyDetector):
    """``loss_drift``, ``loss_plateau`` (never critical) and ``loss_not_learning``."""

    family = "loss"
    rules = ("loss_drift", "loss_plateau", "loss_not_learning")
    STATE = (
        "ledger", "_scales", "_points", "_first_step", "_best", "_best_at", "_best_step", "_is_learning_judged", "_lr", "_peak_lr",
        "_warmed_up_at", "_returns",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        drift = self.numbers["loss_drift"]
        self._loss = loss
        size = int(drift["block_points"])
        self._scales = [BlockMedians(size), BlockMedians(size * LONG_SCALE)]
        self._blocks_needed = max(2, int(drift["blocks"]))
        self._drift_z = drift["z"] / drift["sensitivity"]
        self._drift_excess = drift["min_excess"] / drift["sensitivity"]
        self._drift_critical = drift["critical_excess"] / drift["sensitivity"]
        self._plateau = self.numbers["loss_plateau"]
        self._learning = self.numbers["loss_not_learning"]
        self._points = 0
        self._first_step: int | None = None
        self._best: float | None = None
        self._best_at = 0
        self._best_step = 0
        self._is_learning_judged = False
        self._lr: float | None = None
        self._peak_lr = 0.0
        self._returns = 0
        self._warmed_up_at = 0  # points when the learning rate rose for the last time

    def on_step(self, step: Step) -> None:
        value = self.context.loss
        lr = step.values.get("lr")
        if lr is not None:
            self._lr = lr
            if lr > self._peak_lr:
                self._peak_lr, self._warmed_up_at = lr, self._points
        if value is None:
            return
        if self._loss.returns != self._returns:
            self._returns = self._loss.returns
            self._forget("; it is the usual level")
        self._points += 1
        if self._first_step is None:
            self._first_step = step.step
        if not self._is_learning_judged:
            self._judge_learning(step, self._first_step)
        short, long = self._scales
        if self.context.is_silenced("loss_drift"):
            # What the level comes to under a note is usual, and not what it was on the way.
            for blocks in self._scales:
                blocks.push(step.step, value)
                blocks.keep_newest()
            self._best = None
            return
        is_usual, is_warm = self._loss.incident is None, self._loss.is_warm
        if short.push(step.step, value, is_usual=is_usual, is_warm=is_warm) and is_warm:
            self._judge_drift(step, short, 3 * self._drift_excess)
            self._judge_plateau(step, short)
        if long.push(step.step, value, is_usual=is_usual, is_warm=is_warm) and is_warm:
            self._judge_drift(step, long, self._drift_excess)

    def on_resume(self, from_step: int) -> None:
        for blocks in self._scales:
            blocks.rewind(from_step)
        if from_step < self._best_step:
            self._best = None
            self.ledger.close("loss_plateau", ending="; the run went back before it")
        drift = self.ledger.open.get("loss_drift")
        if drift is not None and from_step < drift.first_step:
            self.ledger.close("loss_drift", ending="; the run went back before it")

    def on_event(self, event: Event) -> None:
        if event.kind != "annotation":
            return
        if self.context.is_silenced("loss_drift") or self.context.is_silenced("loss_level_shift"):
            self._forget(EXPECTED)

    def _forget(self, ending: str) -> None:
        for blocks in self._scales:
            blocks.reset()
        self._best = None
        for rule in ("loss_drift", "loss_plateau"):
            self.ledger.close(rule, ending=ending)

    def _judge_drift(self, step: Step, blocks: BlockMedians, min_excess: float) -> None:
        medians, count = blocks.medians, self._blocks_needed
        best = min(sum(medians[i : i + 3]) / 3 for i in range(len(medians) - count - 2))
        excess = min(medians[-count:]) - best
        rise = excess / max(abs(best), blocks.sigma, 1e-12)
        open_drift = self.ledger.open.get("loss_drift")
        if open_drift is not None and open_drift.data.get("block_points") != blocks.size:
            return
        if excess < CLEAR_SIGMA * blocks.sigma:
            self.ledger.close("loss_drift", ending=f"; back to {format_value(medians[-1])} at step {format_step(step.step)}")
        if self._loss.incident is not None or excess <= self._drift_z * blocks.sigma or rise <= min_excess:
            return
        scale = self._loss.scale
        if not scale.is_news(best) or scale.is_negligible(medians[-1]) or excess <= blocks.wander.usual_swing:
            return
        is_critical = rise > self._drift_critical and excess > 2 * self._drift_z * blocks.sigma
        severity = Severity.CRITICAL if is_critical else Severity.WARNING
        points = count * blocks.size
        if self._loss.is_return(step, medians[-1], best):
            self._loss.open_return(
                step, max(0, step.step - points * self.context.gap_steps), best, blocks.point_sigma, medians[-1]
            )
            return
        first_step = max(0, step.step - points * self.context.gap_steps)
        message = (
            f"loss drifts upwards, {format_change(best, medians[-1])} ({100 * rise:.1f} % above its best for {points:,} points)"
        )
        data = {"excess": round(rise, 4), "block_points": blocks.size}
        if open_drift is not None:
            self.ledger.escalate("loss_drift", severity, message, value=medians[-1], data=data)
        else:
            self.ledger.open_finding(
                "loss_drift", severity, message, first_step=first_step, value=medians[-1], expected=best, data=data
            )

    def _judge_plateau(self, step: Step, blocks: BlockMedians) -> None:
        medians, count = blocks.medians, self._blocks_needed
        smooth = sum(medians[-count:]) / count
        tolerance = max(blocks.sigma / count**0.5, PLATEAU_TOLERANCE * abs(smooth))
        if self._best is None or smooth < self._best - tolerance:
            self._best, self._best_at, self._best_step = smooth, self._points, step.step
            self.ledger.close("loss_plateau", ending=f"; better again ({format_value(smooth)}) at step {format_step(step.step)}")
            return
        since, numbers = self._points - max(self._best_at, self._warmed_up_at), self._plateau
        if since <= max(numbers["info_points"], numbers["info_share"] * self._points) or self._is_around_zero():
            return
        if self._loss.scale.is_negligible(smooth):
            return
        is_warning = since > max(numbers["warning_points"], numbers["warning_share"] * self._points)
        if self._lr is not None and self._lr < SPENT_LR_SHARE * self._peak_lr:
            is_warning = False  # hardly any learning rate is left: nothing else was to be expected
        severity = Severity.WARNING if is_warning else Severity.INFO
        message = (
            f"loss has not improved on {format_value(self._best)} since step {format_step(self._best_step)} "
            f"({format_count(since, 'point')})"
        )
        if "loss_plateau" in self.ledger.open:
            self.ledger.escalate("loss_plateau", severity, message, value=smooth)
        else:
            self.ledger.open_finding(
                "loss_plateau", severity, message, first_step=self._best_step, value=smooth, expected=self._best
            )

    def _is_around_zero(self) -> bool:
        """Losses of reinforcement learning and of adversaries stay around zero by construction, however well the run learns."""
        loss = self._loss
        return loss.baseline.is_ready and (loss.baseline.lowest() <= 0.0 <= loss.baseline.highest() or not loss.scale.has_best)

    def _judge_learning(self, step: Step, first_step: int) -> None:
        numbers, loss = self._learning, self._loss
        if self._points < numbers["min_points"] or step.step - first_step < numbers["min_steps"]:
            return
        if loss.initial is None or loss.level is None:
            return
        self._is_learning_judged = True
        if loss.initial >= numbers["min_initial_loss"] and loss.level > numbers["level_share"] * loss.initial:
            message = (
                f"loss is still {format_value(loss.level)} after {step.step - first_step:,} steps; "
                f"it started at {format_value(loss.initial)}: the run does not learn"
            )
            self.ledger.mark(
                "loss_not_learning", Severity.WARNING, message, first_step=first_step, value=loss.level, expected=loss.initial
            )
