"""Headers of llm.c's files: 256 little-endian int32 each, from which the size of the whole file follows.

``train_gpt2.cu``: gpt2_write_to_checkpoint (magic 20240326, versions 3 = fp32 and 5 = bf16) and save_state (magic 20240527).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from trainvitals.checkpoints.files import Reader

MODEL_MAGIC = 20240326
STATE_MAGIC = 20240527
HEADER_BYTES = 1024
_HEADER = struct.Struct("<256i")
#: Bytes of a parameter by the version in the header; later versions of forks are not known here.
_PARAMETER_BYTES = {3: 4, 5: 2}
#: mt19937_state of llmc/rand.h: seed, left, next, 624 words, two matrix words.
_SHUFFLE_STATE_BYTES = 4 * (3 + 624 + 2)
MAX_VALUE = 1 << 28


class BadLlmC(Exception):
    """The file breaks a rule of the format. The text says which."""


@dataclass(frozen=True, slots=True)
class Model:
    """parameters: how many. ``unproven`` says what was not checked."""

    parameters: int | None
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """rank of world_size. step: optimizer steps. ``unproven`` says what was not checked."""

    step: int
    rank: int
    world_size: int
    unproven: str = ""


def check_model(reader: Reader) -> Model:
    """Check ``model_%08d.bin``; raises ``BadLlmC`` (or ``Unreadable`` from the reader)."""
    header = _read(reader, MODEL_MAGIC)
    version, positions, _, layers, heads, channels, vocabulary = header[1:8]
    sizes = (positions, layers, heads, channels, vocabulary)
    if not all(0 < size < MAX_VALUE for size in sizes):
        raise BadLlmC("its header holds sizes that no model has")
    parameter_bytes = _PARAMETER_BYTES.get(version)
    if parameter_bytes is None:
        return Model(None, f"its version {version} is not known here, so its size was not checked")
    layer = 12 * channels * channels + 13 * channels
    parameters = (vocabulary + positions) * channels + layers * layer + 2 * channels
    _check_size(reader, HEADER_BYTES + parameters * parameter_bytes)
    return Model(parameters)


def check_state(reader: Reader, parameters: int | None) -> State:
    """Check ``state_%08d_%05d.bin``; ``parameters`` of the model, None when not known. Raises as ``check_model``."""
    header = _read(reader, STATE_MAGIC)
    world_size, rank, has_master_weights, is_shuffled = header[2:6]
    step = header[10]
    if not (0 < world_size < MAX_VALUE and 0 <= rank < world_size and step >= 0):
        raise BadLlmC("its header holds a rank, a number of processes or a step that cannot be")
    if header[1] != 1 or header[6] or header[7]:
        return State(step, rank, world_size, "it is of a version that is not known here, so its size was not checked")
    if parameters is None:
        return State(step, rank, world_size, "the size of the model is not known, so its own was not checked")
    copies = 3 if has_master_weights else 2
    # Without ZeRO each rank holds the moments of all parameters, with it its share; the file does not say which.
    sizes = [HEADER_BYTES + 4 * copies * parameters]
    if world_size > 1 and parameters % world_size == 0:
        sizes.append(HEADER_BYTES + 4 * copies * (parameters // world_size))
    if is_shuffled:
        sizes = [size + extra for size in sizes if (extra := _shuffle_bytes(reader, size)) is not None]
        if not sizes:
            raise BadLlmC(f"truncated: {reader.size} bytes, it ends inside the optimizer state or the order of its data")
    if reader.size not in sizes:
        told = " or ".join(str(size) for size in sizes)
        kind = "truncated" if reader.size < min(sizes) else "it has another size than its header tells"
        raise BadLlmC(f"{kind}: {reader.size} bytes, its header and the model need {told}")
    return State(step, rank, world_size)


def _read(reader: Reader, magic: int) -> tuple[int, ...]:
    raw = reader.read(0, HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        raise BadLlmC(f"truncated inside its header: {reader.size} bytes, the header alone needs {HEADER_BYTES}")
    header: tuple[int, ...] = _HEADER.unpack(raw)
    if header[0] != magic:
        raise BadLlmC(f"does not start with llm.c's number {magic}")
    return header


def _check_size(reader: Reader, expected: int) -> None:
    if reader.size < expected:
        raise BadLlmC(f"truncated: {reader.size} bytes, its header says {expected}")
    if reader.size > expected:
        raise BadLlmC(f"{reader.size - expected} bytes too many: its header says {expected}")


def _shuffle_bytes(reader: Reader, offset: int) -> int | None:
    """Bytes of the data order that begins at ``offset``; None when the file ends before it tells."""
    raw = reader.read(offset, 8)
    if len(raw) < 8:
        return None
    shards = int.from_bytes(raw, "little")
    at = offset + 8 + 4 * shards
    raw = reader.read(at, 8) if at <= reader.size else b""
    if len(raw) < 8:
        return None
    return 8 + 4 * shards + 8 + 4 * int.from_bytes(raw, "little") + _SHUFFLE_STATE_BYTES
