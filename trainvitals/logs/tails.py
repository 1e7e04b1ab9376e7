"""The end of a log file that is only read when the trainer died: its last bytes, the faults in them, and whose file it is.

Same table and same rules as in a log that is followed (``faults``), so a file of a rank and the launcher's log agree. Pieces in which no
line can speak of a fault are passed over, which is what makes thousands of files a matter of seconds.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.framing import LineFramer
from trainvitals.logs.opening import open_log
from trainvitals.logs.screen import FaultScreen
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event

_PIECE_BYTES = 16 * 1024
#: A log that is nothing but tracebacks: the cause stands in the first of them, or in the last.
MAX_LINES_LOOKED_AT = 6_000
#: In the file of one rank what comes so long after its first fault is only more of its stack.
MAX_LINES_AFTER = 300
_RANK = re.compile(r"(?:^|[^a-z])(?:global[_-]?)?rank[_-]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_LOCAL_RANK = re.compile(r"local[_-]?rank[_-]?(\d{1,4})(?!\d)", re.ASCII | re.IGNORECASE)
_TASK = re.compile(r"(?:^|[^a-z])(?:task|proc|process)[_-]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_ATTEMPT_DIR = re.compile(r"attempt_\d{1,6}", re.ASCII)
_BARE = re.compile(r"(\d{1,7})\.(?:err|out|log|txt|stderr|stdout)", re.ASCII)
_HOST_TASK = re.compile(r"[-_.]?([A-Za-z][A-Za-z.-]*\d[\w.]*?)[-_.](\d{1,7})\.(?:err|out|log|txt)$", re.ASCII)
_HOST = re.compile(
    r"(?:^|[-_.])((?:node|nid|gpu|cn|host|compute|dgx|hgx|server|ip|gn|worker)-?[A-Za-z]{0,12}\d[A-Za-z0-9]{0,30}(?:-\d{1,4}){0,4})(?=$|[-_.])",
    re.ASCII | re.IGNORECASE,
)
_NO_HOSTS = ("rank", "task", "proc", "attempt", "local", "job", "step", "run", "slurm", "epoch", "version", "part")


@dataclass(frozen=True, slots=True)
class PathOrigin:
    """Whose file it is, as far as the path tells; None = it does not. ``is_local``: the rank may be one within its host."""

    rank: int | None = None
    host: str | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """``data``: the last bytes, from the beginning of a line. ``size``: of the whole file. ``identity``: device and inode."""

    data: bytes
    mtime_ns: int
    size: int
    identity: tuple[int, int] = (0, 0)


def read_tail(path: str, tail_bytes: int) -> Tail:
    """The last ``tail_bytes``. Raises ``OSError``, also for what is no regular file (a pipe would block, a device never end), or of others through a link."""
    descriptor, status = open_log(path)
    try:
        begin = max(0, status.st_size - tail_bytes)
        data = b""
        while len(data) < tail_bytes:
            more = os.pread(descriptor, tail_bytes - len(data), begin + len(data))
            if not more:
                break
            data += more
    finally:
        os.close(descriptor)
    if begin > 0:
        end = data.find(b"\n")
        data = data[end + 1 :]
    return Tail(data, status.st_mtime_ns, status.st_size, (status.st_dev, status.st_ino))


def read_head(path: str, head_bytes: int) -> bytes:
    """The first ``head_bytes``. Raises ``OSError`` as ``read_tail``."""
    descriptor, _ = open_log(path)
    try:
        return os.pread(descriptor, head_bytes, 0)
    finally:
        os.close(descriptor)


def path_origin(path: str) -> PathOrigin:
    """Rank and host in a path: ``rank_12/stderr.log``, ``attempt_0/12/stderr.log``, ``rank12.err``, ``job-77-node17-12.out``."""
    parts = PurePath(path).parts[-4:]
    rank: int | None = None
    is_local = False
    host: str | None = None
    for at in range(len(parts) - 1, -1, -1):
        part, above = parts[at], parts[at - 1] if at else ""
        if rank is None:
            if found := _LOCAL_RANK.search(part):
                rank, is_local = int(found[1]), True
            elif found := _RANK.search(part) or _TASK.search(part):
                rank = int(found[1])
            elif part.isascii() and part.isdigit() and len(part) <= 7 and _ATTEMPT_DIR.fullmatch(above):
                rank, is_local = int(part), True  # torchrun names the directory by the local rank
            elif at == len(parts) - 1 and (found := _BARE.fullmatch(part)):
                rank = int(found[1])
        if host is None:
            host = _host(part)
    if rank is None and (found := _HOST_TASK.search(parts[-1] if parts else "")):
        name = re.split(r"[-_]", found[1])[-1]
        if not name.isdigit() and not name.lower().startswith(_NO_HOSTS):
            rank, host = int(found[2]), host or name
    return PathOrigin(rank, host, is_local)


def path_origins(paths: Iterable[str]) -> dict[str, PathOrigin]:
    """``path_origin`` of all; a directory's number that only one file has is taken for a rank of the whole job: one host."""
    found = {path: path_origin(path) for path in paths}
    local = Counter((where.rank, PurePath(path).name) for path, where in found.items() if where.is_local)
    return {
        path: replace(where, is_local=False) if where.is_local and local[where.rank, PurePath(path).name] == 1 else where
        for path, where in found.items()
    }


def _host(part: str) -> str | None:
    stem = re.sub(r"\.(?:err|out|log|txt)$", "", part)
    found = _HOST.search(stem)
    if found is None:
        return None
    name = found[1]
    # ``node17-12.err``: what follows the host's own number is the task's.
    task = re.fullmatch(r"(.*\d)-(\d{1,7})", name)
    return task[1] if task and not name.lower().startswith("ip") else name


class TailScanner:
    """Finds the faults of one tail after the other; remembers which shapes of lines are harmless, so ranks that print alike cost little."""

    def __init__(self, timezone: str = "UTC") -> None:
        self._timezone = timezone
        self._screen = FaultScreen()

    def scan(self, tail: Tail, *, is_one_rank: bool = False) -> list[Event]:
        """``fault`` events in the order of the file, with rank and host as the text tells them. ``is_one_rank``: nobody else writes
        into this file."""
        faults, framer = Faults(LineTimes(self._timezone, tail.mtime_ns)), LineFramer()
        events: list[Event] = []
        lines, left = 0, MAX_LINES_LOOKED_AT
        for piece in _pieces(tail.data):
            if not faults.is_waiting and self._screen.is_harmless(piece):
                continue
            for _, line, prefix in (*framer.feed_located(piece), *framer.finish()):
                lines += 1
                events += faults.feed(line, prefix)
                if is_one_rank and faults.has_found:
                    left, is_one_rank = min(left, lines + MAX_LINES_AFTER), False
                if lines >= left:
                    break
            if lines >= left:
                break
        events += faults.finish()
        return [event for event in events if event.kind == "fault"]


def _pieces(data: bytes) -> Iterator[bytes]:
    """Whole lines, about ``_PIECE_BYTES`` at a time."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + _PIECE_BYTES)
        end = len(data) if end < 0 else end + 1
        yield data[begin:end]
        begin = end


def placed(event: Event, where: PathOrigin) -> Event:
    """With rank and host from the path where the text tells none."""
    data = dict(event.data)
    if where.host is not None:
        data.setdefault("host", where.host)
    if where.rank is not None and "rank" not in data:
        if where.is_local:
            data.setdefault("local_rank", where.rank)
        else:
            data["rank"] = where.rank
            if not data.get("is_signalled"):
                data.setdefault("ranks_seen", [where.rank])
    return replace(event, data=data)
