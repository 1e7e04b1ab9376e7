"""Times for the records of a log that is imported: the record's own, else counted back from when the file was last written.

A log without any time is read twice: where a step lies depends on all steps behind it. What is guessed says so
(``Step.time_estimated``). The guess depends on the file alone, so an import that goes on after a kill guesses the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainvitals.records import Event, Step
from trainvitals.watch.times import LEAST_GAP_NS, gap_ns

_UNKNOWN = -1


class TimePlan:
    """First pass: ``add`` every step of a file, ``end_of_file`` with its mtime, then ``times`` holds one time per step."""

    def __init__(self) -> None:
        self.times = array("q")
        self._gaps = array("q")
        self._begin = 0

    def add(self, step: Step) -> None:
        """The next step of the log."""
        self.times.append(_UNKNOWN if step.time_ns is None else step.time_ns)
        self._gaps.append(gap_ns(step))

    def end_of_file(self, written_ns: int) -> None:
        """The steps since the last call are those of one file, last written at ``written_ns``."""
        at = self._begin
        while at < len(self.times):
            if self.times[at] != _UNKNOWN:
                at += 1
                continue
            end = at
            while end < len(self.times) and self.times[end] == _UNKNOWN:
                end += 1
            newest_ns = written_ns if end == len(self.times) else self.times[end] - self._gaps[end]
            self._fill(at, end, newest_ns)
            at = end
        self._begin = len(self.times)

    def _fill(self, begin: int, end: int, newest_ns: int) -> None:
        """Times of the steps ``begin`` to ``end`` - 1 of which none tells its own, the last at ``newest_ns``."""
        time_ns = newest_ns
        for at in range(end - 1, begin - 1, -1):
            self.times[at] = time_ns
            time_ns -= self._gaps[at]
        previous_ns = self.times[begin - 1] if begin else None
        if previous_ns is not None and self.times[begin] <= previous_ns:
            count = end - begin
            room_ns = max(newest_ns - previous_ns, LEAST_GAP_NS * count)
            for number in range(count):
                self.times[begin + number] = previous_ns + room_ns * (number + 1) // count


class RecordTimes:
    """Second pass: gives every record of one log a time. ``plan``: of the first pass, None for a log that tells its times."""

    def __init__(self, plan: Sequence[int] | None, written_ns: int) -> None:
        self._plan, self._written_ns = plan, written_ns
        self._steps = 0
        self._last_ns: int | None = None

    def dated(self, records: Sequence[Step | Event]) -> list[Step | Event]:
        """The same records. An event without a time takes that of the step that follows it, else of the one before."""
        before_ns = self._last_ns
        found: list[Step | Event] = [self._step(record) if isinstance(record, Step) else record for record in records]
        following_ns: int | None = None
        for at in range(len(found) - 1, -1, -1):
            record = found[at]
            if record.time_ns is not None:
                following_ns = record.time_ns if isinstance(record, Step) else following_ns
            else:
                found[at] = replace(record, time_ns=following_ns)
        last_ns = before_ns
        for at, record in enumerate(found):
            if record.time_ns is None:
                known_ns = last_ns if last_ns is not None else self._first_ns()
                found[at] = replace(record, time_ns=known_ns)
            elif isinstance(record, Step):
                last_ns = record.time_ns
        return found

    def _first_ns(self) -> int:
        return self._plan[0] if self._plan else self._written_ns

    def _step(self, step: Step) -> Step:
        number, self._steps = self._steps, self._steps + 1
        if step.time_ns is not None:
            self._last_ns = step.time_ns
            return step
        if self._plan is not None and number < len(self._plan):
            time_ns = self._plan[number]
        else:
            time_ns = self._written_ns if self._last_ns is None else self._last_ns + gap_ns(step)
        self._last_ns = time_ns
        return replace(step, time_ns=time_ns, time_estimated=True)

    def to_state(self) -> list[Any]:
        """JSON values only."""
        return [self._steps, self._last_ns]

    def restore(self, state: Sequence[Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._steps, self._last_ns = int(state[0]), state[1]
