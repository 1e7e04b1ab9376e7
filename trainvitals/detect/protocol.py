"""What a detector is: one class per family, its rules are its outputs; one pass, bounded memory, serialisable state.

The same class runs live, in back-fill and in tests. It sees training steps and events (attempt, resume, phase, annotation,
control) in the order they were read, and the passing of time through ``tick``; it never asks a clock or a store.
"""

from __future__ import annotations

from typing import Any, Protocol

from trainvitals.records import Event, Finding, Step


class Detector(Protocol):
    """One family of rules on one run."""

    family: str
    rules: tuple[str, ...]

    def update(self, record: Step | Event) -> list[Finding]:
        """Take one record; return findings that are new or changed (same ``Finding.id``)."""
        ...

    def tick(self, now_ns: int) -> list[Finding]:
        """Time has passed without a record: only stall and dead-run rules answer."""
        ...

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken."""
        ...
