"""Structure of a safetensors file: 8-byte little-endian header length, JSON header, then tensor bytes without gaps.

Rule of the format (safetensors README, "Format"): offsets are contiguous from 0 and 8 + header + largest end = file size.
The file holds no checksum, so a flipped bit in the tensors is invisible at this level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from trainvitals.checkpoints import json_file
from trainvitals.checkpoints.files import Reader, printable

#: The format's own limit; the safetensors library refuses longer headers.
MAX_HEADER_BYTES = 100_000_000
#: Above this the header is not parsed here (about 150,000 tensors in one file), to bound memory.
MAX_PARSED_BYTES = 16 * 1024 * 1024
MAX_DIMENSIONS = 64
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64,
    "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class BadSafetensors(Exception):
    """The file breaks a rule of the format. The text says which."""


@dataclass(frozen=True, slots=True)
class Header:
    """tensors: names in the file, None when the header was too long to parse; ``unproven`` says what was not checked.

    holds_elements: whether any tensor has a size other than 0.
    """

    tensors: frozenset[str] | None
    unproven: str = ""
    holds_elements: bool = True


def check(reader: Reader) -> Header:
    """Check one file; raises ``BadSafetensors`` (or ``Unreadable`` from the reader)."""
    if reader.size < 8:
        raise BadSafetensors(f"truncated: {reader.size} bytes, a header needs 8")
    length = int.from_bytes(reader.read(0, 8), "little")
    if length > MAX_HEADER_BYTES:
        raise BadSafetensors(f"its header claims {length} bytes, the format allows {MAX_HEADER_BYTES}")
    if 8 + length > reader.size:
        raise BadSafetensors(f"truncated inside its header: {reader.size} bytes, the header alone needs {8 + length}")
    if length > MAX_PARSED_BYTES:
        return Header(None, f"its header of {length} bytes is longer than what is parsed here ({MAX_PARSED_BYTES})")
    raw = reader.read(8, length)
    if not raw.startswith(b"{"):
        raise BadSafetensors("its header is not a JSON object")
    try:
        header = json_file.parse(raw, max_brackets=3 * raw.count(b"data_offsets") + 500_000)
    except json_file.BadJson as error:
        raise BadSafetensors(f"its header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise BadSafetensors("its header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadSafetensors("its __metadata__ is not a table of texts")
    unknown_dtypes: set[str] = set()
    spans = sorted(_span(name, described, unknown_dtypes) for name, described in header.items())
    position = 0
    for begin, end, name in spans:
        if begin != position:
            raise BadSafetensors(f"tensor {printable(name)} begins at {begin}, but the one before ends at {position}")
        position = end
    expected = 8 + length + position
    if reader.size < expected:
        raise BadSafetensors(f"truncated: {reader.size} bytes, its header says {expected}")
    if reader.size > expected:
        raise BadSafetensors(f"{reader.size - expected} bytes too many: its header says {expected}")
    unproven = f"sizes of dtype {printable(', '.join(sorted(unknown_dtypes)))} were not checked" if unknown_dtypes else ""
    return Header(frozenset(header), unproven, position > 0)


def _span(name: str, described: Any, unknown_dtypes: set[str]) -> tuple[int, int, str]:
    shown = printable(name)
    if not isinstance(described, dict):
        raise BadSafetensors(f"tensor {shown} is not described by an object")
    offsets, shape, dtype = described.get("data_offsets"), described.get("shape"), described.get("dtype")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BadSafetensors(f"tensor {shown} has no valid data_offsets")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise BadSafetensors(f"tensor {shown} has no valid shape")
    if not isinstance(dtype, str):
        raise BadSafetensors(f"tensor {shown} has no dtype")
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        unknown_dtypes.add(dtype)
    elif math.prod(shape) * bits != 8 * (offsets[1] - offsets[0]):
        raise BadSafetensors(
            f"tensor {shown} is {offsets[1] - offsets[0]} bytes, its shape and dtype need {math.prod(shape) * bits // 8}"
        )
    return offsets[0], offsets[1], name


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
