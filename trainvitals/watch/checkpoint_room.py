"""How much the file systems of the checkpoint directories have left: told when it changed enough to matter, not at every look."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.identity import event_id
from trainvitals.incidents.checkpoint_card import Room
from trainvitals.records import Event

#: Told again when this share of what was left is gone or is back, or after so long.
CHANGE_SHARE = 0.02
AGAIN_NS = 3600 * 10**9
MAX_DIRECTORIES = 64


def rooms_of(directories: Sequence[str], now_ns: int) -> list[Room]:
    """What is left for a user without special rights. A directory that is not there yet, or that does not answer, has no room:
    the look at its checkpoints says so."""
    found = []
    for directory in directories[:MAX_DIRECTORIES]:
        try:
            told = os.statvfs(directory)
        except OSError:
            continue
        found.append(Room(os.path.abspath(directory), told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize, now_ns))  # noqa: PTH100
    return found


class RoomEvents:
    """Remembers what was told last of each directory."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, int]] = {}

    def of(self, rooms: Sequence[Room]) -> list[Event]:
        """Events of kind ``room`` for what changed."""
        events = []
        for room in rooms:
            known = self._told.get(room.directory)
            if known is not None:
                is_same = abs(room.free_bytes - known[0]) <= CHANGE_SHARE * max(known[0], 1)
                if is_same and room.time_ns - known[1] < AGAIN_NS:
                    continue
            self._told[room.directory] = (room.free_bytes, room.time_ns)
            text = f"{room.free_bytes:,} of {room.total_bytes:,} bytes are left for checkpoints in {room.directory}"
            events.append(
                Event(
                    "room",
                    room.time_ns,
                    id=event_id("room", room.directory, room.time_ns),
                    source="watch",
                    text=text,
                    data={"directory": room.directory, "free_bytes": room.free_bytes, "total_bytes": room.total_bytes},
                )
            )
        return events

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {directory: list(told) for directory, told in self._told.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._told = {str(directory): (int(free), int(time_ns)) for directory, (free, time_ns) in state.items()}
