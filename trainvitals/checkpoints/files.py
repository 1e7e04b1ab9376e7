"""The one door to checkpoint files: bounded listing and reading that never hangs, never follows a link out, never executes.

Nothing here trusts a name or a size. Only regular files are opened, without blocking (a FIFO or a device in a checkpoint
directory must not stop the watchdog), and every read names how much it wants.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from trainvitals import manifest
from trainvitals.checkpoints import names as checkpoint_names

MAX_FILES = 100_000
#: verl: ``actor/model/huggingface/adapter/``.
MAX_DEPTH = 5
MAX_EMPTY = 1000
#: Names that savers use for a file that is not finished (safetensors ``.tmpXXXX``, torch and Lightning ``*.tmp``, rsync ``.name.XXXXXX``).
TEMPORARY_NAME = re.compile(r"(?:^|/)\.tmp[^/]*\Z|\.(?:tmp|temp|part|partial|incomplete|lock)\Z", re.IGNORECASE)


class Unreadable(Exception):
    """The file is there but cannot be read now (rights, I/O error): nothing is known about its content."""


class Vanished(Exception):
    """The file went away between two looks: somebody deletes or renames, which is no fault."""


class NotRegular(Exception):
    """A FIFO, device, socket or a link that leads out of the checkpoint stands where a file should be."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: ``name`` relative to the checkpoint with ``/``, size in bytes; ``problem`` when it is no plain file."""

    name: str
    size: int
    modified_at_ns: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """All files below ``root`` (or the one file and those beside it that belong to it). ``vanished``: entries that went away while
    it was read. ``marker``: name of a file beside it that says that it is not finished, "" when there is none. ``empty``: directories
    with nothing in them, which a saver made and did not fill."""

    root: str
    is_file: bool
    entries: tuple[Entry, ...]
    vanished: int = 0
    unreadable: tuple[str, ...] = ()
    is_cut: bool = False
    marker: str = ""
    empty: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its own name, also when it was asked for as "." or with a slash at the end."""
        return os.path.basename(os.path.abspath(self.root))  # noqa: PTH100, PTH119

    @property
    def names(self) -> frozenset[str]:
        """Names of finished files: temporary ones come and go while a checkpoint is saved."""
        return frozenset(entry.name for entry in self.entries if not TEMPORARY_NAME.search(entry.name))

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def modified_at_ns(self) -> int | None:
        return max((entry.modified_at_ns for entry in self.entries), default=None)

    @property
    def signature(self) -> str:
        """Changes when any name, size or modification time changes."""
        return self._signature(self.entries)

    @property
    def state_signature(self) -> str:
        """As ``signature``, without the lists of hashes that the hook writes beside the files when it has read them."""
        return self._signature([one for one in self.entries if not manifest.is_own_name(one.name.removesuffix(".tmp"))])

    def _signature(self, entries: Sequence[Entry]) -> str:
        checksum = zlib.crc32(self.marker.encode("utf-8", "surrogateescape"))
        for entry in sorted(entries, key=lambda entry: entry.name):
            line = f"{entry.name}\0{entry.size}\0{entry.modified_at_ns}\0{entry.problem}\n"
            checksum = zlib.crc32(line.encode("utf-8", "surrogateescape"), checksum)
        for name in sorted(self.empty):
            checksum = zlib.crc32(f"{name}/\n".encode("utf-8", "surrogateescape"), checksum)
        newest_ns = max((entry.modified_at_ns for entry in entries), default=0)
        return f"{len(entries)}/{sum(entry.size for entry in entries)}/{newest_ns}/{checksum:08x}"

    def path(self, name: str) -> str:
        if self.is_file:
            return self.root if name == os.path.basename(self.root) else os.path.join(os.path.dirname(self.root), name)  # noqa: PTH118, PTH119, PTH120
        return os.path.join(self.root, name)  # noqa: PTH118 - names may hold any byte


def printable(text: str, limit: int = 200) -> str:
    """A name as people may see it: control characters and bytes that are no UTF-8 are escaped, length is bounded."""
    safe = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def listing(path: str) -> Listing:
    """List a checkpoint; raises ``Vanished`` when it is not there and ``Unreadable`` when it cannot be listed."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(path) from error
    except (OSError, ValueError) as error:
        raise Unreadable(f"{printable(path)}: {reason(error)}") from error
    if not stat.S_ISDIR(info.st_mode):
        name = os.path.basename(path)  # noqa: PTH119
        problem = "" if stat.S_ISREG(info.st_mode) else "is not a regular file"
        entry = Entry(name, info.st_size if not problem else 0, info.st_mtime_ns, problem)
        return _with_manifest(_with_others(path, entry))
    return _directory(path)


def _with_others(path: str, entry: Entry) -> Listing:
    """A file and those beside it that are one checkpoint with it."""
    pattern = checkpoint_names.others_of(entry.name)
    if pattern is None:
        return Listing(path, True, (entry,), marker=_marker(path))
    directory = os.path.dirname(path) or "."  # noqa: PTH120
    entries = [entry]
    unreadable: list[str] = []
    vanished = 0
    try:
        # Names alone: a directory holds the files of many such checkpoints, and each of them asks for its own.
        names = [name for name in os.listdir(directory) if pattern.match(name)][:MAX_FILES]  # noqa: PTH208
    except OSError as error:
        unreadable.append(f"{printable(directory)}: {reason(error)}")
        names = []
    allowed = os.path.realpath(directory)
    for name in names:
        try:
            other = os.path.join(directory, name)  # noqa: PTH118
            info = os.lstat(other)
            if not stat.S_ISDIR(info.st_mode):
                entries.append(_entry(other, info, name, allowed))
        except FileNotFoundError:
            vanished += 1
        except OSError as error:
            unreadable.append(f"{printable(name)}: {reason(error)}")
    entries.sort(key=lambda one: one.name)
    return Listing(path, True, tuple(entries), vanished, tuple(unreadable), marker=_marker(path))


def _with_manifest(seen: Listing) -> Listing:
    """A file and the manifest beside it, which the writer leaves last."""
    try:
        info = os.stat(manifest.beside(seen.root), follow_symlinks=False)  # noqa: PTH116
    except (OSError, ValueError):
        return seen  # there is none, or none that anybody could read
    problem = "" if stat.S_ISREG(info.st_mode) else "is not a regular file; not opened"
    name = os.path.basename(manifest.beside(seen.root))  # noqa: PTH119
    entry = Entry(name, info.st_size if not problem else 0, info.st_mtime_ns, problem)
    return replace(seen, entries=tuple(sorted((*seen.entries, entry), key=lambda one: one.name)))


def _marker(path: str) -> str:
    absolute = os.path.abspath(path)  # noqa: PTH100
    name = checkpoint_names.marker_of(os.path.basename(absolute))  # noqa: PTH119
    try:
        is_there = os.path.lexists(os.path.join(os.path.dirname(absolute), name))  # noqa: PTH118, PTH120
    except ValueError:
        return ""
    return name if is_there else ""


def _directory(root: str) -> Listing:
    # A link may lead to another checkpoint's file or a blob store beside it, but not to anywhere else on the machine.
    allowed = os.path.dirname(os.path.realpath(root))  # noqa: PTH120
    entries: list[Entry] = []
    unreadable: list[str] = []
    vanished = 0
    is_cut = False
    empty: set[str] = set()
    waiting = [("", 0)]
    while waiting:
        prefix, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(root, prefix)) as found:  # noqa: PTH118
                children = [child for child, _ in zip(found, range(MAX_FILES), strict=False)]
        except FileNotFoundError as error:
            if not prefix:
                raise Vanished(root) from error
            vanished += 1
            continue
        except OSError as error:
            if not prefix:
                raise Unreadable(f"{printable(root)}: {reason(error)}") from error
            unreadable.append(f"{printable(prefix)}: {reason(error)}")
            continue
        if not children and prefix and len(empty) < MAX_EMPTY:
            empty.add(prefix)
        for child in children:
            if len(entries) >= MAX_FILES:
                is_cut = True
                break
            name = f"{prefix}/{child.name}" if prefix else child.name
            try:
                if child.is_dir(follow_symlinks=False):
                    if depth + 1 < MAX_DEPTH:
                        waiting.append((name, depth + 1))
                    else:
                        is_cut = True
                    continue
                entries.append(_entry(child.path, child.stat(follow_symlinks=False), name, allowed))
            except FileNotFoundError:
                vanished += 1
            except OSError as error:
                unreadable.append(f"{printable(name)}: {reason(error)}")
    entries.sort(key=lambda entry: entry.name)
    return Listing(root, False, tuple(entries), vanished, tuple(unreadable), is_cut, _marker(root), frozenset(empty))


def _entry(path: str, info: os.stat_result, name: str, allowed: str) -> Entry:
    if stat.S_ISLNK(info.st_mode):
        target = os.path.realpath(path)
        if os.path.commonpath([target, allowed]) != allowed:
            return Entry(name, 0, info.st_mtime_ns, "is a symbolic link that leads out of the checkpoint directory; not followed")
        try:
            info = os.stat(target)  # noqa: PTH116
        except FileNotFoundError:
            return Entry(name, 0, info.st_mtime_ns, "is a symbolic link to a file that is not there")
    if not stat.S_ISREG(info.st_mode):
        return Entry(name, 0, info.st_mtime_ns, "is not a regular file; not opened")
    return Entry(name, info.st_size, info.st_mtime_ns)


FAULT = "a fault in the check itself"


def fault(error: Exception) -> str:
    """A sentence for an error that no check expects: one of ours, or bytes that were made to cause it."""
    return f"{FAULT} ({type(error).__name__}: {printable(str(error))}); please report it"


def reason(error: BaseException) -> str:
    """The system's own words for an error, without the path (which may hold anything)."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


class Reader:
    """Positioned reads from one regular file whose size was taken when it was opened.

    identity: equal while it is the same file with the same content, as far as its file system tells; None for a part of a file.
    """

    def __init__(self, descriptor: int, size: int, info: os.stat_result | None = None) -> None:
        self._descriptor = descriptor
        self.size = size
        self._changed_at_ns = 0 if info is None else max(info.st_mtime_ns, info.st_ctime_ns)
        self.identity = None if info is None else (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def unchanged_for_ns(self, now_ns: int) -> int:
        """How long before ``now_ns`` it was last written, in nanoseconds; negative when its clock runs ahead."""
        return now_ns - self._changed_at_ns

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer at the end of the file. Raises ``Unreadable``."""
        parts: list[bytes] = []
        try:
            while length > 0:
                part = os.pread(self._descriptor, min(length, 1 << 22), offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
                length -= len(part)
        except OSError as error:
            raise Unreadable(reason(error)) from error
        return b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; returns how many bytes, fewer at the end of the file. Raises ``Unreadable``."""
        filled = 0
        try:
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [buffer[filled:]], offset + filled)
                if not count:
                    break
                filled += count
        except OSError as error:
            raise Unreadable(reason(error)) from error
        return filled

    def give_back(self, offset: int, length: int) -> None:
        """Tell the kernel that a part is not read again: a verifier must not push a trainer's data out of memory."""
        with suppress(OSError):  # a hint; some file systems take none
            os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)


class Window(Reader):
    """A part of a file as if it were a file of its own (an entry of a shard)."""

    def __init__(self, reader: Reader, offset: int, length: int) -> None:
        super().__init__(reader._descriptor, max(0, min(length, reader.size - offset)))
        self._offset = offset

    def read(self, offset: int, length: int) -> bytes:
        return super().read(self._offset + offset, min(length, max(0, self.size - offset)))

    def read_into(self, buffer: memoryview, offset: int) -> int:
        return super().read_into(buffer[: max(0, self.size - offset)], self._offset + offset)

    def give_back(self, offset: int, length: int) -> None:
        super().give_back(self._offset + offset, min(length, max(0, self.size - offset)))


@contextmanager
def opened(path: str) -> Iterator[Reader]:
    """Open a regular file for reading without ever blocking; raises ``Vanished``, ``Unreadable`` or ``NotRegular``."""
    try:
        # Looked at before opening, because opening a device can already have an effect; and again after, against a swap.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise NotRegular(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as error:
        raise Vanished(path) from error
    except (OSError, ValueError) as error:
        raise Unreadable(reason(error)) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise NotRegular(path)
        yield Reader(descriptor, info.st_size, info)
    finally:
        os.close(descriptor)
