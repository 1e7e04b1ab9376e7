"""A second place for messages, in memory, for when the outbox cannot be used: a full or damaged disk is just when people must be paged."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainvitals.alerts.notice import Notice
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.sender import Sender
from trainvitals.clock import Clock
from trainvitals.errors import StoreError, TrainvitalsError
from trainvitals.settings import Settings

#: A disk that is full for a moment, or a lock that is held, needs no second place.
REFUSED_FOR_S = 20.0
MEMORY = "/dev/shm"  # noqa: S108 (a directory of our own is made in it, 0700)


class StandIn:
    """As the outbox, for one process. What lies in the second place dies with the process: the watchdog's state tells it again unless it
    was committed since, with the same id."""

    def __init__(self, settings: Settings, first: Outbox, clock: Clock, say: Callable[[str], None], memory: str = MEMORY) -> None:
        self._settings, self._first, self._clock, self._say, self._memory = settings, first, clock, say, memory
        self._refused_s: float | None = None
        self._second: tuple[Path, Outbox, Sender] | None = None

    def enqueue(self, notice: Notice, target: str, not_before_ns: int = 0) -> bool:
        """Raises ``StoreError`` while the outbox has not been refusing for long, and when no second place can be made."""
        try:
            added = self._first.enqueue(notice, target, not_before_ns)
        except StoreError as error:
            now_s = self._clock.monotonic_s()
            self._refused_s = now_s if self._refused_s is None else self._refused_s
            if now_s - self._refused_s < REFUSED_FOR_S:
                raise
            return self._opened(error).enqueue(notice, target, not_before_ns)
        self._refused_s = None
        return added

    def wake(self) -> None:
        """Look at once."""
        if self._second is not None:
            self._second[2].wake()

    def stop(self, wait_s: float) -> None:
        """Deliver no more, and take the second place away."""
        if self._second is None:
            return
        directory, outbox, sender = self._second
        sender.stop(wait_s)
        with suppress(TrainvitalsError):
            outbox.close()
        shutil.rmtree(directory, ignore_errors=True)

    def _opened(self, error: StoreError) -> Outbox:
        if self._second is None:
            try:
                directory = Path(
                    tempfile.mkdtemp(prefix="trainvitals-alerts-", dir=self._memory if Path(self._memory).is_dir() else None)
                )
            except OSError:
                raise error from None  # there is no second place either; it is tried again with the next message
            outbox = Outbox(directory / "alerts.db", self._clock)
            sender = Sender(self._settings, outbox, self._clock, lambda text: self._say(f"alerts: {text}"))
            sender.start()
            self._second = directory, outbox, sender
            self._say(f"alerts are kept in memory ({directory}) and sent from there, because the outbox takes none: {error}")
        return self._second[1]
