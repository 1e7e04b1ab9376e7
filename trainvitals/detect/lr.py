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
MAX_STEPS = 10**15
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
        "ledger", "_history", "_peak", "_before", "_from_step", "_judged", "_misses", "_settings", "_fitted", "_off", "_told_of", "_waived", "_told_total",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, meant: Schedule | None = None) -> None:
        super().__init__(context, tuned)
        self._meant = meant  # by a person's settings: what the trainer tells is not asked then
        self._history: list[list[float]] = []  # [step, lr] in rising order
        self._peak = 0.0
        self._before: list[list[float]] = []  # the history of the attempt before, while the first points are compared with it
        self._from_step = 0
        self._judged = 0
        self._misses = 0
        self._settings: dict[str, Any] = {}  # keys that may declare a schedule
        self._told_total = 0.0  # steps of the run, from a trainer whose settings name epochs
        self._waived = ""  # what a note said is no longer meant
        self._schedule = meant
        self._fitted = 0
        self._off = 0
        self._told_of = ""  # the schedule that the run never followed, which is told once

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if state.get("_is_waived"):  # saved before it was said of which schedule
            self._waived = repr(self._in_force())
        self._schedule = self._in_force()

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
            if self._schedule is not None:
                self._waived = repr(self._schedule)
            self._schedule = None  # until another one is declared

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
        values, section = data.get("values"), data.get("section")
        if not isinstance(values, Mapping):
            return
        if section == "training":
            total = values.get("max_steps")
            if isinstance(total, (int, float)) and 0 < total <= MAX_STEPS:
                self._told_total = float(total)
        elif section == "config":
            found = _schedule_keys(values)
            if found is None:
                return
            self._settings = found if data.get("part", 0) == 0 else {**self._settings, **found}
        else:
            return
        schedule = self._in_force()
        if schedule != self._schedule:
            self.ledger.close(_SCHEDULE, ending="; another schedule was declared")
            # The run before it followed its schedule: then the settings are understood, and the new ones are believed at once.
            self._off, self._schedule = 0, schedule

    def _in_force(self) -> Schedule | None:
        schedule = self._meant
        if schedule is None:
            settings = self._settings
            if self._told_total and _is_in_epochs(settings):
                settings = {**settings, "max_steps": self._told_total}
            schedule = declared(settings)
        return None if schedule is not None and repr(schedule) == self._waived else schedule

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
        if self._off < numbers["points"] or _SCHEDULE in self.ledger.open or self._told_of == repr(schedule):
            return
        is_believed = self._fitted >= numbers["fitting_points"]
        expected = schedule.lr_at(step)
        message = f"learning rate {lr:.3g} at step {format_step(step)}, declared {expected:.3g} ({schedule.describe()})"
        details: dict[str, Any] = {"value": lr, "expected": expected, "data": {"points": self._off}}
        if is_believed:
            self.ledger.open_finding(_SCHEDULE, Severity.WARNING, message, **details)
        else:
            self._told_of = repr(schedule)
            self.ledger.mark(_SCHEDULE, Severity.INFO, message + "; it has not followed that so far", **details)


def _schedule_keys(values: Mapping[Any, Any]) -> dict[str, Any] | None:
    """What may declare a schedule, by the last part of its key; None where two have one name: whose is meant is not said."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        prefix, _, name = str(key)[:MAX_KEY_CHARACTERS].lower().replace("-", "_").rpartition(".")
        if any(word in prefix for word in OTHER_STEPS):
            continue
        if name in KEYS and (value is None or isinstance(value, (bool, int, float, str))):
            if name in found and found[name] != value:
                return None
            found[name] = value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else value
    return found


def _is_in_epochs(settings: Mapping[str, Any]) -> bool:
    """Hugging Face: ``max_steps`` = -1 beside ``num_train_epochs``, and only the running trainer knows how many steps that makes."""
    steps = settings.get("max_steps")
    return isinstance(steps, (int, float)) and not isinstance(steps, bool) and steps <= 0


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
