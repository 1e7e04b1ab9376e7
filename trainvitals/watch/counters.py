"""What the watchdog counts of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.records import Event


@dataclass
class Counters:
    """What went wrong so far; written with every heartbeat."""

    bad_points: int = 0
    dropped_metrics: int = 0
    detector_errors: int = 0
    commit_failures: int = 0
    hook_lost: int = 0
    hook_errors: int = 0
    flooded_events: int = 0
    tails_not_kept: int = 0
    events_not_kept: int = 0

    def take(self, event: Event) -> None:
        """What the trainer's hook says that it lost; its counts only rise."""
        if event.kind == "watch":
            self.hook_lost = max(self.hook_lost, counted(event.data.get("lost")))
            self.hook_errors = max(self.hook_errors, counted(event.data.get("errors")))


def counted(value: object) -> int:
    """A counter from a trainer's file, which may hold anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
