"""``.metadata`` of a PyTorch distributed checkpoint (DCP): which file holds which bytes, read without torch and without unpickling.

It is a pickle of ``torch.distributed.checkpoint.metadata.Metadata`` (torch 2.0 to 2.13; Megatron-Core and torchtitan write the
same). ``pickle_values`` follows its opcodes on symbols; here the symbols become a record. The rule that makes it worth reading:
a shard is its entries one after the other, so the largest offset + length is the exact size of the file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.checkpoints import pickle_scan, pickle_values
from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.pickle_symbols import BadPickle, Global, Instance, PickleTooLarge

MAX_BYTES = pickle_values.MAX_BYTES
_MAX_SIZE = 1 << 62
#: Names whose place is kept: numbers that tell the step, and what Megatron-Core keeps beside tensors (``dcp_values``).
_OF_A_STEP = ("train_state.step", "timestamp.Timestamp.batch", "common_state/shard_0_1")
_NAME = "torch.distributed.checkpoint.metadata."
#: Where the same classes lived in older versions of torch.
_PREFIXES = (_NAME, "torch.distributed.checkpoint.filesystem.", "torch.distributed._shard.checkpoint.metadata.")

__all__ = ["BadMetadata", "DcpMetadata", "PickleTooLarge", "StoredTensor", "read"]


class BadMetadata(Exception):
    """The file is no metadata that DCP writes, or it contradicts itself. The text says why."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """dtype: torch's name without ``torch.``, empty when unknown. parts: chunks that hold any element."""

    dtype: str
    shape: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class DcpMetadata:
    """What one ``.metadata`` says.

    tensors: by fully qualified name. objects: names that are stored as bytes. files: file name -> its entries as offset and
    length in bytes, in turn, ordered by offset. entries_of: name -> entries that the files hold of it. attributes: parts of the
    metadata that are there (Megatron-Core adds ``mcore_data``). version: of the DCP format. is_transformed: entries passed through a stream extension (compression, …), so they are no plain zips.
    unexpected: classes that it names and DCP does not need. places: name -> file, offset and length in bytes, of names that tell a step.
    """

    tensors: Mapping[str, StoredTensor]
    objects: frozenset[str]
    files: Mapping[str, array[int]]
    entries_of: Mapping[str, int]
    attributes: frozenset[str]
    version: str
    save_id: str
    is_transformed: bool
    unexpected: tuple[str, ...]
    places: Mapping[str, tuple[str, int, int]]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.tensors) | self.objects

    def size_of(self, file: str) -> int:
        """Exact size in bytes that the file must have."""
        entries = self.files[file]
        return max((entries[at] + entries[at + 1] for at in range(0, len(entries), 2)), default=0)

    def entries(self, file: str) -> tuple[tuple[int, int], ...]:
        """(offset, length) of each entry, by offset."""
        entries = self.files[file]
        return tuple((entries[at], entries[at + 1]) for at in range(0, len(entries), 2))

    def not_stored(self) -> list[str]:
        """Names that no file holds: a load of them fails (NVIDIA/Megatron-LM issue 4378)."""
        return sorted(
            name for name in self.keys if not self.entries_of.get(name) and (name in self.objects or self.tensors[name].parts)
        )

    def partly_stored(self) -> list[str]:
        """Tensors of which the files hold fewer parts than the metadata lists."""
        return sorted(name for name, tensor in self.tensors.items() if 0 < self.entries_of.get(name, 0) < tensor.parts)


def read(source: Callable[[int, int], bytes], size: int) -> DcpMetadata:
    """Read a ``.metadata`` of ``size`` bytes; ``source(offset, length)`` gives its bytes.

    Raises ``BadMetadata`` or ``PickleTooLarge`` (nothing is wrong, nothing is known); the source's errors pass through.
    """
    collector = _Collector()
    try:
        pickled = pickle_values.read(source, size, builders=collector.builders(), takes_item=collector.takes_item)
    except BadPickle as error:
        raise BadMetadata(f"is no valid pickle: {error}") from error
    unexpected = _checked_globals(pickled.globals)
    root = pickled.value
    # Forks of Megatron-Core pickle a class of their own that adds a field.
    if type(root) is not Instance or not root.name.endswith("Metadata") or type(root.state) is not dict:
        raise BadMetadata("does not describe a PyTorch distributed checkpoint")
    return collector.result(root.state, unexpected)


def _checked_globals(names: frozenset[str]) -> tuple[str, ...]:
    """Names that DCP does not need; raises when one of them would do harm."""
    dangerous = sorted(name for name in names if pickle_scan.is_dangerous(name))
    if dangerous:
        raise BadMetadata(f"its pickle would call {printable(dangerous[0], 80)}, which no trainer writes: do not load it")
    return tuple(sorted(name for name in names if not pickle_scan.EXPECTED_GLOBALS.match(name)))


class _Collector:
    """Takes the entries out of the pickle as soon as each is complete, so that their symbols need no memory."""

    def __init__(self) -> None:
        self._files: dict[str, array[int]] = {}
        self._entries_of: dict[str, int] = {}
        self._is_transformed = False
        self._places: dict[str, tuple[str, int, int]] = {}

    def builders(self) -> dict[str, Callable[[Any], Any]]:
        made: dict[str, Callable[[Any], Any]] = {}
        for prefix in _PREFIXES:
            made |= {
                f"{prefix}ChunkStorageMetadata": _holds_elements,
                f"{prefix}TensorProperties": _dtype,
                f"{prefix}TensorStorageMetadata": _tensor,
                f"{prefix}MetadataIndex": _key,
                f"{prefix}_StorageInfo": self._place,
            }
        return made

    def _place(self, state: Any) -> tuple[str, int, int]:
        file, offset, length = state["relative_path"], state["offset"], state["length"]
        if type(file) is not str or type(offset) is not int or type(length) is not int:
            raise BadMetadata("has an entry without file, offset or length")
        if not file or file.startswith("/") or "\0" in file or ".." in file.split("/"):
            raise BadMetadata(f"names a file outside the checkpoint: {printable(file, 80)}")
        if not 0 <= offset < _MAX_SIZE or not 0 <= length < _MAX_SIZE:
            raise BadMetadata(f"has an entry of {printable(file, 80)} at an impossible place")
        self._is_transformed |= bool(state.get("transform_descriptors"))
        return file, offset, length

    def takes_item(self, key: Instance, value: Any) -> bool:
        """Asked for each item of a dict whose key is an object: the table name and offset -> place."""
        if type(value) is not Instance or type(key.state) is not str or type(value.state) is not tuple or len(value.state) != 3:
            return False
        file, offset, length = value.state
        entries = self._files.get(file)
        if entries is None:
            entries = self._files[file] = array("q")
        entries.append(offset)
        entries.append(length)
        if key.state.endswith(_OF_A_STEP) and len(key.state) < 100:
            self._places.setdefault(key.state, (file, offset, length))
        self._entries_of[key.state] = self._entries_of.get(key.state, 0) + 1
        return True

    def result(self, state: Any, unexpected: tuple[str, ...]) -> DcpMetadata:
        described = state.get("state_dict_metadata") if type(state) is dict else None
        if type(described) is not dict:
            raise BadMetadata("lists no tensors")
        if not self._files:
            raise BadMetadata("says of no file what is in it")
        tensors: dict[str, StoredTensor] = {}
        objects: set[str] = set()
        for name, value in described.items():
            if type(name) is not str or type(value) is not Instance:
                raise BadMetadata("lists something that is neither a tensor nor an object")
            if type(value.state) is StoredTensor:
                tensors[name] = value.state
            elif value.name.endswith(".BytesStorageMetadata"):
                objects.add(name)
            else:
                raise BadMetadata(f"describes {printable(name, 80)} as neither a tensor nor an object")
        meta, version = state.get("storage_meta"), state.get("version")
        save_id = meta.state.get("save_id") if type(meta) is Instance and type(meta.state) is dict else None
        return DcpMetadata(
            tensors,
            frozenset(objects),
            {file: _ordered(file, entries) for file, entries in self._files.items()},
            self._entries_of,
            frozenset(name for name, value in state.items() if type(name) is str and value is not None),
            version if type(version) is str else "",
            save_id if type(save_id) is str else "",
            self._is_transformed,
            unexpected,
            self._places,
        )


def _ordered(file: str, entries: array[int]) -> array[int]:
    """By offset; raises when two entries lie on top of each other."""
    pairs = sorted(zip(entries[::2], entries[1::2], strict=True))
    end = 0
    ordered = array("q")
    for offset, length in pairs:
        if offset < end:
            raise BadMetadata(f"puts two entries of {printable(file, 80)} on top of each other")
        end = offset + length
        ordered.append(offset)
        ordered.append(length)
    return ordered


def _holds_elements(state: Any) -> bool:
    sizes = state["sizes"]
    return type(sizes) is not tuple or 0 not in sizes


def _dtype(state: Any) -> str:
    """The state is a tuple that opens with the dtype (torch.memory_format cannot be pickled, so the class has its own)."""
    dtype = state[0] if type(state) is tuple and state else state.get("dtype") if type(state) is dict else None
    return dtype.name.removeprefix("torch.") if type(dtype) is Global else ""


def _tensor(state: Any) -> StoredTensor:
    properties, shape, chunks = state.get("properties"), state["size"], state["chunks"]
    if type(chunks) is not list or type(shape) is not tuple or any(type(size) is not int for size in shape):
        raise BadMetadata("describes a tensor without shape or parts")
    dtype = properties.state if type(properties) is Instance and type(properties.state) is str else ""
    return StoredTensor(dtype, shape, sum(1 for chunk in chunks if chunk.state is not False))


def _key(state: Any) -> str:
    name = state["fqn"]
    if type(name) is not str:
        raise BadMetadata("has an entry without a name")
    return name
