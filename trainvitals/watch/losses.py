"""What could not be read or kept so far: its sum for the heartbeat, and now and then a note that names the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.logs.tail import HARMLESS_COUNTERS, MAX_FILES

#: Kinds are told once in this time: a sum alone says nowhere to look, and each heartbeat would fill the history.
TELL_AGAIN_S = 600.0
REMIND_S = 86_400.0
#: How many files find no place now: no record was lost, so it is no part of the sum.
BEYOND = "files_beyond_limit"


@dataclass(frozen=True)
class Note:
    """For ``Watchdog.note``."""

    text: str
    subject: str
    data: Mapping[str, Any]


class Losses:
    """``look`` at each heartbeat."""

    def __init__(self, now_s: float) -> None:
        self._told: Mapping[str, int] = {}
        self._due_s = now_s
        self._beyond = 0
        self._beyond_due_s = now_s

    def look(self, counts: Mapping[str, int], now_s: float) -> tuple[int, list[Note]]:
        """``counts``: by kind, since the watchdog began. Returns the sum, and what is to be noted now."""
        kinds = {name: count for name, count in counts.items() if count and name not in HARMLESS_COUNTERS and name != BEYOND}
        notes: list[Note] = []
        if kinds and kinds != self._told and now_s >= self._due_s:
            self._told, self._due_s = kinds, now_s + TELL_AGAIN_S
            told = ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in kinds.items())
            notes.append(Note(f"not everything could be read or kept: {told}", "lost", {"lost_by_kind": kinds}))
        beyond = counts.get(BEYOND, 0)
        # Pages read the newest notes only: what goes on is told again.
        is_news = beyond != self._beyond or (beyond and now_s >= self._beyond_due_s + REMIND_S)
        if is_news and (now_s >= self._beyond_due_s or not beyond):
            self._beyond, self._beyond_due_s = beyond, now_s + TELL_AGAIN_S
            notes.append(Note(_about_files(beyond), BEYOND, {BEYOND: beyond}))
        return sum(kinds.values()), notes


def _about_files(beyond: int) -> str:
    if not beyond:
        return "all files that `logs` names are followed again"
    are = "file that `logs` names is" if beyond == 1 else "files that `logs` names are"
    return (
        f"{beyond:,} {are} not followed: at most {MAX_FILES} are at once. Name the logs that hold steps there, "
        "and those of all ranks in `rank_logs`, which are read when the run died."
    )
