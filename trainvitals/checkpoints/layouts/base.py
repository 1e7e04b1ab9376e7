"""What a layout is: one trainer's way of laying a checkpoint out on disk, readable without running its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainvitals.checkpoints.files import Listing
from trainvitals.checkpoints.findings import Findings


@dataclass(frozen=True, slots=True)
class Facts:
    """What a layout says about a checkpoint besides its faults. ``loss`` at the step of the checkpoint, when it is written there."""

    step: int | None
    has_optimizer: bool | None
    loss: float | None = None


class Layout(Protocol):
    """One file of ``trainvitals.checkpoints.layouts`` each."""

    name: str

    def matches(self, listing: Listing) -> bool:
        """Whether the names look like this layout; content is not read."""
        ...

    def look(self, listing: Listing, findings: Findings, *, into_files: bool) -> Facts:
        """Presence from names and sizes; with ``into_files`` also the structure of each file."""
        ...
