"""Loss on held-out data, out of the ``message`` events that tell one: not a number, rising while the training loss is not, no longer told.

Evaluations are rare, so one number decides nothing but its not being one. A rise beside a training loss that goes on falling is data seen
too often. The thresholds are our own choice, tried on made-up curves only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import EXPECTED, Context, format_change, format_count, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.statistics import MAD_TO_SIGMA, median
from trainvitals.records import Event, Severity, Step

_NONFINITE, _RISE, _MISSING = "validation_nonfinite", "validation_rise", "validation_missing"
MAX_SETS = 16
MAX_NAME_CHARACTERS = 64
KEPT_VALUES = 64
RECENT = 3
LARGEST = 1e100
NOISE_FLOOR = 0.001  # of the level
SAME_GAP = 1.5
#: A rise is made of several steps: one that came at once is another validation set, or another size of it.
LARGEST_JUMP_SHARE = 0.6
RETURNED_FACTOR = 1.5
TRAINING_SHARE = 0.25  # of the rise: a training loss that rises by more is what the other rules speak of
#: A curve that wanders at random comes so far, in sigma of its steps times the root of their number, hardly ever.
WALK_Z = 5.0


class ValidationDetector(FamilyDetector):
    """``validation_nonfinite``, ``validation_rise``, ``validation_missing``; never critical, never counted by the breaker.

    Each named set has its own curve; a rule has one open finding, of the set that showed it first. Only losses are judged: an accuracy or
    a reward has another name. Sets beyond the sixteenth are counted in ``left_out``.
    """

    family = "validation"
    rules = (_NONFINITE, _RISE, _MISSING)
    STATE = ("ledger", "left_out", "_sets", "_steps")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector) -> None:
        super().__init__(context, tuned)
        self._loss = loss
        rise, missing = self.numbers[_RISE], self.numbers[_MISSING]
        self._close_after = max(1, int(self.numbers[_NONFINITE]["close_after_evaluations"]))
        self._min_values = max(2 * RECENT, int(rise["min_evaluations"]))
        self._z = rise["z"] / rise["sensitivity"]
        self._min_excess = rise["min_excess"] / rise["sensitivity"]
        self._gaps = max(2, int(missing["gaps"]))
        self._missing_after = missing["intervals"] + 0.5
        self.left_out = 0
        self._sets: dict[str, dict[str, Any]] = {}
        self._steps: list[int] = []  # of the newest evaluations, of any set

    # -- what comes -----------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        if event.kind == "message" and self._is_of_this_attempt(event):
            for name, value in losses_of(event.data).items():
                self._take(name, value)
        elif event.kind == "annotation":
            for rule in self.rules:
                if self.context.is_silenced(rule):
                    self.ledger.close(rule, ending=EXPECTED)
            if self.context.is_silenced(_RISE):
                for known in self._sets.values():
                    known.update(values=[], returned=0.0)

    def on_step(self, step: Step) -> None:
        steps = self._steps
        if len(steps) <= self._gaps or _MISSING in self.ledger.open:
            return
        gap = self._usual_gap()
        if gap is not None and step.step - steps[-1] >= self._missing_after * gap:
            self.ledger.open_finding(
                _MISSING,
                Severity.INFO,
                f"no validation loss since step {format_step(steps[-1])}; it came every {gap:,} steps before",
                first_step=steps[-1] + gap,
                value=float(step.step - steps[-1]),
                expected=float(gap),
            )
            self._steps = steps[-1:]  # told once; the interval is learnt anew

    def on_resume(self, from_step: int) -> None:
        self.ledger.close(_RISE, ending="; the run was resumed")
        self.ledger.close(_MISSING, ending="; the run was resumed")
        self._steps = []
        for known in self._sets.values():
            known["values"] = [item for item in known["values"] if item[0] <= from_step]

    def _is_of_this_attempt(self, event: Event) -> bool:
        return event.attempt is None or event.attempt >= self.context.attempt

    # -- one evaluation -------------------------------------------------------------------------------------------

    def _take(self, name: str, value: float) -> None:
        known = self._sets.get(name)
        if known is None:
            if len(self._sets) >= MAX_SETS:
                self.left_out = min(self.left_out + 1, 1_000_000_000)
                return
            known = self._sets[name] = {"values": [], "returned": 0.0}
        self._take_step()
        if not math.isfinite(value):
            known["finite"] = 0
            self._tell_nonfinite(name, value)
            return
        told = self.ledger.open.get(_NONFINITE)
        known["finite"] = min(known.get("finite", 0) + 1, 1_000_000)
        if told is not None and told.data.get("set") == name and known["finite"] >= self._close_after:
            self.ledger.close(_NONFINITE, ending=f"; a number again at step {format_step(self.context.step)}")
        if not self.context.points:
            return  # of a model that has not been trained yet
        values = known["values"]
        if values and values[-1][0] >= self.context.step:
            return
        values.append([self.context.step, max(-LARGEST, min(LARGEST, value)), self._loss.recent_median])
        self._judge(name, known)
        del values[:-KEPT_VALUES]

    def _take_step(self) -> None:
        step = self.context.step
        if self.context.points and (not self._steps or step > self._steps[-1]):
            self._steps = [*self._steps, step][-self._gaps - 1 :]
            self.ledger.close(_MISSING, ending=f"; it is told again at step {format_step(step)}")

    def _usual_gap(self) -> int | None:
        gaps = [after - before for before, after in pairwise(self._steps)]
        return max(gaps) if max(gaps) <= SAME_GAP * min(gaps) else None

    def _tell_nonfinite(self, name: str, value: float) -> None:
        what = "NaN" if value != value else "infinite"
        step = format_step(self.context.step)
        self.ledger.open_finding(
            _NONFINITE, Severity.WARNING, f"validation loss{_of(name)} is {what} at step {step}", data={"set": name}
        )

    # -- rising ---------------------------------------------------------------------------------------------------

    def _judge(self, name: str, known: dict[str, Any]) -> None:
        rows = known["values"]
        if len(rows) < self._min_values:
            return
        values = [row[1] for row in rows]
        middles = [median(values[i : i + RECENT]) for i in range(len(values) - RECENT + 1)]
        at = min(range(len(middles)), key=middles.__getitem__)
        best, rise = middles[at], min(values[-RECENT:]) - middles[at]
        told = self.ledger.open.get(_RISE)
        if told is not None:
            if told.data.get("set") == name and told.value is not None and values[-1] - best < 0.5 * (told.value - best):
                self.ledger.close(_RISE, ending=f"; lower again at step {format_step(self.context.step)}")
            return
        sigma = max(_noise(values[: at + RECENT]), _noise(values) if at < RECENT else 0.0, NOISE_FLOOR * abs(best))
        # What was taken back before is this run's wander: it must be left behind clearly.
        lowest = math.inf
        returned, highest = known["returned"], 0.0
        for middle in middles:
            if middle < lowest:
                lowest, returned, highest = middle, max(returned, highest), 0.0
            highest = max(highest, middle - lowest)
        known["returned"] = returned
        if best <= 0.0 or rise < max(self._z * sigma, self._min_excess * best, RETURNED_FACTOR * returned):
            return
        count = len(values) - at - 1
        if rise < WALK_Z * _step_sigma(values[: at + RECENT] if at >= RECENT else values) * count**0.5:
            return
        jumps = [after - before for before, after in pairwise(values[at:])]
        if max(jumps) > LARGEST_JUMP_SHARE * (max(values[at:]) - best) or not self._goes_on(values[at:]):
            return
        before, now = rows[at + 1][2], rows[-1][2]
        if before is None or now is None or now > before + TRAINING_SHARE * rise / best * abs(before):
            return
        self.ledger.open_finding(
            _RISE,
            Severity.WARNING,
            f"validation loss{_of(name)} rises, {format_change(best, values[-1])} in {format_count(count, 'evaluation')} since step "
            f"{format_step(rows[at + 1][0])}, and the training loss does not: is data seen again and again?",
            first_step=rows[at + 1][0],
            value=values[-1],
            expected=best,
            data={"set": name, "excess": round((values[-1] - best) / best, 4)},
        )

    @staticmethod
    def _goes_on(values: list[float]) -> bool:
        """Whether the newest three lie above all the three before them."""
        return len(values) > 2 * RECENT - 1 and min(values[-RECENT:]) > max(values[-2 * RECENT : -RECENT])


def losses_of(data: Mapping[str, Any]) -> dict[str, float]:
    """Name of the set ("" = the only one) -> loss; a value that is told as ``"nan"`` or ``"inf"`` is that."""
    told = data.get("validation_loss")
    if told is None or isinstance(told, bool):
        return {}
    try:
        value = float(told)
    except (TypeError, ValueError, OverflowError):
        return {}  # the parser counts what is no number
    return {str(data.get("validation_set") or "")[:MAX_NAME_CHARACTERS]: value}


def _of(name: str) -> str:
    return f" of {ascii(name)[1:-1]}" if name else ""


def _noise(values: list[float]) -> float:
    """Robust sigma of a value, from how far neighbours lie apart: a falling curve has no noise of its own by that."""
    bends = [abs(c - 2 * b + a) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    if not bends:
        return 0.0
    return max(median(bends) * MAD_TO_SIGMA, sorted(bends)[int(0.9 * (len(bends) - 1))] / 1.645) / 6**0.5


def _step_sigma(values: list[float]) -> float:
    """Robust sigma of the way from one value to the next, without the usual fall."""
    steps = [after - before for before, after in pairwise(values)]
    usual = median(steps) if steps else 0.0
    return median([abs(step - usual) for step in steps]) * MAD_TO_SIGMA if steps else 0.0
