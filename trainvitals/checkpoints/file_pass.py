"""One pass over a file that takes everything at once: its hash, the CRC32 of each of its parts, and hashes of a few samples."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from trainvitals.checkpoints import hashes
from trainvitals.checkpoints.files import Reader
from trainvitals.checkpoints.hash_record import Sample
from trainvitals.checkpoints.hashes import BLOCK_BYTES, Pace

SAMPLE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file with its recorded CRC32; offset and length in bytes."""

    offset: int
    length: int
    crc32: int
    name: str


@dataclass
class PassResult:
    """``hash`` is "" when none was asked for."""

    hash: str = ""
    bad_segments: list[Segment] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


class FilePass:
    """``algorithm`` "" takes no hash and no samples. At most ``samples`` blocks are sampled, chosen by ``generator``."""

    def __init__(self, algorithm: str, segments: list[Segment], samples: int, generator: random.Random) -> None:
        self._algorithm = algorithm
        self._segments = sorted(segments, key=lambda segment: segment.offset)
        self._samples = samples
        self._generator = generator

    def run(self, reader: Reader, pace: Pace) -> PassResult:
        """Read the whole file once. Raises ``Stopped``, ``Cut`` or ``Unreadable``."""
        result = PassResult()
        taken = hashes.new(self._algorithm) if self._algorithm else None
        blocks = (reader.size + BLOCK_BYTES - 1) // BLOCK_BYTES
        chosen = set(self._generator.sample(range(blocks), min(blocks, self._samples))) if taken is not None else set()
        position = 0
        number = 0
        crc32 = 0

        def update(block: memoryview) -> None:
            nonlocal position, number, crc32
            if taken is not None:
                taken.update(block)
                if position // BLOCK_BYTES in chosen:
                    sample = hashes.new(self._algorithm)
                    sample.update(block[:SAMPLE_BYTES])
                    result.samples.append(Sample(position, min(len(block), SAMPLE_BYTES), sample.hexdigest()))
            end = position + len(block)
            while number < len(self._segments):
                segment = self._segments[number]
                begin = max(segment.offset, position)
                stop = min(segment.offset + segment.length, end)
                if begin < stop:
                    crc32 = hashes.crc32(block[begin - position : stop - position], crc32)
                if segment.offset + segment.length > end:
                    break
                if crc32 != segment.crc32:
                    result.bad_segments.append(segment)
                number, crc32 = number + 1, 0
            position = end

        is_slow = bool(self._segments) or self._algorithm not in hashes.FAST
        hashes.feed(reader, 0, reader.size, update, pace, is_slow=is_slow)
        if taken is not None:
            result.hash = taken.hexdigest()
        return result
