"""Faults of a run as its log tells them: one event per class and burst, with what only followed counted in it.

Ranks repeat each other, and the launcher repeats them all. What is found is held until the next step, ``HELD_LINES`` further lines
that say nothing, ``idle`` or ``finish``. After that the same class is not told again, and neither is what follows from it: until the next
step, ``REMEMBERED_LINES`` lines that say nothing, or an hour by the log's own times.
"""

from __future__ import annotations

import math
import re
from typing import Any

from trainvitals.logs.faults.bursts import Seen, following, from_state, to_event, to_state, xid_detail
from trainvitals.logs.faults.loss_scale import LossScale
from trainvitals.logs.faults.origin import origin, srun_tasks, step_host, world_size
from trainvitals.logs.faults.signals import CRASH_SIGNALS, exit_code, signal_of
from trainvitals.logs.faults.table import LITERALS as ROW_LITERALS
from trainvitals.logs.faults.table import sightings
from trainvitals.logs.faults.tracebacks import BEGIN, HARMLESS, ROOT_CAUSE, RootCauses, Tracebacks
from trainvitals.logs.times import LineTimes
from trainvitals.masking import mask_cut_text
from trainvitals.records import Event, Severity

HELD_LINES = 400
REMEMBERED_LINES = 2_000
#: A death of many thousand ranks may print that much without a pause.
MAX_BURST_LINES = 50_000
FORGET_NS = 3_600 * 10**9
_WORLD_LITERALS = ("orld_size", "ORLD_SIZE", "orld size", " nranks ")
#: ``[Wed Jan  2 03:04:05 2026]`` (dmesg -T) and ``Jan  2 03:04:05 node17`` (syslog), which ``LineTimes`` does not read.
_KERNEL_TIME = re.compile(
    r"(?:\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]|^([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) )",
    re.ASCII,
)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
LITERALS = (*dict.fromkeys((*ROW_LITERALS, BEGIN, ROOT_CAUSE, *HARMLESS, *LossScale.LITERALS, *_WORLD_LITERALS)),)


#: Lines that differ only in their numbers are alike.
_ALIKE = str.maketrans("123456789", "000000000")
_ALIKE_LITERALS = tuple(literal.translate(_ALIKE) for literal in LITERALS)
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
_MAX_HARMLESS, _MAX_HARMLESS_LENGTH = 4_000, 1_000


def may_concern(text: str) -> bool:
    """Whether a line or a chunk holds one of the literals: False is certain, True is not."""
    return any(literal in text for literal in LITERALS)


def _first_failure(one: Seen) -> list[Any] | None:
    """[time, rank, host] of the earliest failure that a launcher named; an older version kept it in another form."""
    found = one.detail.get("first_failure")
    return found if isinstance(found, list) and len(found) == 3 else None


class Faults:
    """State: the burst that is held, what was told since the last step, open tracebacks, the loss scale, the world size."""

    #: Every line that ``feed`` makes anything of, while nothing is held, has one of these in it, letter by letter.
    LITERALS = LITERALS

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._seen: dict[str, Seen] = {}
        self._told: dict[str, int] = {}
        self._told_ns: int | None = None
        self._quiet_lines = 0
        self._told_lines = 0
        self._burst_lines = 0
        self._numbers: dict[str, int] = {}
        self._world_size = 0
        self._tracebacks = Tracebacks()
        self._root_causes = RootCauses()
        self._loss_scale = LossScale(times)
        self._harmless: set[str] = set()  # what was looked at; forgetting it costs time only, so it is no state

    @property
    def is_waiting(self) -> bool:
        """Whether something is held, so that every further line must be fed, and not only those with a literal."""
        return bool(self._seen or self._told or self._tracebacks or self._root_causes)

    @property
    def has_found(self) -> bool:
        """Whether a fault is held."""
        return bool(self._seen)

    def feed(self, line: str, prefix: str = "") -> list[Event]:
        """The events that this line completes. ``prefix``: what the launcher wrote before it."""
        events: list[Event] = []
        before = sum(one.count for one in self._seen.values())
        concerns = not self._is_harmless(line)
        if concerns:
            events += self._loss_scale.feed(line)
            if any(literal in line for literal in _WORLD_LITERALS):
                self._world_size = max(self._world_size, world_size(line) or 0)
        found = sightings(line) if concerns else []
        for sighting in found:
            self._add(sighting.kind, sighting.level, sighting.text, line, prefix, dict(sighting.detail))
        uncaught = self._tracebacks.feed(line, prefix)
        if uncaught is not None and not found:
            detail = {"exception": uncaught.exception}
            if uncaught.kind == "out_of_memory":
                detail["memory"] = "gpu" if "OutOfMemory" in uncaught.exception else "host"
            self._add(uncaught.kind, uncaught.level, line[:1000], line, prefix, detail)
        fields = self._root_causes.feed(line, prefix)
        if fields:
            self._add_root_cause(fields)
        is_news = sum(one.count for one in self._seen.values()) != before
        if self._told:
            self._told_lines = 0 if is_news else self._told_lines + 1
            if self._told_lines >= REMEMBERED_LINES:
                self._told.clear()
        if not self._seen:
            return events
        self._burst_lines += 1
        self._quiet_lines = 0 if is_news else self._quiet_lines + 1
        if self._quiet_lines >= HELD_LINES or self._burst_lines >= MAX_BURST_LINES:
            events += self._tell()
        return events

    def step_seen(self, *, is_new_start: bool = False) -> list[Event]:
        """Training goes on: the burst is over, and was survived unless the trainer had to be started again."""
        events = self._tell(survived=not is_new_start) if self._seen else []
        if self._told:
            self._told.clear()
        if self._tracebacks:
            self._tracebacks.clear()
        if self._loss_scale.step_seen():
            events += self._tell_halvings()
        return events

    def idle(self) -> list[Event]:
        """Nothing more came for some seconds: what is held is told."""
        for fields in self._root_causes.finish():
            self._add_root_cause(fields)
        return self._tell()

    def finish(self) -> list[Event]:
        """The log ends: what is held is told."""
        return self.idle() + self._tell_halvings()

    def _is_harmless(self, line: str) -> bool:
        """Whether no literal is in the line. A death of many ranks is millions of lines of a few hundred kinds."""
        alike = line.translate(_ALIKE)
        is_frame = alike.startswith("frame #")  # of a C++ stack: dozens a rank, and they name NCCL
        if is_frame:
            alike = _ADDRESS.sub("0x", alike)
        if alike in self._harmless:
            return True
        if any(literal in alike for literal in _ALIKE_LITERALS) and not (is_frame and not sightings(line)):
            return False
        if len(alike) <= _MAX_HARMLESS_LENGTH:
            if len(self._harmless) >= _MAX_HARMLESS:
                self._harmless.clear()
            self._harmless.add(alike)
        return True

    # -- what a line says -----------------------------------------------------------------------------------------

    def _add(self, kind: str, level: int, text: str, line: str, prefix: str, detail: dict[str, Any]) -> None:
        time_ns = self._time(line, prefix)
        if self._told_ns is not None and time_ns is not None and time_ns - self._told_ns > FORGET_NS:
            self._told.clear()
        who = origin(text, prefix)
        kind, level, detail = self._refined(kind, level, text, detail)
        one = self._seen.get(kind)
        if one is None:
            one = self._seen[kind] = Seen(kind, level, self._next_order())
        one.add(level, text, who, time_ns, detail)
        if kind == "nccl_timeout":
            one.add_collective(text, who.rank, str(detail.get("says", "")))

    def _refined(self, kind: str, level: int, text: str, detail: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
        """What the numbers in a line say beyond its class."""
        if kind == "xid":
            detail |= xid_detail(text)
        elif kind in ("time_limit", "node_failure", "cancelled", "preempted") and (daemon := step_host(text)):
            detail["reported_by"] = daemon
        elif kind == "process_failed" and (code := exit_code(text)) is not None:
            return self._by_exit_code(code, level, detail)
        if "signal" in detail:
            detail["signal"] = int(detail["signal"])
        tasks = srun_tasks(text)
        if len(tasks) > 1:
            detail["tasks"] = tasks
        return kind, level, detail

    @staticmethod
    def _by_exit_code(code: int, level: int, detail: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
        number = signal_of(code)
        detail["exit_code"] = code
        if number:
            detail["signal"] = number
        if number == 9:
            return "killed", 3, detail
        if number in (2, 15):
            return "killed", 1, detail
        if number in CRASH_SIGNALS:
            return "crashed", 2 if number == 6 else 4, detail  # NCCL's watchdog ends its own process by an abort
        return "process_failed", level, detail

    def _add_root_cause(self, fields: dict[str, str]) -> None:
        if not ("rank" in fields or "exitcode" in fields):
            return  # somebody's text about such blocks
        code = exit_code("exitcode : " + fields.get("exitcode", ""))
        kind, level, detail = self._by_exit_code(code, 2, {}) if code is not None else ("process_failed", 2, {})
        if (path := fields.get("error_file", "<N/A>")) != "<N/A>":
            detail["error_file"] = path
        who = origin(f"rank : {fields.get('rank', '')} host : {fields.get('host', '')}")
        one = self._seen.get(kind)
        if one is None:
            one = self._seen[kind] = Seen(kind, level, self._next_order())
        text = ", ".join(f"{name} {fields[name]}" for name in ("host", "rank", "exitcode", "traceback") if name in fields)
        time_ns = self._times.find(fields.get("time", "").replace("_", " "))
        one.add(level, f"torchrun's first observed failure: {text}", who, time_ns, detail)
        known = _first_failure(one)
        # Each node's launcher names the first failure that it saw itself: the earliest of them is the first of the job.
        if known is None or (time_ns is not None and (known[0] is None or time_ns < known[0])):
            one.detail["first_failure"] = [time_ns, who.rank, who.host]
            one.rank = one.rank if who.rank is None else who.rank
            one.host = one.host if who.host is None else who.host

    def _next_order(self) -> int:
        return 1 + max((one.order for one in self._seen.values()), default=0)

    def _time(self, line: str, prefix: str) -> int | None:
        found = _KERNEL_TIME.search(line[:200])
        if found is not None:
            month, day, clock = (found[1] or found[5]), (found[2] or found[6]), (found[3] or found[7])
            at = _MONTHS.find(month)
            if at >= 0:
                year = f"{found[4]}-" if found[4] else ""
                number = f"{at // 3 + 1:02d}"
                text = f"{year}{number}-{int(day):02d} {clock}" if year else f"{number}/{int(day):02d} {clock}"
                return self._times.find(text)
        return self._times.find(prefix + line[:1000])

    # -- what is told ---------------------------------------------------------------------------------------------

    def _tell(self, *, survived: bool = False) -> list[Event]:
        if not self._seen:
            return []
        seen = sorted(self._seen.values(), key=lambda one: one.order)
        cause_of = following(seen, self._told)
        # A node that was told to end (level 1) saw no failure of its own.
        told = [(one.level <= 1, *failure) for one in seen if (failure := _first_failure(one)) is not None]
        first = min(told, key=lambda each: (each[0], each[1] if each[1] is not None else math.inf), default=None)
        events: list[Event] = []
        for one in seen:
            one.detail.pop("first_failure", None)
            if one.kind in cause_of or (one.kind in self._told and one.level > 0):
                continue
            if one.rank is None and one.host is None and one.level > 2 and first is not None:
                one.rank, one.host = first[2], first[3]
            if one.kind == "numerics" and (halvings := self._loss_scale.take()[0]):
                one.detail["halvings"] = halvings
            victims = [other for other in seen if cause_of.get(other.kind) == one.kind]
            events.append(to_event(one, self._number(one.kind), victims, self._world_size, survived=survived))
        for one in seen:
            if one.level > 0:
                self._told[one.kind] = max(one.level, self._told.get(one.kind, 0))
            if one.time_ns is not None:
                self._told_ns = max(one.time_ns, self._told_ns or 0)
        self._seen = {}
        self._quiet_lines = self._burst_lines = self._told_lines = 0
        return events

    def _tell_halvings(self) -> list[Event]:
        halvings, text, time_ns = self._loss_scale.take()
        if not halvings:
            return []
        data = {"class": "numerics", "count": halvings, "halvings": halvings}
        identifier = f"numerics/{self._number('numerics')}"
        return [Event("fault", time_ns, id=identifier, severity=Severity.WARNING, text=mask_cut_text(text, 500), data=data)]

    def _number(self, kind: str) -> int:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return self._numbers[kind]

    # -- state ----------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "seen": to_state(self._seen), "told": self._told, "told_ns": self._told_ns, "quiet_lines": self._quiet_lines, "told_lines": self._told_lines,
            "burst_lines": self._burst_lines, "numbers": self._numbers, "world_size": self._world_size,
            "tracebacks": self._tracebacks.to_state(), "root_causes": self._root_causes.to_state(),
            "loss_scale": self._loss_scale.to_state(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._seen = from_state(state["seen"])
        self._told, self._told_ns = dict(state["told"]), state["told_ns"]
        self._quiet_lines, self._burst_lines = int(state["quiet_lines"]), int(state["burst_lines"])
        self._told_lines = int(state["told_lines"])
        self._numbers, self._world_size = dict(state["numbers"]), int(state["world_size"])
        self._tracebacks.restore(state["tracebacks"])
        self._root_causes.restore(state["root_causes"])
        self._loss_scale.restore(state["loss_scale"])
