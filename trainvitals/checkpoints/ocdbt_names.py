"""Which data files an OCDBT manifest or node refers to (TensorStore, "OCDBT format", data file table).

Bodies are zstd; without a decompressor (``compression.zstd`` of Python 3.14, or the package ``zstandard``, extra ``trainvitals[orbax]``)
they cannot be read. Nothing is concluded from a body that cannot be read: the checksum has already told whether it is damaged.
"""

from __future__ import annotations

import importlib
import io
import re
from typing import Any

#: In one table; a node has 100 KB or so by default.
MAX_NAMES = 100_000
_NAME = re.compile(rb"[0-9a-f]{32}\Z")
_MANIFEST = b"\x0c\xdb\x3a\x2a"
_NODE = b"\x0c\xdb\x20\xde"


def names(record: bytes, max_body_bytes: int) -> tuple[frozenset[str] | None, int]:
    """Last parts of the paths of all data files that a manifest, node or version node names (None = not known), and how many bytes
    its body has. ``max_body_bytes``: a longer body is not unpacked, whatever its frame claims. Never raises."""
    body = None
    try:
        body = _body(record, max_body_bytes)
        return (None, 0) if body is None else (_names(record, body), body.size)
    except (ValueError, IndexError):
        return None, 0 if body is None else body.size


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
        body.skip(1 if record[:4] == _NODE else 2)
    return body.table()


class _Body:
    """Reads a body from the front; raises ``ValueError`` beyond its end."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self.size = len(raw)
        self.at = at

    def skip(self, count: int) -> None:
        self.at += count

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
