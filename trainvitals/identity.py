"""Identity of points and events: deterministic, so that reading anything twice gives the same rows.

A training point is (run, attempt, step); its timestamp is an attribute chosen once. Timestamps carry the step
(or a checksum of the event's id) below the millisecond so that two records of one moment never collide.
"""

from __future__ import annotations

import zlib

MILLISECOND_NS = 1_000_000


def step_time_ns(source_time_ns: int, step: int) -> int:
    """Source time cut to milliseconds, plus (step mod 10^6) ns."""
    return source_time_ns // MILLISECOND_NS * MILLISECOND_NS + step % MILLISECOND_NS


def event_time_ns(time_ns: int, event_id: str) -> int:
    """The event's time plus crc32(event id) mod 10^6 ns: the same event read twice falls on the same row. An id may hold a
    path that is no UTF-8; it counts as it is stored."""
    return time_ns + zlib.crc32(event_id.encode("utf-8", "replace")) % MILLISECOND_NS


def event_id(*parts: object) -> str:
    """A readable deterministic id: the parts joined by ``/``."""
    return "/".join(str(part) for part in parts)
