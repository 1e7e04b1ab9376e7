"""The learning rate against what it was before a resume at the same step, and against the schedule that the run declared."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_step
from trainvitals.detect.lr_schedule import KEYS, Schedule, declared
from trainvitals.records import Event, Severity, Step

MAX_HISTORY = 400
NEWEST_WHOLE = 100  # older ones are thinned: a schedule is smooth
NEIGHBOURS = 2  # logged points around a step whose learning rates all count as "before": off by one at a resume is no fault
TREND_POINTS = 20
MAX_MISSING_POINTS = 20
FEW_OF_PEAK = 0.002  # of the highest learning rate: what a log that prints few digits rounds away
MAX_VALUE_CHARACTERS = 100
MAX_KEY_CHARACTERS = 300
OTHER_STEPS = ("valid", "eval", "checkpoint", "profil", "metrics")  # sections whose steps are no schedule (torchtitan)

_RESUME, _SCHEDULE = "resume_lr_mismatch", "lr_schedule_mismatch"


class LrDetector(FamilyDetector):
    """``resume_lr_mismatch``, ``lr_schedule_mismatch``.

    A declared schedule counts only after the run has followed it for a while: what is read from settings may be misunderstood, and a
    learning rate that never fitted is a mark.
    """

    family = "lr"
    rules = (_RESUME, _SCHEDULE)
    STATE = (
        "ledger", "_history", "_peak", "_before", "_from_step", "_judged", "_misses", "_settings", "_fitted", "_off", "_is_told", "_is_waived",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._history: list[list[float]] = []  # [step, lr] in rising order
        self._peak = 0.0
        self._before: list[list[float]] = []  # the history of the attempt before, while the first points are compared with it
        self._from_step = 0
        self._judged = 0
        self._misses = 0
        self._settings: dict[str, Any] = {}  # keys that may declare a schedule
        self._schedule: Schedule | None = None
        self._fitted = 0
        self._off = 0
        self._is_told = False
        self._is_waived = False  # a note said that what was declared is no longer meant

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._schedule = None if self._is_waived else declared(self._settings)

    def on_step(self, step: Step) -> None:
        lr = step.values.get("lr")
        if lr is None:
            return
        self._peak = max(self._peak, abs(lr))
        if self._before:
            self._compare(step.step, lr)
        if self._schedule is not None:
            self._follow(step.step, lr, self._schedule)
        history = self._history
        history.append([step.step, lr])
        if len(history) > MAX_HISTORY:
            self._history = history[:-NEWEST_WHOLE:2] + history[-NEWEST_WHOLE:]

    def on_resume(self, from_step: int) -> None:
        self.ledger.close(_RESUME, ending="; resumed again")
        self._before, self._judged, self._misses = [], 0, 0
        kept = [item for item in self._history if item[0] <= from_step]
        if len(kept) >= TREND_POINTS:  # else it began anew: nothing is to be continued
            self._before, self._from_step = self._history, from_step
        self._history = kept
        self._off = 0

    def on_event(self, event: Event) -> None:
        if event.kind == "metadata":
            self._take_settings(event.data)
        elif event.kind == "annotation":
            for rule in self.rules:
                if self.context.is_silenced(rule):
                    self._accept(rule)

    def _accept(self, rule: str) -> None:
        self.ledger.close(rule, None, "; expected, says a note")
        if rule == _RESUME:
            self._before = []
        else:
            self._schedule, self._is_waived = None, True  # until other settings are told

    # -- before and after a resume --------------------------------------------------------------------------------

    def _compare(self, step: int, lr: float) -> None:
        numbers = self.numbers[_RESUME]
        if not self._judged and step > self._before[-1][0] + MAX_MISSING_POINTS * self.context.gap_steps:
            self._before = []  # a part is missing in between: what the schedule did there is not known
            return
        low, high = _range_of(self._before, step)
        self._judged += 1
        slack = max(numbers["tolerance"] / numbers["sensitivity"] * max(abs(low), abs(high)), FEW_OF_PEAK * self._peak)
        is_missed = not low - slack <= lr <= high + slack
        self._misses += is_missed
        if is_missed and self._misses >= numbers["hot_points"] and _RESUME not in self.ledger.open:
            usual = low if lr < low else high
            self.ledger.open_finding(
                _RESUME,
                Severity.WARNING,
                f"learning rate {lr:.3g} at step {format_step(step)} after the resume from step {format_step(self._from_step)}; "
                f"before it was {usual:.3g} there",
                first_step=self._from_step + 1,
                value=lr,
                expected=usual,
                data={"ratio": round(lr / usual, 4) if usual else None, "from_step": self._from_step},
            )
        is_past = step > self._before[-1][0] + max(1, self.context.gap_steps) * numbers["of_points"]
        if _RESUME in self.ledger.open:
            if not is_missed or is_past:
                self.ledger.close(_RESUME, ending="" if is_missed else f"; as before from step {format_step(step)} on")
                self._before = []
        elif self._judged >= numbers["of_points"]:
            self._before = []

    # -- what was declared ----------------------------------------------------------------------------------------

    def _take_settings(self, data: Mapping[str, Any]) -> None:
        values = data.get("values")
        if data.get("section") != "config" or not isinstance(values, Mapping):
            return
        found: dict[str, Any] = {}
        for key, value in values.items():
            prefix, _, name = str(key)[:MAX_KEY_CHARACTERS].lower().replace("-", "_").rpartition(".")
            if any(word in prefix for word in OTHER_STEPS):
                continue
            if name in KEYS and (value is None or isinstance(value, (bool, int, float, str))):
                if name in found and found[name] != value:
                    return  # two of a name: whose is meant is not said
                found[name] = value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else value
        settings = found if data.get("part", 0) == 0 else {**self._settings, **found}
        if settings == self._settings:
            return
        schedule = declared(settings)
        if schedule != self._schedule:
            self.ledger.close(_SCHEDULE, ending="; another schedule was declared")
            # The run before it followed its schedule: then the settings are understood, and the new ones are believed at once.
            self._off, self._is_told = 0, False
        self._settings, self._schedule, self._is_waived = settings, schedule, False

    def _follow(self, step: int, lr: float, schedule: Schedule) -> None:
        numbers = self.numbers[_SCHEDULE]
        low, high = schedule.bounds(step)
        slack = max(numbers["tolerance"] / numbers["sensitivity"] * high, FEW_OF_PEAK * schedule.peak)
        if low - slack <= lr <= high + slack:
            self._fitted = min(self._fitted + 1, 1_000_000)
            self._off = 0
            self.ledger.close(_SCHEDULE, ending=f"; as declared from step {format_step(step)} on")
            return
        self._off += 1
        if self._off < numbers["points"] or _SCHEDULE in self.ledger.open or self._is_told:
            return
        is_believed = self._fitted >= numbers["fitting_points"]
        expected = schedule.lr_at(step)
        message = f"learning rate {lr:.3g} at step {format_step(step)}, declared {expected:.3g} ({schedule.describe()})"
        details: dict[str, Any] = {"value": lr, "expected": expected, "data": {"points": self._off}}
        if is_believed:
            self.ledger.open_finding(_SCHEDULE, Severity.WARNING, message, **details)
        else:
            self._is_told = True
            self.ledger.mark(_SCHEDULE, Severity.INFO, message + "; it has not followed that so far", **details)


def _range_of(history: list[list[float]], step: int) -> tuple[float, float]:
    """Learning rates around ``step``; beyond the last one, where it may have gone from there."""
    last_step, last = history[-1]
    near: list[float]
    if step > last_step:
        back = history[-min(len(history), TREND_POINTS)]
        slope = (last - back[1]) / max(1.0, last_step - back[0])
        reached = last + 2 * slope * (step - last_step)
        near = [last, reached, *(lr for _, lr in history[-NEIGHBOURS:])]
    else:
        at = bisect_left(history, [step])
        near = [lr for _, lr in history[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]]
    return min(near), max(near)
