"""The one door to time. Everything that waits or stamps takes a ``Clock``, so tests move time themselves."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is stored, monotonic time for durations, and waiting."""

    def time_ns(self) -> int:
        """UTC nanoseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that a test moves; ``sleep`` moves it too. Safe to share between threads."""

    def __init__(self, time_ns: int = 1_767_323_045_000_000_000) -> None:
        self._lock = threading.Lock()
        self._time_ns = time_ns
        self._monotonic_s = 0.0

    def time_ns(self) -> int:
        with self._lock:
            return self._time_ns

    def monotonic_s(self) -> float:
        with self._lock:
            return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float, *, wall_only: bool = False) -> None:
        """Move time forward; ``wall_only`` models a clock that was set."""
        with self._lock:
            self._time_ns += round(seconds * 1e9)
            if not wall_only:
                self._monotonic_s += seconds
