"""What a watchdog has to commit next."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainvitals.records import Point


@dataclass
class Pending:
    """What the next commit writes; announcements are said once it is written, or refused."""

    points: list[Point] = field(default_factory=list)
    announcements: list[str] = field(default_factory=list)
    changed: bool = False
