"""The files of a checkpoint that was just written, and which rank wrote which, by their names.

Only names and sizes: nothing is opened, no link is followed that leads away from the checkpoints' own directory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainvitals.manifest import is_own_name

MAX_FILES = 100_000
MAX_DEPTH = 4
_TEMPORARY = re.compile(r"(?:^|/)\.tmp[^/]{0,255}\Z|\.(?:tmp|temp|part|partial|incomplete|lock)\Z", re.IGNORECASE)
#: Files that go on growing after a save, where a trainer keeps them in its checkpoint directory: they have no final hash.
_GROWING = re.compile(r"\.(?:log|jsonl|out|err)\Z|(?:^|/)events\.out\.tfevents\.|\.nfs[0-9a-f]{1,64}\Z", re.IGNORECASE)
#: Names that hold the global rank of their writer: DCP and Megatron torch_dist, Hugging Face, Accelerate, OLMo-core, Composer,
#: llm.c, Orbax.
_OF_RANK = (
    re.compile(r"(?:^|/)__(\d{1,9})_\d{1,9}\.distcp\Z", re.ASCII),
    re.compile(r"(?:^|/)rng_state_(\d{1,9})\.pth\Z", re.ASCII),
    re.compile(r"(?:^|/)random_states_(\d{1,9})\.pkl\Z", re.ASCII),
    re.compile(r"(?:^|/|-)rank_?(\d{1,9})\.(?:pt|pth|ckpt|bin|safetensors)\Z", re.ASCII),
    re.compile(r"(?:^|/)state_\d{8}_(\d{5})\.bin\Z", re.ASCII),
    re.compile(r"(?:^|/)ocdbt\.process_(\d{1,9})/", re.ASCII),
)
#: DeepSpeed counts data-parallel ranks, which are the global ones only without model parallelism.
_ZERO = re.compile(r"(?:^|/)(?:bf16_|fp16_)?zero_pp_rank_(\d{1,9})_mp_rank_00_(?:optim|model)_states\.pt\Z", re.ASCII)


class TooMany(Exception):
    """More files than are hashed."""


@dataclass(frozen=True, slots=True)
class Found:
    """``name``: relative to the checkpoint, with ``/``; ``path``: where it is; size in bytes."""

    name: str
    path: str
    size: int
    mtime_ns: int


def files_of(root: str, is_wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Found]:
    """Finished regular files by name; a checkpoint that is one file has that one. Others than wanted are not even looked at:
    thousands of ranks that look at all files would keep a file server busy. Raises ``OSError`` (``FileNotFoundError`` when
    ``root`` is gone) or ``TooMany``."""
    top = os.stat(root)  # noqa: PTH116 - names may hold any byte
    if not stat.S_ISDIR(top.st_mode):
        if not stat.S_ISREG(top.st_mode):
            raise OSError(0, "it is neither a directory nor a regular file", root)
        name = os.path.basename(root)  # noqa: PTH119
        return {name: Found(name, root, top.st_size, top.st_mtime_ns)}
    allowed = os.path.dirname(os.path.realpath(root))  # noqa: PTH120
    found: dict[str, Found] = {}
    waiting = [("", 0)]
    while waiting:
        prefix, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(root, prefix)) as entries:  # noqa: PTH118
                for entry in entries:
                    name = f"{prefix}/{entry.name}" if prefix else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if depth + 1 < MAX_DEPTH:
                            waiting.append((name, depth + 1))
                        continue
                    file = None if is_left_out(name) or not is_wanted(name) else _regular(entry, name, allowed)
                    if file is None:
                        continue
                    found[name] = file
                    if len(found) > MAX_FILES:
                        raise TooMany(f"more than {MAX_FILES:,} files")
        except FileNotFoundError:
            if not prefix:
                raise
    return found


def is_left_out(name: str) -> bool:
    """Whether a file is no part of the checkpoint's content: unfinished, growing, or a manifest."""
    return bool(is_own_name(name) or _TEMPORARY.search(name) or _GROWING.search(name))


def _regular(entry: os.DirEntry[str], name: str, allowed: str) -> Found | None:
    try:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            target = os.path.realpath(entry.path)
            if os.path.commonpath([target, allowed]) != allowed:
                return None
            info = os.stat(target)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return Found(name, entry.path, info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else None


def rank_of(name: str, ranks: int) -> int | None:
    """The rank that wrote this file, where the name tells; None = rank 0 takes it when nobody else says it is his."""
    for pattern in (*_OF_RANK, _ZERO):
        found = pattern.search(name)
        if found:
            rank = int(found[1])
            return rank if rank < ranks else None
    return None


def named(root: str, given: Iterable[str]) -> frozenset[str]:
    """Relative names of files that were given by their path, or relative to the checkpoint; those outside of it are dropped."""
    top = root if os.path.isdir(root) else os.path.dirname(root)  # noqa: PTH112, PTH120
    names = {os.path.relpath(os.path.join(top, one), top) for one in given}  # noqa: PTH118
    return frozenset(name for name in names if name != os.pardir and not name.startswith(os.pardir + os.sep))
