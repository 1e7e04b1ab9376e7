"""The one word at the top of every page."""

from __future__ import annotations

from enum import StrEnum


class VerdictWord(StrEnum):
    """Worst first; the value is what a person reads."""

    STOPPED = "STOPPED"
    HUNG = "HUNG"
    PAUSED = "PAUSED"
    SICK = "TRAINING-SICK"
    SLOW = "SLOW"
    ATTENTION = "ATTENTION"
    UNKNOWN = "NO DATA"
    RECOVERING = "RECOVERING"
    RECOVERED = "RECOVERED"
    HEALTHY = "healthy"
    HISTORY = "HISTORY"
    FINISHED = "FINISHED"
