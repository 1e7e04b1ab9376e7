"""One log, or one series of rotated files, from bytes to records: framing, finding the format, faults, attempts, limits."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trainvitals.errors import InputError
from trainvitals.identity import event_id
from trainvitals.logs.attempts import LEFT_OUT, AttemptTracker, Verdict
from trainvitals.logs.changes import FormatChanges
from trainvitals.logs.event_numbers import EventNumbers
from trainvitals.logs.event_text import without_secrets
from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.finder import FormatFinder, Located, Prelude
from trainvitals.logs.framing import LineFramer, origin_of
from trainvitals.logs.grammar import Grammar
from trainvitals.logs.grammars.by_shape import ByShape
from trainvitals.logs.grammars.hook_jsonl import HookJsonl
from trainvitals.logs.grammars.megatron_arguments import MegatronArguments
from trainvitals.logs.registry import ALIASES, GRAMMARS
from trainvitals.logs.screen import FaultScreen
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import ExtraMetrics
from trainvitals.records import Event, Step

#: The log's identity is the checksum of so many of its first bytes.
KEY_BYTES = 4096
_NONE: Mapping[str, type[Any]] = MappingProxyType({})
_BAR = "%|"
#: A number at the end of a file without a line end, that lacks digits for certain: exponents are printed with two.
_TORN_NUMBER = re.compile(r"\d{1,40}(?:\.\d{0,40})?[eE][+-]?\d?\Z|\d{1,40}\.\Z", re.ASCII)


def _end_of_line(data: bytes) -> int:
    ends = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
    return min(ends) + 1 if ends else len(data)


class Parser:
    """Feed bytes in any chunks: the records do not depend on the chunking.

    ``attempt_start`` comes before the first step of each attempt, numbered from 1; ``data.key`` names the attempt for
    ever: host/pid/started_ns for the hook, else the sha256 of the log's first 4 KiB (or of what stood there up to the
    first line of its format) + ``/`` + number of the rewind. Events before the first step of an attempt have no attempt number.

    ``custom``: name -> grammar class of the home-made formats, which are asked before all others.

    ``counters``: capped_lines, torn_lines, bad_records, repeated_steps, dropped_metrics, dropped_lines, and failed_lines, on
    which a grammar raised although it must not.
    """

    def __init__(
        self,
        format: str = "auto",
        timezone: str = "UTC",
        mtime_ns: int | None = None,
        *,
        custom: Mapping[str, type[Any]] = _NONE,
    ) -> None:
        self._grammars = {**custom, **{name: grammar for name, grammar in GRAMMARS.items() if name not in custom}}
        wanted = format if format in custom else ALIASES.get(format, format)
        if wanted != "auto" and wanted not in self._grammars:
            near = difflib.get_close_matches(wanted, ["auto", *self._grammars], 1)
            known = f"did you mean {near[0]}?" if near else f"use one of {', '.join(('auto', *self._grammars))}."
            raise InputError(f"{format!r} is no known log format; {known}")
        self._wanted = wanted
        self._times = LineTimes(timezone, mtime_ns)
        self._framer = LineFramer()
        self._faults = Faults(self._times)
        self._screen = FaultScreen()
        self._fault_origin = ""
        self._tracker = AttemptTracker()
        self._extras = ExtraMetrics()
        self._finder = FormatFinder(custom)
        self._prelude = Prelude(self._grammars.values())
        self._shape = ByShape(self._times)  # sees what no grammar claims, as long as none is found
        self._changes = FormatChanges(tuple(self._grammars.values()))
        self._arguments = MegatronArguments()
        self._grammar: Grammar | None = None
        self._hook: HookJsonl | None = None
        self._may_change = self._is_document = self._is_table = False
        if wanted != "auto":
            self._use(self._grammars[wanted](self._times))
        self._head = bytearray()
        self._origin = ""  # who printed the line in hand, as the launcher names ranks
        self._key_end: int | None = None  # where the first line of this file ends that its format claims
        self._rewind: int | None = None  # number of the attempt inside this file, None before its first
        self._file_digest = ""
        self._hook_key: str | None = None
        self._hook_rewind = 0
        self._header: dict[str, Any] = {}
        self._event_numbers = EventNumbers()
        self._counts = {"torn_lines": 0, "repeated_steps": 0, "failed_lines": 0}
        self._past_bad_records = 0

    @property
    def format(self) -> str | None:
        """Name of the grammar in use; None while none was found."""
        return self._grammar.name if self._grammar is not None else None

    @property
    def ranks_seen(self) -> int:
        """How many ranks print their steps: the most lines that told one step. Each step is one record all the same."""
        return self._tracker.ranks_seen

    @property
    def mtime_ns(self) -> int | None:
        """When the log was last written: a reader that follows it keeps this up to date, for times without a year."""
        return self._times.mtime_ns

    @mtime_ns.setter
    def mtime_ns(self, value: int | None) -> None:
        self._times.mtime_ns = value

    @property
    def counters(self) -> dict[str, int]:
        """What was left out, by reason."""
        bad_records = self._grammar.bad_records if self._grammar is not None else 0
        return {
            "capped_lines": self._framer.capped_lines,
            "bad_records": self._past_bad_records + bad_records,
            "dropped_metrics": self._extras.dropped,
            "dropped_lines": self._changes.dropped_lines,
            **self._counts,
        }

    def feed(self, data: bytes) -> list[Step | Event]:
        """Records that ``data`` completes."""
        if len(self._head) < KEY_BYTES:
            self._head += data[: KEY_BYTES - len(self._head)]
        # The first line stood in an earlier chunk, in part; it may hold several bars, each a piece.
        torn_end = self._framer.offset + (_end_of_line(data) if self._framer.has_torn_line else 0)
        pieces = self._framer.feed_located(data)
        records: list[Step | Event] = []
        if not pieces:
            return records
        is_harmless = self._screen.is_harmless(data)
        for end, line, prefix in pieces:
            try:
                must_look = end <= torn_end or not is_harmless or self._faults.is_waiting
                self._read(line, prefix, end, must_look, records)
            except Exception:  # noqa: BLE001 (a mistake in one format must not end the watch over a run; it is counted and told)
                self._counts["failed_lines"] += 1
        return records

    def _read(self, line: str, prefix: str, end: int, must_look: bool, records: list[Step | Event]) -> None:
        has_bar = must_look and _BAR in line
        if must_look and not has_bar:
            self._look_for_faults(line, prefix, end, records)
        if prefix or self._origin:
            self._origin = origin_of(prefix)
        self._line(line, end, records)
        if has_bar:  # what is glued to a bar was written after it
            self._look_for_faults(line, prefix, end, records)

    def finish(self) -> list[Step | Event]:
        """The last line, even if it has no end, and what only the end completes."""
        records: list[Step | Event] = []
        try:
            for end, line, prefix in self._framer.finish():
                self._read(_TORN_NUMBER.sub("", line), prefix, end, True, records)
            last = self._grammar.finish() if self._grammar is not None else self._by_shape(self._shape.finish())
            self._take_all(last, self._framer.offset, records)
            for step, verdict in self._tracker.release():
                self._give(step, verdict, self._framer.offset, records)
            self._tell_faults(self._faults.finish(), records)
        except Exception:  # noqa: BLE001 (as in feed)
            self._counts["failed_lines"] += 1
        return records

    def idle(self) -> list[Step | Event]:
        """What waits for a further line, when none came for some seconds; again when none came for minutes. Call it between two
        ``feed``s, or never."""
        records: list[Step | Event] = []
        try:
            self._take_all(self._grammar.idle() if self._grammar is not None else (), self._framer.offset, records)
            self._tell_faults(self._faults.idle(), records)
        except Exception:  # noqa: BLE001 (as in feed)
            self._counts["failed_lines"] += 1
        return records

    def next_file(self, mtime_ns: int | None = None) -> None:
        """What follows is another file of the same log (rotated, or truncated). A torn line is lost, and counted."""
        self._counts["torn_lines"] += self._framer.discard()
        self._head.clear()
        self._rewind = self._key_end = None
        self._tracker.other_file()
        self._times.mtime_ns = mtime_ns

    def _use(self, grammar: Any) -> None:
        if self._grammar is not None:
            self._past_bad_records += self._grammar.bad_records
        self._grammar = grammar
        self._hook = grammar if isinstance(grammar, HookJsonl) else None
        self._is_document, self._is_table = grammar.is_document, grammar.name == "curve_csv"
        self._may_change = self._wanted == "auto" and self._hook is None

    def _look_for_faults(self, line: str, prefix: str, end: int, records: list[Step | Event]) -> None:
        faults = self._faults
        if self._is_document or not (faults.is_waiting or self._screen.may_concern(line)):
            return
        if not faults.is_waiting:
            self._fault_origin = self._digest(end)[:16]
        had_found = faults.has_found
        told = faults.feed(line, prefix)
        if faults.has_found and not had_found and self._grammar is not None:
            # A step that a grammar still holds was printed before the fault: it is no sign that the training survived it.
            self._take_all(self._grammar.idle(), end, records, True)
        self._tell_faults(told, records)

    def _tell_faults(self, events: Iterable[Event], records: list[Step | Event], attempt: int | None = None) -> None:
        records.extend(self._numbered(event, self._fault_origin, attempt) for event in events)

    def _line(self, line: str, end: int, records: list[Step | Event]) -> None:
        grammar = self._grammar or self._find(line, end, records)
        if grammar is None:
            self._take_all(self._arguments.feed(line) or self._by_shape(self._shape.feed(line)), end, records)
            return
        if self._key_end is None and grammar.claims(line):
            self._key_end = end
        if found := grammar.feed(line):
            self._take_all(found, end, records)
        elif told := self._arguments.feed(line):
            self._take_all(told, end, records)
        elif self._may_change:
            self._prelude.look(line, end)
            change = self._changes.offer(line, end, type(grammar))
            if change is not None:
                self._change(*change, records)
        if self._hook is not None:
            self._take_header()

    def _find(self, line: str, end: int, records: list[Step | Event]) -> Grammar | None:
        found = self._finder.find(line)
        if found is None:
            self._prelude.look(line, end)
            return None
        grammar: Grammar = found(self._times)
        self._use(grammar)
        self._key_end = end
        self._feed_again(self._prelude.take(), records)
        return grammar

    def _by_shape(self, found: list[Step | Event]) -> list[Step | Event]:
        """The log is that of an unknown trainer as soon as its shapes give a record."""
        if found:
            self._prelude.take()
            self._use(self._shape)
        return found

    def _change(self, other: type[Any], lines: list[Located], records: list[Step | Event]) -> None:
        """The log goes on in another format. What a weak grammar still holds is what the line just claimed says better."""
        grammar = self._grammar
        if grammar is not None and not grammar.is_weak:
            self._take_all(grammar.finish(), lines[0][0], records)
        earlier = [place for place in self._prelude.take() if place[0] < lines[0][0]]
        self._use(other(self._times))
        self._feed_again([*earlier, *lines], records)

    def _feed_again(self, lines: Iterable[Located], records: list[Step | Event]) -> None:
        for end, line in lines:
            if self._grammar is not None:
                self._take_all(self._grammar.feed(line), end, records)

    def _take_all(self, found: Iterable[Step | Event], end: int, records: list[Step | Event], is_earlier: bool = False) -> None:
        for record in found:
            self._take(record, end, records, is_earlier)

    def _take_header(self) -> None:
        if self._hook is not None and (header := self._hook.take_header()) is not None:
            self._hook_key = "/".join(str(header.get(name, "")) for name in ("host", "pid", "started_ns"))
            self._hook_rewind = 0
            self._header = header
            self._tracker.restart()

    def _take(self, record: Step | Event, end: int, records: list[Step | Event], is_earlier: bool = False) -> None:
        if isinstance(record, Event):
            # The hook says itself when it starts: by a header.
            if self._hook_key is None and (
                record.kind == "resume"
                or (record.kind == "phase" and record.data.get("phase") == "start")
                or (record.kind == "metadata" and record.data.get("section") == "config")  # printed once a start
            ):
                self._tracker.restart()
            place = end if self._key_end is None else min(end, self._key_end)
            is_hook = self._hook is not None and self._hook_key is not None
            records.append(self._numbered(record, str(self._hook_key) if is_hook else self._digest(place)[:16]))
            return
        self._changes.step_seen(record)
        if self._prelude.kept:
            self._prelude.take()
        for step, verdict in self._tracker.admit(record, self._hook_key is not None, self._origin, self._is_table):
            self._give(step, verdict, end, records, is_earlier)

    def _give(self, record: Step, verdict: Verdict, end: int, records: list[Step | Event], is_earlier: bool = False) -> None:
        if verdict in LEFT_OUT:
            self._counts[LEFT_OUT[verdict]] += 1
            return
        is_new = verdict is Verdict.NEW_ATTEMPT
        before = self._tracker.number - is_new
        if not is_earlier:  # nobody survived what the start before ended in
            self._tell_faults(self._faults.step_seen(is_new_start=is_new and before > 0), records, before)
        if is_new:
            records.append(self._attempt_start(record, end))
        attempt, values = self._tracker.number, self._extras.limited(record.values)
        records.append(Step(record.step, attempt, record.time_ns, values, record.nonfinite, record.time_estimated))

    def _attempt_start(self, first: Step, end: int) -> Event:
        number = self._tracker.number
        data: dict[str, Any] = {"attempt": number, "first_step": first.step}
        if self._hook_key is not None:
            key = self._hook_key if self._hook_rewind == 0 else f"{self._hook_key}/{self._hook_rewind}"
            self._hook_rewind += 1
            data |= {**self._header, "key": key, "source": "hook"}
        else:
            if self._rewind is None:
                # Not the end of the line that gave the step out: that may be a later one, or none after a silence.
                self._rewind, self._file_digest = 0, self._digest(end if self._key_end is None else self._key_end)
            else:
                self._rewind += 1
            key = f"{self._file_digest}/{self._rewind}"
            data |= {"key": key, "source": "log"}
        text = f"attempt {number} starts at step {first.step}"
        return Event(
            "attempt_start", first.time_ns, step=first.step, attempt=number, id=event_id("attempt_start", key),
            source=str(data["source"]), text=text, data=data,
        )  # fmt: skip

    def _numbered(self, event: Event, origin: str, attempt: int | None = None) -> Event:
        """With attempt, source and an id that is a function of the file's bytes. Faults number themselves."""
        event = without_secrets(event)
        number = (None if self._tracker.is_between else self._tracker.number) if attempt is None else attempt or None
        start = self._hook_rewind if self._hook_key is not None else self._rewind or 0
        identifier = event_id(event.kind, origin, event.id or self._event_numbers.name(event, origin, start))
        return replace(event, attempt=number, id=identifier, source="log" if self._hook is None else "hook")

    def _digest(self, end: int) -> str:
        return hashlib.sha256(self._head[: min(end, KEY_BYTES)]).hexdigest()

    def to_state(self) -> dict[str, Any]:
        """JSON values only: everything that ``restore`` needs to go on at the same byte."""
        return {
            "format": self.format,
            "grammar": self._grammar.to_state() if self._grammar is not None else None,
            "framer": self._framer.to_state(),
            "faults": self._faults.to_state(),
            "fault_origin": self._fault_origin,
            "tracker": self._tracker.to_state(),
            "mtime_ns": self._times.mtime_ns,
            "last_ns": self._times.last_ns,
            "head": self._head.decode("latin-1"),
            "finder": self._finder.to_state(),
            "prelude": self._prelude.to_state(),
            "shape": self._shape.to_state() if self._grammar is None else None,
            "changes": self._changes.to_state(),
            "arguments": self._arguments.to_state(),
            "origin": self._origin,
            "key_end": self._key_end,
            "rewind": self._rewind,
            "file_digest": self._file_digest,
            "hook": [self._hook_key, self._hook_rewind, dict(self._header)],
            "extras": self._extras.to_state(),
            "event_numbers": self._event_numbers.to_state(),
            "counts": self._counts,
            "past_bad_records": self._past_bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken, exactly."""
        # A format that was set since then wins over the one that was found; a home-made one may be gone.
        name = state["format"]
        if name in self._grammars and self._wanted in ("auto", name):
            grammar: Grammar = self._grammars[name](self._times)
            grammar.restore(state["grammar"])
            self._use(grammar)
        elif state["shape"] is not None and self._grammar is None:
            self._shape.restore(state["shape"])
        self._framer.restore(state["framer"])
        self._faults.restore(state["faults"])
        self._fault_origin = state["fault_origin"]
        self._tracker.restore(state["tracker"])
        self._times.mtime_ns, self._times.last_ns = state["mtime_ns"], state.get("last_ns")
        self._head = bytearray(state["head"].encode("latin-1"))
        self._finder.restore(state["finder"])
        self._prelude.restore(state["prelude"])
        self._changes.restore(state["changes"])
        self._arguments.restore(state["arguments"])
        self._origin, self._key_end = state["origin"], state["key_end"]
        self._rewind, self._file_digest = state["rewind"], state["file_digest"]
        self._hook_key, self._hook_rewind, self._header = state["hook"]
        self._extras.restore(state["extras"])
        self._event_numbers.restore(state["event_numbers"])
        self._past_bad_records = state["past_bad_records"]
        self._counts = {name: int(count) for name, count in state["counts"].items()}
