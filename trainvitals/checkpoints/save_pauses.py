"""How long a save stands still between two of its files, learnt from the saves of this run, and how long to wait therefore. Pure.

Asynchronous saves are finished by the training loop: Megatron-Core writes ``metadata.json`` when the next iteration asks whether the
save is done (``maybe_finalize_async_save``), and NeMo takes its marker away after that. With steps of a minute nothing changes for a
minute, and nothing is wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from trainvitals.checkpoints.life import Patience

KEPT = 16
#: Of the longest pause that was seen, and of the time of one step.
PAUSE_FACTOR, STEP_FACTOR = 2.0, 3.0
#: A save that stands still for longer is told as incomplete whatever was usual.
LONGEST_S = 1_800.0


class SavePauses:
    """Seconds that saves stood still and then went on, and ``step_s``: usual seconds of a step, None = not known."""

    def __init__(self) -> None:
        self.step_s: float | None = None
        self._pauses: deque[float] = deque(maxlen=KEPT)

    def seen(self, seconds: float) -> None:
        """A save went on after it stood still for so long."""
        self._pauses.append(seconds)

    def patience(self, least: Patience) -> Patience:
        """``least``, with more time for a save that may still be running."""
        waits_s = [least.unfinished_s]
        if self._pauses:
            waits_s.append(min(LONGEST_S, PAUSE_FACTOR * max(self._pauses)))
        if self.step_s is not None:
            waits_s.append(min(LONGEST_S, STEP_FACTOR * self.step_s))
        return replace(least, unfinished_s=max(waits_s))

    def to_state(self) -> list[float]:
        """JSON values only; the pace of the run is told anew."""
        return list(self._pauses)

    def restore(self, state: Sequence[float]) -> None:
        """Continue where ``to_state`` was taken."""
        self._pauses = deque((float(seconds) for seconds in state), maxlen=KEPT)
