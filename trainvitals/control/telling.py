"""What the client tells of its actions: ``control`` events and the phase ``paused`` in the recorder, a line in the trainer's own log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from trainvitals.clock import Clock
from trainvitals.control.rules import Received


class EventSink(Protocol):
    """What the client needs of a ``trainvitals.hook.Recorder``."""

    def event(self, kind: str, /, step: object = None, text: str = "", **data: object) -> None:
        """Write an event."""
        ...

    def finish(self, reason: str = "finished") -> None:
        """Write the end of this start of the trainer."""
        ...

    def phase(self, name: str, state: str = "begin") -> None:
        """Write the begin or end of a phase."""
        ...


class Telling:
    """kept: takes an exception that must not reach the training loop, and counts it."""

    def __init__(self, recorder: EventSink | None, clock: Clock, kept: Callable[[Exception], None]) -> None:
        self._recorder, self._clock, self._kept = recorder, clock, kept

    def record(self, received: Received, state: str, step: int | None, text: str = "") -> None:
        """A ``control`` event."""
        if self._recorder is None:
            return
        request = received.request
        try:
            self._recorder.event(
                "control", step, text, state=state, seq=request.seq, desired=request.desired, by=request.by,
                source=request.source, reason=request.reason,
                latency_s=round(self._clock.monotonic_s() - received.seen_s, 3),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - a recorder of the trainer's own making may raise; counted
            self._kept(error)

    def finish(self, reason: str) -> None:
        """An end that was asked for is no death, however the program leaves its loop."""
        if self._recorder is not None:
            try:
                self._recorder.finish(reason)
            except Exception as error:  # noqa: BLE001 - a recorder of the trainer's own making may raise; counted
                self._kept(error)

    def phase(self, state: str) -> None:
        """Begin or end of the phase ``paused``."""
        if self._recorder is not None:
            try:
                self._recorder.phase("paused", state)
            except Exception as error:  # noqa: BLE001 - as above
                self._kept(error)

    def say(self, text: str) -> None:
        """In the trainer's own log: whoever restarts it under a pause must not take that for a hang."""
        try:
            printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
            print(f"trainvitals: {printable}. `control resume` or the page goes on.", file=sys.stderr, flush=True)  # noqa: T201
        except Exception as error:  # noqa: BLE001 - stderr is gone; the status file tells the same
            self._kept(error)
