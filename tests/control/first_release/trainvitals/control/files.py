"""The door to the control directory: whole-file reads and atomic writes that refuse what others could have planted.

A file is never written in place: readers of an in-place write were seen to get a torn file in nine of ten reads under load,
readers of a rename never. The two directories must not be writable for everyone, because whoever may rename a file there
can pause or stop the run.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainvitals.errors import ControlError, InputError

CONTROL_DIR = "control"
CONTROL_FILE = "control.json"
STATUS_FILE = "control_status.json"
HISTORY_DIR = "history"
DIRECTORY_MODE = 0o2770
REQUEST_MODE = 0o660
STATUS_MODE = 0o640
MAX_BYTES = 65_536
_numbers = itertools.count()


def control_dir(run_dir: str | os.PathLike[str]) -> Path:
    """Where the control files of a run lie."""
    return Path(run_dir) / CONTROL_DIR


def make_directories(run_dir: str | os.PathLike[str]) -> None:
    """Make ``control/`` and ``control/history/`` for owner and group, below a run directory that exists.

    Raises ``InputError`` when there is no run directory, ``ControlError`` when the place is unsafe or refuses.
    """
    run_path = Path(run_dir)
    if not run_path.is_dir():
        raise InputError(f"There is no run directory {run_path}; name the directory that trainer and dashboard share.")
    for path in (control_dir(run_path), control_dir(run_path) / HISTORY_DIR):
        try:
            path.mkdir(mode=0o770)
        except FileExistsError:
            check_directory(path)
        except OSError as error:
            raise ControlError(f"Cannot make the control directory {path}: {error.strerror or error}.") from error
        else:
            # The umask of one operator must not lock the group out; a group that may not be set is no reason to fail.
            with contextlib.suppress(OSError):
                path.chmod(DIRECTORY_MODE)
    check_directory(control_dir(run_path))


def check_directory(path: Path) -> None:
    """Refuse (``ControlError``) a symbolic link, a non-directory, and what everyone may write to without the sticky bit."""
    for place in (path, path.parent):
        found = place.lstat() if place is path else place.stat()
        if stat.S_ISLNK(found.st_mode):
            raise ControlError(f"{place} is a symbolic link; control files are not read or written through links.")
        if not stat.S_ISDIR(found.st_mode):
            raise ControlError(f"{place} is not a directory; move it away so that the control files can lie there.")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise ControlError(f"Everyone may write to {place}, so anyone could stop the run; run: chmod o-w {place}")


def read_bytes(path: Path) -> bytes | None:
    """The whole file; None when it does not exist. Never blocks on a pipe, never follows a link.

    Raises ``InputError`` for what is not a small regular file, ``ControlError`` for an unsafe directory, ``OSError``.
    """
    try:
        check_directory(path.parent)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path} is a symbolic link; put a real file there.") from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is not a regular file; move it away.")
        data = b""
        while len(data) <= MAX_BYTES:
            chunk = os.read(handle, MAX_BYTES + 1 - len(data))
            if not chunk:
                return data
            data += chunk
        raise InputError(f"{path} is larger than {MAX_BYTES} bytes; this is not a control file.")
    finally:
        os.close(handle)


def replace(path: Path, data: bytes, mode: int, *, durable: bool = True) -> None:
    """Write atomically: temporary file, fsync, rename, fsync of the directory (``durable=False`` leaves out both fsyncs).

    Raises ``ControlError`` when the target is a link or a directory, or the directory is unsafe; ``OSError``.
    """
    with _temporary(path, data, mode, durable) as (name, directory):
        _refuse_strange_target(path)
        os.replace(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        if durable:
            os.fsync(directory)


def create(path: Path, data: bytes, mode: int) -> bool:
    """Create with all its content, or return False because it exists: of several writers exactly one gets True.

    A link to a complete temporary file, because a writer killed after a plain exclusive open would leave an empty claim.
    """
    with _temporary(path, data, mode, True) as (name, directory):
        try:
            os.link(name, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            return _create_without_link(path.name, data, mode, directory)  # file systems without hard links
        os.fsync(directory)
    return True


def _create_without_link(name: str, data: bytes, mode: int, directory: int) -> bool:
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
    except FileExistsError:
        return False
    try:
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    return True


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, mode: int, durable: bool) -> Iterator[tuple[str, int]]:
    """A complete temporary file beside ``path``; gone afterwards, whatever happens."""
    check_directory(path.parent)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    name = f".{path.name}.tmp.{os.uname().nodename}.{os.getpid()}.{next(_numbers)}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)  # left by a killed process that had our process id
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
        try:
            os.fchmod(handle, mode)
            _write_all(handle, data)
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        yield name, directory
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        os.close(directory)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _refuse_strange_target(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ControlError(f"{path} is a link, a directory or a device, not a file; move it away.")
