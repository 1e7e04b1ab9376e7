"""For which runs a pin is kept: one small file a run and pin in ``.trainvitals-pinned/.owners``.

Two runs may save into one directory (a sweep, a renamed run), and only the run that had a checkpoint pinned knows when its
trouble is over: another one must not let go of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os

from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.pin_tree import DIRECTORY

OWNERS = ".owners"
_MAX_NAME_BYTES = 400


def add(pins_fd: int, name: str, owner: str) -> None:
    """Keep ``name`` for the run ``owner``, too. Raises ``OSError``."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(OWNERS, 0o755, dir_fd=pins_fd)
    owners_fd = os.open(OWNERS, DIRECTORY | os.O_NOFOLLOW, dir_fd=pins_fd)
    try:
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(f"{_key(name)}.{_key(owner)}", flags, 0o644, dir_fd=owners_fd)
            try:
                os.write(descriptor, owner.encode("utf-8", "replace")[:_MAX_NAME_BYTES])
            finally:
                os.close(descriptor)
    finally:
        os.close(owners_fd)


def others(pins_fd: int, name: str, owner: str) -> tuple[str, ...]:
    """Names of the other runs for which ``name`` is kept, for a sentence. Raises ``OSError``."""
    with contextlib.suppress(FileNotFoundError):
        owners_fd = os.open(OWNERS, DIRECTORY | os.O_NOFOLLOW, dir_fd=pins_fd)
        try:
            entries = [entry for entry in sorted(os.listdir(owners_fd)) if entry.startswith(_key(name) + ".")]  # noqa: PTH208
            return tuple(_read(owners_fd, entry) for entry in entries if entry != f"{_key(name)}.{_key(owner)}")
        finally:
            os.close(owners_fd)
    return ()


def drop(pins_fd: int, name: str, owner: str) -> None:
    """``owner`` needs it no longer. Raises ``OSError``."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{OWNERS}/{_key(name)}.{_key(owner)}", dir_fd=pins_fd)
    _leave(pins_fd)


def tidy(pins_fd: int, names: list[str]) -> None:
    """Remove what speaks of pins that are gone: somebody deleted them by hand. Raises ``OSError``."""
    there = {_key(name) for name in names}
    with contextlib.suppress(FileNotFoundError):
        owners_fd = os.open(OWNERS, DIRECTORY | os.O_NOFOLLOW, dir_fd=pins_fd)
        try:
            for entry in os.listdir(owners_fd):  # noqa: PTH208
                if entry.split(".")[0] not in there:
                    os.unlink(entry, dir_fd=owners_fd)
        finally:
            os.close(owners_fd)
    _leave(pins_fd)


def _leave(pins_fd: int) -> None:
    with contextlib.suppress(OSError):  # not empty, or never made
        os.rmdir(OWNERS, dir_fd=pins_fd)


def _read(owners_fd: int, entry: str) -> str:
    descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=owners_fd)
    try:
        return printable(os.read(descriptor, _MAX_NAME_BYTES).decode("utf-8", "replace"))
    finally:
        os.close(descriptor)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:20]
