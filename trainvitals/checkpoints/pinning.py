# ruff: noqa: PTH100, PTH106, PTH118, PTH119, PTH120, PTH208
"""Keep one checkpoint from its trainer's own retention: a second set of names for the same files, beside it.

``<checkpoint directory>/.trainvitals-pinned/<name>``: hard links, so that a deletion removes only names and nothing is stored
twice; it costs disk only once the trainer has deleted its own. The name stays, so that the trainer accepts it for a resume.

A hard link protects against deletion, not against rewriting: a checkpoint whose name has no step (nanoGPT's ``ckpt.pt``) is
written again in place, so it is copied. Links are never followed and nothing is ever overwritten; only what carries our own
prefixes inside ``.trainvitals-pinned`` is ever deleted (google/orbax issue 394: a tool that tidied up deleted a good checkpoint).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainvitals.checkpoints import pin_owners
from trainvitals.checkpoints.files import printable, reason
from trainvitals.checkpoints.names import stands_for
from trainvitals.checkpoints.parts import step_from_name
from trainvitals.checkpoints.pin_tree import (
    DIRECTORY,
    NO_LINKS,
    CannotPin,
    Tree,
    companions,
    copy_tree,
    directory_of,
    link_tree,
    read_tree,
    remove,
)
from trainvitals.checkpoints.verification import inspect
from trainvitals.errors import InputError
from trainvitals.records import CheckpointState

__all__ = [
    "CannotPin",
    "Pin",
    "is_rewritten_in_place",
    "kept_for",
    "known_pin",
    "original_path",
    "pin",
    "pin_path",
    "pins",
    "release",
    "still_holds",
    "tidy",
]

PIN_DIRECTORY = ".trainvitals-pinned"
MAX_PINS = 2
#: Not finished yet, and not needed any more: both are ours alone, and both are tidied up after a crash.
_BUILDING, _GOING = ".tmp", ".old"
_OURS = (_BUILDING, _GOING, pin_owners.OWNERS)
_WHY_NO_LINKS = {
    errno.EPERM: "only the owner of its files may link them here (fs.protected_hardlinks), or this file system has no hard links: "
    "let the watchdog run as the user that trains",
    errno.EXDEV: "its files are on another file system than its directory, where hard links cannot reach",
    errno.EMLINK: "its files have as many names already as this file system allows",
    errno.EOPNOTSUPP: "this file system has no hard links",
    errno.ENOSYS: "this file system has no hard links",
}


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned checkpoint. how: links, clone (shares blocks until one is changed) or copy; ``bytes`` are those of its files.

    others: names of the other runs for which it is kept.
    """

    path: str
    original: str
    how: str
    files: int
    bytes: int
    others: tuple[str, ...] = ()


def pin_path(checkpoint: str) -> str:
    """Where ``checkpoint`` would be pinned; its own path when it is a pinned one."""
    path = os.path.abspath(checkpoint)
    directory, name = os.path.split(path)
    return path if os.path.basename(directory) == PIN_DIRECTORY else os.path.join(directory, PIN_DIRECTORY, name)


def original_path(pinned: str) -> str:
    """The path at which the trainer saved what is pinned at ``pinned``."""
    directory, name = os.path.split(os.path.abspath(pinned))
    return os.path.join(os.path.dirname(directory), name)


def is_rewritten_in_place(checkpoint: str) -> bool:
    """Whether its name will be used for the next save, too: then links would hold the next save's bytes."""
    return step_from_name(os.path.basename(os.path.abspath(checkpoint))) is None


def pins(directory: str) -> list[str]:
    """Paths of what is pinned in a checkpoint directory, by name. Raises ``CannotPin`` when it cannot be read."""
    try:
        names = os.listdir(os.path.join(directory, PIN_DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        raise CannotPin(f"{printable(directory)}: {reason(error)}") from error
    parts = {other for name in names for other in companions(name, names)}
    kept = sorted(name for name in names if name not in _OURS and name not in parts and stands_for(name) is None)
    return [os.path.join(os.path.abspath(directory), PIN_DIRECTORY, name) for name in kept]


def pin(checkpoint: str, copy_limit_bytes: int = 0, owner: str = "") -> Pin:
    """Pin a checkpoint (a directory or a file). Where links cannot work it is copied, if it is no larger than the limit.

    owner: the run that wants it, "" = nobody in particular. What is pinned already stays as it is. Raises ``CannotPin``; whatever happened, the checkpoint itself is untouched.
    """
    path = os.path.abspath(checkpoint)
    parent, name = os.path.split(path)
    if os.path.basename(parent) == PIN_DIRECTORY:
        return kept_for(path, owner)
    try:
        with _opened(parent) as parent_fd, _directory(parent_fd, PIN_DIRECTORY) as pins_fd:
            _tidy(parent, parent_fd, pins_fd)
            source = read_tree(parent_fd, name)
            if _exists(pins_fd, name):
                made = _pinned_before(path, source, pins_fd, name)
                _own(pins_fd, name, owner)
                return made
            if len([one for one in pins(parent) if not pin_owners.others(pins_fd, os.path.basename(one), owner)]) >= MAX_PINS:
                raise CannotPin(f"{MAX_PINS} checkpoints are pinned already")
            with _directory(pins_fd, _BUILDING) as build_fd:
                how = _build(parent_fd, build_fd, path, source, copy_limit_bytes)
                _publish(parent_fd, build_fd, pins_fd, name, source, is_linked=how == "links")
            os.rmdir(_BUILDING, dir_fd=pins_fd)
            _own(pins_fd, name, owner)
    except (OSError, ValueError, CannotPin) as error:
        _clear(parent)
        raise error if isinstance(error, CannotPin) else CannotPin(_sentence(error)) from error
    return Pin(pin_path(path), path, how, len(source.files), source.bytes)


def kept_for(pinned: str, owner: str) -> Pin:
    """Keep what is pinned at ``pinned`` for the run ``owner``, too. Raises ``CannotPin``."""
    made = known_pin(pinned, owner)
    try:
        with _opened(os.path.dirname(pinned)) as pins_fd:
            _own(pins_fd, os.path.basename(pinned), owner)
    except (OSError, ValueError) as error:
        raise CannotPin(_sentence(error)) from error
    return made


def release(pinned: str, owner: str = "") -> tuple[str, ...]:
    """Let go of a pin: the names go; the files go with them only when the trainer has deleted its own. Raises ``CannotPin``.

    Returns the other runs for which it is still kept: then it stays.
    """
    directory, name = os.path.split(os.path.abspath(pinned))
    if os.path.basename(directory) != PIN_DIRECTORY or name in _OURS:
        raise CannotPin(f"{printable(pinned)} is no pinned checkpoint")
    try:
        with _opened(os.path.dirname(directory)) as parent_fd, _directory(parent_fd, PIN_DIRECTORY, make=False) as pins_fd:
            still = pin_owners.others(pins_fd, name, owner)
            if still:
                pin_owners.drop(pins_fd, name, owner)
                return still
            remove(pins_fd, _GOING)
            # Half a checkpoint must never stand under its name: it gets another one first.
            with _directory(pins_fd, _GOING) as going_fd:
                for part in (name, *companions(name, os.listdir(pins_fd))):
                    os.rename(part, part, src_dir_fd=pins_fd, dst_dir_fd=going_fd)
            remove(pins_fd, _GOING)
            pin_owners.drop(pins_fd, name, owner)
        with contextlib.suppress(OSError):  # not empty: another pin lies there
            os.rmdir(directory)
    except (OSError, ValueError) as error:
        raise CannotPin(f"{printable(name)} could not be let go: {reason(error)}") from error
    return ()


def tidy(directory: str) -> None:
    """Finish or remove what a killed process left behind. Raises ``CannotPin``."""
    try:
        with _opened(directory) as parent_fd, _directory(parent_fd, PIN_DIRECTORY, make=False) as pins_fd:
            _tidy(os.path.abspath(directory), parent_fd, pins_fd)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise CannotPin(f"{printable(directory)}: {reason(error)}") from error


def still_holds(pinned: str, files: int, total_bytes: int, modified_at_ns: int | None) -> bool:
    """Whether a pin still has the files and bytes that were verified; False when it cannot be looked at. Cheap.

    modified_at_ns: newest time of its files then, None = not known. A link shows what the trainer writes over the same file.
    """
    directory, name = os.path.split(os.path.abspath(pinned))
    try:
        with _opened(directory) as pins_fd:
            tree = read_tree(pins_fd, name)
    except (OSError, ValueError, CannotPin):
        return False
    newest_ns = max((file.modified_at_ns for file in tree.files), default=None)
    return (len(tree.files), tree.bytes) == (files, total_bytes) and modified_at_ns in (None, newest_ns)


# parts


def _clear(parent: str) -> None:
    """What a failed attempt left; what cannot be removed now is removed by the next."""
    with contextlib.suppress(OSError, ValueError, CannotPin):
        with _opened(parent) as parent_fd, _directory(parent_fd, PIN_DIRECTORY, make=False) as pins_fd:
            remove(pins_fd, _BUILDING)
        os.rmdir(os.path.join(parent, PIN_DIRECTORY))


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _directory(above_fd: int, name: str, *, make: bool = True) -> Iterator[int]:
    """One of our own directories."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=above_fd)
    try:
        descriptor = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise CannotPin(f"{name} is no directory; links are not followed") from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _exists(directory_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _build(parent_fd: int, build_fd: int, path: str, source: Tree, copy_limit_bytes: int) -> str:
    """How the second tree was made; it lies in ``build_fd`` then."""
    in_place = is_rewritten_in_place(path)
    if not in_place:
        try:
            link_tree(parent_fd, build_fd, source)
        except OSError as error:
            if error.errno not in NO_LINKS or source.bytes > copy_limit_bytes:
                raise
            for part in os.listdir(build_fd):
                remove(build_fd, part)
        else:
            return "links"
    if source.bytes > copy_limit_bytes:
        raise CannotPin(
            f"its name has no step, so the next save writes over the same files, where hard links do not help; a copy of "
            f"{source.bytes:,} bytes is larger than pin_copy_max_bytes ({copy_limit_bytes:,})"
        )
    return "clone" if copy_tree(parent_fd, build_fd, source) else "copy"


def _publish(parent_fd: int, build_fd: int, pins_fd: int, name: str, source: Tree, *, is_linked: bool) -> None:
    """Give the finished tree its name, when it is what was there at first.

    Linked files are the checkpoint's own, so they may even be its last names by now; bytes that were copied while they changed
    are no checkpoint at all.
    """
    is_same = _is_same(source, read_tree(build_fd, name), is_linked=is_linked)
    if not is_same or not (is_linked or read_tree(parent_fd, name) == source):
        raise CannotPin("it changed while it was pinned: the trainer is writing or deleting it")
    for path, mode in reversed(source.directories):
        with directory_of(build_fd, f"{path}/.") as descriptor:
            os.fchmod(descriptor, mode | stat.S_IRWXU)
            os.fsync(descriptor)
    _rename_new(build_fd, pins_fd, name)


def _is_same(source: Tree, made: Tree, *, is_linked: bool) -> bool:
    def facts(tree: Tree) -> list[tuple[str, int, int, tuple[int, int] | None]]:
        return [(file.name, file.size, file.modified_at_ns, file.inode if is_linked else None) for file in tree.files]

    return facts(source) == facts(made) and [path for path, _ in source.directories] == [path for path, _ in made.directories]


def _rename_new(build_fd: int, pins_fd: int, name: str) -> None:
    """Move without ever taking the place of anything: a directory that is not empty is never replaced, a file is linked.

    What a checkpoint is called by comes last: before, nothing is there.
    """
    for part in companions(name, os.listdir(build_fd)):
        _move(build_fd, pins_fd, part)
    _move(build_fd, pins_fd, name)
    os.fsync(pins_fd)


def _move(build_fd: int, pins_fd: int, name: str) -> None:
    is_moved = False
    if not stat.S_ISDIR(os.stat(name, dir_fd=build_fd, follow_symlinks=False).st_mode):
        try:
            os.link(name, name, src_dir_fd=build_fd, dst_dir_fd=pins_fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        else:
            os.unlink(name, dir_fd=build_fd)
            is_moved = True
    if not is_moved:
        os.rename(name, name, src_dir_fd=build_fd, dst_dir_fd=pins_fd)


def _tidy(parent: str, parent_fd: int, pins_fd: int) -> None:
    remove(pins_fd, _GOING)
    names = os.listdir(pins_fd)
    for orphan in (name for name in names if (first := stands_for(name)) is not None and first not in names):
        remove(pins_fd, orphan)
    pin_owners.tidy(pins_fd, os.listdir(pins_fd))
    if not _exists(pins_fd, _BUILDING):
        return
    with _directory(pins_fd, _BUILDING, make=False) as build_fd:
        for name in (name for name in os.listdir(build_fd) if stands_for(name) is None):
            is_last = not _exists(pins_fd, name) and not _is_still_there(parent_fd, build_fd, name)
            # Whoever was killed here may have saved the last names of a checkpoint that the trainer has deleted since.
            if is_last and _is_whole(os.path.join(parent, PIN_DIRECTORY, _BUILDING, name)):
                _rename_new(build_fd, pins_fd, name)
    remove(pins_fd, _BUILDING)


def _is_still_there(parent_fd: int, build_fd: int, name: str) -> bool:
    """Whether the checkpoint still has every file of the unfinished tree, which can then be made again."""
    try:
        original, unfinished = read_tree(parent_fd, name), read_tree(build_fd, name)
    except (OSError, CannotPin):
        return False
    return {file.name for file in original.files} >= {file.name for file in unfinished.files}


def _is_whole(path: str) -> bool:
    try:
        return inspect(path).state is CheckpointState.VERIFIED
    except InputError:
        return False


def _pinned_before(path: str, source: Tree, pins_fd: int, name: str) -> Pin:
    made = read_tree(pins_fd, name)
    is_linked = _is_same(source, made, is_linked=True)
    if not is_linked and not _is_same(source, made, is_linked=False):
        raise CannotPin("another checkpoint of the same name is pinned already")
    return Pin(pin_path(path), path, "links" if is_linked else "copy", len(made.files), made.bytes)


def known_pin(path: str, owner: str = "") -> Pin:
    """What is pinned at ``path``, as ``owner`` sees it. Raises ``CannotPin``."""
    try:
        with _opened(os.path.dirname(path)) as pins_fd:
            tree = read_tree(pins_fd, os.path.basename(path))
            others = pin_owners.others(pins_fd, os.path.basename(path), owner)
    except (OSError, ValueError) as error:
        raise CannotPin(_sentence(error)) from error
    return Pin(path, original_path(path), "links", len(tree.files), tree.bytes, others)


def _own(pins_fd: int, name: str, owner: str) -> None:
    if owner:
        pin_owners.add(pins_fd, name, owner)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _WHY_NO_LINKS:
        return _WHY_NO_LINKS[error.errno]
    if isinstance(error, FileNotFoundError):
        return "it is not there any more, or is being deleted"
    return reason(error)
