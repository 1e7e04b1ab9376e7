"""Points to the bytes of a spooled batch and back: pure, exact, compact.

A batch is a zlib-compressed JSON list of ``[measurement, [tag values in schema order], time_ns, {field: value}]``. JSON
tells 5 from 5.0 and true, and writes floats so that they read back as the same bits; zlib's checksum finds damage.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainvitals.records import Point
from trainvitals.schema import SCHEMA

#: A batch is at most this large, so that a bad point is looked for among few and no request grows with the caller's.
MAX_BATCH_POINTS = 1_000
MAX_BATCH_BYTES = 512 * 1024  # before compression
#: Measurements whose points are written once: their batches may overtake each other. A point of any other measurement
#: (an event, a roll-up) is written again with newer fields, so an older one must never arrive after it.
WRITTEN_ONCE = frozenset({"train", "node", "gpu", "heartbeat"})
ORDERED, SAMPLES = 0, 1


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """lane: ``ORDERED`` or ``SAMPLES``. raw_bytes: size before compression. body: what is stored."""

    lane: int
    points: int
    raw_bytes: int
    body: bytes


def encode_batches(points: Sequence[Point]) -> Iterator[EncodedBatch]:
    """Batches of each lane in the order of the points. The points have passed ``check_point``."""
    for lane in (ORDERED, SAMPLES):
        of_lane = [point for point in points if (point.measurement in WRITTEN_ONCE) == (lane == SAMPLES)]
        parts: list[str] = []
        size = 0
        for point in of_lane:
            text = _text(point)
            if parts and (len(parts) == MAX_BATCH_POINTS or size + len(text) > MAX_BATCH_BYTES):
                yield _batch(lane, parts, size)
                parts, size = [], 0
            parts.append(text)
            size += len(text)
        if parts:
            yield _batch(lane, parts, size)


def encode_point(point: Point) -> bytes:
    """One point as a batch of its own, for a dead letter."""
    return zlib.compress(f"[{_text(point)}]".encode(), 1)


def lane_of(points: Sequence[Point]) -> int:
    """The lane that points of one batch travel in."""
    return SAMPLES if all(point.measurement in WRITTEN_ONCE for point in points) else ORDERED


def decode_batch(body: bytes) -> list[Point]:
    """The points of a batch. Raises ``ValueError`` when the bytes are damaged or no batch."""
    try:
        rows = json.loads(zlib.decompress(body))
        return [
            Point(measurement, dict(zip(SCHEMA[measurement].tags, tags, strict=True)), time_ns, fields)
            for measurement, tags, time_ns, fields in rows
        ]
    except (zlib.error, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the bytes of the batch are damaged ({type(error).__name__}: {error})") from error


def _text(point: Point) -> str:
    tags = [point.tags[tag] for tag in SCHEMA[point.measurement].tags]
    return json.dumps([point.measurement, tags, point.time_ns, dict(point.fields)], separators=(",", ":"), allow_nan=False)


def _batch(lane: int, parts: Sequence[str], size: int) -> EncodedBatch:
    return EncodedBatch(lane, len(parts), size, zlib.compress(f"[{','.join(parts)}]".encode(), 1))
