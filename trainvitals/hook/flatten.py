"""Any configuration as flat keys and plain values, masked and bounded; nothing in it is trusted to behave.

Mappings, dataclasses, argparse, Hugging Face (``to_dict``), OmegaConf, pydantic and attrs objects. What fails to give a value
is named by its type, what is large is cut and says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

from trainvitals.masking import (
    MASK,
    NAME_MEMBERS,
    VALUE_MEMBERS,
    is_pair_of_secret,
    is_secret_name,
    mask_arguments,
    mask_text,
    names_secret,
)

Plain = str | int | float | bool | None

MAX_KEYS = 20_000
MAX_DEPTH = 12
MAX_KEY_CHARACTERS = 300
MAX_VALUE_CHARACTERS = 1_000
#: A list of plain values up to this length is one value: ``[0.9, 0.95]``.
MAX_INLINE_ITEMS = 16
MAX_LIST_ITEMS = 200
#: So much of one text is looked at; a model's whole vocabulary may stand in a configuration.
MAX_LOOKED_AT_CHARACTERS = 16_384
#: A configuration that takes longer is cut: the trainer is waiting.
BUDGET_S = 0.5
_MAX_EXACT = 2**53
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{1,16}")
_CONFIG_LIKE = re.compile(r"(?:config|args|arguments|settings|namespace|options|params|hparams|dict)$", re.IGNORECASE)


@dataclass
class Flat:
    """``values``: dotted key to plain value. ``left_out``: keys beyond the bounds. ``failed``: objects that raised."""

    values: dict[str, Plain]
    left_out: int = 0
    failed: int = 0


def flatten(content: object, budget_s: float = BUDGET_S) -> Flat:
    """The flat, masked form of ``content``; never raises an ``Exception``. A lone text or value stands under ``value``."""
    walk = _Walk(time.monotonic() + budget_s)
    walk.visit("", content, MAX_DEPTH)
    return walk.found


def canonical_sha256(values: Mapping[str, Plain]) -> str:
    """Of the masked values, in the order of their names: the hash of a secret would let it be guessed."""
    text = json.dumps(dict(sorted(values.items())), separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def plain_text(text: str) -> str:
    """Masked, of bounded length; a cut one says how long it was and which."""
    looked_at = text[:MAX_LOOKED_AT_CHARACTERS]
    masked = mask_text(looked_at)
    if len(looked_at) < len(text):
        masked = masked[: max(0, len(masked) - 4_000)]  # a token that was cut in two no longer looks like one
    if len(masked) <= MAX_VALUE_CHARACTERS and len(looked_at) == len(text):
        return masked.encode("utf-8", "replace").decode()
    digest = hashlib.sha256(masked.encode("utf-8", "replace")).hexdigest()[:12]
    head = masked[: MAX_VALUE_CHARACTERS - 80].encode("utf-8", "replace").decode()
    return f"{head}… [cut: {len(text)} characters, sha256 {digest}]"


class _Walk:
    def __init__(self, deadline_s: float) -> None:
        self.found = Flat({})
        self._deadline_s = deadline_s
        self._open: set[int] = set()

    def visit(self, path: str, value: object, depth: int) -> None:
        try:
            self._visit(path, value, depth)
        except Exception:  # noqa: BLE001 - a property, a __getattr__ or a __len__ may raise anything; counted, named by its type
            self.found.failed += 1
            self._put(path, f"<{type(value).__name__}>")

    def _visit(self, path: str, value: object, depth: int) -> None:
        if value is None or type(value) in (bool, int, float, str):
            self._put(path, cast(Plain, value))
            return
        members = _members(value, is_top=depth == MAX_DEPTH)
        if members is None:
            self._put(path, _described(value))
            return
        if id(value) in self._open or depth <= 0:
            self._put(path, "<cycle>" if id(value) in self._open else f"<{type(value).__name__}: too deep>")
            return
        inline = _inline(value)
        if inline is not None:
            self._put(path, inline)
            return
        self._open.add(id(value))
        try:
            is_empty = True
            for name, member in _with_names_first(_without_secrets(value, members)):
                is_empty = False
                if len(self.found.values) >= MAX_KEYS or time.monotonic() > self._deadline_s:
                    self.found.left_out += 1
                    if self.found.left_out >= MAX_KEYS:
                        break
                    continue
                self.visit(f"{path}.{_name(name)}" if path else _name(name), member, depth - 1)
            if is_empty and path:
                self._put(path, "{}" if isinstance(value, Mapping) else "[]")
        finally:
            self._open.discard(id(value))

    def _put(self, path: str, value: Plain) -> None:
        key = path[:MAX_KEY_CHARACTERS] or "value"
        if is_secret_name(path, value):
            self.found.values[key] = MASK
        elif isinstance(value, str):
            self.found.values[key] = plain_text(value)
        elif isinstance(value, float) and not math.isfinite(value):
            self.found.values[key] = "nan" if value != value else "inf" if value > 0 else "-inf"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_EXACT:
            self.found.values[key] = f"about 2^{value.bit_length()}" if value.bit_length() > 2_000 else str(value)
        else:
            self.found.values[key] = value


def _without_secrets(value: object, members: Iterator[tuple[object, object]]) -> Iterator[tuple[object, object]]:
    """Of a list: what follows an option, or the name of a secret, is masked."""
    if not _is_list(value) or hasattr(value, "_asdict"):
        yield from members
        return
    items = list(members)
    masked = _masked_items([item for _, item in items])
    for (name, _), item in zip(items, masked, strict=True):
        yield name, item


def _masked_items(items: Sequence[object]) -> list[object]:
    if not any(type(item) is str for item in items):
        return list(items)
    if len(items) == 2 and is_pair_of_secret(items[0], items[1]):
        return [items[0], MASK]
    # Only what was hidden whole is taken from there; the rest is masked where it is written.
    masked = mask_arguments([item[:MAX_VALUE_CHARACTERS] if type(item) is str else "0" for item in items])
    return [MASK if type(item) is str and text == MASK else item for item, text in zip(items, masked, strict=True)]


def _with_names_first(members: Iterator[tuple[object, object]]) -> Iterator[tuple[object, object]]:
    """``{"name": "HF_TOKEN", "value": X}``: the value is masked, whichever of the two comes first."""
    names: list[str] = []
    held: list[tuple[object, object]] = []
    for name, member in members:
        lower = name.lower() if type(name) is str else ""
        if lower in VALUE_MEMBERS and len(held) < len(VALUE_MEMBERS):
            held.append((name, member))
            continue
        if lower in NAME_MEMBERS and type(member) is str:
            names.append(member)
        yield name, member
    for name, member in held:
        yield name, MASK if any(names_secret(one, member) for one in names) else member


def _name(name: object) -> str:
    text = name if type(name) is str else str(name)
    return mask_text(text[:MAX_KEY_CHARACTERS]).encode("utf-8", "replace").decode()


def _members(value: object, *, is_top: bool) -> Iterator[tuple[object, object]] | None:
    """Names and members of what holds some; None for what is one value."""
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if isinstance(value, (str, bytes, bytearray, memoryview, type, Enum, PurePath)):
        return None
    if _is_array(value):
        return None
    for method in ("to_dict", "model_dump", "_asdict"):  # Hugging Face, pydantic, named tuples
        content = _called(value, method)
        if isinstance(content, Mapping):
            return _of_mapping(content)
    if dataclasses.is_dataclass(value):
        return _of_attributes(value, [field.name for field in dataclasses.fields(value)])
    if _is_list(value):
        return ((number, item) for number, item in enumerate(list(cast(Any, value))[:MAX_LIST_ITEMS]))
    if isinstance(value, (set, frozenset)):
        return ((number, item) for number, item in enumerate(sorted(map(_described, value), key=str)[:MAX_LIST_ITEMS]))
    is_config = is_top or isinstance(value, SimpleNamespace) or _CONFIG_LIKE.search(type(value).__name__) is not None
    content = getattr(value, "__dict__", None) if is_config else None
    if not isinstance(content, dict) or isinstance(value, (FunctionType, BuiltinFunctionType, MethodType)):
        return None
    if isinstance(value, ModuleType):  # a configuration file that was imported
        content = {name: item for name, item in content.items() if isinstance(item, (bool, int, float, str, list, tuple, dict))}
    return ((name, item) for name, item in list(content.items()) if not str(name).startswith("__"))


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig"


def _of_mapping(mapping: Mapping[Any, object]) -> Iterator[tuple[object, object]]:
    for name in list(itertools.islice(mapping, 2 * MAX_KEYS)):
        try:
            yield name, mapping[name]
        except Exception as error:  # noqa: BLE001 - OmegaConf raises for a value that is missing ("???"); the name still tells
            yield name, f"<{type(error).__name__}>"


def _of_attributes(value: object, names: list[str]) -> Iterator[tuple[object, object]]:
    for name in names:
        try:
            yield name, getattr(value, name)
        except Exception as error:  # noqa: BLE001 - a field that was never set, or a property that raises; the name still tells
            yield name, f"<{type(error).__name__}>"


def _called(value: object, method: str) -> object:
    """What a method of the object's class gives without arguments; None when it has none, or it raises."""
    if not callable(getattr(type(value), method, None)):
        return None
    try:
        return getattr(value, method)()
    except Exception:  # noqa: BLE001 - its fields are looked at instead
        return None


def _is_array(value: object) -> bool:
    """Arrays and tensors; a configuration may have a ``dtype`` as well, but no shape."""
    return hasattr(type(value), "dtype") and hasattr(type(value), "shape")


def _inline(value: object) -> str | None:
    """A short list of plain values as one text, so that a changed length is one changed key."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_INLINE_ITEMS or hasattr(value, "_asdict"):
        return None
    if not all(item is None or type(item) in (bool, int, float, str) for item in value):
        return None
    if sum(len(str(item)) for item in value) >= 500:
        return None
    texts = [str(item) for item in _masked_items(value)]
    return "[" + ", ".join(text if text == MASK else mask_text(text) for text in texts) + "]"


def _described(value: object) -> Plain:
    """One object as a value. Arrays and tensors are told by type and shape: reading one may wait for the device."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Enum):
        inner = value.value
        return inner if type(inner) in (bool, int, float, str) else value.name
    if isinstance(value, (str, int, float)):
        return str.__str__(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)
    kind = type(value)
    if _is_array(value):
        shape = getattr(value, "shape", ())
        if kind.__module__ == "numpy" and shape == ():
            return _described(cast(Any, value).item())
        return f"<{kind.__name__} {getattr(value, 'dtype', '')} {list(shape)}>"
    if isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType)):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', kind.__name__)}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        return f"<{kind.__module__}.{kind.__qualname__}>"
    return _ADDRESS.sub("", str(value)[: MAX_LOOKED_AT_CHARACTERS + 1])
