"""Times for steps whose log tells none: when they were first seen, and for what was written before that, an estimate.

A log that stands there already when it is first read was not written in that instant: its last step is as old as the file,
the steps before it lie their own step times back. What is estimated says so (``Step.time_estimated``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainvitals.records import Step

SECOND_NS = 1_000_000_000
#: Between two steps of a file whose pace nobody knows; only drawn, never judged.
UNKNOWN_GAP_NS = SECOND_NS
#: Steps that are read together but were written one after the other stay apart by at least this.
LEAST_GAP_NS = 1_000_000


def dated(steps: Sequence[Step], newest_ns: int, previous_ns: int | None) -> list[Step]:
    """Give steps of one log, in order and all without a time, their times; ``newest_ns`` is that of the last one.

    previous_ns: time of the step before them. When it is known they share the time since then, else they go back by their
    own ``step_time_s``, or by a second each. Times rise strictly. All but a lone new step are marked as estimated.
    """
    if not steps:
        return []
    if previous_ns is not None and len(steps) == 1:
        return [replace(steps[0], time_ns=max(newest_ns, previous_ns + LEAST_GAP_NS))]
    times = [newest_ns]
    for later in reversed(steps[1:]):
        times.append(times[-1] - gap_ns(later))
    times.reverse()
    if previous_ns is not None and times[0] <= previous_ns:
        room_ns = max(newest_ns - previous_ns, LEAST_GAP_NS * len(steps))
        times = [previous_ns + room_ns * number // len(steps) for number in range(1, len(steps) + 1)]
    return [replace(step, time_ns=time_ns, time_estimated=True) for step, time_ns in zip(steps, times, strict=True)]


def gap_ns(step: Step) -> int:
    """Nanoseconds between the step before and this one, as far as the step itself tells; else a second."""
    seconds = step.values.get("step_time_s")
    return max(LEAST_GAP_NS, round(seconds * SECOND_NS)) if seconds is not None and 0 < seconds < 1e6 else UNKNOWN_GAP_NS
