"""Gradient norm: the cleanest early signal, 1-4 steps before the loss; judged on the log scale against its own median."""

from __future__ import annotations

import math
from collections import deque

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_count, format_step, format_value
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.statistics import SortedWindow, median
from trainvitals.records import Event, Severity, Step

RECENT_POINTS = 5
CLEAR_POINTS = 4
RISING_LOSS_Z = 3.0
SPREAD_FLOOR = 0.02  # of the log
TAIL_QUANTILE = 0.95
TAIL_FACTOR = 2.0
LOG_SOLVED = math.log(1e-4)  # of the norm at the start; ordinary pre-training settles at a hundredth of it


class GradNormDetector(FamilyDetector):
    """``grad_norm_spike`` and ``grad_norm_nonfinite``.

    A column that lies is no evidence: constant zeros (DeepSpeed) and a stale value repeated after an overflow are left out.
    """

    family = "grad_norm"
    rules = ("grad_norm_spike", "grad_norm_nonfinite")
    STATE = (
        "ledger", "_window", "_points", "_recent", "_previous", "_far_in_a_row", "_age", "_level", "_finite_in_a_row",
        "_nonfinite_since", "_history", "_start",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        numbers = self.numbers["grad_norm_spike"]
        sensitivity = numbers["sensitivity"]
        self._loss = loss
        self._min_points = max(1, int(min(numbers["min_points"], numbers["window"])))
        self._warmup_points = int(numbers["warmup_points"])
        self._log_ratio = math.log(max(1.05, numbers["ratio"])) / sensitivity
        self._log_single = math.log(max(1.05, numbers["single_ratio"])) / sensitivity
        self._log_clear = min(math.log(max(1.01, numbers["clear_ratio"])), 0.9 * self._log_ratio)
        self._spread = numbers["spread"] / sensitivity
        self._needed = max(1, int(numbers["hot_points"]))
        self._rebase_after = int(numbers["rebase_after_points"])
        self._close_after = int(self.numbers["grad_norm_nonfinite"]["close_after_points"])
        self._window = SortedWindow(int(numbers["window"]))  # of logs
        self._points = 0
        self._recent: deque[list[float]] = deque(maxlen=max(1, int(numbers["of_points"])))  # [step, log above the level]
        self._previous: float | None = None
        self._far_in_a_row = 0
        self._age = 0
        self._level: float | None = None  # usual log while a spike is open
        self._finite_in_a_row = 0
        self._nonfinite_since: int | None = None
        self._start: float | None = None  # log of the norm at the start of the run
        self._history: deque[list[float]] = deque(maxlen=512)  # [step, accepted log]

    def usual(self) -> float | None:
        """Median of the accepted norms, None before there are any."""
        return math.exp(self._window.median()) if len(self._window) else None

    def on_step(self, step: Step) -> None:
        if "grad_norm" in step.nonfinite:
            self._nonfinite(step)
            return
        norm = step.values.get("grad_norm")
        if norm is None:
            return
        if "grad_norm_nonfinite" in self.ledger.open:
            self._finite_in_a_row += 1
            if self._finite_in_a_row >= self._close_after:
                self.ledger.close("grad_norm_nonfinite", ending="; finite again")
                self._nonfinite_since = None
        is_stale = norm == self._previous
        self._previous = norm
        if norm <= 0.0 or is_stale:
            self._no_evidence()
            return
        self._points += 1
        log = math.log(norm)
        if len(self._window) < self._min_points:
            self._accept(step.step, log)
            return
        level = self._window.median() if self._level is None else self._level
        if self._start is None:
            self._start = level
        self._judge(step, norm, log, level)

    def _no_evidence(self) -> None:
        """Time passes for an open spike, but a repeated value neither confirms nor ends it."""
        if self._level is None:
            return
        self._age += 1
        spike = self.ledger.open.get("grad_norm_spike")
        if (
            spike is not None and spike.severity is Severity.INFO and self._age >= CLEAR_POINTS
        ) or self._age >= self._rebase_after:
            self._end("; only a repeated value since")

    def on_resume(self, from_step: int) -> None:
        self._recent.clear()
        spike = self.ledger.open.get("grad_norm_spike")
        if spike is not None:
            if from_step >= spike.first_step:
                return
            self._end("; the run went back before it")
        kept = [item for item in self._history if item[0] <= from_step]
        self._history.clear()
        self._history.extend(kept)
        self._window.reset(log for _, log in kept[-self._window.size :])

    def on_event(self, event: Event) -> None:
        if event.kind == "annotation" and self._level is not None and self.context.is_silenced("grad_norm_spike"):
            self._take_as_usual(self._level, EXPECTED)

    def _take_as_usual(self, level: float, ending: str) -> None:
        for at, value in list(self._recent):
            self._accept(int(at), value + level)
        self._end(ending)
        self._window.reset()

    def forget_since(self, first_step: int, step: Step) -> None:
        """What was learnt since ``first_step`` was not usual after all; a rise that stands by now is told."""
        newer = [item for item in self._history if item[0] >= first_step]
        kept = [item for item in self._history if item[0] < first_step]
        self._history.clear()
        self._history.extend(kept)
        self._window.reset(log for _, log in kept[-self._window.size :])
        self._recent.clear()
        norm = step.values.get("grad_norm")
        if self._level is not None or norm is None or norm <= 0.0 or len(self._window) < self._min_points:
            return
        level = self._window.median()
        limit = max(self._log_ratio, self._spread * max(self._window.sigma(), SPREAD_FLOOR))
        hot = [int(at) for at, log in newer if log - level >= limit]
        if len(hot) >= self._needed and math.log(norm) - level >= limit:
            self._open(step, norm, level, hot[0], Severity.WARNING)

    def _accept(self, step: int, log: float) -> None:
        self._window.push(log)
        self._history.append([step, log])

    def _judge(self, step: Step, norm: float, log: float, level: float) -> None:
        above = log - level
        self._recent.append([step.step, above])
        window = self._window
        sigma = max(window.sigma(), SPREAD_FLOOR)
        # A run whose own tail is long (reinforcement learning) must be left behind by more than that tail.
        tail = TAIL_FACTOR * (window.quantile(TAIL_QUANTILE) - window.median())
        limit = max(self._log_ratio, self._spread * sigma, tail)
        far_limit = max(self._log_single, self._spread * sigma, tail)
        self._far_in_a_row = self._far_in_a_row + 1 if above >= far_limit else 0
        if self._level is None:
            hot = [item for item in self._recent if item[1] >= limit]
            is_persistent = len(hot) >= self._needed
            if self._points >= self._warmup_points and above >= limit and (above >= far_limit or is_persistent):
                is_certain = is_persistent or above >= 2 * far_limit or self._is_loss_rising()
                severity = Severity.WARNING if is_certain and not self._is_small(log, level) else Severity.INFO
                self._open(step, norm, level, int(hot[0][0]), severity)
            if self._level is None:
                self._accept(step.step, min(log, level + limit))
            return
        self._age += 1
        if self._is_small(log, level):
            self._far_in_a_row = 0
        elif above >= limit or self._is_loss_rising():
            # One lone point, however high, leaves no trace once the gradients are clipped; a second one or the loss does.
            spike = self.ledger.open.get("grad_norm_spike")
            self.ledger.escalate("grad_norm_spike", Severity.WARNING, "" if spike is None else spike.message)
        if self._far_in_a_row >= 2 and self._is_loss_rising():
            message = (
                f"grad norm {format_change(math.exp(level), norm)} and the loss rises with it (step {format_step(step.step)})"
            )
            self.ledger.escalate("grad_norm_spike", Severity.CRITICAL, message, value=norm)
        typical = median([item[1] for item in list(self._recent)[-RECENT_POINTS:]])
        if self._age >= CLEAR_POINTS and typical < self._log_clear:
            self._end(f"; back to {format_value(norm)} at step {format_step(step.step)}")
        elif self._age >= self._rebase_after:
            self._take_as_usual(level, f"; taken as usual after {format_count(self._age, 'point')}")

    def _open(self, step: Step, norm: float, level: float, first_step: int, severity: Severity) -> None:
        usual = math.exp(level)
        ratio = math.exp(min(200.0, math.log(norm) - level))
        message = (
            f"grad norm {format_change(usual, norm)} ({format_value(ratio)} times the usual) since step {format_step(first_step)}"
        )
        opened = self.ledger.open_finding(
            "grad_norm_spike",
            severity,
            message,
            first_step=first_step,
            value=norm,
            expected=usual,
            data={"ratio": round(ratio, 2)},
        )
        if opened is not None:
            self._level, self._age = level, 0

    def _is_small(self, log: float, level: float) -> bool:
        """A loss that is as good as zero has next to no gradient, and that jumps by factors without reaching what it was at the start."""
        if self.context.loss is not None and self._loss.scale.is_negligible(self.context.loss):
            return True
        return self._start is not None and level < self._start + LOG_SOLVED and log < self._start

    def _is_loss_rising(self) -> bool:
        loss, value = self._loss, self.context.loss
        if loss.incident is not None:
            return True
        return value is not None and (loss.z or 0.0) >= RISING_LOSS_Z and loss.baseline.is_beyond_tail(value)

    def _end(self, ending: str) -> None:
        self.ledger.close("grad_norm_spike", None, ending)
        self._level = None
        self._recent.clear()

    def _nonfinite(self, step: Step) -> None:
        """Only a warning: one infinite step makes an averaged norm NaN while the loss keeps falling."""
        self._finite_in_a_row = 0
        if self.context.loss_is_bad or step.values.get("skipped", 0.0) > 0:
            return  # loss_nonfinite says it louder; a skipped step is the loss scaler at work
        if self._nonfinite_since is None:
            self._nonfinite_since = step.step
            message = f"grad norm is {step.nonfinite['grad_norm']} at step {format_step(step.step)} while the loss is a number"
            self.ledger.open_finding("grad_norm_nonfinite", Severity.WARNING, message)
