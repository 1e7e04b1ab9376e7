"""Writer and reader of safetensors files (little-endian header length, JSON header, tensor bytes), for float32 tensors.

Format: https://github.com/huggingface/safetensors#format. The tests read what is written here with the real library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trainvitals.demo.model import Array
from trainvitals.errors import InputError

_MAX_HEADER_BYTES = 100_000_000


def write(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write float32 tensors in the order given."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    pieces: list[bytes] = []
    offset = 0
    for name, tensor in tensors.items():
        piece = np.ascontiguousarray(tensor, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(piece)]}
        pieces.append(piece)
        offset += len(piece)
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little"))
        file.write(raw)
        for piece in pieces:
            file.write(piece)


def read(path: Path) -> dict[str, Array]:
    """All tensors of a file. Raises ``InputError`` when it is cut or not what it claims to be."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(_MAX_HEADER_BYTES, len(raw) - 8):
        raise InputError(f"{path} is cut inside its header; take another checkpoint.")
    try:
        header = json.loads(raw[8 : 8 + length])
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            body = raw[8 + length + begin : 8 + length + end]
            if entry["dtype"] != "F32" or len(body) != end - begin:
                raise InputError(f"{path}: tensor {name!r} is cut or not float32; take another checkpoint.")
            tensors[name] = np.frombuffer(body, dtype="<f4").reshape(entry["shape"]).astype(np.float32)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} has no readable safetensors header ({error}); take another checkpoint.") from error
    return tensors
