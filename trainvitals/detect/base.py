"""What every detector class shares: its ledger, its tunable numbers, and the notices that the engine sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from trainvitals.detect.findings import Context, Ledger
from trainvitals.detect.state import Stateful
from trainvitals.detect.tunables import TUNABLES, numbers_of
from trainvitals.records import Event, Finding, Step

Tuned = Mapping[str, Mapping[str, float]]


class FamilyDetector(Stateful):
    """Base of the detector classes; satisfies ``trainvitals.detect.protocol.Detector``.

    The engine calls ``on_step`` for new points only (never late, repeated or superseded ones), ``on_resume`` before the first
    point of a new attempt or after a rewind, ``on_event`` for everything else.
    """

    family: str = ""
    rules: tuple[str, ...] = ()
    STATE: ClassVar[tuple[str, ...]] = ("ledger",)

    def __init__(self, context: Context, tuned: Tuned) -> None:
        self.context = context
        self.ledger = Ledger(context, self.family)
        self.numbers = {rule: numbers_of(rule, tuned) for rule in self.rules if rule in TUNABLES}

    def update(self, record: Step | Event) -> list[Finding]:
        """Take one record; return findings that are new or changed."""
        if isinstance(record, Step):
            self.on_step(record)
        else:
            self.on_event(record)
        return self.ledger.drain()

    def tick(self, now_ns: int) -> list[Finding]:
        """Time has passed without a record."""
        self.on_tick(now_ns)
        return self.ledger.drain()

    def finish(self) -> list[Finding]:
        """No more records will come; what was held back for certainty is told now."""
        return self.ledger.drain()

    def resume(self, from_step: int) -> list[Finding]:
        """Training continues after ``from_step``; later steps were superseded."""
        self.on_resume(from_step)
        return self.ledger.drain()

    def on_step(self, step: Step) -> None:
        """A new point."""

    def on_event(self, event: Event) -> None:
        """An event."""

    def on_tick(self, now_ns: int) -> None:
        """The time is ``now_ns``."""

    def on_resume(self, from_step: int) -> None:
        """Forget what was superseded."""
