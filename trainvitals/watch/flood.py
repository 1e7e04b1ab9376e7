"""How many happenings of a log are stored: a trainer in distress may print the same line ten thousand times a second.

The detectors see all of them; what is left out of the store is counted and shown.
"""

from __future__ import annotations

from trainvitals.clock import Clock

#: So many at once, and as a lasting rate.
BURST = 1_000
PER_S = 1.0
#: Only what a log can repeat without end. A start, an end, a phase or a control answer is never left out.
KINDS = frozenset({"message", "fault", "data", "annotation", "watch"})


class FloodGate:
    """A bucket of ``BURST`` that fills at ``PER_S``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = float(BURST)
        self._at_s = clock.monotonic_s()

    def lets_through(self, kind: str) -> bool:
        """Whether one more of this kind may be stored now."""
        if kind not in KINDS:
            return True
        now_s = self._clock.monotonic_s()
        self._room = min(float(BURST), self._room + (now_s - self._at_s) * PER_S)
        self._at_s = now_s
        if self._room < 1:
            return False
        self._room -= 1
        return True
