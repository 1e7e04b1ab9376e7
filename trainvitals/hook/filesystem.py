"""Is a directory on a file system that can hang? Looked up in the kernel's mount table, never by touching the directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: File systems behind a network or a user-space server: a write may block for minutes.
REMOTE_TYPES = frozenset(
    {
        "nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "beegfs", "ceph", "glusterfs", "afs", "wekafs", "panfs",
        "pvfs2", "orangefs", "vastnfs", "daos", "9p", "virtiofs",
    }
)  # fmt: skip


#: A chain of symbolic links longer than this is a loop; the kernel gives up there too.
MAX_LINKS = 40
Mounts = Mapping[str, str]


def mounts(mountinfo: str) -> Mounts:
    """Mount point -> type of its file system, from the text of /proc/self/mountinfo."""
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if separator and len(fields) >= 5:
            found[_unescape(fields[4])] = right.split(" ")[0]  # of two mounts on one point the later one hides the earlier
    return found


def mount_type(path: str, table: Mounts) -> str:
    """Type of the file system that holds ``path`` (absolute); "" if unknown."""
    while True:
        if path in table:
            return table[path]
        if path in ("", "/"):
            return ""
        path = path.rpartition("/")[0] or "/"


def can_hang(path: str, mountinfo_path: str = "/proc/self/mountinfo") -> bool:
    """True for network and FUSE file systems; False for local ones and where there is no mount table.

    Symbolic links are followed, but nothing beyond the first mount point that can hang is touched: its server may be down.
    """
    try:
        table = mounts(Path(mountinfo_path).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return False
    reached = "/"
    ahead = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    while True:
        if _is_remote(mount_type(reached, table)):
            return True
        if not ahead:
            return False
        part = ahead.pop()
        if part == "..":
            reached = reached.rpartition("/")[0] or "/"
            continue
        candidate = f"{reached.rstrip('/')}/{part}"
        if _is_remote(mount_type(candidate, table)):
            return True
        try:
            target = os.readlink(candidate)  # noqa: PTH115 (a Path would lose "..")
        except (OSError, ValueError):  # no link, or not there yet
            reached = candidate
            continue
        links += 1
        if links > MAX_LINKS:
            return False
        if target.startswith("/"):
            reached = "/"
        ahead += [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _is_remote(kind: str) -> bool:
    # What autofs would mount at the first touch is nearly always a server's.
    return kind in REMOTE_TYPES or kind in ("fuse", "autofs") or kind.startswith("fuse.")


def _unescape(point: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point
