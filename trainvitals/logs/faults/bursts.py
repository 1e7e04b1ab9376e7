"""Many lines about one death become one event: what a line says is added to its class, then causes are told from what followed.

A class of level 4 or below that comes after a class of level 3 or more only followed it, and so does what a launcher or a peer says
(level 2 and below) whatever the order. Level 5 never follows anything; level 0 stands for itself. See ``table``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from trainvitals.logs.faults.collectives import Hang
from trainvitals.logs.faults.origin import Origin
from trainvitals.logs.faults.table import CLASSES
from trainvitals.masking import mask_cut_text, mask_json
from trainvitals.records import Event, Severity

#: Ranks remembered of one class, and named in one event (the counts are exact up to the first).
MAX_RANKS = 16_384
MAX_NAMED_RANKS = 1_024
#: Xids that mean failing hardware or firmware: NVIDIA's "XID Errors" table, and what large clusters drain a node for.
FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 123, 136, 140, 143, 144, 145, 149, 150, 158, 162, 167})
_XID = re.compile(r"(S?)Xid \((?:PCI:)?([0-9a-fA-F:.]{1,20})\): (\d{1,6})(?:, (Fatal|Non-fatal)\b)?", re.ASCII)


@dataclass
class Seen:
    """One class in a burst. ``ranks``: those that said it; ``hang``: what they say of the collective."""

    kind: str
    level: int
    order: int
    count: int = 0
    time_ns: int | None = None
    text: str = ""
    rank: int | None = None
    host: str | None = None
    ranks: set[int] = field(default_factory=set)
    is_sub_group: bool = False
    has_job_rank: bool = False
    detail: dict[str, Any] = field(default_factory=dict)
    hang: Hang = field(default_factory=Hang)

    def add(self, level: int, text: str, origin: Origin, time_ns: int | None, detail: Mapping[str, Any]) -> None:
        """One more line."""
        self.count += 1
        if level > self.level:  # a kill says more than the request to end that other processes got
            self.level, self.text = level, ""
            self.detail.update({name: mask_json(value) for name, value in detail.items()})
        if self.time_ns is None:
            self.time_ns = time_ns
        if not self.text:
            self.text = mask_cut_text(text.strip(), 500)
        if detail.get("says") == "signal":
            return  # told to dump because another rank waits
        if self.rank is None and origin.rank is not None:
            self.rank = origin.rank
            self.host = origin.host or self.host
        elif self.host is None and (origin.rank is None or origin.rank == self.rank):
            self.host = origin.host
        if origin.rank is not None and len(self.ranks) < MAX_RANKS:
            self.ranks.add(origin.rank)
        self.has_job_rank = self.has_job_rank or (origin.rank is not None and not origin.is_group_rank)
        if not origin.is_group_rank and None not in (origin.rank, origin.group_rank):
            self.is_sub_group = self.is_sub_group or origin.rank != origin.group_rank
        for name, value in {**detail, "local_rank": origin.local_rank, "gpu": origin.gpu}.items():
            if value is not None and name not in self.detail:
                self.detail[name] = mask_json(value)

    def add_collective(self, text: str, rank: int | None, says: str) -> None:
        """What a line of the NCCL watchdog says of the work that hangs."""
        self.hang.add(says, text, rank, self.detail)


def xid_detail(text: str) -> dict[str, Any]:
    """Number and PCI address of an Xid line, or of a switch's (``sxid``, ``is_fatal``); empty when it is none."""
    found = _XID.search(text)
    if found is None:
        return {}
    if found[1]:
        return {"sxid": int(found[3]), "pci": found[2], "is_fatal": found[4] == "Fatal"}
    return {"xid": int(found[3]), "pci": found[2]}


def following(seen: Sequence[Seen], told: Mapping[str, int]) -> dict[str, str | None]:
    """Class -> the class that it only followed (None: one that was told earlier). ``told``: class -> level, since the last step."""
    ordered = sorted(seen, key=lambda one: one.order)
    found: dict[str, str | None] = {}
    for later in ordered:
        if later.level in (0, 5):
            continue
        causes = [one for one in ordered if one is not later and one.level > 0 and _followed(later, one)]
        if causes:
            found[later.kind] = max(causes, key=lambda one: (one.level, -one.order)).kind
        elif any(level >= min(later.level, 3) for level in told.values()):
            found[later.kind] = None
    # A chain (peer after process, process after cause) belongs to its head.
    for kind, cause in list(found.items()):
        for _ in range(len(found)):
            if cause is None or cause not in found:
                break
            cause = found[cause]
        found[kind] = cause
    return found


def _followed(later: Seen, cause: Seen) -> bool:
    if cause.order < later.order:
        return cause.level >= min(later.level, 3)
    return (later.level <= 2 and cause.level > later.level) or cause.level - later.level >= 2


def to_event(one: Seen, number: int, victims: Sequence[Seen], world_size: int, *, survived: bool) -> Event:
    """The event of a class and what only followed it; its id counts the events of that class in the log."""
    data: dict[str, Any] = {"class": one.kind, "count": one.count}
    if one.rank is not None:
        data["rank"] = one.rank
    if one.host is not None:
        data["host"] = one.host
    data |= {name: value for name, value in one.detail.items() if name != "says"}
    ranks = sorted(one.ranks | one.hang.waiting if one.hang.waited else one.ranks)
    if ranks:
        data |= {"ranks_seen": ranks[:MAX_NAMED_RANKS], "ranks_seen_count": len(ranks)}
    if one.kind == "nccl_timeout":
        data |= _missing(one, ranks, world_size) if ranks else {}
        if not one.hang.waited:
            data["is_signalled"] = True  # another rank timed out; what this log holds says nothing of who waited
    if victims:
        data["followed_by"] = {victim.kind: victim.count for victim in victims}
        if others := set().union(*(victim.ranks for victim in victims)) - one.ranks:
            data["ranks_followed_count"] = len(others)
    severity = CLASSES[one.kind].severity
    if one.kind == "xid" and (data.get("xid") in FATAL_XIDS or data.get("is_fatal")):
        severity = Severity.CRITICAL
    if one.level > 0 and not CLASSES[one.kind].is_deadly and any(CLASSES[victim.kind].is_deadly for victim in victims):
        severity = Severity.CRITICAL  # a broken connection that the run did not outlive
    if survived and one.level > 0:
        data["survived"] = True
        severity = Severity.WARNING
    return Event("fault", one.time_ns, id=f"{one.kind}/{number}", severity=severity, text=one.text, data=data)


def _missing(one: Seen, ranks: list[int], world_size: int) -> dict[str, Any]:
    """Ranks that said nothing. Without a world size in the log the largest rank seen bounds it from below."""
    data: dict[str, Any] = {}
    if one.hang.behind is not None:
        data["rank_behind"] = one.hang.behind
    if one.hang.absent:
        absent = one.hang.absent
        return data | {"ranks_missing": absent[:MAX_NAMED_RANKS], "ranks_missing_count": len(absent)}
    if one.is_sub_group:
        return data | {"is_sub_group": True}
    if idle := one.hang.idle:
        data |= {"ranks_not_waiting": idle[:MAX_NAMED_RANKS], "ranks_not_waiting_count": len(idle)}
    largest = max(ranks + idle)
    is_known = world_size > largest
    size = world_size if is_known else largest + 1
    seen = set(ranks)
    silent = size - len(seen)
    if not one.has_job_rank and silent > len(seen):
        return data  # a few ranks, numbered within their group: most of the job is not in it
    # A damaged line may name rank 1,999,999: only as many are looked for as are told.
    missing = islice((rank for rank in range(size) if rank not in seen), min(silent, MAX_NAMED_RANKS))
    data |= {"world_size": size, "ranks_missing": list(missing), "ranks_missing_count": silent}
    return data if is_known else data | {"is_at_least": True}


def to_state(seen: Mapping[str, Seen]) -> list[dict[str, Any]]:
    """JSON values only."""
    return [{**asdict(one), "ranks": sorted(one.ranks)} for one in seen.values()]


def from_state(state: Sequence[Mapping[str, Any]]) -> dict[str, Seen]:
    """What ``to_state`` was given."""
    # "work": what was kept before ``hang`` was, of a burst that an older version had begun.
    return {
        str(one["kind"]): Seen(
            **{name: value for name, value in one.items() if name not in ("ranks", "hang", "work")},
            ranks=set(one["ranks"]),
            hang=Hang(**one.get("hang", {"waited": True})),
        )
        for one in state
    }
