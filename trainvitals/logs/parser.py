"""One log, or one series of rotated files, from bytes to records: framing, finding the format, faults, attempts, limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainvitals.errors import InputError
from trainvitals.identity import event_id
from trainvitals.logs.attempts import AttemptTracker, Verdict
from trainvitals.logs.faults import Faults
from trainvitals.logs.finder import FormatFinder
from trainvitals.logs.framing import LineFramer
from trainvitals.logs.grammar import Grammar
from trainvitals.logs.hook_jsonl import HookJsonl
from trainvitals.logs.registry import ALIASES, GRAMMARS
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import is_extra
from trainvitals.records import Event, Step
from trainvitals.schema import MAX_EXTRA_METRICS

#: The log's identity is the checksum of so many of its first bytes.
KEY_BYTES = 4096


class Parser:
    """Feed bytes in any chunks: the records do not depend on the chunking.

    ``attempt_start`` comes before the first step of each attempt, numbered from 1; ``data.key`` names the attempt for
    ever: host/pid/started_ns for the hook, else the sha256 of the log's first 4 KiB (or of what stood there up to the
    first step) + ``/`` + number of the rewind. Events before the first step of an attempt have no attempt number.

    ``counters``: capped_lines, torn_lines, bad_records, repeated_steps, dropped_metrics.
    """

    def __init__(self, format: str = "auto", timezone: str = "UTC", mtime_ns: int | None = None) -> None:
        wanted = ALIASES.get(format, format)
        if wanted != "auto" and wanted not in GRAMMARS:
            raise InputError(f"{format!r} is no known log format; use one of {', '.join(('auto', *GRAMMARS))}.")
        self._wanted = wanted
        self._times = LineTimes(timezone, mtime_ns)
        self._framer = LineFramer()
        self._faults = Faults(self._times)
        self._tracker = AttemptTracker()
        self._grammar: Grammar | None = GRAMMARS[wanted](self._times) if wanted != "auto" else None
        self._head = bytearray()
        self._finder = FormatFinder()
        self._rewind: int | None = None  # number of the attempt inside this file, None before its first
        self._file_digest = ""
        self._hook_key: str | None = None
        self._hook_rewind = 0
        self._header: dict[str, Any] = {}
        self._extras: set[str] = set()
        self._events = 0
        self._counts = {"torn_lines": 0, "repeated_steps": 0, "dropped_metrics": 0}

    @property
    def format(self) -> str | None:
        """Name of the grammar in use; None while none was found."""
        return self._grammar.name if self._grammar is not None else None

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
        return {"capped_lines": self._framer.capped_lines, "bad_records": bad_records, **self._counts}

    def feed(self, data: bytes) -> list[Step | Event]:
        """Records that ``data`` completes."""
        if len(self._head) < KEY_BYTES:
            self._head += data[: KEY_BYTES - len(self._head)]
        records: list[Step | Event] = []
        for end, line, prefix in self._framer.feed_located(data):
            self._line(line, prefix, end, records)
        return records

    def finish(self) -> list[Step | Event]:
        """The last line, even if it has no end, and what only the end completes."""
        records: list[Step | Event] = []
        for end, line, prefix in self._framer.finish():
            self._line(line, prefix, end, records)
        self._take_all(self._grammar.finish() if self._grammar is not None else (), records)
        records.extend(self._numbered(event, self._framer.offset) for event in self._faults.finish())
        return records

    def idle(self) -> list[Step | Event]:
        """What waits for a further line, when none came for some seconds. Call it between two ``feed``s, or never."""
        records: list[Step | Event] = []
        self._take_all(self._grammar.idle() if self._grammar is not None else (), records)
        records.extend(self._numbered(event, self._framer.offset) for event in self._faults.idle())
        return records

    def _take_all(self, found: Iterable[Step | Event], records: list[Step | Event]) -> None:
        for record in found:
            self._take(record, self._framer.offset, records)

    def next_file(self, mtime_ns: int | None = None) -> None:
        """What follows is another file of the same log (rotated, or truncated). A torn line is lost, and counted."""
        self._counts["torn_lines"] += self._framer.discard()
        self._head.clear()
        self._rewind = None
        self._tracker.other_file()
        self._times.mtime_ns = mtime_ns

    def _line(self, line: str, prefix: str, end: int, records: list[Step | Event]) -> None:
        kept: list[tuple[int, str]] = []
        if self._grammar is None:
            self._grammar = self._finder.find(line, end, self._times)
            if self._grammar is not None:
                kept, self._finder.kept = self._finder.kept, []
        grammar_in_use = self._grammar
        if grammar_in_use is None or not grammar_in_use.is_document:
            records.extend(self._numbered(event, end) for event in self._faults.feed(line, prefix))
        if grammar_in_use is not None:
            for earlier_end, earlier in kept:
                for record in grammar_in_use.feed(earlier):
                    self._take(record, earlier_end, records)
            for record in grammar_in_use.feed(line):
                self._take(record, end, records)
            if isinstance(grammar_in_use, HookJsonl) and (header := grammar_in_use.take_header()) is not None:
                self._hook_key = "/".join(str(header.get(name, "")) for name in ("host", "pid", "started_ns"))
                self._hook_rewind = 0
                self._header = header
                self._tracker.restart()

    def _take(self, record: Step | Event, end: int, records: list[Step | Event]) -> None:
        if isinstance(record, Event):
            # The hook says itself when it starts: by a header.
            if self._hook_key is None and (
                record.kind == "resume" or (record.kind == "phase" and record.data.get("phase") == "start")
            ):
                self._tracker.restart()
            records.append(self._numbered(record, end))
            return
        verdict = self._tracker.judge(record.step, record.attempt, is_ordered=self._hook_key is not None)
        if verdict is Verdict.REPEATED:
            self._counts["repeated_steps"] += 1
            return
        records.extend(self._numbered(event, end) for event in self._faults.step_seen())
        number = self._tracker.number
        if verdict is Verdict.NEW_ATTEMPT:
            records.append(self._attempt_start(record, end))
        records.append(replace(record, attempt=number, values=self._limited(record.values)))

    def _attempt_start(self, first: Step, end: int) -> Event:
        number = self._tracker.number
        data: dict[str, Any] = {"attempt": number, "first_step": first.step}
        if self._hook_key is not None:
            key = self._hook_key if self._hook_rewind == 0 else f"{self._hook_key}/{self._hook_rewind}"
            self._hook_rewind += 1
            data |= {**self._header, "key": key, "source": "hook"}
        else:
            if self._rewind is None:
                self._rewind, self._file_digest = 0, self._digest(end)
            else:
                self._rewind += 1
            key = f"{self._file_digest}/{self._rewind}"
            data |= {"key": key, "source": "log"}
        text = f"attempt {number} starts at step {first.step}"
        return Event(
            "attempt_start", first.time_ns, step=first.step, attempt=number, id=event_id("attempt_start", key),
            source=str(data["source"]), text=text, data=data,
        )  # fmt: skip

    def _numbered(self, event: Event, end: int) -> Event:
        """With attempt, source and an id that is a function of the file's bytes."""
        self._events += 1
        is_hook = self._grammar is not None and self._grammar.name == "hook_jsonl"
        origin = self._hook_key if is_hook and self._hook_key is not None else self._digest(end)[:16]
        number = None if self._tracker.is_between else self._tracker.number
        return replace(event, attempt=number, id=event_id(event.kind, origin, self._events), source="hook" if is_hook else "log")

    def _digest(self, end: int) -> str:
        return hashlib.sha256(self._head[: min(end, KEY_BYTES)]).hexdigest()

    def _limited(self, values: Mapping[str, float]) -> Mapping[str, float]:
        extras = self._extras
        if len(extras) < MAX_EXTRA_METRICS:
            for name in values:
                if is_extra(name) and len(extras) < MAX_EXTRA_METRICS:
                    extras.add(name)
        kept = {name: value for name, value in values.items() if not is_extra(name) or name in extras}
        self._counts["dropped_metrics"] += len(values) - len(kept)
        return kept

    def to_state(self) -> dict[str, Any]:
        """JSON values only: everything that ``restore`` needs to go on at the same byte."""
        return {
            "format": self.format,
            "grammar": self._grammar.to_state() if self._grammar is not None else None,
            "framer": self._framer.to_state(),
            "faults": self._faults.to_state(),
            "tracker": self._tracker.to_state(),
            "mtime_ns": self._times.mtime_ns,
            "head": self._head.decode("latin-1"),
            "finder": self._finder.to_state(),
            "rewind": self._rewind,
            "file_digest": self._file_digest,
            "hook": [self._hook_key, self._hook_rewind, dict(self._header)],
            "extras": sorted(self._extras),
            "events": self._events,
            "counts": self._counts,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken."""
        # A format that was set since then wins over the one that was found.
        if state["format"] is not None and self._wanted in ("auto", state["format"]):
            self._grammar = GRAMMARS[state["format"]](self._times)
            self._grammar.restore(state["grammar"])
        self._framer.restore(state["framer"])
        self._faults.restore(state["faults"])
        self._tracker.restore(state["tracker"])
        self._times.mtime_ns = state["mtime_ns"]
        self._head = bytearray(state["head"].encode("latin-1"))
        self._finder.restore(state["finder"])
        self._rewind, self._file_digest, self._events = state["rewind"], state["file_digest"], state["events"]
        self._hook_key, self._hook_rewind, self._header = state["hook"]
        self._extras = set(state["extras"])
        self._counts = {name: int(count) for name, count in state["counts"].items()}
