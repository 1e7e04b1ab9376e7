"""What was noticed while one checkpoint was looked at, sorted by what it means. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """Sentences by meaning, in the order they were noticed.

    missing: a part is not there (incomplete). damaged: a part is there and wrong (corrupt). unproven: looks right but this
    level cannot prove it (complete, never verified). unreadable: rights or I/O (nothing known, try again). notes: no fault.
    """

    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    vanished: bool = False

    def add(self, more: Findings) -> None:
        """Take what was noticed elsewhere."""
        for one in ("missing", "damaged", "unproven", "unreadable", "notes"):
            getattr(self, one).extend(getattr(more, one))
        self.vanished |= more.vanished

    @property
    def reasons(self) -> tuple[str, ...]:
        """All of them, worst first, bounded: a checkpoint of 10,000 bad files needs no 10,000 sentences."""
        texts = [*self.missing, *self.damaged, *self.unreadable, *self.unproven, *self.notes]
        if len(texts) > MAX_REASONS:
            texts = [*texts[:MAX_REASONS], f"… and {len(texts) - MAX_REASONS} more"]
        return tuple(texts)


MAX_REASONS = 20


def many(count: int, thing: str) -> str:
    """``1 file``, ``3 files``: a count with its thing, for a sentence."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
