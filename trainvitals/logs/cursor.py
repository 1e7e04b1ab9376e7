"""A place in a file that may be renamed, truncated, rewritten or deleted: device, inode, offset, and what stood there."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from trainvitals.logs.opening import open_log

#: An inode number is used again after a deletion, and a restarted job begins its log like the last one did: the first
#: bytes and the bytes before the offset must both still be what was read.
_HEAD_BYTES = 1024
_TAIL_BYTES = 64


class Cursor:
    """Reads one file forwards. Open or closed, it knows which file it means."""

    def __init__(self, device: int = 0, inode: int = 0) -> None:
        self.device, self.inode = device, inode
        self.offset = 0
        self.mtime_ns = 0
        self._fd: int | None = None
        self._head = bytearray()
        self._tail = b""
        self._checked = (-1, -1)

    @classmethod
    def opened(cls, path: str) -> Cursor:
        """At the start of the file at ``path``. Raises ``OSError``, also for what is no regular file, or of others through a link."""
        fd, status = open_log(path)
        cursor = cls(status.st_dev, status.st_ino)
        cursor._fd, cursor.mtime_ns = fd, status.st_mtime_ns
        return cursor

    @classmethod
    def opened_as(cls, path: str, identity: tuple[int, int]) -> Cursor | None:
        """As ``opened``; None when the path leads to another file by now: a rotation renames between a look and an opening."""
        cursor = cls.opened(path)
        if cursor.identity == identity:
            return cursor
        cursor.close()
        return None

    @property
    def identity(self) -> tuple[int, int]:
        return (self.device, self.inode)

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def reopen(self, path: str) -> bool:
        """Attach to the file at ``path`` if it is still the same one, at least as long, with the same bytes; else False."""
        try:
            other = Cursor.opened(path)
        except OSError:
            return False
        # The device number of a network or mapped disk may change at a reboot; inode and content do not.
        if other.inode == self.inode and self.offset > 0 and self._matches(other._fd):
            self.close()
            self._fd, self.device, self._checked = other._fd, other.device, (-1, -1)
            return True
        other.close()
        return False

    def was_rewritten(self) -> bool:
        """True when the file was truncated, or holds other bytes than those read. Raises ``OSError``."""
        if self._fd is None:
            return False
        status = os.fstat(self._fd)
        self.mtime_ns = status.st_mtime_ns
        seen = (status.st_size, status.st_mtime_ns)
        if seen == self._checked:
            return False
        if status.st_size < self.offset or not self._matches(self._fd):
            return True
        self._checked = seen
        return False

    def rewind(self) -> None:
        """Begin again at the start of the same file."""
        self.offset, self._tail, self._checked = 0, b"", (-1, -1)
        self._head.clear()

    def read(self, size: int) -> bytes:
        """Up to ``size`` further bytes; empty at the end. Raises ``OSError``."""
        if self._fd is None:
            return b""
        data = os.pread(self._fd, size, self.offset)
        if data:
            if len(self._head) < _HEAD_BYTES:
                self._head += data[: _HEAD_BYTES - len(self._head)]
            self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            self.offset += len(data)
        return data

    def close(self) -> None:
        """Let go of the file; offset and identity stay."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _matches(self, fd: int | None) -> bool:
        if fd is None:
            return False
        head = os.pread(fd, len(self._head), 0)
        tail = os.pread(fd, len(self._tail), max(0, self.offset - len(self._tail)))
        return head == self._head and tail == self._tail

    def fingerprint(self) -> tuple[int, str]:
        """Length and sha256 of the first bytes read."""
        return len(self._head), hashlib.sha256(self._head).hexdigest()

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "device": self.device,
            "inode": self.inode,
            "offset": self.offset,
            "head": self._head.decode("latin-1"),
            "tail": self._tail.decode("latin-1"),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Cursor:
        """Closed, at the place where ``to_state`` was taken; ``reopen`` attaches it."""
        cursor = cls(int(state["device"]), int(state["inode"]))
        cursor.offset = int(state["offset"])
        cursor._head = bytearray(str(state["head"]).encode("latin-1"))
        cursor._tail = str(state["tail"]).encode("latin-1")
        return cursor


def begins_with(path: str, identity: tuple[int, int], fingerprint: tuple[int, str]) -> bool | None:
    """Whether this file at ``path`` begins with the bytes of that ``Cursor.fingerprint``; None when another stands there by now."""
    length, digest = fingerprint
    try:
        cursor = Cursor.opened_as(path, identity)
    except OSError:
        return False
    if cursor is None:
        return None
    try:
        data = cursor.read(length)
    except OSError:
        return False
    finally:
        cursor.close()
    return length > 0 and hashlib.sha256(data).hexdigest() == digest
