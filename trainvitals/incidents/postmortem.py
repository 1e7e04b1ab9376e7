"""What the ends of all logs of a run say of its death: the earliest cause, who only followed, and who said nothing. Pure.

A rank that waits for a dead one ends by a timeout or a broken connection, later and louder; so these never are the cause as long as
anything else is there. Texts without a time count at the last change of their file: the rank that died first stopped writing first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainvitals.records import Event

#: What comes from outside the program, and what the program does; all others are told by victims and launchers.
OUTER_CAUSES = frozenset(
    {"out_of_memory", "gpu_error", "disk_full", "storage_error", "numerics", "node_failure", "time_limit", "preempted"}
)
INNER_CAUSES = frozenset({"config_error", "crashed", "cuda_error", "exception", "killed"})
#: Waiting ranks are a better answer than broken connections, and these than a launcher's summary.
_WEAKER = ("nccl_timeout", "network", "io_hang", "process_failed", "cancelled", "killed")
#: Causes this near to the earliest are of one moment: the kind then says more than the order.
SAME_MOMENT_NS = 10 * 10**9
#: A time this much before the attempt began is another attempt's.
BEFORE_START_NS = 60 * 10**9
MAX_SUSPECTS = 64
#: What is remembered of earlier deaths: events of a file, and files.
MAX_KEYS, MAX_PATHS = 64, 6_000


@dataclass(frozen=True, slots=True)
class FileFaults:
    """What the end of one file says, in its order. ``mtime_ns``: its last change."""

    path: str
    mtime_ns: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class ToldBefore:
    """What the files said at the deaths before: path -> (attempt, one key an event), the newest last. Logs are appended to, and a line
    without a time tells no attempt; one that was there at an earlier death is none of a later one."""

    keys: Mapping[str, tuple[tuple[int, tuple[str, ...]], ...]] = field(default_factory=dict)

    def of(self, path: str, attempt: int) -> tuple[str, ...]:
        """Keys at the newest death of an earlier attempt."""
        return next((keys for number, keys in reversed(self.keys.get(path, ())) if number < attempt), ())

    def with_files(self, attempt: int, files: Sequence[FileFaults]) -> ToldBefore:
        """With this death, of the files that said something; bounded."""
        told = dict(self.keys)
        for file in files:
            others = [one for one in told.pop(file.path, ()) if one[0] != attempt]
            told[file.path] = (*others[-1:], (attempt, tuple(_key_of(event) for event in file.events)[-MAX_KEYS:]))
        return ToldBefore(dict(list(told.items())[-MAX_PATHS:]))


@dataclass(frozen=True, slots=True)
class Cause:
    """The earliest cause. ``kind``: class of the fault. ``place``: host, local rank and GPU where metadata tells them."""

    kind: str
    name: str
    text: str
    host: str | None
    rank: int | None
    place: str
    time_ns: int | None
    file: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files were read. left: not read when the time was over. beyond: not asked for, too many. troubles: a few sentences about files."""

    read: int = 0
    unreadable: int = 0
    skipped: int = 0
    left: int = 0
    seconds: float = 0.0
    troubles: tuple[str, ...] = ()
    beyond: int = 0

    @property
    def is_partial(self) -> bool:
        return self.left > 0 or self.beyond > 0


@dataclass(frozen=True, slots=True)
class Postmortem:
    """``victims``: class -> files and ranks that told it. ``followers``: ranks and files that only followed. ``suspects``: ranks
    that said nothing while the others waited, and are not the cause. ``tails``: where the ends are kept, "" when they are not."""

    attempt: int
    cause: Cause | None
    victims: Mapping[str, int]
    followers: int
    suspects: tuple[int, ...]
    reading: Reading = field(default_factory=Reading)
    tails: str = ""

    @property
    def message(self) -> str:
        """One sentence for people."""
        reading = self.reading
        partial = f"; {_files(reading.left)} not read in time" if reading.left else ""
        partial += f"; {_files(reading.beyond, ' too many')} not asked for" if reading.beyond else ""
        if self.cause is None:
            return f"no cause found in the ends of {reading.read:,} {'log' if reading.read == 1 else 'logs'}{partial}"
        cause = self.cause
        where = [part for part in (cause.host, None if cause.rank is None else f"rank {cause.rank}") if part]
        who = f" on {' '.join(where)}" if where else ""
        who += f" [{cause.place}]" if "/" in cause.place else ""
        when = f" ({datetime.fromtimestamp(cause.time_ns // 10**9, UTC):%H:%M:%S} UTC)" if cause.time_ns is not None else ""
        rest = ""
        if cause.kind == "nccl_timeout" and self.suspects:
            named = ", ".join(map(str, self.suspects[:8])) + (" …" if len(self.suspects) > 8 else "")
            rest = f"; rank {named} said nothing" if len(self.suspects) == 1 else f"; ranks {named} said nothing"
        elif self.followers:
            rest = f", {self.followers:,} {'other' if self.followers == 1 else 'others'} only followed"
        return f"cause: {cause.name}{who}{when}{rest}{partial}"

    def to_data(self) -> dict[str, Any]:
        """JSON values for ``Event.data``; the cause's class is called ``class``."""
        cause = asdict(self.cause) if self.cause is not None else None
        if cause is not None:
            cause["class"] = cause.pop("kind")
        return {
            "attempt": self.attempt, "cause": cause, "victims": dict(self.victims), "followers": self.followers,
            "suspects": list(self.suspects), "files": {**asdict(self.reading), "troubles": list(self.reading.troubles)},
            "partial": self.reading.is_partial, "tails": self.tails,
        }  # fmt: skip


def _files(count: int, which: str = "") -> str:
    return f"{count:,} file{'' if count == 1 else 's'}{which} {'was' if count == 1 else 'were'}"


def rank_of(event: Event) -> int:
    """0 for a cause from outside, 1 for one of the program, 2 and above for what victims and launchers say."""
    kind = str(event.data.get("class"))
    if kind in OUTER_CAUSES or (kind == "xid" and event.severity.value == "critical"):
        return 0
    if kind in INNER_CAUSES and not (kind == "killed" and event.data.get("signal") not in (1, 9)):
        return 1
    if event.data.get("is_signalled"):
        return 8  # a rank that heard of another one's timeout
    return 2 + _WEAKER.index(kind) if kind in _WEAKER else 9


def choose(
    attempt: int, files: Sequence[FileFaults], started_ns: int | None = None, until_ns: int | None = None,
    places: Mapping[int, str] | None = None, reading: Reading | None = None, before: ToldBefore | None = None,
) -> Postmortem:  # fmt: skip
    """``started_ns``, ``until_ns``: when the attempt and the next one began, None = not known. ``places``: rank -> ``host/local rank/GPU``.
    ``before``: what the files said at earlier deaths."""
    known = before or ToldBefore()
    found = [
        (file, event) for file in files for event in _of_attempt(file.events, started_ns, until_ns, known.of(file.path, attempt))
    ]
    first = min(found, key=lambda item: _key(item, _earliest(found)), default=None)
    hosts = {event.data["rank"]: str(event.data["host"]) for _, event in found if "host" in event.data and "rank" in event.data}
    cause = _cause(*first, {**hosts, **(places or {})}) if first is not None and rank_of(first[1]) < 9 else None
    told_by = first[1] if first is not None else None
    victims = Counter({str(e.data.get("class")): 0 for _, e in found if not _repeats(e, told_by)})
    ranks: set[int] = set()
    unnamed: set[str] = set()
    hidden = 0
    for file, event in found:
        data = event.data
        for kind, count in dict(data.get("followed_by") or {}).items():
            victims[str(kind)] += int(count)
        hidden = max(hidden, int(data.get("ranks_followed_count") or 0))
        if event is told_by:
            continue
        is_repeated = _repeats(event, told_by)
        hidden = max(hidden, int(data.get("ranks_seen_count") or 0) - is_repeated)
        victims.update({} if is_repeated else {str(data.get("class")): 1})
        told = set(_whole(data.get("ranks_seen"))) | set(_whole([data.get("rank")]))
        ranks |= told
        if not told and not is_repeated:
            unnamed.add(file.path)
    if cause is not None:
        ranks.discard(cause.rank if cause.rank is not None else -1)
        unnamed.discard(cause.file)
    followers = max(len(ranks) + len(unnamed), hidden)
    suspects = tuple(rank for rank in _suspects(found) if cause is None or rank != cause.rank)
    return Postmortem(attempt, cause, dict(victims), followers, suspects, reading or Reading())


def _repeats(event: Event, cause: Event | None) -> bool:
    """Whether the event is the cause, or tells it once more: the job's log repeats what stands in a rank's own file."""
    if cause is None or event is cause:
        return event is cause
    if event.data.get("class") != cause.data.get("class"):
        return False
    rank, of_cause = event.data.get("rank"), cause.data.get("rank")
    return rank == of_cause if rank is not None and of_cause is not None else event.text == cause.text


def _earliest(found: Iterable[tuple[FileFaults, Event]]) -> int:
    return min((_time(file, event) for file, event in found if rank_of(event) <= 1), default=0)


def _key(item: tuple[FileFaults, Event], earliest_ns: int) -> tuple[int, int, int]:
    file, event = item
    rank, time_ns = rank_of(event), _time(file, event)
    if rank <= 1:
        is_same_moment = time_ns - earliest_ns <= SAME_MOMENT_NS
        return (0 if is_same_moment else 1, rank if is_same_moment else 0, time_ns)
    return (rank, 0, time_ns)


def _time(file: FileFaults, event: Event) -> int:
    return event.time_ns if event.time_ns is not None else file.mtime_ns


def _of_attempt(
    events: Sequence[Event], started_ns: int | None, until_ns: int | None, told: Sequence[str]
) -> list[Event]:  # fmt: skip
    """Without what is of other attempts by its own time, by its place before or after such a line, or because it was there before."""
    begin, end = 0, len(events)
    for index, event in enumerate(events):
        if event.time_ns is None:
            continue
        if started_ns is not None and event.time_ns < started_ns - BEFORE_START_NS:
            begin = index + 1
        elif until_ns is not None and event.time_ns >= until_ns:
            end = min(end, index)
    within = [
        event
        for index, event in enumerate(events)
        if (begin <= index < end or event.time_ns is not None) and _is_within(event, started_ns, until_ns)
    ]
    new = events[_overlap(told, [_key_of(event) for event in events]) :]
    later = [event for event in within if any(event is one for one in new)]
    # The same lines again and nothing else: a reader that joins equal ones cannot tell, and the file was written to since.
    return later or within


def _overlap(told: Sequence[str], keys: Sequence[str]) -> int:
    """How many of the events at the beginning were the last ones at the death before; the end of a file that grew begins later."""
    for count in range(min(len(told), len(keys)), 0, -1):
        if list(told[-count:]) == list(keys[:count]):
            return count
    return 0


def _key_of(event: Event) -> str:
    text = f"{event.data.get('class')}|{event.data.get('rank')}|{event.time_ns}|{event.text[:300]}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _is_within(event: Event, started_ns: int | None, until_ns: int | None) -> bool:
    """An event without a time may be of any attempt; the file's own time was looked at by whoever read it."""
    if event.time_ns is None:
        return True
    is_late_enough = started_ns is None or event.time_ns >= started_ns - BEFORE_START_NS
    return is_late_enough and (until_ns is None or event.time_ns < until_ns)


def _cause(file: FileFaults, event: Event, places: Mapping[int, str]) -> Cause:
    data = event.data
    rank, host = data.get("rank"), data.get("host")
    rank = rank if isinstance(rank, int) else None
    place = places.get(rank, "") if rank is not None else ""
    if host is None and place:
        host = place.split("/", 1)[0]
    time_ns = event.time_ns if event.time_ns is not None else file.mtime_ns
    return Cause(
        str(data["class"]),
        _name(event),
        event.text[:500],
        str(host) if host is not None else None,
        rank,
        place,
        time_ns,
        file.path,
    )


def _name(event: Event) -> str:
    """As people call it."""
    data = event.data
    kind = str(data["class"])
    if kind == "out_of_memory":
        return "host out of memory" if data.get("memory") == "host" else "CUDA out of memory"
    if kind == "exception":
        return str(data.get("exception") or "exception")[:120]
    if kind == "config_error":
        return f"cannot start ({str(data['exception'])[:120]})" if data.get("exception") else "cannot start (wrong arguments)"
    if kind == "xid":
        return f"Xid {data.get('xid')}"
    if kind == "killed" and data.get("signal") == 1:
        return "ended as its terminal was closed (signal 1)"
    if kind in ("killed", "crashed") and data.get("signal"):
        return f"{kind} by signal {data['signal']}"
    if kind == "nccl_timeout":
        return f"NCCL timeout of {data['op']}" if data.get("op") else "NCCL timeout"
    return {"gpu_error": "GPU error", "cuda_error": "CUDA error"}.get(kind, kind.replace("_", " "))


def _suspects(found: Sequence[tuple[FileFaults, Event]]) -> tuple[int, ...]:
    """Ranks that no timeout came from. Nothing when most are silent: then the timeouts were those of a part of the job."""
    waited: set[int] = set()
    size = 0
    for _, event in found:
        if event.data.get("class") != "nccl_timeout" or event.data.get("is_sub_group"):
            continue
        if event.data.get("is_signalled"):
            size = max(size, *(rank + 1 for rank in _whole([event.data.get("rank")])), 0)
            continue
        named = _whole(event.data.get("ranks_seen"))
        if int(event.data.get("ranks_seen_count") or 0) > len(named):
            return tuple(_whole(event.data.get("ranks_missing"))[:MAX_SUSPECTS])
        waited.update(named)
        size = max(size, *_whole([event.data.get("world_size")]), 0)
    size = max(size, *(rank + 1 for rank in waited), 0)
    missing = [rank for rank in range(size) if rank not in waited]
    return tuple(missing[:MAX_SUSPECTS]) if waited and len(missing) <= len(waited) else ()


def _whole(values: object) -> list[int]:
    if not isinstance(values, (list, tuple)):
        return []
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
