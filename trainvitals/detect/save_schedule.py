"""How often a run saves, learnt from its saves, and how long one step takes. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import SortedWindow

KEPT_GAPS = 20
#: Gaps this close to the longest one are gaps of the schedule; shorter ones are saves in between (a pause, a second schedule).
NEAR_SHARE = 0.9
#: Share of the known gaps that must be such ones: all of a few, fewer of many, where a second schedule makes short ones.
FEW_GAPS, FEW_SHARE = 8, 0.4
MANY_GAPS, SURE_SHARE, SURE_SHARE_OF_MANY = 12, 0.8, 0.5
PACE_POINTS = 63


@dataclass(frozen=True, slots=True)
class Interval:
    """The longest gap that comes back again and again: steps, and seconds of the shortest such gap (None: no times).

    is_sure: it came back so often that chance is no explanation, or the settings declare it.
    """

    steps: int
    seconds: float | None
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Between two points in a row."""

    steps: int
    seconds: float


class SaveSchedule(Stateful):
    """Saves of one source (what the trainer says, or what is on disk), in rising steps.

    ``interval`` is None until ``min_gaps`` gaps of nearly the same length were seen, and nearly always for a run that saves at
    irregular steps (when its loss improves): of such a run nobody can say that a save is late. Counted over 60,000 saves each of
    six irregular kinds: the sure ones were exceeded twofold by 0 to 2 gaps.
    """

    STATE = ("last_step", "last_ns", "in_attempt", "declared_steps", "_gaps", "_is_partial")

    def __init__(self, min_gaps: int, sure_gaps: int) -> None:
        self._min_gaps, self._sure_gaps = max(2, min_gaps), max(2, sure_gaps)
        self.last_step: int | None = None
        self.last_ns: int | None = None
        #: Saves since this start of the trainer.
        self.in_attempt = 0
        self.declared_steps: int | None = None
        self._gaps: deque[list[float | None]] = deque(maxlen=KEPT_GAPS)
        self._is_partial = False

    def saved(self, step: int, time_ns: int | None) -> bool:
        """A save of this step is there; False when it is none that moves on (said twice, or a copy of an older one)."""
        if self.last_step is not None and step <= self.last_step:
            return False
        if self.last_step is not None and not self._is_partial:
            seconds = None if time_ns is None or self.last_ns is None else max(0.0, (time_ns - self.last_ns) / 1e9)
            self._gaps.append([step - self.last_step, seconds])
        self.last_step, self.last_ns, self._is_partial = step, time_ns, False
        self.in_attempt += 1
        return True

    def went_back(self, from_step: int) -> None:
        """The trainer started again after ``from_step``; the first gap after it need not be a whole one."""
        if self.last_step is not None:
            self.last_step = min(self.last_step, from_step)
        self.last_ns, self._is_partial, self.in_attempt = None, True, 0

    def forget(self, step: int) -> None:
        """What was learnt holds no longer; begin to count at ``step``."""
        self._gaps.clear()
        if self.last_step is not None:
            self.last_step, self.last_ns, self._is_partial = max(step, self.last_step), None, True

    def interval(self) -> Interval | None:
        """What is usual."""
        if self._gaps:
            longest = max(gap for gap, _ in self._gaps if gap is not None)
            near = [(gap, seconds) for gap, seconds in self._gaps if gap is not None and gap >= NEAR_SHARE * longest]
            count, known = len(near), len(self._gaps)
            if count >= max(self._min_gaps, known if known < FEW_GAPS else FEW_SHARE * known):
                times = [seconds for _, seconds in near if seconds is not None]
                is_sure = count >= max(self._sure_gaps, (SURE_SHARE if known < MANY_GAPS else SURE_SHARE_OF_MANY) * known)
                is_declared = self.declared_steps is not None and round(longest) <= self.declared_steps
                return Interval(round(longest), min(times) if len(times) == count else None, is_sure or is_declared)
        if self.declared_steps is not None and self.last_step is not None:
            return Interval(max([self.declared_steps, *(round(gap) for gap, _ in self._gaps if gap is not None)]), None, True)
        return None


class Pace(Stateful):
    """Median seconds of one step, from the gaps between logged points."""

    STATE = ("_gaps", "_step", "_time_ns")

    def __init__(self) -> None:
        self._gaps = SortedWindow(PACE_POINTS)
        self._step: int | None = None
        self._time_ns: int | None = None

    def push(self, step: int, time_ns: int | None) -> Gap | None:
        """A point; returns the gap before it when both tell a time and the run went on."""
        gap = None
        if time_ns is not None and self._time_ns is not None and self._step is not None and step > self._step:
            seconds = (time_ns - self._time_ns) / 1e9
            if seconds >= 0:
                gap = Gap(step - self._step, seconds)
                self._gaps.push(seconds / gap.steps)
        self._step, self._time_ns = step, time_ns
        return gap

    def step_s(self) -> float | None:
        """None before three gaps."""
        return self._gaps.median() if len(self._gaps) >= 3 else None

    def restart(self) -> None:
        """What comes next does not follow the last point."""
        self._step = self._time_ns = None
