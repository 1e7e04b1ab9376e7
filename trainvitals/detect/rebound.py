"""Loss that comes back higher or lower after a resume.

Higher: optimizer state lost, wrong data position, another learning rate. Lower: data that the run has already seen (the data
position began anew: Lightning-AI/pytorch-lightning issue 18780).
"""

from __future__ import annotations

from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.statistics import median, quartile_sigma
from trainvitals.records import Event, Severity, Step

BEFORE_POINTS = 128
MIN_BEFORE_POINTS = 16
EARLY_BEFORE_POINTS = 32
EARLY_EXCESS = 0.1  # share of the level: smallest rebound of a run that was not warm yet; it has no drop
RECENT_POINTS = 20
FIRST_LOOKS = (3, 5, 10, 20)
MIN_PAIRS = 5
MEDIAN_ERROR = 1.2533  # standard error of a median, in sigma / sqrt(n)
PAIR_NOISE_FLOOR = 0.0005
FEW_PAIRS = 5


class ReboundDetector(FamilyDetector):
    """``resume_rebound``, ``resume_drop``. Where the same steps were run before, new minus old is far sharper than levels."""

    family = "loss"
    rules = ("resume_rebound", "resume_drop")
    STATE = ("ledger", "_comparison")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        self._loss = loss
        self._comparison: dict[str, Any] | None = None

    def prepare(self, from_step: int) -> None:
        """Remember what was before the resume; must be called before the loss detector rewinds."""
        before = self._loss.baseline.values_up_to(from_step, BEFORE_POINTS)
        self._close("; resumed again")
        self._comparison = None
        if len(before) < (MIN_BEFORE_POINTS if self._loss.is_warm else EARLY_BEFORE_POINTS):
            return
        level = median(before)
        # What was high in an incident is no yardstick: going back before it must not look like a drop.
        superseded = self._loss.baseline.accepted_after(from_step)
        near = sorted(superseded)[: int(self.numbers["resume_rebound"]["points"])]
        self._comparison = {
            "from_step": from_step,
            "is_early": not self._loss.is_warm,
            "level": level,
            "trend": _trend(before),
            "last_step": max(int(at) for at, _, _ in self._loss.baseline.history if at <= from_step),
            "before": len(before),
            "sigma": max(quartile_sigma(before), 0.001 * abs(level)),
            "old": {str(at): superseded[at] for at in near},
            "points": 0,
            "recent": [],
            "pairs": [],
        }

    def on_step(self, step: Step) -> None:
        comparison, value = self._comparison, self.context.loss
        if comparison is None or value is None:
            return
        if comparison["points"] > RECENT_POINTS and self._loss.incident is not None and not self.ledger.open:
            return  # a spike that comes some time after a resume is not the resume's
        comparison["points"] += 1
        comparison["recent"] = [*comparison["recent"], value][-RECENT_POINTS:]
        old = comparison["old"].pop(str(step.step), None)
        if old is not None:
            comparison["pairs"] = [*comparison["pairs"], value - old][-RECENT_POINTS:]
        points = comparison["points"]
        if points in FIRST_LOOKS or (points > FIRST_LOOKS[-1] and points % RECENT_POINTS == 0):
            self._look(step, comparison)
        if points >= self.numbers["resume_rebound"]["points"]:
            self._comparison = None
            self._close("")

    def on_event(self, event: Event) -> None:
        if event.kind == "annotation":
            for rule in self.rules:
                if self.context.is_silenced(rule):
                    self.ledger.close(rule, None, EXPECTED)

    def _close(self, ending: str) -> None:
        for rule in self.rules:
            self.ledger.close(rule, None, ending)

    def _look(self, step: Step, comparison: dict[str, Any]) -> None:
        level, pairs, recent = comparison["level"], comparison["pairs"], comparison["recent"]
        size = max(abs(level), comparison["sigma"])
        is_paired = len(pairs) >= MIN_PAIRS
        if is_paired:
            change = median(pairs)
            noise, count = max(_pair_noise(pairs), PAIR_NOISE_FLOOR * abs(level)), len(pairs)
        else:
            change = median(recent) - level
            noise, count = comparison["sigma"], len(recent)
        error = MEDIAN_ERROR * noise / count**0.5
        is_early = bool(comparison.get("is_early"))
        if is_early and change / size < EARLY_EXCESS:
            return
        if self._is_believed("resume_rebound", change, error, change / size, is_paired=is_paired):
            excess = change / size
            is_critical = excess > self.numbers["resume_rebound"]["critical_excess"] and comparison["points"] >= MIN_PAIRS
            severity = Severity.CRITICAL if is_critical else Severity.WARNING
            self._tell("resume_rebound", severity, change, comparison, is_paired=is_paired)
        # Without pairs a curve that simply goes on falling must not look like a drop: straight on is lower than any real curve.
        fall = -change
        if not is_paired:
            since = max(0, step.step - comparison["last_step"]) / self.context.gap_steps
            fall -= comparison["trend"] * (comparison["before"] / 2 + since)
        is_sure = is_paired or comparison["points"] >= RECENT_POINTS
        if is_sure and self._is_believed("resume_drop", fall, error, fall / size, is_paired=is_paired):
            self._tell("resume_drop", Severity.WARNING, change, comparison, is_paired=is_paired)

    def _is_believed(self, rule: str, change: float, error: float, share: float, *, is_paired: bool) -> bool:
        numbers = self.numbers[rule]
        kind = "paired" if is_paired else "unpaired"
        sensitivity = numbers["sensitivity"]
        return change > numbers[f"{kind}_z"] / sensitivity * error and share > numbers[f"{kind}_excess"] / sensitivity

    def _tell(self, rule: str, severity: Severity, change: float, comparison: dict[str, Any], *, is_paired: bool) -> None:
        level, from_step = comparison["level"], comparison["from_step"]
        excess = change / max(abs(level), comparison["sigma"])
        than = "than the same steps before" if is_paired else "than before"
        value = level + change
        how = f"{100 * abs(excess):.1f} % {'higher' if change > 0 else 'lower'} {than}"
        message = f"loss {format_change(level, value)} after the resume from step {format_step(from_step)}, {how}"
        if rule == "resume_drop":
            self._loss.expect_return(from_step, level, comparison["sigma"])
            message += ": has it seen this data before?"
        data = {"excess": round(excess, 4), "is_paired": is_paired}
        if rule in self.ledger.open:
            self.ledger.escalate(rule, severity, message, value=value, data=data)
        else:
            self.ledger.open_finding(rule, severity, message, first_step=from_step + 1, value=value, expected=level, data=data)


def _pair_noise(pairs: list[float]) -> float:
    """Spread of the differences, made larger while there are few: the quartiles of five points say little.

    Other data on the same steps makes them as noisy as the curve itself, and 4 sigma of five points are then often passed by chance.
    """
    count = len(pairs)
    from_range = (max(pairs) - min(pairs)) / (2.33 if count < MIN_PAIRS * 2 else 3.08 if count < RECENT_POINTS else 3.73)
    return max(quartile_sigma(pairs), from_range) * (1 + FEW_PAIRS / count)


def _trend(before: list[float]) -> float:
    """How far the loss falls each point, at least 0: the first quarter against the last one. Curves flatten, so it falls less from now on."""
    quarter = max(1, len(before) // 4)
    return max(0.0, (median(before[:quarter]) - median(before[-quarter:])) / max(1, len(before) - quarter))
