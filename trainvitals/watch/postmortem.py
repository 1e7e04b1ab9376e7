"""When a trainer died: read the ends of all its logs in a thread, say what came first, keep the ends. Never waits for a file system."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainvitals.clock import Clock, SystemClock
from trainvitals.incidents.postmortem import FileFaults, Postmortem, Reading, ToldBefore, choose, rank_of
from trainvitals.logs.tails import Tail, TailScanner, path_origin, path_origins, placed, read_head
from trainvitals.records import Event
from trainvitals.settings import LogSettings, RunSettings
from trainvitals.watch.metadata import METADATA_DIR, read_file
from trainvitals.watch.tail_archive import TAILS_DIR, KeptTail, TailBudget, write_archive
from trainvitals.watch.tail_reading import MAX_FILES, TailReading

#: Reading and judging 5,120 files must be over by then; what is left counts as not read.
BUDGET_S = 30.0
#: After that the ends are kept; a disk that hangs costs the ends, not the answer.
KEEP_S = 15.0
MAX_WAITING = 8
MAX_TROUBLES = 8
NAMED_PLACES = 8
MAX_HOOK_FILES, MAX_HEADER_BYTES = 64, 8192
#: History that is read again: the ends of the logs tell of later attempts.
OLD_NS = 3_600 * 10**9
#: A file that did not change since this long before the attempt began tells of another one.
SLACK_NS = 60 * 10**9


@dataclass(frozen=True)
class Death:
    """What is to be looked into. ``time_ns``: when the run died; ``started_ns``: when the attempt began, ``until_ns``: when the next
    one did; None = not known, or not yet."""

    attempt: int
    time_ns: int
    started_ns: int | None = None
    until_ns: int | None = None
    step: int = 0


@dataclass(frozen=True)
class Finished:
    """``trouble``: why the ends could not be kept, "" = they are, or were not to be."""

    death: Death
    postmortem: Postmortem
    trouble: str = ""


class Memory:
    """What the logs said at earlier deaths, for as long as the watchdog runs."""

    def __init__(self) -> None:
        self.told = ToldBefore()


class PostmortemRunner:
    """One death at a time; ``poll`` never waits. What was asked and not handed out is state: after a kill it is done again."""

    def __init__(
        self,
        run: RunSettings,
        settings: LogSettings,
        clock: Clock | None = None,
        *,
        in_thread: bool = True,
        budget_s: float = BUDGET_S,
    ) -> None:
        self._run, self._settings, self._clock = run, settings, clock or SystemClock()
        self._in_thread, self._budget_s = in_thread, budget_s
        self._lock, self._memory = threading.Lock(), Memory()
        self._waiting: list[Death] = []
        self._number = 0  # of the work in progress; a thread that comes back too late is no longer listened to
        self._is_working = False
        self._until_s = 0.0
        self._chosen: Postmortem | None = None
        self._done: Finished | None = None

    def ask(self, death: Death) -> None:
        """Look into it as soon as possible, once."""
        is_known = any((known.attempt, known.step) == (death.attempt, death.step) for known in self._waiting)
        if len(self._waiting) < MAX_WAITING and not is_known:
            self._waiting.append(death)

    def poll(self, newest_attempt: int, now_ns: int) -> Finished | None:
        """A finished one, if there is one. Starts the next; a death that others followed long ago is not told from theirs."""
        while not self._is_working and self._waiting and self._waiting[0].attempt < newest_attempt:
            if now_ns - self._waiting[0].time_ns < OLD_NS:
                break
            self._waiting.pop(0)
        if not self._waiting:
            return None
        if not self._is_working:
            self._start(self._waiting[0])
        with self._lock:
            done = self._done
            if done is None and self._clock.monotonic_s() > self._until_s:
                done = self._given_up()
            if done is None:
                return None
            self._done, self._chosen, self._is_working = None, None, False
            self._number += 1
        self._waiting.pop(0)
        return done

    def _given_up(self) -> Finished:
        death = self._waiting[0]
        reading = Reading(left=1, seconds=self._budget_s, troubles=("the file system did not answer in time",))
        chosen = self._chosen or Postmortem(death.attempt, None, {}, 0, (), reading)
        return Finished(death, chosen, "the ends of the logs could not be kept: the file system did not answer in time")

    def _start(self, death: Death) -> None:
        self._is_working = True
        self._until_s = self._clock.monotonic_s() + self._budget_s + KEEP_S
        if self._in_thread:
            threading.Thread(target=self._work, args=(death, self._number), name="postmortem", daemon=True).start()
        else:
            self._work(death, self._number)

    def _work(self, death: Death, number: int) -> None:
        def choose_now(chosen: Postmortem) -> None:
            with self._lock:
                if number == self._number:
                    self._chosen = chosen

        try:
            finished = look_into(self._run, self._settings, death, self._clock, self._budget_s, choose_now, self._memory)
        except Exception as error:  # noqa: BLE001 (said and stored; a fault in reading must not end the watchdog)
            reading = Reading(troubles=(f"{type(error).__name__}: {error}"[:300],))
            finished = Finished(
                death, Postmortem(death.attempt, None, {}, 0, (), reading), f"the post-mortem failed: {reading.troubles[0]}"
            )
        with self._lock:
            if number == self._number:
                self._done = finished

    def to_state(self) -> list[dict[str, Any]]:
        """JSON values only."""
        return [asdict(death) for death in self._waiting]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Do again what was asked and not handed out."""
        self._waiting = [Death(**death) for death in state]


def look_into(
    run: RunSettings, settings: LogSettings, death: Death, clock: Clock, budget_s: float, choose_now: Callable[[Postmortem], None],
    memory: Memory | None = None,
) -> Finished:  # fmt: skip
    """Read, judge, keep. ``choose_now`` is told the answer before anything is written. memory: of the deaths before; it learns this one."""
    memory = memory or Memory()
    began_s = clock.monotonic_s()
    tails_dir = str(Path(run.dir) / TAILS_DIR)
    if death.started_ns is not None and death.started_ns > clock.time_ns():
        death = replace(death, started_ns=None)  # a log whose time zone is not what the settings say
    since_ns = None if death.started_ns is None else death.started_ns - SLACK_NS
    scanner = TailScanner(run.log_timezone)
    budget = TailBudget(settings.kept_bytes if settings.kept_attempts else 0)
    found: dict[str, tuple[Tail, list[Event]]] = {}
    counts = {"read": 0, "unreadable": 0, "skipped": 0}
    troubles: list[str] = []
    reading = TailReading((*run.logs, *run.rank_logs), settings.tail_bytes, clock, began_s + budget_s, since_ns, tails_dir)
    for one in reading:
        if one.tail is None:
            counts["unreadable" if one.error else "skipped"] += 1
            if one.error and len(troubles) < MAX_TROUBLES:
                troubles.append(f"{one.path}: {one.error}")
            continue
        counts["read"] += 1
        events = scanner.scan(one.tail, is_one_rank=path_origin(one.path).rank is not None)
        if events:
            found[one.path] = (replace(one.tail, data=b""), events)
        _keep(budget, one.path, one.tail, events)
    origins = path_origins(found)
    files = [
        FileFaults(path, tail.mtime_ns, tuple(placed(event, origins[path]) for event in events))
        for path, (tail, events) in sorted(found.items(), key=lambda item: (item[1][0].mtime_ns, item[0]))
    ]
    left = max(0, reading.listed - sum(counts.values())) + (not reading.is_listed)
    if reading.beyond:
        troubles.insert(0, f"{reading.beyond:,} files beyond the first {MAX_FILES:,} were not asked for; name fewer in rank_logs")
    told = Reading(
        **counts, left=left, beyond=reading.beyond, seconds=round(clock.monotonic_s() - began_s, 3), troubles=tuple(troubles)
    )
    causes = {event.data.get("rank") for file in files for event in file.events if rank_of(event) <= 1}
    places = rank_places(run.dir, death.attempt) or _hook_hosts(run.dir, causes)
    result = choose(death.attempt, files, death.started_ns, death.until_ns, places, told, memory.told)
    memory.told = memory.told.with_files(death.attempt, files)
    choose_now(result)
    kept = budget.kept()
    if not kept or not settings.kept_attempts:
        return Finished(death, result)
    about = {"run": run.name, "message": result.message, "left_out": budget.given_up, "unreadable": troubles}
    try:
        where = write_archive(run.dir, death.attempt, kept, about, settings.kept_attempts)
    except OSError as error:
        return Finished(death, result, f"the ends of the logs could not be kept in {tails_dir}: {error.strerror or error}.")
    return Finished(death, replace(result, tails=where))


def _keep(budget: TailBudget, path: str, tail: Tail, events: list[Event]) -> None:
    importance = min((rank_of(event) for event in events), default=99)
    priority = (importance, tail.mtime_ns)
    if not tail.data or not budget.wants(priority):
        budget.given_up += bool(tail.data)
        return
    facts = {"faults": [str(event.data["class"]) for event in events]}
    budget.add(KeptTail(priority, path, gzip.compress(tail.data, 1, mtime=0), tail.size, tail.mtime_ns, facts))


def rank_places(run_dir: str, attempt: int) -> Mapping[int, str]:
    """Rank -> ``host/local rank/GPU``, when the trainer told it; else empty."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        ranks = read_file(Path(run_dir) / METADATA_DIR / f"attempt-{attempt:05d}.json")["sections"]["ranks"]
        if isinstance(ranks, dict):
            return {int(rank): str(place)[:200] for rank, place in ranks.items() if str(rank).isdecimal()}
    return {}


def _hook_hosts(run_dir: str, ranks: Iterable[object]) -> Mapping[int, str]:
    """Rank -> host, from the first record of the hook's files; a trainer that tells nothing else tells that."""
    found: dict[int, str] = {}
    for rank in sorted(rank for rank in ranks if isinstance(rank, int))[:MAX_HOOK_FILES]:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            header = json.loads(
                read_head(str(Path(run_dir) / f"metrics.rank{rank:05d}.jsonl"), MAX_HEADER_BYTES).split(b"\n", 1)[0]
            )
            if isinstance(host := header.get("host"), str) and host:
                found[rank] = host[:100]
    return found


def with_places(event: Event, places: Mapping[int, str]) -> Event:
    """A ``fault`` event that names host and GPU beside its ranks."""
    data = dict(event.data)
    rank, missing = data.get("rank"), data.get("ranks_missing")
    if isinstance(rank, int) and rank in places:
        data["place"] = places[rank]
        data.setdefault("host", places[rank].split("/", 1)[0])
    if isinstance(missing, list):
        named = {str(rank): places[rank] for rank in missing[:NAMED_PLACES] if isinstance(rank, int) and rank in places}
        if named:
            data["ranks_missing_places"] = named
    return replace(event, data=data)
