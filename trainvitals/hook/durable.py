"""Write a small file so that it is there whole, or not at all, whenever the process or the machine dies.

The directory keeps its own modification time: trainers that delete the oldest checkpoint by that time must not take one for new
because its manifest came later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable


class Refused(Exception):
    """The caller's last look said no; nothing is left behind."""


def write_whole(path: str, text: str, may_write: Callable[[], bool] = lambda: True) -> None:
    """``path``.tmp, fsync, rename, fsync of the directory. ``may_write`` is asked before the first and before the last act.

    Raises ``OSError`` or ``Refused``; the temporary file is removed then.
    """
    temporary = f"{path}.tmp"
    directory = os.path.dirname(path)  # noqa: PTH120 - names may hold any byte
    if not may_write():
        raise Refused
    before = os.stat(directory)  # noqa: PTH116
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            left = memoryview(text.encode("utf-8", "backslashreplace"))
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not may_write():
            raise Refused
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))
        raise
    _make_durable(directory)
    with contextlib.suppress(OSError):  # it is another user's directory
        os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


def _make_durable(directory: str) -> None:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # a directory that may be written but not read: the file itself is on the disk
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # file systems that cannot (some FUSE ones): the rename is done, and its order is theirs to keep
    finally:
        os.close(descriptor)


def remove(path: str) -> bool:
    """Delete a file if it is there; whether it was. Raises ``OSError`` for anything but its absence."""
    try:
        os.unlink(path)  # noqa: PTH108
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
