# ruff: noqa: PTH119, PTH208
"""The files of a checkpoint as a tree below a directory descriptor, and how a second tree of the same files is made.

Everything is named relative to open directories and opened without following links, so that nobody can swap one in between.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from trainvitals import manifest
from trainvitals.checkpoints.files import MAX_DEPTH, MAX_FILES, printable
from trainvitals.checkpoints.names import others_of

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Errors of a hard link that a copy does not have.
NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
_CLONE = 0x40049409  # FICLONE: a copy that shares its blocks, on file systems that can (XFS, Btrfs)
_COPY_BYTES = 4 << 20


class CannotPin(Exception):
    """Why a checkpoint could not be pinned or let go, as half a sentence for people."""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    size: int
    modified_at_ns: int
    inode: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tree:
    """What is below a checkpoint: ``directories`` with their modes, parents first."""

    files: tuple[File, ...]
    directories: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


@contextmanager
def directory_of(root_fd: int, path: str) -> Iterator[int]:
    """Descriptor of the directory that ``path`` lies in, below ``root_fd``; no component on the way may be a link."""
    descriptors: list[int] = []
    try:
        for part in path.split("/")[:-1]:
            above = descriptors[-1] if descriptors else root_fd
            descriptors.append(os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=above))
        yield descriptors[-1] if descriptors else root_fd
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def read_tree(root_fd: int, name: str) -> Tree:
    """Everything below ``name``, or that file and those beside it that are one checkpoint with it.

    Raises ``CannotPin`` for anything but plain files and directories.
    """
    files: list[File] = []
    directories: list[tuple[str, int]] = []
    waiting = [name]
    while waiting:
        path = waiting.pop()
        with directory_of(root_fd, path) as above_fd:
            own_name = path.rsplit("/", 1)[-1]
            info = os.stat(own_name, dir_fd=above_fd, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                if path.count("/") >= MAX_DEPTH:
                    raise CannotPin("its directories are nested too deeply")
                directories.append((path, stat.S_IMODE(info.st_mode)))
                _take(above_fd, own_name, path, files, waiting)
            elif path == name:
                files += [_file(path, info), *_beside(above_fd, name)]
        if len(files) + len(waiting) > MAX_FILES:
            raise CannotPin(f"it has more than {MAX_FILES:,} files")
    return Tree(tuple(sorted(files, key=lambda file: file.name)), tuple(directories))


def _take(above_fd: int, own_name: str, path: str, files: list[File], waiting: list[str]) -> None:
    """The files of one directory, and its directories as what is to be looked at next."""
    descriptor = os.open(own_name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above_fd)
    try:
        for child in sorted(os.listdir(descriptor)):
            info = os.stat(child, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                waiting.append(f"{path}/{child}")
            else:
                files.append(_file(f"{path}/{child}", info))
    finally:
        os.close(descriptor)


def companions(name: str, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are one checkpoint with the file ``name``: llm.c's states, Composer's ranks, the manifest."""
    pattern, manifest_name = others_of(name), os.path.basename(manifest.beside(name))
    return sorted(other for other in names if other == manifest_name or (pattern is not None and pattern.match(other)))


def _beside(directory_fd: int, name: str) -> list[File]:
    found = companions(name, os.listdir(directory_fd))
    return [_file(other, os.stat(other, dir_fd=directory_fd, follow_symlinks=False)) for other in found]


def _file(path: str, info: os.stat_result) -> File:
    if not stat.S_ISREG(info.st_mode):
        raise CannotPin(f"{printable(path)} is a link or a special file; links are not followed")
    return File(path, info.st_size, info.st_mtime_ns, (info.st_dev, info.st_ino))


def _make_directories(target_fd: int, tree: Tree) -> None:
    for path, _ in tree.directories:
        with directory_of(target_fd, path) as above_fd:
            os.mkdir(path.rsplit("/", 1)[-1], 0o700, dir_fd=above_fd)


def link_tree(source_fd: int, target_fd: int, tree: Tree) -> None:
    """The same names below another directory for the same files. Raises ``OSError``."""
    _make_directories(target_fd, tree)
    for directory, files in groupby(tree.files, key=lambda file: file.name.rpartition("/")[0]):
        inside = f"{directory}/." if directory else "."
        with directory_of(source_fd, inside) as old_fd, directory_of(target_fd, inside) as new_fd:
            for name in (file.name.rsplit("/", 1)[-1] for file in files):
                os.link(name, name, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)


def copy_tree(source_fd: int, target_fd: int, tree: Tree) -> bool:
    """The same names with the same bytes and times; returns whether all share their blocks with the originals.

    Raises ``OSError``, and ``CannotPin`` when a file changes meanwhile or does not leave as much room as it takes.
    """
    room = os.fstatvfs(target_fd)
    free_bytes = room.f_bavail * room.f_frsize
    if free_bytes < 2 * tree.bytes:  # the trainer's next save must still fit
        raise CannotPin(f"a copy of {tree.bytes:,} bytes needs twice that free, and {free_bytes:,} are")
    _make_directories(target_fd, tree)
    clones = [_copy_file(source_fd, target_fd, file) for file in tree.files]
    return all(clones)


def _copy_file(source_fd: int, target_fd: int, file: File) -> bool:
    name = file.name.rsplit("/", 1)[-1]
    with directory_of(source_fd, file.name) as old_fd:
        read_fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=old_fd)
    try:
        info = os.fstat(read_fd)
        if (info.st_dev, info.st_ino) != file.inode:
            raise CannotPin("it changed while it was copied")
        with directory_of(target_fd, file.name) as new_fd:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            write_fd = os.open(name, flags, stat.S_IMODE(info.st_mode), dir_fd=new_fd)
        try:
            is_clone = _clone(read_fd, write_fd)
            if not is_clone:
                _copy_bytes(read_fd, write_fd, file.size)
            os.utime(write_fd, ns=(file.modified_at_ns, file.modified_at_ns))
            os.fsync(write_fd)
        finally:
            os.close(write_fd)
    finally:
        os.close(read_fd)
    return is_clone


def _copy_bytes(read_fd: int, write_fd: int, size: int) -> None:
    offset = 0
    while part := os.pread(read_fd, min(_COPY_BYTES, max(1, size - offset)), offset):
        offset += os.pwrite(write_fd, part, offset)
        if offset > size:
            raise CannotPin("it grew while it was copied")


def _clone(read_fd: int, write_fd: int) -> bool:
    try:
        fcntl.ioctl(write_fd, _CLONE, read_fd)
    except OSError:
        return False
    return True


def remove(directory_fd: int, name: str) -> None:
    """Remove what is ours; ``shutil.rmtree`` with a directory descriptor follows no link, whoever swaps one in."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=directory_fd)
        else:
            os.unlink(name, dir_fd=directory_fd)
    except FileNotFoundError:
        return
