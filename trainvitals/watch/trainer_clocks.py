"""How far the clocks of those who write a run's logs are behind ours: a trainer whose clock is wrong is no history.

It is learnt per file from what was read while everything before had been read: a clock that is wrong is wrong by the same, look after
look. A file that appears with its content (an old log that was copied beside the new one), or one that brings two hours at once (a mirror,
a file system after an outage), shows no such thing: what it tells keeps its times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from trainvitals.clock import Clock

#: Looks that count, and how many must agree before a difference is one of clocks.
KEPT_LOOKS = 5
MIN_LOOKS = 3
#: Looks agree when their differences are no further apart: lines wait in buffers, and a network file system shows them a minute late.
STEADY_S = 120.0
MAX_FILES = 64


class TrainerClocks:
    """Of one run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind_ns: dict[str, deque[int]] = {}
        self._was_caught_up = False

    def looked(self, steps: Iterable[tuple[str, int]]) -> None:
        """What a look at the files gave, before any of it is judged. steps: (path, time in UTC ns as the trainer tells it), in order."""
        now_ns = self._clock.time_ns()
        for path, time_ns in dict(steps).items():
            looks = self._behind_ns.pop(path, None)
            if looks is None:
                looks = deque(maxlen=KEPT_LOOKS)  # its first content may be of any age
            elif self._was_caught_up:
                looks.append(now_ns - time_ns)
            self._behind_ns[path] = looks
        while len(self._behind_ns) > MAX_FILES:
            del self._behind_ns[next(iter(self._behind_ns))]

    def caught_up(self, is_it: bool) -> None:
        """Whether the last look read everything that was there."""
        self._was_caught_up = is_it

    def written_ns(self, path: str, time_ns: int | None) -> int | None:
        """When something in the file was written, by our clock. time_ns: UTC ns as the trainer tells it."""
        looks = self._behind_ns.get(path, ())
        if time_ns is None or len(looks) < MIN_LOOKS or max(looks) - min(looks) > STEADY_S * 1e9:
            return time_ns
        return time_ns + max(0, min(looks))

    def to_state(self) -> dict[str, list[int]]:
        """JSON values only."""
        return {path: list(looks) for path, looks in self._behind_ns.items()}

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        """Go on where ``to_state`` was taken; what is read first after it may have waited."""
        self._behind_ns = {str(path): deque(map(int, looks), KEPT_LOOKS) for path, looks in state.items()}
        self._was_caught_up = False
