"""Two users, one run directory: the group that trainer and dashboard share gets the control directory, whatever their umasks are.

What is made in a directory with the setgid bit (2770) belongs to its group, also when neither user can give files away.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

from trainvitals.control import files
from trainvitals.errors import ControlError, InputError

#: Below the control directory; what is not there yet is made with the group of its parent.
DIRECTORIES = ("", files.HISTORY_DIR, "requests", "requests/answered", "supervisor", "supervisor/answered")
#: Names looked at in one directory: more are no control files.
MAX_NAMES = 100_000
#: What the group needs of the run directory itself: to come through, to list it, and that new files are the group's.
RUN_DIRECTORY_BITS = stat.S_ISGID | 0o070


def group_id(group: str) -> int:
    """Number of a group, given by its name or number. Raises ``InputError`` that lists the groups of this user."""
    if group.isascii() and group.isdigit() and len(group) < 10:
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as error:
        mine = ", ".join(sorted(map(name_of_group, {os.getegid(), *os.getgroups()})))
        raise InputError(f"There is no group {group[:60]!r} on this machine. Groups of this user: {mine}.") from error


def share(run_dir: str | os.PathLike[str], group: str) -> int:
    """Give the control directory, its files and the way to it to ``group``; returns how many older files stayed as they were.

    Those belong to another user, who alone may give them away; what is written from now on replaces them. Raises ``InputError``
    for an unknown group, ``ControlError`` when this user may not do it or the file system does not keep it.
    """
    gid = group_id(group)
    control = files.control_dir(run_dir)
    files.check_directory(control)
    _give(Path(run_dir), gid, None)
    kept = 0
    for name in DIRECTORIES:
        path = control / name if name else control
        if path.is_dir() and not path.is_symlink():
            kept += _give_files(path, gid)
            _give(path, gid, files.DIRECTORY_MODE)
    return kept


def _give(path: Path, gid: int, mode: int | None) -> None:
    """Group and mode of a directory, read back: a server with root_squash takes the call and keeps nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ControlError(f"Cannot open the directory {path}: {error.strerror or error}.") from error
    try:
        before = os.fstat(handle)
        wanted = stat.S_IMODE(before.st_mode) | RUN_DIRECTORY_BITS if mode is None else mode
        if before.st_gid != gid:
            os.fchown(handle, -1, gid)
        if stat.S_IMODE(os.fstat(handle).st_mode) != wanted:
            os.fchmod(handle, wanted)
        after = os.fstat(handle)
    except PermissionError as error:
        raise ControlError(_not_allowed(path, before, gid)) from error
    except OSError as error:
        raise ControlError(f"Cannot give {path} to the group {name_of_group(gid)}: {error.strerror or error}.") from error
    finally:
        os.close(handle)
    if after.st_gid != gid or stat.S_IMODE(after.st_mode) != wanted:
        raise ControlError(
            f"{path} has group {name_of_group(after.st_gid)} and mode {stat.S_IMODE(after.st_mode):o} although {name_of_group(gid)} and "
            f"{wanted:o} were set: this user is no member of the group, or the file server changes users (root_squash). Do it as the "
            "directory's owner, who must be a member."
        )


def _give_files(directory: Path, gid: int) -> int:
    kept = 0
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(handle) as entries:
            names = [entry.name for _, entry in zip(range(MAX_NAMES), entries, strict=False)]
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # replaced or taken away meanwhile
                kept += not _give_file(handle, name, gid)
    except OSError as error:
        raise ControlError(f"Cannot look at {directory}: {error.strerror or error}.") from error
    finally:
        os.close(handle)
    return kept


def _give_file(directory: int, name: str, gid: int) -> bool:
    """True when the group has it, or when it is none of ours: a link, a pipe, a second name of a file that lies elsewhere."""
    if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        return True
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:
        return False
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return True
        if found.st_gid != gid:
            os.fchown(handle, -1, gid)
            os.fchmod(handle, stat.S_IMODE(found.st_mode) | 0o040)
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True


def _not_allowed(path: Path, found: os.stat_result, gid: int) -> str:
    group, me = name_of_group(gid), name_of_user(os.geteuid())
    is_foreign = found.st_uid != os.geteuid()
    why = f"it belongs to {name_of_user(found.st_uid)}" if is_foreign else f"{me} is no member of the group"
    return (
        f"{me} may not give {path} to the group {group}: {why}. Ask an administrator: chgrp {group} {path} && chmod g+rwxs {path}"
    )


def name_of_group(gid: int) -> str:
    """Its name, or its number where it has none here."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


def name_of_user(uid: int) -> str:
    """Its name, or its number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
