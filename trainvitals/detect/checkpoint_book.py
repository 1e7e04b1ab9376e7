"""What the rules remember of the checkpoints on disk, from ``checkpoint`` events: the newest ones, in bounded memory.

An event may come out of a trainer's file, so its data is taken as text that anybody can write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from trainvitals.detect.state import Stateful
from trainvitals.records import DAMAGED_NUMBERS, CheckpointState, VerificationLevel

MAX_KNOWN = 64
MAX_PATH_CHARACTERS = 240
MAX_NAME_CHARACTERS = 120
MAX_REASON_CHARACTERS = 200
MAX_REASONS = 50
MAX_STEP = 2**53

GOOD = frozenset({CheckpointState.COMPLETE, CheckpointState.VERIFIED})
BAD = frozenset({CheckpointState.INCOMPLETE, CheckpointState.CORRUPT})
#: Being written, looked at or removed: nothing can be said of it now.
MOVING = frozenset({CheckpointState.WRITING, CheckpointState.STAGED, CheckpointState.VERIFYING, CheckpointState.DELETING})
_STATES = frozenset(CheckpointState)

Entry = dict[str, Any]


class CheckpointBook(Stateful):
    """Path -> what is known of it.

    An entry is a JSON mapping: path, name, step, state, is_good, is_verified, has_optimizer, reason, born_ns (when its files were
    last written at the moment it was first complete: the age that a trainer's own tidying does not change), changed_ns.
    """

    STATE = ("entries", "completed", "_forgotten_ns")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        #: Checkpoints that were ever seen complete, deleted ones included.
        self.completed = 0
        self._forgotten_ns = -1  # born_ns of the youngest that was forgotten

    def take(self, data: Mapping[str, Any], time_ns: int | None) -> tuple[Entry | None, Entry] | None:
        """The entry before (None: a new one) and after; None for what is no report."""
        path, state = data.get("path"), data.get("state")
        if not isinstance(path, str) or not path or not isinstance(state, str) or state not in _STATES:
            return None
        key = path_key(path)
        before = self.entries.get(key)
        state = CheckpointState(state)
        was_good, was_verified = (bool(before["is_good"]), bool(before["is_verified"])) if before else (False, False)
        is_kept = state is CheckpointState.VERIFYING
        is_good = state in GOOD or (is_kept and was_good)
        step = whole(data.get("step"))
        modified_ns = whole(data.get("modified_at_ns"))
        optimizer = data.get("has_optimizer") if isinstance(data.get("has_optimizer"), bool) else None
        born_ns = before["born_ns"] if before else None
        if before is not None and is_kept:
            optimizer = before["has_optimizer"]
        # Some trainers take the optimizer out of old checkpoints: that makes them no younger.
        is_stripped = before is not None and bool(before["has_optimizer"]) and optimizer is False
        is_written_anew = born_ns is None or not was_good or (before is not None and before["modified_ns"] != modified_ns)
        if state in GOOD and is_written_anew and not is_stripped:
            born_ns = time_ns if modified_ns is None else modified_ns
            is_new = before is None or not before["was_good"] or before["step"] != step
            self.completed += is_new and not self._is_counted(key, born_ns, step)
        after: Entry = {
            "path": key,
            "name": printable(path.rstrip("/").rsplit("/", 1)[-1], MAX_NAME_CHARACTERS),
            "step": step,
            "state": state.value,
            "is_good": is_good,
            "was_good": is_good or bool(before and before["was_good"]),
            "is_verified": state is CheckpointState.VERIFIED or (is_kept and was_verified),
            "has_optimizer": optimizer,
            "reason": _first_reason(data.get("reasons")),
            "is_loaded": data.get("level") == VerificationLevel.LOAD,
            "is_damaged_in_the_run": state is CheckpointState.CORRUPT and _tell_of_numbers(data.get("reasons")),
            "modified_ns": modified_ns,
            "born_ns": born_ns,
            "changed_ns": time_ns,
        }
        if state is CheckpointState.DELETED:
            self.entries.pop(key, None)
        else:
            self.entries[key] = after
            self._forget()
        return before, after

    def good(self) -> list[Entry]:
        """Complete or verified ones, the one written last first."""
        return sorted((entry for entry in self.entries.values() if entry["is_good"]), key=age_key, reverse=True)

    def bad(self) -> list[Entry]:
        """Incomplete or corrupt ones, the one written last first."""
        found = (entry for entry in self.entries.values() if entry["state"] in BAD)
        return sorted(found, key=lambda entry: (entry["modified_ns"] or 0, entry["step"] or 0), reverse=True)

    def in_directory(self, directory: str) -> Iterator[Entry]:
        """Good ones right in one directory, the one written last first."""
        return (entry for entry in self.good() if entry["path"].rpartition("/")[0] == directory.rstrip("/"))

    def trusted(self) -> list[Entry]:
        """Good ones of which no damage is to be feared: what was written after one with damaged numbers may hold the same until
        it was loaded."""
        damaged = [entry["modified_ns"] or 0 for entry in self.damaged()]
        return [one for one in self.good() if not damaged or one.get("is_loaded") or (one["modified_ns"] or 0) < min(damaged)]

    def damaged(self) -> list[Entry]:
        """Those in which a load found damaged numbers."""
        return [entry for entry in self.entries.values() if entry.get("is_damaged_in_the_run")]

    def _is_counted(self, key: str, born_ns: int | None, step: int | None) -> bool:
        """Whether it was counted before: one that was forgotten since, or a pinned copy of one that is known."""
        if born_ns is None or born_ns <= self._forgotten_ns:
            return born_ns is not None
        return any(
            e["path"] != key and e["is_good"] and (e["born_ns"], e["step"]) == (born_ns, step) for e in self.entries.values()
        )

    def _forget(self) -> None:
        while len(self.entries) > MAX_KNOWN:
            oldest = min(
                self.entries.values(), key=lambda entry: (entry["state"] in BAD, entry["born_ns"] or entry["modified_ns"] or 0)
            )
            self._forgotten_ns = max(self._forgotten_ns, oldest["born_ns"] or -1)
            del self.entries[oldest["path"]]


def age_key(entry: Entry) -> tuple[int, int]:
    """Grows with the moment it was written. Not with its step: after going back the higher steps are the old ones."""
    return entry["born_ns"] or 0, entry["step"] or 0


def path_key(path: str) -> str:
    """The path, or of a very long one its beginning and a hash of it all."""
    if len(path) <= MAX_PATH_CHARACTERS:
        return path
    return path[:MAX_PATH_CHARACTERS] + "#" + hashlib.blake2b(path.encode("utf-8", "replace"), digest_size=8).hexdigest()


def printable(text: str, limit: int) -> str:
    """On one line, without control characters, cut."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:limit])


def whole(value: object) -> int | None:
    """A number that may be a step or a time; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return None


def _tell_of_numbers(reasons: object) -> bool:
    texts = [one for one in reasons[:MAX_REASONS] if isinstance(one, str)] if isinstance(reasons, list | tuple) else []
    return any(damage in text for text in texts for damage in DAMAGED_NUMBERS)


def _first_reason(reasons: object) -> str:
    """The gravest: damaged numbers come before what else a look says."""
    if isinstance(reasons, (list, tuple)) and reasons:
        numbers = (one for one in reasons[:MAX_REASONS] if _tell_of_numbers([one]))
        return _whole_clauses(str(next(numbers, reasons[0])))
    return ""


def _whole_clauses(reason: str) -> str:
    """Cut between two clauses: half of what to do ("delete that file if this step was") is worse than none of it."""
    if len(reason) <= MAX_REASON_CHARACTERS:
        return printable(reason, MAX_REASON_CHARACTERS)
    kept = max(reason.rfind(mark, MAX_NAME_CHARACTERS // 2, MAX_REASON_CHARACTERS) for mark in ("; ", ": "))
    whole_part = reason[:kept] if kept > 0 else reason[: MAX_REASON_CHARACTERS - 1] + "…"
    return printable(whole_part, MAX_REASON_CHARACTERS)
