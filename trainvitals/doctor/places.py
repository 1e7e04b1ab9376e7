"""What a directory is: on which file system, whose, and what becomes of a file that is written there."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainvitals.control.sharing import name_of_group, name_of_user
from trainvitals.doctor.check import Finding, fault, ok, warning
from trainvitals.hook.filesystem import can_hang, mount_type, mounts

#: Users that a file server makes of root, or of everybody it does not know.
NOBODY = frozenset({65_534, 4_294_967_294})
PROBE = ".trainvitals-doctor"
#: Differences of two clocks: told, and such that ages of files mean nothing.
CLOCK_TOLD_S, CLOCK_WRONG_S = 2.0, 60.0
#: Names looked at in one directory.
MAX_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Probe:
    """A file that was written and looked at again. error: why none could be written. has_link: a second name could be made."""

    error: str = ""
    uid: int = -1
    gid: int = -1
    mode: int = 0
    mtime_s: float = 0.0
    has_link: bool = False


def file_system(path: Path) -> str:
    """``local (ext4)``, ``network (nfs4)``, or ``unknown``; from the mount table, without touching what may hang."""
    try:
        table = mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return "unknown"
    kind = mount_type(os.path.realpath(path), table)
    return f"{'network' if can_hang(str(path)) else 'local'} ({kind})" if kind else "unknown"


def probe(directory: Path) -> Probe:
    """Write a file, look at it, give it a second name; take both away."""
    path = directory / f"{PROBE}.{os.uname().nodename}.{os.getpid()}.{os.urandom(8).hex()}"
    twin = path.with_name(path.name + ".twin")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    except OSError as error:
        return Probe(error=error.strerror or str(error))
    try:
        os.write(handle, b"x")
        found = os.fstat(handle)
        try:
            os.link(path, twin, follow_symlinks=False)
            has_link = True
        except OSError:
            has_link = False
        return Probe("", found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_mtime, has_link)
    except OSError as error:
        return Probe(error=error.strerror or str(error))
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)
        twin.unlink(missing_ok=True)


def directory(path: Path, what: str, make: str) -> Iterator[Finding]:
    """Is it there, may this user look into it, may everyone change it. make: what to do when it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        yield fault(f"there is no {what} {path}", make)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield fault(f"{path} is no directory", f"move it away; {make}")
        return
    owner = f"{name_of_user(found.st_uid)}:{name_of_group(found.st_gid)} {stat.S_IMODE(found.st_mode):o}"
    if not os.access(path, os.R_OK | os.X_OK):
        me = name_of_user(os.geteuid())
        yield fault(
            f"{me} may not read {path} ({owner})",
            f"let the group of {me} in: chgrp GROUP {shlex.quote(str(path))} && chmod g+rxs {shlex.quote(str(path))}",
        )
        return
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        yield fault(f"everyone may write to {path}, so anyone could stop the run", f"chmod o-w {shlex.quote(str(path))}")
    if found.st_uid in NOBODY and os.geteuid() not in NOBODY:
        yield warning(
            f"{path} belongs to {name_of_user(found.st_uid)}: the file server changes users (root_squash, or no common user table)",
            "run trainer and watchdog as a normal user that the server knows, not as root.",
        )
    yield ok(f"{path}, {file_system(path)}, {owner}")


def of_probe(path: Path, found: Probe, now_s: float) -> Iterator[Finding]:
    """What the written file tells of the file server: whose it became, and what time it is there."""
    if found.error:
        return
    if found.uid != os.geteuid():
        yield fault(
            f"a file that {name_of_user(os.geteuid())} writes into {path} belongs to {name_of_user(found.uid)}: root_squash",
            "run this program as a normal user whom the file server knows, or export the directory with no_root_squash.",
        )
    difference_s = found.mtime_s - now_s
    if abs(difference_s) > CLOCK_TOLD_S:
        text = f"the clock of the file system of {path} is {abs(difference_s):.1f} s {'ahead of' if difference_s > 0 else 'behind'} this machine's"
        advice = "let both follow one time server (chronyc tracking; timedatectl)."
        yield fault(text, advice) if abs(difference_s) > CLOCK_WRONG_S else warning(text, advice)


def unreadable_for_group(path: Path) -> tuple[int, int, str]:
    """(files that their group may not read, files looked at, the first of them): what a umask of 077 leaves."""
    hidden, seen, first = 0, 0, ""
    with os.scandir(path) as entries:
        for entry, _ in zip(entries, range(MAX_NAMES), strict=False):
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and not entry.name.startswith("."):
                seen += 1
                if not found.st_mode & stat.S_IRGRP:
                    hidden, first = hidden + 1, first or entry.name
    return hidden, seen, first
