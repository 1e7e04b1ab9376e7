"""The ends of the logs of all ranks when the trainer died, read within a time; the judgement is ``incidents.postmortem``."""

from __future__ import annotations

import glob
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainvitals.clock import Clock
from trainvitals.incidents.postmortem import FileFaults, Postmortem, Reading, choose
from trainvitals.logs.tails import TailScanner, path_origin, path_origins, placed, read_tail
from trainvitals.records import Event

MAX_FILES = 4_000
BUDGET_S = 20.0
TAIL_BYTES = 256 * 1024
#: A file that did not change since this long before the start tells of another one.
SLACK_NS = 5 * 10**9
_FAULTY_NODE = frozenset({"node_failure", "gpu_error", "xid", "network"})


def look_into(
    log: Path,
    patterns: Sequence[str],
    attempt: int,
    started_ns: int,
    clock: Clock,
    timezone: str = "UTC",
    budget_s: float = BUDGET_S,
) -> tuple[Postmortem, int]:
    """(what came first, how many hosts the logs name with a fault of their own). Waits ``budget_s`` at most, whatever the disk does."""
    until_s = clock.monotonic_s() + budget_s
    done: queue.Queue[tuple[Postmortem, int]] = queue.Queue()
    seen: list[Path] = []

    def work() -> None:
        done.put(_look(log, patterns, attempt, started_ns, clock, timezone, until_s, seen))

    threading.Thread(target=work, name="ends of the logs", daemon=True).start()
    try:
        return done.get(timeout=budget_s + 1.0)
    except queue.Empty:
        trouble = "the file system did not answer in time"
        return Postmortem(attempt, None, {}, 0, (), Reading(read=len(seen), left=1, seconds=budget_s, troubles=(trouble,))), 0


def _look(
    log: Path,
    patterns: Sequence[str],
    attempt: int,
    started_ns: int,
    clock: Clock,
    timezone: str,
    until_s: float,
    seen: list[Path],
) -> tuple[Postmortem, int]:
    began_s = clock.monotonic_s()
    scanner = TailScanner(timezone)
    found: dict[str, tuple[int, list[Event]]] = {}
    unreadable = skipped = left = beyond = 0
    troubles: list[str] = []
    for number, path in enumerate(_paths(log, patterns)):
        if number >= MAX_FILES:
            beyond += 1
            continue
        if clock.monotonic_s() > until_s:
            left += 1
            continue
        try:
            tail = read_tail(str(path), TAIL_BYTES)
        except OSError as error:
            unreadable += 1
            troubles += [f"{path}: {error.strerror or error}"][: 5 - len(troubles)]
            continue
        seen.append(path)
        if tail.mtime_ns < started_ns - SLACK_NS:
            skipped += 1
            continue
        events = scanner.scan(tail, is_one_rank=path_origin(str(path)).rank is not None)
        if events:
            found[str(path)] = (tail.mtime_ns, events)
    origins = path_origins(found)
    told = [
        FileFaults(path, mtime_ns, tuple(placed(event, origins[path]) for event in events))
        for path, (mtime_ns, events) in sorted(found.items(), key=lambda item: (item[1][0], item[0]))
    ]
    reading = Reading(
        len(seen) - skipped, unreadable, skipped, left, round(clock.monotonic_s() - began_s, 3), tuple(troubles), beyond
    )
    hosts = {
        str(event.data["host"])
        for file in told for event in file.events
        if event.data.get("class") in _FAULTY_NODE and event.data.get("host")
    }  # fmt: skip
    return choose(attempt, told, started_ns, None, None, reading), len(hosts)


def _paths(log: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """The start's own log first, then what the settings name; each once."""
    known = {log}
    yield log
    for pattern in patterns:
        for name in glob.iglob(pattern, recursive=True):  # noqa: PTH207 (patterns are absolute)
            path = Path(name)
            if path not in known and path.is_file():
                known.add(path)
                yield path
