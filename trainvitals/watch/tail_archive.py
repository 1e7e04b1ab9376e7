"""Ends of logs kept per attempt: ``tails/attempt-00003/*.log.gz`` and ``index.json`` in the run directory.

A directory is written under another name and renamed: after a kill it is there as a whole or not at all, and it is made again.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import os
import re
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAILS_DIR = "tails"
INDEX_FILE = "index.json"
SCHEMA = 1
_DIRECTORY_MODE = 0o2770
_FILE_MODE = 0o640
_NAME = re.compile(r"attempt-\d{5,9}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


@dataclass(frozen=True)
class KeptTail:
    """One end, compressed. ``priority``: smaller is kept longer."""

    priority: tuple[int, int]
    path: str
    content: bytes
    size: int
    mtime_ns: int
    facts: dict[str, Any]


class TailBudget:
    """At most ``max_bytes`` of compressed ends; the least telling ones are given up first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._heap: list[tuple[tuple[int, int], int, KeptTail]] = []
        self._bytes = self._added = 0
        self.given_up = 0

    def wants(self, priority: tuple[int, int]) -> bool:
        """Whether one of this priority has a chance: False saves compressing it."""
        return self._bytes < self._max_bytes or bool(self._heap and (-priority[0], -priority[1]) > self._heap[0][0])

    def add(self, tail: KeptTail) -> None:
        """Take it in, and give up the worst while there is too much."""
        self._added += 1
        heapq.heappush(self._heap, ((-tail.priority[0], -tail.priority[1]), -self._added, tail))
        self._bytes += len(tail.content)
        while self._bytes > self._max_bytes and self._heap:
            worst = heapq.heappop(self._heap)[2]
            self._bytes -= len(worst.content)
            self.given_up += 1

    def kept(self) -> list[KeptTail]:
        """The causes first."""
        return [item[2] for item in sorted(self._heap, key=lambda item: (item[2].priority, -item[1]))]


def safe_name(path: str) -> str:
    """A file name that stays in its directory, is the same for the same path and another for another one."""
    parts = [_UNSAFE.sub("_", part).strip("._") for part in path.split("/")[-3:]]
    readable = "__".join(part for part in parts if part)[-120:]
    return f"{readable or 'log'}-{zlib.crc32(os.fsencode(path)):08x}.log.gz"


def write_archive(run_dir: str, attempt: int, tails: Sequence[KeptTail], about: dict[str, Any], kept_attempts: int) -> str:
    """Write one attempt's directory and delete the oldest beyond ``kept_attempts``. Returns its path. Raises ``OSError``.

    On a full disk the first of ``tails``, which are the causes, are kept as far as they fit; the index counts the others.
    """
    parent = Path(run_dir) / TAILS_DIR
    if not parent.exists():
        _make_directory(parent)
    if parent.is_symlink():
        raise OSError(f"{parent} is a link; move it away")
    target = parent / f"attempt-{attempt:05d}"
    for left in parent.glob(".attempt-*"):
        _remove(left)  # of a watchdog that was killed while it wrote
    temporary = parent / f".attempt-{attempt:05d}.{os.getpid()}"
    try:
        _make_directory(temporary)
        files: list[dict[str, Any]] = []
        for tail in tails:
            if not _fits(temporary / safe_name(tail.path), tail.content):
                break
            files.append(_entry(tail))
        about = {**about, "left_out": int(about.get("left_out", 0)) + len(tails) - len(files)}
        while (tails and not files) or not _fits(temporary / INDEX_FILE, _index(attempt, about, files)):
            if not files:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(parent))
            (temporary / files.pop()["name"]).unlink()
            about["left_out"] += 1
        _sync(temporary)
        if target.exists() or target.is_symlink():
            _remove(target)
        temporary.rename(target)
        _sync(parent)
    except OSError:
        _remove(temporary)
        raise
    _forget(parent, kept_attempts)
    return str(target)


def _entry(tail: KeptTail) -> dict[str, Any]:
    return {
        "name": safe_name(tail.path), "path": tail.path, "size": tail.size, "mtime_ns": tail.mtime_ns,
        "bytes": len(tail.content), **tail.facts,
    }  # fmt: skip


def _index(attempt: int, about: dict[str, Any], files: Sequence[dict[str, Any]]) -> bytes:
    index = {"schema": SCHEMA, "attempt": attempt, **about, "files": files}
    return json.dumps(index, ensure_ascii=True, indent=1).encode() + b"\n"


def _fits(path: Path, content: bytes) -> bool:
    """Whether the disk took it; what it took in part is removed. Raises ``OSError`` for all but a full disk or quota."""
    try:
        _write(path, content)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        path.unlink(missing_ok=True)
        return False
    return True


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o770, exist_ok=True)
    with contextlib.suppress(OSError):  # a group that may not be set is no reason to fail; mkdir ignores the bit
        path.chmod(_DIRECTORY_MODE)


def _forget(parent: Path, kept_attempts: int) -> None:
    names = sorted(
        (entry.name for entry in parent.iterdir() if _NAME.fullmatch(entry.name)), key=lambda name: int(name.rsplit("-", 1)[1])
    )
    for name in names[: max(0, len(names) - kept_attempts)]:
        _remove(parent / name)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return
    if not path.name.startswith("."):  # a kill in the middle must not leave half a directory under its name
        hidden = path.with_name(f".{path.name}.gone{os.getpid()}")
        with contextlib.suppress(OSError):
            path.rename(hidden)
            path = hidden
    shutil.rmtree(path, ignore_errors=True)
