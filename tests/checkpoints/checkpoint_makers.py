"""Writes made-up checkpoints with our own writers: no torch, no safetensors package."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

DTYPE_BYTES = {"F32": 4, "BF16": 2, "I64": 8}


def safetensors_bytes(tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A valid file; tensors: name -> (dtype, shape); content counts up."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    body = bytearray()
    for name, (dtype, shape) in tensors.items():
        count = 1
        for size in shape:
            count *= size
        begin = len(body)
        body += bytes(index % 251 for index in range(count * DTYPE_BYTES[dtype]))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, len(body)]}
    return safetensors_from(header, bytes(body))


def safetensors_from(header: object, body: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


class _Storage:
    """Pickled by persistent id like torch's storages."""

    def __init__(self, key: str, count: int) -> None:
        self.key, self.count = key, count


class _FloatStorage:
    """Stands for torch.FloatStorage in the pickle."""


class _Pickler(pickle._Pickler):  # type: ignore[misc, name-defined]
    def persistent_id(self, item: object) -> object:
        return ("storage", _FloatStorage, item.key, "cpu", item.count) if isinstance(item, _Storage) else None

    def save_global(self, obj: object, name: str | None = None) -> None:
        if obj is _FloatStorage:
            self.write(b"ctorch\nFloatStorage\n")
            self.memoize(obj)
        else:
            super().save_global(obj, name)


def torch_pickle(state: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump(state)
    return buffer.getvalue()


def torch_zip_bytes(
    state: Mapping[str, object] | None = None, storages: Sequence[int] = (16, 8), pickled: bytes | None = None
) -> bytes:
    """A zip in torch's layout; ``storages``: number of float32 items of each tensor storage."""
    content: dict[str, object] = dict(state or {"state": {}})
    content["tensors"] = [_Storage(str(key), count) for key, count in enumerate(storages)]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", torch_pickle(content) if pickled is None else pickled)
        archive.writestr("archive/byteorder", "little")
        for key, count in enumerate(storages):
            archive.writestr(f"archive/data/{key}", bytes(index % 253 for index in range(count * 4)))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def huggingface_parts(step: int, shards: int = 1, ranks: int = 1, optimizer: bool = True) -> dict[str, bytes]:
    """File name -> content, in the order in which the Trainer writes them."""
    parts: dict[str, bytes] = {"config.json": b'{"model_type": "made-up"}'}
    if shards == 1:
        parts["model.safetensors"] = safetensors_bytes({"w": ("F32", (8, 4)), "b": ("BF16", (4,))}, {"format": "pt"})
    else:
        weight_map = {}
        for shard in range(1, shards + 1):
            name = f"model-{shard:05d}-of-{shards:05d}.safetensors"
            parts[name] = safetensors_bytes({f"layer{shard}.w": ("F32", (4, 4))}, {"format": "pt"})
            weight_map[f"layer{shard}.w"] = name
        index = {"metadata": {"total_size": 64 * shards}, "weight_map": weight_map}
        parts["model.safetensors.index.json"] = json.dumps(index).encode()
    parts["training_args.bin"] = torch_zip_bytes(storages=())
    if optimizer:
        parts["optimizer.pt"] = torch_zip_bytes()
        parts["scheduler.pt"] = torch_zip_bytes(storages=())
        if ranks == 1:
            parts["rng_state.pth"] = torch_zip_bytes(storages=(3,))
        else:
            parts |= {f"rng_state_{rank}.pth": torch_zip_bytes(storages=(3,)) for rank in range(ranks)}
    state = {"global_step": step, "log_history": [{"step": step, "loss": 2.5, "grad_norm": float("nan")}]}
    parts["trainer_state.json"] = json.dumps(state).encode()
    return parts


def write_parts(directory: Path, parts: Mapping[str, bytes], modified_s: float | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in parts.items():
        (directory / name).write_bytes(content)
        if modified_s is not None:
            os.utime(directory / name, (modified_s, modified_s))
    return directory


def huggingface(
    directory: Path, step: int, *, modified_s: float | None = None, shards: int = 1, ranks: int = 1, optimizer: bool = True
) -> Path:
    """A whole checkpoint below ``directory``."""
    parts = huggingface_parts(step, shards, ranks, optimizer)
    return write_parts(directory / f"checkpoint-{step}", parts, modified_s)
