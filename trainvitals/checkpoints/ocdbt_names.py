"""Which data files an OCDBT manifest or node refers to, and the step in it (TensorStore, "OCDBT format", data file table, leaf node).

Bodies are zstd; without a decompressor (``compression.zstd`` of Python 3.14, or the package ``zstandard``, extra ``trainvitals[orbax]``)
they cannot be read. Nothing is concluded from a body that cannot be read: the checksum has already told whether it is damaged.
"""

from __future__ import annotations

import importlib
import io
import re
from dataclasses import dataclass, field
from typing import Any

#: In one table; a node has 100 KB or so by default.
MAX_NAMES = 100_000
_NAME = re.compile(rb"[0-9a-f]{32}\Z")
_MANIFEST = b"\x0c\xdb\x3a\x2a"
_NODE = b"\x0c\xdb\x20\xde"


#: The array named ``step`` at the top of a tree, of one number: its only chunk in zarr 2 and in zarr 3.
_STEP_KEYS = frozenset((b"step/0", b"step/c"))
#: A zstd frame whose one block is stored as it is, as zstd does with so few bytes: their count, the block's header, the number.
_SMALL_FRAME = re.compile(
    rb"\x28\xb5\x2f\xfd\x20(?P<count>[\x04\x08])(?P<header>[\x21\x41])\x00\x00(?P<number>.{4,8})", re.DOTALL
)


@dataclass
class Steps:
    """values: of the array ``step`` in all leaves that were read. is_flat: no tree has inner nodes, which keep a part of their leaves'
    names, so that every name seen was a whole one."""

    values: set[int] = field(default_factory=set)
    is_flat: bool = True

    @property
    def one(self) -> int | None:
        """The step, None when there is none or more than one."""
        return next(iter(self.values)) if self.is_flat and len(self.values) == 1 else None


def names(record: bytes, max_body_bytes: int, steps: Steps | None = None) -> tuple[frozenset[str] | None, int]:
    """Last parts of the paths of all data files that a manifest, node or version node names (None = not known), and how many bytes
    its body has. ``max_body_bytes``: a longer body is not unpacked, whatever its frame claims. steps: takes the step of a node. Never raises."""
    body = None
    try:
        body = _body(record, max_body_bytes)
        if body is None:
            return None, 0
        found = _names(record, body)
        if steps is not None and record[:4] == _NODE:
            _take_step(body, steps)
    except (ValueError, IndexError):
        return None, 0 if body is None else body.size
    return found, body.size


def _take_step(body: _Body, steps: Steps) -> None:
    """From a node whose table of files was just read."""
    if body.height:
        steps.is_flat = False
        return
    try:
        value = body.inline_value(_STEP_KEYS)
    except (ValueError, IndexError):
        # Nodes of other versions: what they refer to is known all the same.
        return
    small = _SMALL_FRAME.match(value) if value is not None else None
    if small is not None:
        count = small["count"][0]
        if small["header"][0] == count << 3 | 1 and len(small["number"]) >= count:
            steps.values.add(int.from_bytes(small["number"][:count], "little", signed=True))


def _body(record: bytes, max_body_bytes: int) -> _Body | None:
    header = _Body(record[:-4], 12)
    if header.number():
        return None
    compression = header.number()
    if not compression:
        return header
    unpacked = _unpacked(record[header.at : -4], max_body_bytes) if compression == 1 else None
    return None if unpacked is None else _Body(unpacked, 0)


def _names(record: bytes, body: _Body) -> frozenset[str] | None:
    if record[:4] == _MANIFEST:
        body.skip(16)
        is_numbered = body.number()
        body.number()
        body.number()
        body.skip(1)
        body.skip(4 if body.number() else 0)
        if is_numbered:
            return None
    else:
        body.skip(0 if record[:4] == _NODE else 1)
        body.height = body.byte()
    return body.table()


class _Body:
    """Reads a body from the front; raises ``ValueError`` beyond its end."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self.size = len(raw)
        self.at = at
        #: Of a node, once its table was read.
        self.height = 0

    def skip(self, count: int) -> None:
        self.at += count

    def byte(self) -> int:
        self.at += 1
        return self._raw[self.at - 1]

    def number(self) -> int:
        """A base-128 number, lowest seven bits first."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self._raw[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 63 bits")

    def table(self) -> frozenset[str]:
        count = self.number()
        if count > MAX_NAMES:
            raise ValueError("more files than a node has")
        prefixes = [0, *(self.number() for _ in range(count - 1))]
        suffixes = [self.number() for _ in range(count)]
        for _ in range(count):
            self.number()
        found: set[str] = set()
        path = b""
        for prefix, suffix in zip(prefixes, suffixes, strict=False):
            if prefix > len(path) or self.at + suffix > len(self._raw) or prefix + suffix > 1 << 16:
                raise ValueError("a path that does not fit")
            path = path[:prefix] + self._raw[self.at : self.at + suffix]
            self.at += suffix
            name = path.rpartition(b"/")[2]
            if not _NAME.match(name):
                raise ValueError("no name that TensorStore gives")
            found.add(name.decode("ascii"))
        return frozenset(found)

    def inline_value(self, wanted: frozenset[bytes]) -> bytes | None:
        """Of the first of these keys in the leaf node whose entries begin here; None when there is none, or its value lies elsewhere."""
        count = self.number()
        if not 0 < count <= self.size:
            raise ValueError("more entries than bytes")
        prefixes = [0, *(self.number() for _ in range(count - 1))]
        suffixes = [self.number() for _ in range(count)]
        key = b""
        place = None
        for index, (prefix, suffix) in enumerate(zip(prefixes, suffixes, strict=True)):
            if prefix > len(key) or self.at + suffix > self.size or prefix + suffix > 1 << 16:
                raise ValueError("a key that does not fit")
            key = key[:prefix] + self._raw[self.at : self.at + suffix]
            self.at += suffix
            if place is None and key in wanted:
                place = index
        if place is None:
            return None
        lengths = [self.number() for _ in range(count)]
        kinds = [self.number() for _ in range(count)]
        if kinds[place]:
            return None
        # File and offset of each value that lies elsewhere.
        for _ in range(2 * sum(1 for kind in kinds if kind)):
            self.number()
        start = self.at + sum(length for length, kind in zip(lengths[:place], kinds, strict=False) if not kind)
        return self._raw[start : start + lengths[place]]


def _unpacked(raw: bytes, max_bytes: int) -> bytes | None:
    reader = _reader(raw)
    if reader is None:
        return None
    opened, errors = reader
    try:
        body: bytes = opened.read(max_bytes + 1)
    except errors:
        return None
    return body if len(body) <= max_bytes else None


def _reader(raw: bytes) -> tuple[Any, tuple[type[Exception], ...]] | None:
    """A file of the unpacked bytes and the errors that reading it raises; None when no decompressor is installed."""
    for module in ("compression.zstd", "zstandard"):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        if module == "zstandard":
            return found.ZstdDecompressor(max_window_size=1 << 23).stream_reader(io.BytesIO(raw)), (found.ZstdError, OSError)
        return found.ZstdFile(io.BytesIO(raw)), (found.ZstdError, EOFError, OSError)
    return None
