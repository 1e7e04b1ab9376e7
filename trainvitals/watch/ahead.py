"""What a watchdog was ahead of its store when it ended: its state then, and what waited for a commit, as it is kept in the run directory.

Steps are not kept: the run's files have them. Findings, incidents and what the breaker decided stand nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainvitals.records import Point
from trainvitals.watch.kept_state import KEPT_ERRORS, packed, unpacked

#: Beyond it the oldest are left out, and counted.
MAX_POINTS = 20_000
#: Key of a state's number.
NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Points for a store. left_out: older ones that found no room."""

    points: tuple[Point, ...] = ()
    left_out: int = 0


def pack_waiting(points: Sequence[Point], max_bytes: int) -> bytes:
    """The newest of them that ``max_bytes`` hold."""
    kept, left_out = list(points[-MAX_POINTS:]), max(0, len(points) - MAX_POINTS)
    while True:
        rows = [[one.measurement, dict(one.tags), one.time_ns, dict(one.fields)] for one in kept]
        blob = packed({"points": rows, "left_out": left_out})
        if len(blob) <= max_bytes or not kept:
            return blob
        dropped = (len(kept) + 1) // 2
        kept, left_out = kept[dropped:], left_out + dropped


def unpack_waiting(blob: bytes) -> Waiting:
    """What ``pack_waiting`` made. Raises one of ``KEPT_ERRORS`` for what is none."""
    told = unpacked(blob)
    points = (
        Point(str(measurement), _mapping(tags), int(time_ns), _mapping(fields))
        for measurement, tags, time_ns, fields in told["points"]
    )
    return Waiting(tuple(points), int(told["left_out"]))


def number_of(state: bytes | None) -> int:
    """Each state has a higher number than all before it, also than those of other starts: -1 for none, 0 for an earlier version's."""
    if state is None:
        return -1
    try:
        return int(unpacked(state).get(NUMBER, 0))
    except (*KEPT_ERRORS, AttributeError):
        return 0


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("tags and fields of a point are mappings")
    return value
