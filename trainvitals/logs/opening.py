"""Opens a log for reading, and no file that somebody else chose through a link.

Whoever may write into a log directory could put a link there to a file, or a directory, that only the watchdog may read; what it
holds would come into the store and the kept ends. So the path is walked one name at a time, each opened before it is looked
at, and what was looked at is what is read. A link counts when its owner is root, the user of this process, the owner of
the file, or the owner of what the link leads to: then nobody chose more than what is theirs. Links to a scratch disk that the
administrator, the trainer's user or the disk's owner made stay usable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: As the kernel.
_MAX_LINKS = 40
LINK_OF_OTHERS = "a link to a file of another user"


def open_log(path: str) -> tuple[int, os.stat_result]:
    """Descriptor and status of a regular file. Raises ``OSError``: a pipe would block, a device never end, a link lead elsewhere."""
    with contextlib.ExitStack() as held:
        place = _Place(held)
        owners = _walk(place, path)
        status = os.fstat(place.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        mine = {0, os.geteuid(), status.st_uid}
        if any(owner not in mine and owner != target for owner, target in owners):
            raise OSError(errno.EPERM, LINK_OF_OTHERS, path)
        # By its number: whatever was put in the path's place since then is not opened.
        descriptor = os.open(f"/proc/self/fd/{place.descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return descriptor, status


class _Place:
    """Where a walk has come to."""

    def __init__(self, held: contextlib.ExitStack) -> None:
        self._held = held
        self.descriptor = -1
        self.link = -1

    def enter(self, name: str, *, is_from_here: bool) -> os.stat_result:
        """Open a name and look at it; a link itself, not what it leads to."""
        opened = os.open(name, _WALK, dir_fd=self.descriptor if is_from_here else None)
        self._held.callback(os.close, opened)
        status = os.fstat(opened)
        if stat.S_ISLNK(status.st_mode):
            self.link = opened
        else:
            self.descriptor = opened
        return status


def _walk(place: _Place, path: str) -> list[tuple[int, int]]:
    """Owner of each link on the way, and of what it leads to."""
    rest = [part for part in reversed(path.split("/")) if part]
    place.enter("/" if path.startswith("/") else ".", is_from_here=False)
    owners: list[tuple[int, int]] = []
    open_links: list[tuple[int, int]] = []  # owner, and how many names are left when its target is reached
    links = 0
    while rest:
        name = rest.pop()
        status = place.enter(name, is_from_here=True)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink("", dir_fd=place.link)
            open_links.append((status.st_uid, len(rest)))
            if target.startswith("/"):
                status = place.enter("/", is_from_here=False)
            rest += [part for part in reversed(target.split("/")) if part]
        while open_links and len(rest) <= open_links[-1][1] and not stat.S_ISLNK(status.st_mode):
            owners.append((open_links.pop()[0], status.st_uid))
    return owners
