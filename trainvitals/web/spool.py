"""What waits, was dropped or was refused on the way to the store, as sentences for the overview."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from trainvitals.incidents.verdict import span

#: Points on their way are no news; points that have waited this long are.
WAITING_IS_NEWS_S = 60.0


@dataclass(frozen=True)
class SpoolNumbers:
    """Sums over the spools that reported; ``age_s`` is that of the oldest point in any of them."""

    depth: int = 0
    age_s: float = 0.0
    dropped: int = 0
    dead: int = 0

    @classmethod
    def of(cls, *frames: pd.DataFrame) -> SpoolNumbers:
        """From newest heartbeats: columns spool_depth, spool_age_s, spool_dropped, spool_dead, each possibly empty."""

        def numbers(name: str) -> list[float]:
            return [float(value) for frame in frames if name in frame for value in frame[name].dropna()]

        return cls(
            depth=int(sum(numbers("spool_depth"))),
            age_s=max(numbers("spool_age_s"), default=0.0),
            dropped=int(sum(numbers("spool_dropped"))),
            dead=int(sum(numbers("spool_dead"))),
        )

    def sentences(self) -> tuple[str, ...]:
        """Without a full stop; none when all is well."""
        lines = []
        if self.depth and self.age_s >= WAITING_IS_NEWS_S:
            lines.append(
                f"{_points(self.depth)} {'waits' if self.depth == 1 else 'wait'} in a spool for the store, the oldest for {span(self.age_s)}"
            )
        if self.dropped:
            lines.append(f"{_points(self.dropped)} dropped by a spool that was full or waited too long")
        if self.dead:
            lines.append(f"{_points(self.dead)} refused by the store (`python -m trainvitals spool list` on that machine)")
        return tuple(lines)


def _points(number: int) -> str:
    return f"{number:,} point" + "s" * (number != 1)


NO_SPOOL = SpoolNumbers()
