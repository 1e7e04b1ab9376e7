"""What follows a save on each rank: hash the files it wrote and write its part; rank 0 merges the parts and writes the manifest last.

There is no collective: rank 0 looks for the others' parts in the checkpoint itself, for a bounded time. A process that is killed
anywhere in here leaves a checkpoint without a manifest, or with a whole one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trainvitals.hook import durable
from trainvitals.hook.checkpoint_files import Found, TooMany, files_of, named, rank_of
from trainvitals.hook.hashing import BLOCK_BYTES, Algorithm, Changed, Hashed, hash_file
from trainvitals.manifest import NAME, BadManifest, Manifest, ManifestFile, Timing, beside, dump, parse, rank_name

#: So long rank 0 waits for the parts of the other ranks after its own.
PARTS_WAIT_S = 600.0
#: A file that changes, or cannot be read, is tried again for so long.
TRY_AGAIN_S = 60.0
LOOK_AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)
MAX_PART_BYTES = 64 << 20
#: Ranks that are named in an event.
NAMED_RANKS = 20
#: Two machines may see one modification time differently for a moment (caches of network file systems).
SAME_TIME_NS = 2_000_000_000

#: What does not pass by itself.
_FINAL = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)

#: state, text, data: goes into the event that is written.
Tell = Callable[[str, str, Mapping[str, object]], None]


class ManifestJob:
    """template: gives the manifest without its files, asked when it is written. given: the files that this rank wrote,
    None = by their names. Rank 0 takes, at the end, what no rank took."""

    def __init__(
        self,
        path: str,
        rank: int,
        ranks: int,
        algorithm: Algorithm,
        template: Callable[[], Manifest],
        save_id: str,
        given: tuple[str, ...] | None,
        tell: Tell,
    ) -> None:
        self.path = path
        self.done = threading.Event()
        self.is_cancelled = False
        self._rank, self._ranks, self._algorithm = rank, ranks, algorithm
        self._template, self._save_id, self._tell = template, save_id, tell
        self._given_paths, self._given = given, None if given is None else frozenset[str]()
        self._names: frozenset[str] = frozenset()
        self._hashed: dict[str, Hashed] = {}
        self._parts: dict[int, tuple[tuple[int, int], Manifest]] = {}
        self._trouble_since_s: float | None = None
        self._waits_until_s: float | None = None
        self._looks = 0
        self._hash_s = 0.0

    def give_up(self, reason: str) -> None:
        """No manifest is written; the checkpoint stays as good as it is without one."""
        self._tell("manifest", f"no manifest was written: {reason}", {"is_written": False, "reason": reason})

    def advance(self, is_stopped: Callable[[], bool]) -> float | None:
        try:
            if self.is_cancelled:
                return None
            if self._waits_until_s is None:
                return self._own_part(is_stopped)
            return self._merge(is_stopped)
        except FileNotFoundError:
            if not os.path.lexists(self.path):
                self._deleted()
                return None
            return self._again(f"files of {self.path} come and go")
        except Changed as error:
            return self._again(f"{error} changes after it was said to be written")
        except durable.Refused:
            if self.is_cancelled:
                return None
            self._being_deleted() if os.path.lexists(self.path) else self._deleted()
        except TooMany as error:
            self.give_up(str(error))
        except OSError as error:
            reason = f"{error.strerror or type(error).__name__}{f': {error.filename}' if error.filename else ''}"[:500]
            if error.errno not in _FINAL:
                return self._again(reason)
            self.give_up(reason)
        return None

    def _again(self, reason: str) -> float | None:
        now_s = time.monotonic()
        if self._trouble_since_s is None:
            self._trouble_since_s = now_s
        if now_s - self._trouble_since_s < TRY_AGAIN_S:
            return 1.0
        self.give_up(reason)
        return None

    def _deleted(self) -> None:
        self._tell("deleted", "deleted before its manifest was written", {})

    def _being_deleted(self) -> None:
        self.give_up("files of it are gone: it is being deleted")

    def _own_part(self, is_stopped: Callable[[], bool]) -> float | None:
        if self._given_paths is not None:
            self._given = named(self.path, self._given_paths)
        found = files_of(self.path, self._is_mine if self._ranks > 1 else lambda name: True)
        if self._ranks == 1 and self._given is not None:
            found = {name: file for name, file in found.items() if name in self._given}
        if self._names - found.keys():
            self._being_deleted()
            return None
        self._names = frozenset(found)
        if not found and self._ranks == 1:
            self.give_up("there are no files in it")
            return None
        self._hash(found.values(), is_stopped)
        files = [self._entry(name) for name in sorted(found)]
        if self._ranks == 1:
            self._write_merged(replace(self._template(), files=tuple(files)))
            return None
        part = replace(
            self._template(), files=tuple(files), ranks=(self._rank,), algorithm=self._algorithm.name, save_id=self._save_id
        )
        if not self._write(os.path.join(self.path, rank_name(self._rank)), dump(part)) or self._rank:  # noqa: PTH118
            return None
        self._trouble_since_s = None
        self._waits_until_s = time.monotonic() + PARTS_WAIT_S
        return 0.0

    def _is_mine(self, name: str) -> bool:
        # What no name and no caller assigns is rank 0's, at the merge: by then all of it has been written.
        return name in self._given if self._given is not None else rank_of(name, self._ranks) == self._rank

    def _hash(self, files: Iterable[Found], is_stopped: Callable[[], bool]) -> None:
        begun_s = time.monotonic()
        buffer = bytearray(BLOCK_BYTES)
        for file in files:
            known = self._hashed.get(file.name)
            if known is None or (known.size, known.mtime_ns) != (file.size, file.mtime_ns):
                self._hashed[file.name] = hash_file(file.path, self._algorithm, lambda: is_stopped() or self.is_cancelled, buffer)
        self._hash_s += time.monotonic() - begun_s

    def _entry(self, name: str) -> ManifestFile:
        known = self._hashed[name]
        return ManifestFile(name, known.size, known.hash, self._rank, known.mtime_ns)

    def _is_intact(self) -> bool:
        """Whether no file went away since they were seen: nothing new may be put into a directory that is being deleted."""
        if self.is_cancelled:
            return False
        if not os.path.isdir(self.path):  # noqa: PTH112
            return os.path.lexists(self.path)
        return all(os.path.lexists(os.path.join(self.path, name)) for name in self._names)  # noqa: PTH118

    def _merge(self, is_stopped: Callable[[], bool]) -> float | None:
        missing = self._read_parts()
        is_late = self._waits_until_s is not None and time.monotonic() >= self._waits_until_s
        if missing:
            if not is_late:
                return self._wait()
            self._tell_missing(missing)
            return None
        found = files_of(self.path)
        taken: dict[str, ManifestFile] = {}
        changed = ""
        for rank, (_, part) in sorted(self._parts.items()):
            for file in part.files if part.algorithm == self._algorithm.name else ():
                there = found.get(file.path)
                if there is None:
                    self._being_deleted()
                    return None
                if there.size != file.size or abs(there.mtime_ns - (file.mtime_ns or 0)) > SAME_TIME_NS:
                    changed = f"{file.path} changed after rank {rank} had hashed it"
                taken[file.path] = replace(file, rank=rank)
        if changed:
            if not is_late:
                return self._wait()
            self.give_up(changed)
            return None
        self._names = frozenset(found)
        rest = [file for name, file in found.items() if name not in taken]
        self._hash(rest, is_stopped)
        taken |= {file.name: self._entry(file.name) for file in rest}
        merged = replace(
            self._template(),
            files=tuple(taken[name] for name in sorted(taken)),
            ranks=tuple(sorted(self._parts)),
            timing=_slowest([part.timing for _, part in self._parts.values()]),
        )
        self._write_merged(merged)
        return None

    def _wait(self) -> float:
        self._looks += 1
        return LOOK_AGAIN_S[min(self._looks, len(LOOK_AGAIN_S)) - 1]

    def _tell_missing(self, missing: list[int]) -> None:
        shown = ", ".join(map(str, missing[:NAMED_RANKS])) + (" …" if len(missing) > NAMED_RANKS else "")
        reason = f"{len(missing)} of {self._ranks} ranks did not say what they wrote: {shown}"
        self._tell(
            "manifest",
            f"no manifest was written: {reason}",
            {"is_written": False, "reason": reason, "ranks_missing": missing[:NAMED_RANKS], "missing": len(missing)},
        )

    def _read_parts(self) -> list[int]:
        """Ranks whose part of this save is not there yet."""
        names = set(os.listdir(self.path))  # noqa: PTH208
        missing = []
        for rank in range(self._ranks):
            name = rank_name(rank)
            known = self._parts.get(rank)
            if name in names:
                known = self._parts[rank] = self._part(os.path.join(self.path, name), known)  # noqa: PTH118
            elif known is not None:
                del self._parts[rank]
                known = None
            if known is None or known[1].save_id != self._save_id:
                missing.append(rank)
        return missing

    def _part(self, path: str, known: tuple[tuple[int, int], Manifest] | None) -> tuple[tuple[int, int], Manifest]:
        info = os.stat(path, follow_symlinks=False)  # noqa: PTH116
        identity = (info.st_ino, info.st_mtime_ns)
        if known is not None and known[0] == identity:
            return known
        try:
            return identity, parse(read_whole(path, MAX_PART_BYTES))
        except BadManifest as error:
            raise OSError(0, f"its manifest cannot be used ({error})", path) from error

    def _write(self, path: str, text: str) -> bool:
        """False when the checkpoint was begun anew, or given up, just then: it must not speak of files that are replaced now."""
        durable.write_whole(path, text, self._is_intact)
        if self.is_cancelled:
            durable.remove(path)
            return False
        return True

    def _write_merged(self, merged: Manifest) -> None:
        text = dump(replace(merged, algorithm=self._algorithm.name, save_id=self._save_id))
        path = os.path.join(self.path, NAME) if os.path.isdir(self.path) else beside(self.path)  # noqa: PTH112, PTH118
        if not self._write(path, text):
            return
        size = sum(file.size for file in merged.files)
        data: dict[str, object] = {
            "is_written": True, "files": len(merged.files), "bytes": size, "ranks": len(merged.ranks), "algorithm": self._algorithm.name,
            "hash_s": round(self._hash_s, 3), "manifest_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }  # fmt: skip
        self._tell("manifest", f"manifest of {len(merged.files)} files written", data)


def _slowest(timings: list[Timing]) -> Timing:
    def most(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return Timing(
        staged_s=most(one.staged_s for one in timings),
        persisted_s=most(one.persisted_s for one in timings),
        blocked_s=most(one.blocked_s for one in timings),
        is_async=any(one.is_async for one in timings) if timings else None,
    )


def read_whole(path: str, limit_bytes: int) -> bytes:
    """A regular file of at most ``limit_bytes``, never blocking. Raises ``OSError`` or ``BadManifest``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > limit_bytes:
            raise BadManifest(f"it is no regular file of at most {limit_bytes >> 20} MiB")
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)[:limit_bytes]
    finally:
        os.close(descriptor)
