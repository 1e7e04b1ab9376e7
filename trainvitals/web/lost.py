"""What of the logs and of the hook's file could not be read or kept, in one quiet sentence: counts, kinds, and where to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.records import Event

#: Counter of the watchdog -> what a person calls it. A name that is not here is shown as it is.
WORDS: Mapping[str, str] = {
    "hook_lost": "dropped inside the trainer's hook",
    "bad_records": "damaged records",
    "capped_lines": "lines cut for their length",
    "torn_lines": "torn lines",
    "dropped_lines": "lines dropped",
    "dropped_metrics": "metrics beyond the limit",
    "failed_lines": "lines that a format failed on",
    "unreadable": "files that could not be opened",
    "flooded_events": "events held back in a flood",
    "metadata_left_out": "settings left out",
    "bad_points": "values the store does not take",
    "detector_errors": "records not judged",
}
SHOWN_KINDS = 5


def reading_health(lost: int, events: Sequence[Event]) -> str:
    """Empty when nothing is missing. lost: sum of the newest heartbeat; the kinds come from the newest notes of watchdog and hook."""
    notes = sorted((e for e in events if e.kind == "watch"), key=lambda event: event.time_ns or 0, reverse=True)
    kinds = next((_counts(note.data["lost_by_kind"]) for note in notes if "lost_by_kind" in note.data), {})
    parts = [
        f"{WORDS.get(name, name.replace('_', ' '))}: {count:,}"
        for name, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))
    ]
    since = lost - sum(kinds.values())
    if kinds and since > 0:
        parts.append(f"since then: {since:,}")
    if len(parts) > SHOWN_KINDS:
        parts = [*parts[: SHOWN_KINDS - 1], f"{len(parts) - SHOWN_KINDS + 1} more kinds"]
    errors = next((_whole(note.data.get("errors")) for note in notes if "errors" in note.data), 0)
    beyond = next((_whole(note.data["files_beyond_limit"]) for note in notes if "files_beyond_limit" in note.data), 0)
    sentences = []
    if lost > 0:
        sentences.append(f"{lost:,} not read or kept" + (f" ({', '.join(parts)})" if parts else ""))
    if errors:
        sentences.append(f"the hook met {errors:,} {'error' if errors == 1 else 'errors'} in the trainer")
    told = (
        ["Reading: " + "; ".join(sentences) + ". The watchdog's own log and the trainer's stderr say which."] if sentences else []
    )
    if gone := next((note for note in notes if "store_replaced" in note.data), None):
        told.append(f"{gone.text}.")
    if beyond:
        named = "1 file that `logs` names is" if beyond == 1 else f"{beyond:,} files that `logs` names are"
        told.append(f"{named} not followed: name those of all ranks in `rank_logs`.")
    return " ".join(told)


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(name)[:60]: _whole(count) for name, count in value.items() if _whole(count) > 0}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
