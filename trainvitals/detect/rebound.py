"""Loss that comes back higher after a resume: optimizer state lost, wrong data position, another learning rate."""

from __future__ import annotations

from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_change, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.statistics import median, quartile_sigma
from trainvitals.records import Severity, Step

BEFORE_POINTS = 128
MIN_BEFORE_POINTS = 16
RECENT_POINTS = 20
FIRST_LOOKS = (3, 5, 10, 20)
MIN_PAIRS = 5
MEDIAN_ERROR = 1.2533  # standard error of a median, in sigma / sqrt(n)
PAIR_NOISE_FLOOR = 0.0005


class ReboundDetector(FamilyDetector):
    """``resume_rebound``. Where the same steps were run before, new minus old is far sharper than a comparison of levels."""

    family = "loss"
    rules = ("resume_rebound",)
    STATE = ("ledger", "_comparison")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        self._numbers = self.numbers["resume_rebound"]
        self._loss = loss
        self._comparison: dict[str, Any] | None = None

    def prepare(self, from_step: int) -> None:
        """Remember what was before the resume; must be called before the loss detector rewinds."""
        before = self._loss.baseline.values_up_to(from_step, BEFORE_POINTS)
        self.ledger.close("resume_rebound", ending="; resumed again")
        self._comparison = None
        if len(before) < MIN_BEFORE_POINTS or not self._loss.is_warm:
            return
        level = median(before)
        superseded = self._loss.baseline.values_after(from_step)
        near = sorted(superseded)[: int(self._numbers["points"])]
        self._comparison = {
            "from_step": from_step,
            "level": level,
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
        comparison["points"] += 1
        comparison["recent"] = [*comparison["recent"], value][-RECENT_POINTS:]
        old = comparison["old"].pop(str(step.step), None)
        if old is not None:
            comparison["pairs"] = [*comparison["pairs"], value - old][-RECENT_POINTS:]
        points = comparison["points"]
        if points in FIRST_LOOKS or (points > FIRST_LOOKS[-1] and points % RECENT_POINTS == 0):
            self._look(step, comparison)
        if points >= self._numbers["points"]:
            self._comparison = None
            self.ledger.close("resume_rebound")

    def _look(self, step: Step, comparison: dict[str, Any]) -> None:
        numbers, level, sensitivity = self._numbers, comparison["level"], self._numbers["sensitivity"]
        pairs, recent = comparison["pairs"], comparison["recent"]
        size = max(abs(level), comparison["sigma"])
        is_paired = len(pairs) >= MIN_PAIRS
        if is_paired:
            rise = median(pairs)
            noise = max(quartile_sigma(pairs), PAIR_NOISE_FLOOR * abs(level))
            certainty, min_excess, count = numbers["paired_z"], numbers["paired_excess"], len(pairs)
        else:
            rise = median(recent) - level
            noise = comparison["sigma"]
            certainty, min_excess, count = numbers["unpaired_z"], numbers["unpaired_excess"], len(recent)
        excess = rise / size
        if rise <= certainty / sensitivity * MEDIAN_ERROR * noise / count**0.5 or excess <= min_excess / sensitivity:
            return
        is_critical = excess > numbers["critical_excess"] and comparison["points"] >= MIN_PAIRS
        severity = Severity.CRITICAL if is_critical else Severity.WARNING
        than = "than the same steps before" if is_paired else "than before"
        value = level + rise
        message = (
            f"loss {format_change(level, value)} after the resume from step {format_step(comparison['from_step'])}, "
            f"{100 * excess:.1f} % higher {than}"
        )
        data = {"excess": round(excess, 4), "is_paired": is_paired}
        if "resume_rebound" in self.ledger.open:
            self.ledger.escalate("resume_rebound", severity, message, value=value, data=data)
        else:
            self.ledger.open_finding(
                "resume_rebound",
                severity,
                message,
                first_step=comparison["from_step"] + 1,
                value=value,
                expected=level,
                data=data,
            )
