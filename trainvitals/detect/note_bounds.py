"""What a note of changed data does not excuse: such a change moves the loss once and leaves it flat, a blow-up goes on.

A person who writes "books up" explains a shift. The same note must not hide a run that gives its progress back.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

from trainvitals.detect.annotations import BOUNDED_CHANGES, CHANGES, rules_of
from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context
from trainvitals.detect.grad_norm import GradNormDetector
from trainvitals.detect.loss import MAX_Z, LossDetector
from trainvitals.detect.statistics import median
from trainvitals.detect.tunables import numbers_of
from trainvitals.records import Event, Step

FAR_EXCESS = 0.5  # of the level: no mixture does this to a trained model
FAR_SIGMA = 20.0
FAR_POINTS = 3
NORM_POINTS = 24
NORM_SHARE = 0.75  # of these points
MIN_EXCESS = 0.03  # of the level, for the grad norm to count
RISING_EXCESS = 0.10  # of the level
MIN_RISE = 0.01  # of the level, from one block to the next
RISE_ERRORS = 4.0  # ... and in standard errors of a block
BLOCK_SIZES = (16, 64)  # points: a fast rise and a slow one
RISES = 3  # blocks in a row, each above the one before; a step makes two at most
FLAT_SHARE = 0.01  # of the level
FLAT_SIGMA = 2.0
BELOW_AT_MOST = 3  # two points below in a row, or often one, are before the rise
NEVER = 10**18


class NoteBoundsDetector(FamilyDetector):
    """Ends the silence of a note of changed data when the loss blows up under it; opens nothing itself, the loss rules do.

    Compared is with the level from before the note. The onset is looked for from the newest level that stood: a mixture
    may have moved it before. A rule that the note names is silenced for as long as the note says, whatever happens.
    """

    family = "note"
    rules = ()
    STATE = (
        "ledger", "_before", "_stood", "_named", "_blocks", "_medians", "_flat", "_far_points", "_norms", "_losses", "_ends_at", "_since",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector, grad_norm: GradNormDetector) -> None:
        super().__init__(context, tuned)
        self._loss, self._grad_norm = loss, grad_norm
        spike = numbers_of("loss_spike", tuned)
        self._severe_lost = spike["critical_lost_progress"] / spike["sensitivity"]
        self._hot_z = spike["z"] / spike["sensitivity"]
        self._ratio = numbers_of("grad_norm_spike", tuned)["ratio"]
        self._before: dict[str, Any] | None = None  # level, sigma and grad_norm from before the note; None = nothing to watch
        self._stood: dict[str, Any] | None = None  # level and step at which the loss has stood since
        self._named: dict[str, int] = {}  # rule -> points until which a note silences it by its name
        self._ends_at = self._since = 0
        self._clear()

    def _clear(self) -> None:
        self._blocks: list[list[float]] = [[] for _ in BLOCK_SIZES]
        self._medians: list[list[float]] = [[] for _ in BLOCK_SIZES]
        self._flat: deque[float] = deque(maxlen=RISES + 1)
        self._far_points = 0
        self._norms: deque[float] = deque(maxlen=NORM_POINTS)
        self._losses: deque[float] = deque(maxlen=BLOCK_SIZES[0])

    def on_event(self, event: Event) -> None:
        if event.kind != "annotation" or not self.context.is_silenced("loss_spike"):
            return
        for rule in rules_of({"rules": event.data["named"] if "named" in event.data else event.data.get("rules")}, _of_changes()):
            self._named[rule] = max(self._named.get(rule, 0), self.context.silences.get(rule, 0))
        if event.data.get("change") not in BOUNDED_CHANGES:
            return
        loss = self._loss
        if self._named.get("loss_spike", -1) >= self.context.points or not loss.baseline.is_ready:
            return
        level, sigma = loss.baseline.level_and_sigma()
        if loss.level is not None and loss.sigma is not None and loss.recent_median is not None:
            # Whoever explains a rise afterwards has seen how high it stands: only more than that is news.
            level, sigma = max(level, loss.recent_median), loss.sigma
        self._before = {"level": level, "sigma": sigma, "grad_norm": self._grad_norm.usual()}
        self._stood = {"level": level, "step": self.context.step}
        self._ends_at, self._since = self.context.silences["loss_spike"], self.context.step
        self._clear()

    def on_resume(self, from_step: int) -> None:
        if self._before is None:
            return
        if from_step < self._since:
            self._before = None  # the run meets the note again
        elif self._stood is not None and self._stood["step"] > from_step:
            self._stood = {"level": self._before["level"], "step": self._since}
        self._clear()

    def on_step(self, step: Step) -> None:
        value, before = self.context.loss, self._before
        if before is None:
            return
        norm = step.values.get("grad_norm")
        if norm is not None and norm > 0.0:
            self._norms.append(norm)
        if value is not None:
            self._losses.append(value)
            is_rising = self._push(value, before, step.step)
            is_over = self.context.points >= self._ends_at
            is_blow_up = (
                self._is_far(before) or is_rising or self._is_norm_high(before) or (is_over and self._still_rises(before))
            )
            if is_blow_up and self._loss.is_warm:
                self._break(step, before)
                return
        if self.context.points >= self._ends_at:
            self._before = None

    def _push(self, value: float, before: dict[str, Any], step: int) -> bool:
        """Whether the loss keeps rising, on one of the two scales."""
        size, is_rising = max(abs(before["level"]), before["sigma"]), False
        for n, (points, block, medians) in enumerate(zip(BLOCK_SIZES, self._blocks, self._medians, strict=True)):
            block.append(value)
            if len(block) < points:
                continue
            medians.append(median(block))
            block.clear()
            del medians[: -RISES - 1]
            least = max(RISE_ERRORS * before["sigma"] / points**0.5, MIN_RISE * size)
            rises = [after - earlier for earlier, after in pairwise(medians)]
            is_high = medians[-1] - before["level"] >= RISING_EXCESS * size
            is_rising = is_rising or (is_high and len(rises) == RISES and min(rises) >= least)
            if n == 0:
                self._stand(medians[-1], before, size, step)
        return is_rising

    def _stand(self, middle: float, before: dict[str, Any], size: float, step: int) -> None:
        """Where the loss stays flat the level of the note's change is reached: what comes after begins there."""
        self._flat.append(middle)
        tolerance = max(FLAT_SIGMA * before["sigma"], FLAT_SHARE * size)
        is_flat = len(self._flat) == self._flat.maxlen and max(self._flat) - min(self._flat) <= tolerance
        assert self._stood is not None
        if is_flat or middle < self._stood["level"] - before["sigma"]:
            self._stood = {"level": median(self._flat) if is_flat else middle, "step": step}

    def _is_far(self, before: dict[str, Any]) -> bool:
        """Too much progress given back, or far beyond anything, for three medians of five in a row."""
        typical, initial = self._loss.recent_median, self._loss.initial
        if typical is None or self._loss.scale.is_negligible(typical):
            self._far_points = 0
            return False
        rise, level, sigma = typical - before["level"], before["level"], before["sigma"]
        lost = rise / (initial - level) if initial is not None and initial > level + sigma else 0.0
        is_lost = lost >= self._severe_lost and rise >= max(2 * self._hot_z * sigma, MIN_EXCESS * abs(level))
        is_far = rise >= FAR_EXCESS * max(abs(level), sigma) and rise >= FAR_SIGMA * sigma
        self._far_points = self._far_points + 1 if is_lost or is_far else 0
        return self._far_points >= FAR_POINTS

    def _is_norm_high(self, before: dict[str, Any]) -> bool:
        """Gradients many times the usual beside a higher loss, again and again: a change of data shakes them for some steps only."""
        usual = before["grad_norm"]
        if not usual or len(self._norms) < NORM_POINTS or len(self._losses) < BLOCK_SIZES[0]:
            return False
        rise = median(self._losses) - before["level"]
        is_higher = rise >= max(self._hot_z * before["sigma"], MIN_EXCESS * abs(before["level"]))
        return bool(is_higher and sum(norm >= self._ratio * usual for norm in self._norms) >= NORM_SHARE * NORM_POINTS)

    def _still_rises(self, before: dict[str, Any]) -> bool:
        """At the end of the note: a rise that goes on is no new usual level."""
        medians, sigma = self._medians[0], before["sigma"]
        if len(medians) < 2 or self._stood is None:
            return False
        rise = median(self._losses) - self._stood["level"]
        least = max(RISE_ERRORS * sigma / BLOCK_SIZES[0] ** 0.5, MIN_RISE * abs(before["level"]))
        is_higher = rise >= max(self._hot_z * sigma, MIN_EXCESS * abs(before["level"]))
        return is_higher and medians[-1] - medians[-2] >= least and median(self._losses) > medians[-2]

    def _break(self, step: Step, before: dict[str, Any]) -> None:
        """From here on the rules speak again, compared with what was usual before the rise."""
        assert self._stood is not None
        silences, loss = self.context.silences, self._loss
        for rule in _of_changes():
            if self._named.get(rule, -1) >= self.context.points:
                silences[rule] = self._named[rule]
            else:
                silences.pop(rule, None)
        level, sigma = self._stood["level"], before["sigma"]
        first_step, points = self._onset(level + self._hot_z * sigma, step.step)
        loss.baseline.forget_between(loss.baseline.rise_from(first_step, level, sigma) - 1, NEVER)
        typical = loss.recent_median
        assert typical is not None
        loss.z = min(MAX_Z, (typical - level) / sigma)
        loss.open_from_shift(step, first_step, level, sigma, typical)
        if loss.incident is not None:
            loss.incident["point"] = loss.points - points
        self._grad_norm.forget_since(first_step, step)
        self._before = None

    def _onset(self, limit: float, step: int) -> tuple[int, int]:
        """The first step since which hardly a point lies below ``limit``, and how many points ago it was."""
        onset, points, below = step, 0, 0
        for age, (at, value, _) in enumerate(reversed(self._loss.baseline.history)):
            below = max(0, below - 1) if value >= limit else below + 2
            if below > BELOW_AT_MOST:
                break
            if value >= limit:
                onset, points = int(at), age
        return onset, points


def _of_changes() -> tuple[str, ...]:
    """The rules of loss and gradients that a note of changed data silences."""
    rules = (rule for change in BOUNDED_CHANGES for rule in CHANGES[change])
    return tuple(dict.fromkeys(rule for rule in rules if rule.startswith(("loss_", "grad_", "resume_"))))
