"""The hash of a file as it lies on the disk, taken right after it was written: the kernel still holds it in memory.

``xxhash`` (``pip install trainvitals[fast]``) takes a tenth of the time of sha256; without it sha256 does.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BLOCK_BYTES = 4 << 20


class Stopped(Exception):
    """The trainer ends, or the checkpoint is being deleted: nothing is hashed any more."""


class Changed(Exception):
    """The file changed while it was read: its writer was not done."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """``name``: of ``trainvitals.manifest.ALGORITHMS``; ``make`` gives a hash object."""

    name: str
    make: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Hashed:
    """Size in bytes and modification time of the file when it was hashed."""

    hash: str
    size: int
    mtime_ns: int


def best() -> Algorithm:
    """The fastest that is installed. Imports: call it in the trainer's own thread, never in one of ours."""
    try:
        return Algorithm("xxh3_128", importlib.import_module("xxhash").xxh3_128)
    except Exception:  # noqa: BLE001 - not installed, too old or damaged: the standard library has one that always works
        return Algorithm("sha256", hashlib.sha256)


def of_name(name: str) -> Algorithm | None:
    """By the name that a manifest gives; None when it cannot be computed here. Imports, as ``best``."""
    if name == "sha256":
        return Algorithm(name, hashlib.sha256)
    found = best()
    return found if found.name == name else None


def hash_file(path: str, algorithm: Algorithm, is_stopped: Callable[[], bool], buffer: bytearray) -> Hashed:
    """Read the file once through ``buffer``. Raises ``Stopped``, ``Changed`` or ``OSError``; never blocks on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(0, "it is no regular file any more", path)
        digest = algorithm.make()
        block = memoryview(buffer)
        size = 0
        while size <= before.st_size:  # one that grows faster than it is read has no end
            if is_stopped():
                raise Stopped
            count = os.readv(descriptor, [block])
            if not count:
                break
            digest.update(block[:count])
            size += count
        after = os.fstat(descriptor)
        if size != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise Changed(path)
        if after.st_nlink == 0:
            raise FileNotFoundError(0, "it was deleted", path)
        return Hashed(digest.hexdigest(), size, after.st_mtime_ns)
    finally:
        os.close(descriptor)
