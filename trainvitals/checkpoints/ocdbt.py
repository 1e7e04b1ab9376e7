"""Structure of TensorStore's OCDBT files: manifests and B-tree nodes with their checksums, chunks of arrays up to the last byte.

A manifest or node begins with a magic number and its length and ends with a CRC-32C (TensorStore, "OCDBT format"). Chunks are zstd
frames, whose blocks tell their lengths (RFC 8878, section 3.1), so that a cut file is seen without decompressing an array.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from trainvitals.checkpoints import ocdbt_names
from trainvitals.checkpoints.files import Reader

MANIFEST = b"\x0c\xdb\x3a\x2a"
_NODE = b"\x0c\xdb\x20\xde"
_VERSION_NODE = b"\x0c\xdb\x12\x34"
_ZSTD = b"\x28\xb5\x2f\xfd"
#: Longer parts are measured, and their checksum is left to the content level, which reads every byte.
MAX_CHECKED_BYTES = 1 << 20
#: Of all files of one checkpoint together: about a second of checksums.
MAX_CHECKED_TOTAL_BYTES = 8 << 20
MAX_PARTS = 200_000
MAX_NAMES = 200_000
_SMALLEST_BYTES = 18


class BadOcdbt(Exception):
    """The file breaks a rule of the format. The text says which."""


@dataclass
class Look:
    """Of all files of one checkpoint. bytes: whose checksums may still be computed; above it only lengths are checked. body_bytes: that
    may still be unpacked. names: of the data files that manifests and nodes refer to; ``knows_all`` = each of them could be read.
    steps: what the arrays named ``step`` hold."""

    bytes: int = MAX_CHECKED_TOTAL_BYTES
    body_bytes: int = MAX_CHECKED_TOTAL_BYTES
    names: set[str] = field(default_factory=set)
    knows_all: bool = True
    steps: ocdbt_names.Steps = field(default_factory=ocdbt_names.Steps)


def check_manifest(reader: Reader, look: Look) -> None:
    """Check ``manifest.ocdbt``; raises ``BadOcdbt`` (or ``Unreadable`` from the reader)."""
    if reader.read(0, 4) != MANIFEST:
        raise BadOcdbt("does not start as an OCDBT manifest")
    length = _record(reader, 0, look)
    if length != reader.size:
        raise BadOcdbt(f"{reader.size} bytes, its header says {length}")


def check_data(reader: Reader, look: Look) -> str:
    """Check one file of chunks and nodes; returns "" or what was not checked. Raises as ``check_manifest``."""
    position = 0
    row: list[tuple[int, int]] = []
    for _ in range(MAX_PARTS):
        if position == reader.size:
            return ""
        start = reader.read(position, 4)
        if start in (_NODE, _VERSION_NODE):
            position += _record(reader, position, look)
            row.clear()
        elif start == _ZSTD:
            end = _frame(reader, position)
            row.append((position, end - position))
            position = end
        elif index_bytes := _index_bytes(reader, position, row):
            position += index_bytes
            row.clear()
        elif len(start) < 4:
            raise BadOcdbt(f"truncated: {len(start)} bytes are too few for a part of it")
        else:
            return "holds arrays that are stored without compression or in another way, whose length stands nowhere"
    return f"holds more than {MAX_PARTS} parts, of which only these were checked"


def _record(reader: Reader, position: int, look: Look) -> int:
    """Length of the manifest or node at ``position``, checked."""
    length = int.from_bytes(reader.read(position + 4, 8), "little")
    if length < _SMALLEST_BYTES or position + length > reader.size:
        raise BadOcdbt(f"truncated: a part of {length} bytes at {position} runs beyond its end at {reader.size}")
    if length <= min(MAX_CHECKED_BYTES, look.bytes):
        look.bytes -= length
        raw = reader.read(position, length)
        if _crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            raise BadOcdbt(f"the part at {position} does not match its checksum")
        found, body_bytes = ocdbt_names.names(raw, look.body_bytes, look.steps)
        look.body_bytes -= body_bytes
        if found is None or len(look.names) > MAX_NAMES:
            look.knows_all = False
        else:
            look.names |= found
    else:
        look.knows_all = False
    return length


def _index_bytes(reader: Reader, position: int, row: list[tuple[int, int]]) -> int:
    """Length of the index that ends a shard of zarr 3 (offset and length of each chunk, CRC-32C); 0 when none is there."""
    if not row or len(row) > MAX_CHECKED_BYTES // 16:
        return 0
    index = b"".join(struct.pack("<2Q", offset - row[0][0], length) for offset, length in row)
    expected = index + struct.pack("<I", _crc32c(index))
    return len(expected) if reader.read(position, len(expected)) == expected else 0


def _frame(reader: Reader, position: int) -> int:
    """Where the zstd frame at ``position`` ends."""
    descriptor = reader.read(position + 4, 1)
    if not descriptor:
        raise BadOcdbt("truncated inside a chunk")
    flags = descriptor[0]
    is_single = bool(flags & 0x20)
    size_bytes = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
    at = position + 5 + (0 if is_single else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes
    for _ in range(MAX_PARTS):
        block = reader.read(at, 3)
        if len(block) < 3:
            break
        header = int.from_bytes(block, "little")
        kind, length = (header >> 1) & 3, header >> 3
        if kind == 3:
            raise BadOcdbt(f"a chunk at {position} holds a block that zstd does not know")
        at += 3 + (1 if kind == 1 else length)
        if header & 1:
            at += 4 if flags & 4 else 0
            if at <= reader.size:
                return at
            break
    raise BadOcdbt(f"truncated: the chunk at {position} runs beyond its end at {reader.size}")


def _table() -> tuple[int, ...]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        values.append(value)
    return tuple(values)


_TABLE = _table()


def _crc32c(raw: bytes) -> int:
    checksum = 0xFFFFFFFF
    table = _TABLE
    for byte in raw:
        checksum = table[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF
