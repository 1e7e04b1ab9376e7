"""Whether a supervisor is there that starts the trainer again when it dies. Asked now and then; what cannot be read counts as no."""

from __future__ import annotations

from trainvitals.clock import Clock
from trainvitals.control.supervised import supervisor_of
from trainvitals.errors import ControlError, InputError

LOOK_EVERY_S = 5.0


class Supervision:
    """Of one run directory."""

    def __init__(self, run_dir: str, clock: Clock) -> None:
        self._dir, self._clock = run_dir, clock
        self._due_s = float("-inf")
        self._is_there = False

    def is_there(self) -> bool:
        """As of a few seconds ago."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s and self._dir:
            self._due_s = now_s + LOOK_EVERY_S
            try:
                self._is_there = supervisor_of(self._dir) is not None
            except (InputError, ControlError, OSError):
                self._is_there = False  # then nothing is held back: too much said is better than nothing
        return self._is_there
