"""Is a directory on a file system that can hang? Looked up in the kernel's mount table, never by touching the directory."""

from __future__ import annotations

import os
from pathlib import Path

#: File systems behind a network or a user-space server: a write may block for minutes.
REMOTE_TYPES = frozenset(
    {
        "nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "beegfs", "ceph", "glusterfs", "afs", "wekafs", "panfs",
        "pvfs2", "orangefs", "vastnfs", "daos", "9p", "virtiofs",
    }
)  # fmt: skip


def mount_type(path: str, mountinfo: str) -> str:
    """Type of the file system that holds ``path`` (absolute) according to the text of /proc/self/mountinfo; "" if unknown."""
    best, best_length = "", -1
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best_length:  # of two mounts on one point the later one hides the earlier
            best, best_length = right.split(" ")[0], len(point)
    return best


def can_hang(path: str, mountinfo_path: str = "/proc/self/mountinfo") -> bool:
    """True for network and FUSE file systems; False for local ones and where there is no mount table."""
    try:
        table = Path(mountinfo_path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    kind = mount_type(os.path.realpath(path), table)
    return kind in REMOTE_TYPES or kind == "fuse" or kind.startswith("fuse.")


def _unescape(point: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point
