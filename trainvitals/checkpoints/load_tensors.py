"""Finds the tensors of a checkpoint's files and their bytes, without torch. Runs in the load child only.

A pickle is read by an unpickler that knows no real class: every name in it becomes an inert stand-in that remembers its arguments,
so nothing is imported and nothing of the pickle's choosing is called. It runs in a child with limits all the same.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainvitals.checkpoints import json_file, safetensors_header, zip_directory
from trainvitals.checkpoints.files import Reader, Window
from trainvitals.checkpoints.layouts.base import Range
from trainvitals.checkpoints.load_values import NAMELESS, Tensor

MAX_TENSORS = 200_000
MAX_DIMENSIONS = 64
MAX_OBJECTS = 3_000_000
MAX_PICKLE_BYTES = 256 * 1024 * 1024
_DTYPES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "float16": "F16", "half": "F16", "bfloat16": "BF16",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
}  # fmt: skip
#: Stands for the dtype of a tensor whose values are not sampled, because others lie between them.
VIEW = "view"
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E5M2": 1, "F8_E4M3": 1, "I64": 8, "I32": 4, "I16": 2}


class NotLoadable(Exception):
    """The file cannot be loaded. The text says why."""


class Unusual(Exception):
    """The file is of a kind whose tensors are not read here: nothing is wrong, nothing is proven."""


class _Storage:
    def __init__(self, kind: str, key: str) -> None:
        self.kind, self.key = kind, key


class _Tensor:
    def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> None:
        self.storage, self.offset, self.size, self.stride, self.dtype = storage, offset, size, stride, dtype

    @property
    def end(self) -> int:
        """Items of the storage up to its last one: an expanded tensor has more items than that, a view of columns fewer."""
        if 0 in self.size:
            return 0
        return self.offset + 1 + sum((count - 1) * step for count, step in zip(self.size, self.stride, strict=True))

    @property
    def items(self) -> int | None:
        """Different items from the offset on, where they lie side by side in whatever order of dimensions; None where they do not.

        What is repeated (``expand``) counts once.
        """
        items = 1
        for step, count in sorted(
            (step, count) for count, step in zip(self.size, self.stride, strict=True) if count != 1 and step
        ):
            if step != items:
                return None
            items *= count
        return 0 if 0 in self.size else items


class _Inert:
    """Stands for any class or function of a pickle: takes everything, does nothing."""

    def __new__(cls, *arguments: object, **named: object) -> _Inert:
        made = object.__new__(cls)
        made.parts = [*arguments, *named.values()]
        return made

    def __init__(self, *arguments: object, **named: object) -> None:
        self.parts: list[object]

    def __setstate__(self, state: object) -> None:
        self.parts.append(state)

    def append(self, item: object) -> None:
        self.parts.append(item)

    add = append

    def extend(self, items: Any) -> None:
        self.parts.extend(items)

    def __setitem__(self, key: object, value: object) -> None:
        self.parts.append({key: value} if isinstance(key, str) else value)


class _Dictionary(dict[Any, Any]):
    """Stands for OrderedDict and its relatives; has attributes, as torch gives it some."""


def _rebuild(storage: object, offset: object, size: object, *rest: object) -> object:
    dtype = _DTYPES.get(getattr(rest[3], "__name__", ""), "") if len(rest) > 3 else ""
    stride = rest[0] if rest else None
    if (
        not isinstance(storage, _Storage)
        or type(offset) is not int
        or not isinstance(size, tuple)
        or not isinstance(stride, tuple)
    ):
        return _Inert(storage, size)
    if not _are_counts(size) or not 0 <= offset < 1 << 50:
        raise NotLoadable("a tensor has an impossible shape")
    if not _are_counts(stride) or len(stride) != len(size):
        raise NotLoadable("a tensor has an impossible stride")
    return _Tensor(storage, offset, size, stride, dtype or _DTYPES.get(storage.kind, ""))


def _are_counts(values: tuple[Any, ...]) -> bool:
    return len(values) <= MAX_DIMENSIONS and all(type(one) is int and 0 <= one < 1 << 50 for one in values)


def _first(data: object = None, *rest: object) -> object:
    return data


def _applied(function: object = None, kind: object = None, arguments: object = (), *rest: object) -> object:
    """torch._tensor._rebuild_from_type_v2(function, type, arguments, state): applied only when the function is one of ours."""
    if function in (_rebuild, _first) and isinstance(arguments, tuple) and arguments:
        return function(*arguments)
    return _Inert(arguments, *rest)


_KNOWN: Mapping[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _applied,
    ("collections", "OrderedDict"): _Dictionary,
    ("collections", "defaultdict"): lambda *arguments: _Dictionary(),
    ("torch", "Size"): lambda size=(): tuple(size),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, raw: bytes) -> None:
        super().__init__(io.BytesIO(raw))
        self._stands_for: dict[tuple[str, str], Any] = dict(_KNOWN)

    def find_class(self, module: str, name: str) -> Any:
        key = (module, name)
        if key not in self._stands_for:
            if len(self._stands_for) > 10_000:
                raise NotLoadable("its pickle names more classes than any checkpoint")
            self._stands_for[key] = type(name.rpartition(".")[2], (_Inert,), {})
        return self._stands_for[key]

    def persistent_load(self, identity: Any) -> object:
        if isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage" and isinstance(identity[2], str):
            return _Storage(getattr(identity[1], "__name__", ""), identity[2])
        return _Inert(identity)


def of_safetensors(reader: Reader, file: str) -> Iterator[Tensor]:
    """All tensors of a safetensors file whose structure is fine. Raises ``NotLoadable`` or ``Unusual``."""
    try:
        if safetensors_header.check(reader).tensors is None:
            raise Unusual("its header is too long to be parsed here")
        length = int.from_bytes(reader.read(0, 8), "little")
        header = json_file.parse(reader.read(8, length))
    except (safetensors_header.BadSafetensors, json_file.BadJson) as error:
        raise NotLoadable(str(error)) from error
    for name, described in header.items():
        if name != "__metadata__":
            begin, _ = described["data_offsets"]
            shape = described["shape"]
            yield Tensor(name, file, described["dtype"], math.prod(shape), 8 + length + begin, len(shape))


def of_torch(reader: Reader, file: str) -> Iterator[Tensor]:
    """All tensors of a torch zip. Raises ``NotLoadable`` or ``Unusual``."""
    yield from _of_zip(reader, file, 0, "")


def of_ranges(reader: Reader, file: str, ranges: tuple[Range, ...], names: Mapping[int, str]) -> Iterator[Tensor]:
    """The tensors of a DCP shard, one torch zip each; ``names``: of the entry at each offset, where known."""
    for one in ranges:
        yield from _of_zip(Window(reader, one.offset, one.length), file, one.offset, names.get(one.offset, ""))


def names_of_entries(reader: Reader, directory: str) -> dict[str, dict[int, str]]:
    """From a DCP ``.metadata``: shard -> offset of an entry -> name of what is in it; what cannot be told is left out.

    ``directory``: in which the file lies, "" or with a slash at its end.
    """
    if reader.size > MAX_PICKLE_BYTES:
        return {}
    try:
        content = _Unpickler(reader.read(0, reader.size)).load()
    except (NotLoadable, MemoryError):
        raise
    except Exception as error:
        raise NotLoadable(f"its pickle cannot be read ({type(error).__name__})") from error
    found: dict[str, dict[int, str]] = {}
    storage = _state(content).get("storage_data")
    for index, info in storage.items() if isinstance(storage, dict) else ():
        name, place = _state(index).get("fqn"), _state(info)
        file, offset = place.get("relative_path"), place.get("offset")
        if isinstance(name, str) and isinstance(file, str) and isinstance(offset, int):
            found.setdefault(directory + file, {})[offset] = name[:500]
    return found


def _state(item: object) -> dict[Any, Any]:
    """What a stand-in was given as its state."""
    states = [part for part in item.parts if isinstance(part, dict)] if isinstance(item, _Inert) else []
    return states[-1] if states else {}


def _of_zip(reader: Reader, file: str, base: int, root: str) -> Iterator[Tensor]:
    try:
        members = zip_directory.members(reader)
    except zip_directory.BadZip as error:
        raise NotLoadable(str(error)) from error
    except zip_directory.ZipTooLarge as error:
        raise Unusual(str(error)) from error
    name = next((name for name in members if name.endswith("/data.pkl") and name.count("/") == 1), None)
    if name is None or members[name].method != zip_directory.STORED or members[name].bytes > MAX_PICKLE_BYTES:
        raise Unusual("it has no data.pkl that can be read here")
    order = members.get(name.removesuffix("data.pkl") + "byteorder")
    if order is not None and reader.read(order.offset, 3) == b"big":
        raise Unusual("it was written on a big-endian machine")
    try:
        content = _Unpickler(reader.read(members[name].offset, members[name].bytes)).load()
    except (NotLoadable, MemoryError):
        raise
    except Exception as error:
        # Whatever a hostile or damaged pickle makes the machine do, it is this file that cannot be loaded.
        raise NotLoadable(f"its pickle cannot be read ({type(error).__name__})") from error
    prefix = name.removesuffix("data.pkl") + "data/"
    for path, tensor in _walk(content, root):
        member = members.get(prefix + tensor.storage.key)
        item_bytes = _ITEM_BYTES.get(tensor.dtype, 1)
        if member is None:
            raise NotLoadable(f"tensor {path} has no data")
        if tensor.end * item_bytes > member.bytes and tensor.dtype in _ITEM_BYTES:
            raise NotLoadable(f"tensor {path} is larger than its data")
        # What lies between the items of a view is none of its values, and may be anything.
        dtype = VIEW if tensor.items is None else tensor.dtype
        offset = base + member.offset + tensor.offset * item_bytes
        yield Tensor(path, file, dtype, tensor.items or 0, offset, len(tensor.size))


def _walk(content: object, root: str) -> Iterator[tuple[str, _Tensor]]:
    """All tensors in it with the path of keys that leads there."""
    waiting: list[tuple[str, object]] = [(root, content)]
    seen: set[int] = set()
    found = 0
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, _Tensor):
            found += 1
            if found > MAX_TENSORS:
                return
            yield path or NAMELESS, item
            continue
        if not isinstance(item, (dict, list, tuple, _Inert)) or id(item) in seen or len(seen) > MAX_OBJECTS:
            continue
        seen.add(id(item))
        below = [(_joined(path, key), child) for key, child in _children(item)]
        waiting.extend(reversed(below))


def _children(item: dict[Any, Any] | list[Any] | tuple[Any, ...] | _Inert) -> Iterable[tuple[object, object]]:
    if isinstance(item, dict):
        return item.items()
    return (("", part) for part in item.parts) if isinstance(item, _Inert) else enumerate(item)


def _joined(path: str, key: object) -> str:
    text = key[:200] if isinstance(key, str) else str(key) if isinstance(key, int) and abs(key) < 1 << 63 else ""
    return (f"{path}.{text}" if path and text else path or text)[:500]
