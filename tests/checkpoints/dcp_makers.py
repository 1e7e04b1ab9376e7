"""Writes PyTorch distributed checkpoints without torch: the same pickled names, the same files."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

MODULE = "torch.distributed.checkpoint"


class _Stub:
    """Pickled like a dataclass of torch: made without arguments, then given its fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def _stub(name: str, module: str) -> type:
    return type(name, (_Stub,), {"__module__": module, "__qualname__": name})


Metadata = _stub("Metadata", f"{MODULE}.metadata")
MetadataIndex = _stub("MetadataIndex", f"{MODULE}.metadata")
TensorStorageMetadata = _stub("TensorStorageMetadata", f"{MODULE}.metadata")
ChunkStorageMetadata = _stub("ChunkStorageMetadata", f"{MODULE}.metadata")
BytesStorageMetadata = _stub("BytesStorageMetadata", f"{MODULE}.metadata")
StorageMeta = _stub("StorageMeta", f"{MODULE}.metadata")
StorageInfo = _stub("_StorageInfo", f"{MODULE}.filesystem")


class TensorProperties:
    """Its state is a tuple, because torch.memory_format cannot be pickled."""

    def __getstate__(self) -> tuple[Any, ...]:
        return (_float32, _layout, False, 0, False)


TensorProperties.__module__ = f"{MODULE}.metadata"
TensorProperties.__qualname__ = "TensorProperties"


class Size(tuple):  # type: ignore[type-arg]
    """torch.Size: reduced to a call with one tuple."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


Size.__module__ = "torch"


class _Named:
    """A global that is no class: torch.float32."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


_float32 = _Named("float32")
_float32.__module__ = "torch"  # type: ignore[attr-defined]


def _get_layout(name: str) -> str:
    """Stands for torch.serialization._get_layout."""
    return name


_get_layout.__module__ = "torch.serialization"


class _Layout:
    def __reduce__(self) -> tuple[Any, ...]:
        return (_get_layout, ("torch.strided",))


_layout = _Layout()
_CLASSES = (
    Metadata, MetadataIndex, TensorStorageMetadata, ChunkStorageMetadata, BytesStorageMetadata, StorageMeta, StorageInfo,
    TensorProperties, Size,
)  # fmt: skip


@contextmanager
def _modules() -> Iterator[None]:
    """The C pickler looks each class up by name; torch is not installed here."""
    before = dict(sys.modules)
    try:
        for name in ("torch", "torch.serialization", "torch.distributed", MODULE, f"{MODULE}.metadata", f"{MODULE}.filesystem"):
            sys.modules[name] = types.ModuleType(name)
        for made in _CLASSES:
            setattr(sys.modules[made.__module__], made.__name__, made)
        sys.modules["torch"].float32 = _float32  # type: ignore[attr-defined]
        sys.modules["torch.serialization"]._get_layout = _get_layout  # type: ignore[attr-defined]
        yield
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update(before)


def dump(value: Any, protocol: int = 4) -> bytes:
    with _modules():
        return pickle.dumps(value, protocol=protocol)


@lru_cache(maxsize=64)
def entry_bytes(items: int, name: str = "data/0") -> bytes:
    """One entry of a shard: a torch zip with a tensor of ``items`` float32."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr(f"archive/{name}", bytes(index % 251 for index in range(4 * items)))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def parts(
    tensors: Mapping[str, int],
    ranks: int = 2,
    objects: tuple[str, ...] = (),
    files_per_rank: int = 1,
    protocol: int = 4,
    index: bool = True,
) -> dict[str, bytes]:
    """File name -> content of a directory that ``torch.distributed.checkpoint.save`` writes, ``.metadata`` last.

    tensors: name -> float32 items of each rank's part; objects: names that rank 0 stores as bytes.
    """
    shards: dict[str, bytearray] = {
        f"__{rank}_{number}.distcp": bytearray() for rank in range(ranks) for number in range(files_per_rank)
    }
    state: dict[str, Any] = {}
    storage: dict[Any, Any] = {}

    def put(file: str, key: str, offset: Any, at: int | None, content: bytes) -> None:
        place = MetadataIndex(fqn=key, **({} if offset is None else {"offset": offset}), **({"index": at} if index else {}))
        storage[place] = StorageInfo(relative_path=file, offset=len(shards[file]), length=len(content))
        shards[file] += content

    for key in objects:
        state[key] = BytesStorageMetadata()
        put("__0_0.distcp", key, None, None, entry_bytes(3, "object"))
    for number, (key, items) in enumerate(tensors.items()):
        chunks = [ChunkStorageMetadata(offsets=Size((rank * items,)), sizes=Size((items,))) for rank in range(ranks)]
        state[key] = TensorStorageMetadata(properties=TensorProperties(), size=Size((ranks * items,)), chunks=chunks)
        for rank in range(ranks):
            file = f"__{rank}_{number % files_per_rank}.distcp"
            put(file, key, Size((rank * items,)), rank, entry_bytes(items))
    metadata = Metadata(
        state_dict_metadata=state,
        planner_data={key: tuple(key.split(".")) for key in state},
        storage_data=storage,
        storage_meta=StorageMeta(checkpoint_id=None, save_id="00000000-0000", load_id=None, modules=[]),
        version="1.0.0",
    )
    return {**{name: bytes(content) for name, content in shards.items() if content}, ".metadata": dump(metadata, protocol)}


TORCHTITAN = {"model.layers.0.weight": 64, "model.norm": 8, "optimizer.state.layers.0.weight.exp_avg": 64}
TORCHTITAN_OBJECTS = ("lr_scheduler", "dataloader", "train_state", "optimizer.param_groups.layers.0.weight.lr")


def write(directory: Path, files: Mapping[str, bytes], modified_s: float | None = None) -> Path:
    """Write them in order, each with a later time than the one before."""
    import os

    for number, (name, content) in enumerate(files.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if modified_s is not None:
            os.utime(path, (modified_s + number, modified_s + number))
    return directory


def torchtitan(parent: Path, step: int = 500, ranks: int = 2, modified_s: float | None = None) -> Path:
    """A whole ``step-N`` directory."""
    return write(parent / f"step-{step}", parts(TORCHTITAN, ranks, TORCHTITAN_OBJECTS), modified_s)
