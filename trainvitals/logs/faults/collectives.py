"""Which ranks a hanging collective waited for, from what the watchdogs of PyTorch say of their work (c10d/ProcessGroupNCCL.cpp).

A rank whose watchdog times out waited. The others are told to dump through the store, and say how much work they had queued and completed:
who had queued more than was completed waited too, and who had nothing pending is the one that did not come. That counts only where the
group that timed out is the whole job, for what is said on a dump signal is of that group alone. Numbers of work of different groups are
never compared, nor those of groups that have no name of their own in the whole job (``PG 3``, older versions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_RANKS = 16_384
MAX_GROUPS = 64
DEFAULT = "default"
_GROUP = re.compile(r"\[PG (?:ID \d{1,6} PG GUID (\S{1,80}?)|(\d{1,6})(?: ?\((\w{1,60})\))?) Rank \d{1,7}\]", re.ASCII)
_NUMBERS = {
    "seq_num": re.compile(r"SeqNum=(\d{1,18})|watchdog at work(?: sequence id)?: (\d{1,18})", re.ASCII),
    "timeout_ms": re.compile(r"Timeout\(ms\)=(\d{1,18})", re.ASCII),
    "last_enqueued": re.compile(r"[Ll]ast enqueued (?:[A-Z]{3,5} )?work: (-?\d{1,18})", re.ASCII),
    "last_completed": re.compile(r"[Ll]ast completed (?:[A-Z]{3,5} )?work: (-?\d{1,18})", re.ASCII),
}
_OPERATION = re.compile(r"OpType=(\w{1,60})", re.ASCII)
_SIGNAL_OF = re.compile(r"collective timeout from {1,3}rank (\d{1,7})\b", re.ASCII)
_BARRIER = re.compile(r"\bRanks? (\d{1,7}(?:, ?\d{1,7}){0,63}) failed to pass monitoredBarrier", re.ASCII)


def group_of(text: str) -> str | None:
    """The process group that a line names: ``DEFAULT`` for the whole job, "" for one without a name in the whole job, None for none."""
    found = _GROUP.search(text)
    if found is None:
        return None
    if "default_pg" in found[0] or found[1] == "0" or (found[2] == "0" and not found[3]):
        return DEFAULT
    return found[1] or ""


@dataclass
class Hang:
    """groups: those that timed out. work: group, [last enqueued, rank] of who queued least and most. pending: [rank, 0 or 1] of ranks that
    were told to dump: whether anything was pending. absent: ranks that a monitored barrier names. waited: whether any rank timed out itself."""

    groups: list[str] = field(default_factory=list)
    work: list[list[Any]] = field(default_factory=list)
    pending: list[list[int]] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    waited: bool = False

    def add(self, says: str, text: str, rank: int | None, detail: dict[str, Any]) -> None:
        """One line; ``detail`` gets what it says of the work."""
        is_signal, group = says == "signal", group_of(text)
        self.waited = self.waited or not is_signal
        if group is not None and not is_signal and group not in self.groups and len(self.groups) < MAX_GROUPS:
            self.groups.append(group)
        if found := _BARRIER.search(text):
            self.absent = sorted({*self.absent, *map(int, found[1].split(","))})[:MAX_RANKS]
        numbers = {}
        for name, pattern in _NUMBERS.items():
            if found := pattern.search(text):
                numbers[name] = int(found[1] or found[2] if pattern.groups == 2 else found[1])
        if is_signal:
            if found := _SIGNAL_OF.search(text):
                detail.setdefault("timed_out_rank", int(found[1]))
            if rank is not None and len(numbers) == 2 and group == DEFAULT and len(self.pending) < MAX_RANKS:
                self.pending.append([rank, int(numbers["last_enqueued"] > numbers["last_completed"])])
        else:
            if found := _OPERATION.search(text):
                detail.setdefault("op", found[1])
            for name, value in numbers.items():
                detail.setdefault(name, value)
        if rank is not None and "last_enqueued" in numbers and group != "":
            self._add_work(group or DEFAULT, numbers["last_enqueued"], rank)

    def _add_work(self, group: str, enqueued: int, rank: int) -> None:
        known = next((row for row in self.work if row[0] == group), None)
        if known is None:
            if len(self.work) < MAX_GROUPS:
                self.work.append([group, [enqueued, rank]])
            return
        ends = sorted([*known[1:], [enqueued, rank]])
        known[1:] = [ends[0], ends[-1]]

    @property
    def is_of_whole_job(self) -> bool:
        """Whether only the group of all ranks timed out, as far as the log says."""
        return self.groups == [DEFAULT]

    @property
    def waiting(self) -> set[int]:
        """Ranks that had work pending when they were told to dump."""
        return {rank for rank, is_pending in self.pending if is_pending} if self.is_of_whole_job else set()

    @property
    def idle(self) -> list[int]:
        """Ranks that had nothing pending: they did not come to the collective."""
        return (
            sorted({rank for rank, is_pending in self.pending if not is_pending} - self.waiting) if self.is_of_whole_job else []
        )

    @property
    def behind(self) -> int | None:
        """The rank that had queued less work than the others of its group."""
        return next((row[1][1] for row in self.work if len(row) == 3 and row[1][0] < row[2][0]), None)
