"""Notices that wait to be told together, and the one notice that sums them up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.alerts.notice import Item, Notice, NoticeKind, Verb, notice_id
from trainvitals.records import Severity

#: Why they wait; the rule of the summary, in whose words it is told.
QUIET, FLOOD, HEALED = "summary_quiet", "summary_flood", "summary_healed"
WHY: Mapping[str, str] = {
    QUIET: "held back in quiet hours", FLOOD: "in one minute, too many to tell one by one", HEALED: "over before anybody had to be told",
}  # fmt: skip
#: Notices that a heap keeps in full and a summary names, the newest; those before are counted.
MAX_KEPT = 20
_WHAT_CHARACTERS = 200


@dataclass
class Heap:
    """Of one target. more: how many were counted only. day: that in which it began, of a daily one."""

    notices: list[Notice] = field(default_factory=list)
    more: int = 0
    worst: str = Severity.INFO.value
    day: str = ""

    def add(self, notice: Notice) -> None:
        """The same one again changes nothing."""
        if self.has(notice.id):
            return
        self.notices.append(notice)
        self.worst = max(Severity(self.worst), notice.severity, key=lambda severity: severity.rank).value
        if len(self.notices) > MAX_KEPT:
            del self.notices[0]
            self.more += 1

    def has(self, id: str) -> bool:
        return any(one.id == id for one in self.notices)

    def drop(self, incident_id: str) -> None:
        """It was told in another way."""
        self.notices = [one for one in self.notices if one.incident_id != incident_id]
        if not self.more:
            gravest = max((one.severity for one in self.notices), key=lambda severity: severity.rank, default=Severity.INFO)
            self.worst = gravest.value

    def holds(self, incident_id: str) -> bool:
        return any(one.incident_id == incident_id for one in self.notices)

    def incidents(self) -> set[str]:
        return {one.incident_id for one in self.notices}

    @property
    def severity(self) -> Severity:
        """The highest of all that were added."""
        return Severity(self.worst)

    def to_mapping(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "notices": [one.to_mapping() for one in self.notices], "more": self.more, "worst": self.worst, "day": self.day,
        }  # fmt: skip

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Heap:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        return cls(
            [Notice.from_mapping(one) for one in data["notices"]], int(data["more"]), Severity(data["worst"]).value, str(data["day"])
        )  # fmt: skip


def summary(heap: Heap, why: str, target: str, number: int, wall_ns: int) -> Notice:
    """One notice of all in the heap. number: of this target's summaries, for people. What is in it names it for good: another one of the
    same number, after the state was lost, is another message."""
    newest = heap.notices[-1]
    own = f"{newest.run}/summary/{target}"
    items = tuple(
        Item(
            one.kind,
            Verb.RECOVERED if one.kind is NoticeKind.RECOVERED else one.verb,
            one.severity,
            one.rule,
            one.what[:_WHAT_CHARACTERS],
            one.at_ns,
            one.step,
            one.value,
            one.expected,
        )
        for one in heap.notices
    )
    return Notice(
        id=notice_id("\0".join((own, *(one.id for one in heap.notices))), NoticeKind.SUMMARY.value, number), kind=NoticeKind.SUMMARY, number=number, run=newest.run, incident_id=own,
        family="", severity=heap.severity, verb=Verb.SUMMARY, rule=why,
        rules=tuple(dict.fromkeys(one.rule for one in heap.notices)), what=WHY[why], at_ns=wall_ns,
        opened_at_ns=min(one.at_ns for one in heap.notices), link=newest.link, items=items, more=heap.more,
    )  # fmt: skip
