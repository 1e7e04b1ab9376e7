"""Everything that tells of a run's steps: the hook's file and the trainer's logs, with attempts numbered for good.

One step source per run (``steps_from``): the other one gives events only, so no step is counted twice.
"""

from __future__ import annotations

import contextlib
import glob
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from trainvitals.attempts import AttemptBook, AttemptEntry
from trainvitals.clock import Clock
from trainvitals.errors import InputError
from trainvitals.logs.tail import LogSource
from trainvitals.records import Event, Step
from trainvitals.settings import RunSettings
from trainvitals.watch.times import dated
from trainvitals.watch.unread_log import reading_digest, unread_words

HOOK_FILE = "metrics.rank00000.jsonl"
#: What the supervisor of the trainer did, in the hook's form of lines.
SUPERVISOR_FILE = "supervisor.events.jsonl"
#: What only the watchdog may say: from a trainer's file it is a message.
OWN_KINDS = frozenset({
    "finding", "incident", "breaker", "checkpoint", "verification", "postmortem", "pointer", "pin", "room", "supervisor",
    "acknowledgement", "silence",
})  # fmt: skip
#: More starts than this within a minute are no restarts: two trainers write one file.
STARTS_PER_MINUTE = 20
MINUTE_S = 60.0
NUMBERED = "The attempt is numbered all the same; it is written down as soon as that works."
#: Logs whose newest attempt is remembered.
MAX_NUMBERS = 2_000
#: A log that was last written so long before it is read was not written just now.
HISTORY_NS = 120 * 10**9
#: What a log still tells when the steps come from the hook.
KINDS_BESIDE_THE_HOOK = frozenset({"fault", "message"})
#: A trainer whose process is gone is called dead only after its file has been quiet for this long.
QUIET_BEFORE_DEAD_S = 3.0


@dataclass(frozen=True)
class TrainerProcess:
    """The process behind an attempt, as the hook's header names it. ``pid_namespace``: where its number means something."""

    attempt: int
    pid: int
    host: str
    started_ns: int
    pid_namespace: str = ""


class ProcessTable(Protocol):
    """Whether a process of this machine is alive."""

    def is_gone(self, process: TrainerProcess) -> bool:
        """True only when it is certain: same host, and no such process that started no later than its header says."""
        ...


class RunSources:
    """Reads what is new, in order, with attempt numbers of ``attempts.jsonl`` and a time on every record."""

    def __init__(
        self,
        run: RunSettings,
        clock: Clock,
        processes: ProcessTable,
        max_bytes: int = 4 << 20,
        custom: Mapping[str, type[Any]] = MappingProxyType({}),
    ) -> None:
        self._run = run
        self._custom = custom
        self._clock = clock
        self._processes = processes
        self._max_bytes = max_bytes
        self._reading = reading_digest(run.log_format, custom)
        self._book = AttemptBook(run.dir)
        self._hook_path = Path(run.dir) / HOOK_FILE
        self._hook = LogSource([glob.escape(str(self._hook_path))], "hook", "UTC", clock)
        self._supervisor = LogSource([glob.escape(str(Path(run.dir) / SUPERVISOR_FILE))], "hook", "UTC", clock)
        self._log = LogSource(run.logs, run.log_format, run.log_timezone, clock, custom=custom)
        self._numbers: dict[str, int] = {}
        self._resumed_from: dict[str, int] = {}
        self._last_seen_ns: dict[str, int] = {}
        self._step_times: dict[str, int] = {}
        self._current = 0
        self._process: TrainerProcess | None = None
        self._hook_seen = False
        self._quiet_since_s = clock.monotonic_s()
        self._starts: deque[float] = deque(maxlen=STARTS_PER_MINUTE)
        self._told_starts_s: float | None = None
        #: Why ``attempts.jsonl`` cannot be kept now; empty when it can.
        self.trouble = ""

    def fresh(self) -> RunSources:
        """The same sources, read from the start."""
        return RunSources(self._run, self._clock, self._processes, self._max_bytes, self._custom)

    def again(self, state: Mapping[str, Any] | None) -> RunSources:
        """The same sources from where ``state`` was taken, without one from the start. Numbers that are only promised stay."""
        made = self.fresh()
        if state is not None:
            made.restore(state)
        made._book.promised = dict(self._book.promised)
        return made

    @property
    def is_behind(self) -> bool:
        """Whether the last ``poll`` stopped at its limit: more may be waiting, so the present is not known yet."""
        return self._hook.is_behind or self._log.is_behind or self._supervisor.is_behind

    @property
    def attempt(self) -> int:
        """Number of the newest attempt, 0 before the first."""
        return self._current

    def path_of(self, attempt: int | None) -> str:
        """The file that tells of an attempt, "" when that is not known any more."""
        return next((key.rpartition("#")[0] for key, number in self._numbers.items() if number == attempt), "")

    @property
    def steps_from(self) -> str:
        """``hook`` or ``log``: where the steps come from now."""
        if self._run.steps_from != "auto":
            return self._run.steps_from
        return "hook" if self._hook_seen else "log"

    @property
    def counters(self) -> Mapping[str, int]:
        """What could not be read, summed over all files."""
        total: dict[str, int] = {}
        for source in (self._hook, self._log, self._supervisor):
            for name, count in source.counters.items():
                total[name] = total.get(name, 0) + count
        return total

    @property
    def unread(self) -> str:
        """A sentence while logs grow that tell no step, and nothing else told one either; "" else."""
        return "" if self._current or self.steps_from == "hook" else unread_words(self._log.without_steps)

    def poll(self) -> list[Step | Event]:
        """New records, oldest first within each file. Empty when nothing is new."""
        self._hook_seen = self._hook_seen or self._hook_path.exists()
        from_hook = self.steps_from == "hook"
        now_ns = self._clock.time_ns()
        self._keep_promises()
        # First: that it ends the trainer it says before the trainer does.
        of_supervisor = self._of_supervisor(now_ns)
        records: list[Step | Event] = []
        if self._run.steps_from != "log":
            records += [self._numbered(path, record, now_ns) for path, record in self._hook.poll(self._max_bytes)]
        is_hook_quiet = not records
        from_log = self._log.poll(self._max_bytes)
        for path, record in self._dated(from_log, now_ns):
            if not from_hook:
                records.append(self._numbered(path, record, now_ns))
            elif isinstance(record, Event) and record.kind in KINDS_BESIDE_THE_HOOK:
                records.append(self._stamped(replace(record, attempt=self._current or None), path, now_ns))
        # A launcher that goes on printing is no sign of life of the trainer. What it says of the cause comes first.
        if not is_hook_quiet:
            self._quiet_since_s = self._clock.monotonic_s()
        elif not self.is_behind:
            records += self._death(now_ns)
        return of_supervisor + records

    def _of_supervisor(self, now_ns: int) -> list[Step | Event]:
        """Its own events; of anything else in its file there is a message at most."""
        return [
            self._stamped(replace(record, attempt=self._current or None, source="supervisor"), "" if is_own else path, now_ns)
            for path, record in self._supervisor.poll(self._max_bytes)
            if isinstance(record, Event) and ((is_own := record.kind == "supervisor") or record.kind == "message")
        ]

    def _dated(self, found: Sequence[tuple[str, Step | Event]], now_ns: int) -> list[tuple[str, Step | Event]]:
        """The same records; steps of a log that tells no times get one, and events get that of a step beside them.

        An event's is that of the step that follows it, else of the one before, as in an import; without any it is new, unless
        history is read.
        """
        if all(record.time_ns is not None for _, record in found):
            self._remember_times(found)
            return list(found)
        untimed: dict[str, list[Step]] = {}
        for path, record in found:
            if isinstance(record, Step) and record.time_ns is None:
                untimed.setdefault(path, []).append(record)
        times = {path: self._dated_steps(path, steps, now_ns) for path, steps in untimed.items()}
        backwards: list[tuple[str, Step | Event]] = []
        next_ns: dict[str, int | None] = {}
        for path, record in reversed(found):
            known = record
            if record.time_ns is None:
                known = times[path].pop() if isinstance(record, Step) else replace(record, time_ns=next_ns.get(path))
            if isinstance(known, Step):
                next_ns[path] = known.time_ns
            backwards.append((path, known))
        last_ns: dict[str, int | None] = {}
        dated_records: list[tuple[str, Step | Event]] = []
        for path, record in reversed(backwards):
            if isinstance(record, Step):
                last_ns[path] = record.time_ns
            elif record.time_ns is None:
                record = replace(record, time_ns=last_ns[path] if path in last_ns else self._time_of_history(path, now_ns))
            dated_records.append((path, record))
        self._remember_times(dated_records)
        return dated_records

    def _remember_times(self, found: Iterable[tuple[str, Step | Event]]) -> None:
        for path, record in found:
            if isinstance(record, Step) and record.time_ns is not None:
                self._step_times.pop(path, None)
                self._step_times[path] = record.time_ns
        while len(self._step_times) > MAX_NUMBERS:
            del self._step_times[next(iter(self._step_times))]

    def _time_of_history(self, path: str, now_ns: int) -> int | None:
        """For an event that was read without a step beside it: None when it was written just now."""
        try:
            written_ns = min(now_ns, Path(path).stat().st_mtime_ns)
        except OSError:  # it was renamed or deleted since it was read
            written_ns = now_ns
        is_history = self._log.is_behind or now_ns - written_ns > HISTORY_NS
        if not is_history:
            return None
        return min(written_ns, self._step_times.get(path, written_ns))

    def _dated_steps(self, path: str, steps: Sequence[Step], now_ns: int) -> list[Step]:
        previous_ns = self._last_seen_ns.get(path)
        newest_ns = now_ns
        if previous_ns is None:
            with contextlib.suppress(OSError):  # it was renamed or deleted since it was read: then now is the best guess
                newest_ns = min(now_ns, Path(path).stat().st_mtime_ns)
        dated_steps = dated(steps, newest_ns, previous_ns)
        self._last_seen_ns.pop(path, None)
        self._last_seen_ns[path] = dated_steps[-1].time_ns or newest_ns
        while len(self._last_seen_ns) > MAX_NUMBERS:
            del self._last_seen_ns[next(iter(self._last_seen_ns))]
        return dated_steps

    def _keep_promises(self) -> None:
        if not self._book.promised:
            return
        try:
            self._book.keep_promises()
            self.trouble = ""
        except InputError as error:
            self.trouble = f"{error} {NUMBERED}"

    def _number(self, key: str, started_ns: int, first_step: int | None, source: str) -> int:
        """A full disk or a vanished directory must not end the watch: the number is promised and written later."""
        self._book.floor = self._current
        try:
            return self._book.number(key, started_ns, first_step, source)
        except InputError as error:
            self.trouble = f"{error} {NUMBERED}"
            return self._book.promise(key, started_ns, first_step, source)

    def _numbered(self, path: str, record: Step | Event, now_ns: int) -> Step | Event:
        if isinstance(record, Event) and record.kind == "attempt_start":
            return self._attempt_start(path, record, now_ns)
        number = self._numbers.get(f"{path}#{record.attempt}", self._current or 1)
        if isinstance(record, Step):
            return replace(record, attempt=number, time_ns=now_ns if record.time_ns is None else record.time_ns)
        if record.attempt is None:
            # Told before the first step of a new attempt: it belongs to none of the known ones.
            if record.kind == "resume" and record.step is not None:
                self._resumed_from[path] = record.step
            return self._stamped(record, path, now_ns)
        if record.kind == "attempt_end":
            self._process = None
        return self._stamped(replace(record, attempt=number), path, now_ns)

    def _attempt_start(self, path: str, record: Event, now_ns: int) -> Event:
        data = record.data
        started_ns = data.get("started_ns", record.time_ns if record.time_ns is not None else now_ns)
        number = self._number(str(data["key"]), started_ns, data.get("first_step"), str(data.get("source", "log")))
        self._remember(path, record.attempt, number)
        self._current = number
        pid = data.get("pid")
        self._process = (
            TrainerProcess(number, pid, str(data.get("host", "")), started_ns, str(data.get("pid_namespace", "")))
            if isinstance(pid, int)
            else None
        )
        told = {**data, "attempt": number}
        if path in self._resumed_from:
            told["resumed_from_step"] = self._resumed_from.pop(path)
        if now_ns - started_ns < MINUTE_S * 1e9:  # history may be read as fast as the disk gives it
            self._starts.append(self._clock.monotonic_s())
        return self._stamped(replace(record, attempt=number, data=told), path, now_ns)

    def _remember(self, path: str, local: int | None, number: int) -> None:
        """Only the newest attempt of a log can go on."""
        self._numbers.pop(f"{path}#{(local or 1) - 1}", None)
        self._numbers[f"{path}#{local}"] = number
        while len(self._numbers) > MAX_NUMBERS:
            del self._numbers[next(iter(self._numbers))]

    def flapping(self) -> str:
        """A sentence, at most once in ten minutes, when starts follow each other as no trainer can start."""
        starts, now_s = self._starts, self._clock.monotonic_s()
        is_many = len(starts) == STARTS_PER_MINUTE and now_s - starts[0] < MINUTE_S
        if not is_many or (self._told_starts_s is not None and now_s - self._told_starts_s < 10 * MINUTE_S):
            return ""
        self._told_starts_s = now_s
        return (
            f"{STARTS_PER_MINUTE} starts of the trainer within a minute: either it dies at once each time, or two trainers "
            f"write {self._hook_path}; give each run a directory of its own"
        )

    def _death(self, now_ns: int) -> list[Event]:
        """The end of a trainer that could not say so itself (kill -9, node gone)."""
        process = self._process
        if process is None or self._clock.monotonic_s() - self._quiet_since_s < QUIET_BEFORE_DEAD_S:
            return []
        if not self._processes.is_gone(process):
            return []
        self._process = None
        data = {"attempt": process.attempt, "reason": "process gone", "pid": process.pid, "host": process.host}
        text = f"the trainer's process {process.pid} on {process.host} is gone and said no goodbye"
        event = Event("attempt_end", now_ns, attempt=process.attempt, source="watch", text=text, data=data)
        return [self._stamped(event, "", now_ns)]

    def _stamped(self, event: Event, path: str, now_ns: int) -> Event:
        """Time, id and source: an event that is read again falls on the same row as long as its text is the same."""
        if event.kind in OWN_KINDS and path:
            event = replace(event, kind="message", data={"said_kind": event.kind, **event.data})
        time_ns = event.time_ns if event.time_ns is not None else now_ns
        seed = f"{event.kind}|{event.attempt}|{event.step}|{event.time_ns}|{event.text}|{sorted(event.data.items(), key=str)}"
        identifier = (
            event.id
            or f"{self._run.name}/{event.attempt}/{event.kind}/{event.step}/{zlib.crc32(seed.encode('utf-8', 'replace')):08x}"
        )
        return replace(
            event, time_ns=time_ns, id=identifier, source=event.source or ("hook" if path.endswith(".jsonl") else "log")
        )

    def to_state(self) -> dict[str, Any]:
        """JSON values only; to be committed together with what ``poll`` returned."""
        process = self._process
        return {
            "hook": self._hook.to_state(),
            "log": self._log.to_state(),
            "supervisor": self._supervisor.to_state(),
            "numbers": self._numbers,
            "resumed_from": self._resumed_from,
            "last_seen_ns": self._last_seen_ns,
            "step_times": self._step_times,
            "current": self._current,
            "reading": self._reading,
            "hook_seen": self._hook_seen,
            "process": None if process is None else list(astuple(process)),
            "promised": [asdict(entry) for entry in self._book.promised.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where ``to_state`` was taken."""
        self._hook.restore(state["hook"])
        if state["current"] or state.get("reading") == self._reading:  # else: what told no step may tell some in another format
            self._log.restore(state["log"])
        if "supervisor" in state:
            self._supervisor.restore(state["supervisor"])
        self._numbers = dict(state["numbers"])
        self._resumed_from = dict(state["resumed_from"])
        self._last_seen_ns = dict(state["last_seen_ns"])
        self._step_times = dict(state.get("step_times", {}))
        self._current = state["current"]
        self._hook_seen = state["hook_seen"]
        self._process = TrainerProcess(*state["process"]) if state["process"] else None
        self._book.promised = {entry["key"]: AttemptEntry(**entry) for entry in state.get("promised", ())}


class LocalProcessTable:
    """The machine's own process table, read from /proc."""

    def __init__(self, host: str, read: Callable[[int], tuple[bool, int | None]], pid_namespace: str = "") -> None:
        self._host = host
        self._read = read
        self._pid_namespace = pid_namespace

    def is_gone(self, process: TrainerProcess) -> bool:
        if process.host != self._host:
            return False
        # Containers give the same host name and small process ids to many: only in one namespace is it the same process.
        if process.pid_namespace and self._pid_namespace and process.pid_namespace != self._pid_namespace:
            return False
        is_there, began_ns = self._read(process.pid)
        if not is_there:
            return True
        # Two seconds for the coarse boot clock: a younger process only wears the old one's number.
        return began_ns is not None and began_ns > process.started_ns + 2_000_000_000
