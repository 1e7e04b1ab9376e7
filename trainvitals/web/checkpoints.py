"""Everything that is stored of a run's checkpoints: reports, saves, what a restart would load, what is pinned, the disk's room.

A first look reads the newest events, later looks only what came since: a run of months tells tens of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainvitals.incidents.checkpoint_card import Room
from trainvitals.incidents.saves import SaveTime, saves_of
from trainvitals.records import CheckpointReport, Event, ResumeChoice
from trainvitals.store.protocol import Store
from trainvitals.web.facts import Told, Unreadable, checkpoint_of, history_of

Record = TypeVar("Record")
DAY_NS = 86_400 * 10**9
#: Kinds that are read together, and how many of the newest.
READS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("checkpoint",), 20_000),
    (("save", "pin", "pointer", "room"), 20_000),
    (("phase", "message"), 5_000),
)
#: Since the last look: a spool delivers late.
OVERLAP_NS = 10 * 60 * 10**9
#: So often all of that is read; in between the newest few, and all when there is more news than that.
OVERLAP_EVERY_NS = 60 * 10**9
FEW = 200
#: After so long all is read again, longer where there is much: history may have been imported meanwhile.
READ_AGAIN_NS = 120 * 10**9
READ_AGAIN_NS_EACH = 50 * 10**6
MAX_TEXT = 500


@dataclass(frozen=True)
class CheckpointFacts:
    """reports: the newest of each path, by step. history: (attempt, report), the newest of each path and attempt. saves: by step.
    choices: what a restart would load from each directory. pinned: path -> where it is kept from deletion. checks: attempt -> what
    its start found when it compared itself with the manifest of the checkpoint it went on from."""

    reports: tuple[CheckpointReport, ...] = ()
    history: tuple[tuple[int, CheckpointReport], ...] = ()
    saves: tuple[SaveTime, ...] = ()
    choices: tuple[ResumeChoice, ...] = ()
    pinned: Mapping[str, str] = field(default_factory=dict)
    rooms: tuple[Room, ...] = ()
    checks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    unreadable: Unreadable = field(default_factory=Unreadable)


@dataclass
class _Held:
    read_ns: int
    newest_ns: int = 0
    overlap_ns: int = 0
    reports: dict[tuple[int, str], Told] = field(default_factory=dict)
    others: dict[tuple[int, str], Event] = field(default_factory=dict)
    phases: dict[tuple[int, str], Event] = field(default_factory=dict)
    unread: dict[tuple[int, str], str] = field(default_factory=dict)
    result: CheckpointFacts | None = None


@dataclass
class CheckpointReader:
    """One for each poller."""

    _held: dict[str, _Held] = field(default_factory=dict)

    def of(self, store: Store, run: str, now_ns: int) -> CheckpointFacts:
        """What is known now. Raises what the store raises."""
        held = self._held.get(run)
        if held is None or not 0 <= now_ns - held.read_ns < _read_again_ns(held):
            held = _Held(now_ns)
        start_ns = max(0, min(held.newest_ns, now_ns) - OVERLAP_NS)
        is_new = held.result is None
        is_whole = now_ns - held.overlap_ns >= OVERLAP_EVERY_NS
        for kinds, limit in READS:
            few = limit if is_whole else FEW
            events = store.events(run, kinds, start_ns, now_ns + DAY_NS, limit=few, newest_first=True)
            taken = [_take(held, event) for event in events]
            if few < limit and len(events) == few and any(taken):
                taken += [
                    _take(held, event)
                    for event in store.events(run, kinds, start_ns, now_ns + DAY_NS, limit=limit, newest_first=True)
                ]
            is_new = any(taken) or is_new
        held.overlap_ns = now_ns if is_whole else held.overlap_ns
        if is_new:
            _forget(held)
            held.result = _facts(held)
        self._held[run] = held
        assert held.result is not None
        return held.result


def _read_again_ns(held: _Held) -> int:
    return READ_AGAIN_NS + READ_AGAIN_NS_EACH * (len(held.reports) + len(held.others))


def _take(held: _Held, event: Event) -> bool:
    """Whether it is new and of use."""
    key = (event.time_ns or 0, event.id)
    if event.kind == "checkpoint":
        if key in held.reports or key in held.unread:
            return False
        held.newest_ns = max(held.newest_ns, key[0])
        try:
            held.reports[key] = Told(event.time_ns or 0, event.attempt or 0, checkpoint_of(event))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            held.unread[key] = f"{event.kind} {event.id}: {error}"
        return True
    is_of_use = event.data.get("phase") == "checkpoint" if event.kind == "phase" else True
    if event.kind == "message":
        is_of_use = isinstance(event.data.get("resume_check"), Mapping)
    of_kind = held.phases if event.kind in ("phase", "message") else held.others
    if not is_of_use or key in of_kind:
        return False
    held.newest_ns = max(held.newest_ns, key[0])
    of_kind[key] = event
    return True


def _forget(held: _Held) -> None:
    """Keep as many as one look would read."""
    for_each: tuple[tuple[dict[tuple[int, str], Any], int], ...] = (
        (held.reports, READS[0][1]), (held.unread, READS[0][1]), (held.others, READS[1][1]), (held.phases, READS[2][1]),
    )  # fmt: skip
    for known, limit in for_each:
        for key in sorted(known)[: max(0, len(known) - limit)]:
            del known[key]


def _facts(held: _Held) -> CheckpointFacts:
    told = [held.reports[key] for key in sorted(held.reports)]
    newest = {one.report.path: one.report for one in told}
    others = [held.others[key] for key in sorted(held.others)]
    unreadable = Unreadable(len(held.unread), next(reversed(held.unread.values()), ""))
    by_kind: dict[str, list[Event]] = {"save": [], "pin": [], "pointer": [], "room": []}
    for event in others:
        by_kind[event.kind].append(event)
    return CheckpointFacts(
        reports=tuple(sorted(newest.values(), key=lambda one: (one.step is None, one.step or 0, one.path))),
        history=history_of(told),
        saves=saves_of([*by_kind["save"], *held.phases.values()]),
        choices=tuple(_readable(by_kind["pointer"], choice_of, lambda one: one.directory, unreadable)),
        pinned=pinned_by(by_kind["pin"]),
        rooms=tuple(_readable(by_kind["room"], room_of, lambda one: one.directory, unreadable)),
        checks={
            event.attempt: event.data["resume_check"]
            for event in (held.phases[key] for key in sorted(held.phases))
            if event.kind == "message" and event.attempt is not None
        },
        unreadable=unreadable,
    )


def _readable(
    events: Iterable[Event], make: Callable[[Event], Record], key: Callable[[Record], str], unreadable: Unreadable
) -> list[Record]:
    newest: dict[str, Record] = {}
    for event in events:
        try:
            record = make(event)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            unreadable.note(event, error)
            continue
        newest[key(record)] = record
    return list(newest.values())


def choice_of(event: Event) -> ResumeChoice:
    """The choice that an event of kind ``pointer`` carries; raises on anything that is none."""
    data = event.data
    path, step = data["path"], data.get("step")
    return ResumeChoice(
        str(data["directory"]), None if path is None else str(path), None if step is None else int(step), str(data["how"])[:MAX_TEXT],
        str(data.get("problem") or "")[:MAX_TEXT],
    )  # fmt: skip


def room_of(event: Event) -> Room:
    """The room that an event of kind ``room`` tells; raises on anything that is none."""
    return Room(str(event.data["directory"]), int(event.data["free_bytes"]), int(event.data["total_bytes"]), event.time_ns or 0)


def pinned_by(events: Sequence[Event]) -> dict[str, str]:
    """Path of each checkpoint that is kept from deletion now -> where. events: of kind ``pin``, by time."""
    pinned: dict[str, str] = {}
    for event in events:
        path, state = str(event.data.get("path") or ""), event.data.get("state")
        if path and state == "kept":
            pinned[path] = str(event.data.get("pinned") or "")
        elif state in ("let_go", "broken"):
            pinned.pop(path, None)
    return pinned
