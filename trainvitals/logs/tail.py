"""Follow the log files that match some patterns: new files, rotation, truncation, deletion, and a restart of the reader.

A file that takes the place of another at the same path continues the same log: the parser stays, the torn line is lost.
The rest of a renamed file is read before its successor. Nothing is read twice: a renamed file is known by its inode.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import InputError
from trainvitals.logs.cursor import Cursor, begins_with
from trainvitals.logs.grammars.tensorboard_records import EventFileReader, looks_like_event_file
from trainvitals.logs.parser import Parser
from trainvitals.records import Event, Step

_CHUNK_BYTES = 1 << 18
_LEAST_CHUNK_BYTES = 1 << 14
_SLOW_CHUNK_NS = 250_000_000
#: Files followed at once; each holds a file descriptor.
MAX_FILES = 256
_MAX_FINISHED = 1024
#: A deleted file may still be written; it is let go when it has not grown for so long.
_DELETED_GRACE_S = 600.0
#: A record that waits for a further line (a bar, the rest of a block) is given out when none came for so long; one that is flushed
#: every two minutes only (a step of an event file) when none came for longer than that.
IDLE_S = (3.0, 150.0)
#: Work, not time, after which a poll ends although its bytes are not all read: a file of nothing but line ends, or one that
#: pretends to be an event file, takes a hundred times as long as a log, and the others and the detectors must not wait for it.
MAX_POLL_S = 3.0
#: Listing a large tree costs more than this: then it is listed so seldom that a hundredth of a core goes into it.
_CHEAP_LOOK_S = 0.005
_MAX_LOOK_PAUSE_S = 30.0
_NONE: Mapping[str, type[Any]] = MappingProxyType({})
#: Counters of what happens to healthy logs: nothing is missing because of it.
HARMLESS_COUNTERS = frozenset({"repeated_steps", "rotations", "truncations"})
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class _Stream:
    """One log: the file it is read from now, and its parser."""

    def __init__(self, path: str, parser: Parser, cursor: Cursor) -> None:
        self.path, self.parser, self.cursor = path, parser, cursor
        self.is_restored = False
        self.is_caught_up = False  # its end was met since it was opened
        self.quiet_since_s: float | None = None  # the path is gone and nothing was read since
        self.has_news = True  # something was read since the end of the file was last met
        self.silent_since_s, self.silences = 0.0, 0  # the end was met then; how many lengths of its silence were told
        self.events: EventFileReader | None = None  # the file is one of TensorBoard's
        self.chunk_bytes = _CHUNK_BYTES
        self.lines, self.has_steps = 0, False  # lines read before the first step

    def count(self, data: bytes, found: Sequence[Step | Event]) -> None:
        """How much is read while it tells no step."""
        if not self.has_steps and self.events is None:
            self.lines += data.count(b"\n")
            self.has_steps = any(isinstance(record, Step) for record in found)

    def pace(self, took_ns: int) -> None:
        """Read less at once of a log that took so much work, so that a poll can end in time; more again when it is quick."""
        if took_ns > _SLOW_CHUNK_NS:
            self.chunk_bytes = max(_LEAST_CHUNK_BYTES, self.chunk_bytes // 4)
        elif took_ns < _SLOW_CHUNK_NS // 8:
            self.chunk_bytes = min(_CHUNK_BYTES, self.chunk_bytes * 2)

    def text_of(self, data: bytes) -> bytes:
        """What the parser reads of the bytes read last. Raises ``InputError`` when the package for event files is missing."""
        if self.cursor.offset == len(data):
            self.events = EventFileReader() if looks_like_event_file(data) else None
        return data if self.events is None else self.events.feed(data)

    def close(self) -> None:
        self.cursor.close()


class LogSource:
    """``poll`` returns what is new. The caller keeps ``to_state`` in the same transaction as what ``poll`` returned.

    ``custom``: the home-made formats, see ``Parser``.

    ``counters``: truncations, rotations, unreadable (a file counts once each time it becomes so), files_beyond_limit (now),
    and the sums of ``Parser.counters``.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        format: str = "auto",
        timezone: str = "UTC",
        clock: Clock | None = None,
        *,
        custom: Mapping[str, type[Any]] = _NONE,
    ) -> None:
        self._patterns = tuple(patterns)
        self._format, self._timezone, self._custom = format, timezone, custom
        self._parser()  # wrong names are errors here, not in the first poll
        self._clock = clock if clock is not None else SystemClock()
        self._streams: dict[str, _Stream] = {}
        self._finished: dict[tuple[int, int], tuple[int, str]] = {}
        self._verified: dict[str, tuple[int, int, int, int]] = {}
        self._turn = 0
        #: Whether the last ``poll`` stopped at its limit, so that more may be waiting.
        self.is_behind = False
        self._counts = {"truncations": 0, "rotations": 0, "unreadable": 0, "files_beyond_limit": 0}
        self._past: dict[str, int] = {}
        self._unreadable: set[str] = set()
        self._present: dict[str, tuple[int, int]] = {}
        self._look_due_s = 0.0
        self._until_ns = 0

    def _parser(self, mtime_ns: int | None = None) -> Parser:
        return Parser(self._format, self._timezone, mtime_ns, custom=self._custom)

    @property
    def counters(self) -> dict[str, int]:
        """What happened to the files, and what was left out of them."""
        total = Counter(self._counts)
        for counts in (self._past, *(stream.parser.counters for stream in self._streams.values())):
            total.update(counts)
        return dict(total)

    @property
    def paths(self) -> list[str]:
        """The logs that are followed."""
        return sorted(self._streams)

    @property
    def without_steps(self) -> list[tuple[str, int, str | None]]:
        """(path, lines read, format if one was found) of the logs in which no step was read so far."""
        return [(one.path, one.lines, one.parser.format) for one in self._streams.values() if not one.has_steps and one.lines]

    def poll(self, max_bytes: int = 4 << 20) -> list[tuple[str, Step | Event]]:
        """Read at most about ``max_bytes`` and return the records with the path of their log."""
        if self._clock.monotonic_s() >= self._look_due_s:
            before_s = time.thread_time()  # work, not time: a busy machine must not delay the next look
            self._present = self._look()
            work_s = time.thread_time() - before_s
            pause_s = 0.0 if work_s < _CHEAP_LOOK_S else min(100 * work_s, _MAX_LOOK_PAUSE_S)
            self._look_due_s = self._clock.monotonic_s() + pause_s
        present = self._present
        records: list[tuple[str, Step | Event]] = []
        budget = max_bytes
        self._until_ns = time.thread_time_ns() + round(MAX_POLL_S * 1e9)
        for stream in self._in_turn():
            budget = self._read(stream, present, budget, records)
            if budget <= 0:
                break
        self.is_behind = budget <= 0
        return records

    def _in_turn(self) -> list[_Stream]:
        """History in the order in which it was written, each log to its end: the starts of a trainer are numbered by it. Logs whose
        end was met come before, in turns: they have little to tell."""
        self._turn += 1
        waiting = [stream for stream in self._streams.values() if not stream.is_caught_up]
        others = [stream for stream in self._streams.values() if stream.is_caught_up]
        first = self._turn % len(others) if others else 0
        return others[first:] + others[:first] + waiting

    def close(self) -> None:
        """Let go of all files; ``to_state`` still works."""
        for stream in self._streams.values():
            stream.close()

    def _look(self) -> dict[str, tuple[int, int]]:
        """Path -> identity of the files that are there now, without those read under another name; opens new logs."""
        present: dict[str, tuple[int, int]] = {}
        held = {stream.cursor.identity: stream for stream in self._streams.values() if stream.cursor.is_open}
        for stream in self._streams.values():
            if stream.is_restored and self._attach(stream):
                held[stream.cursor.identity] = stream
        new: dict[tuple[int, int], tuple[int, str]] = {}
        for path in sorted(self._matches(), key=self._unreadable.__contains__):  # a name that was refused hides no other
            try:
                status = Path(path).stat()
            except OSError:
                continue  # it went away between the listing and now
            if not stat.S_ISREG(status.st_mode):
                continue
            identity = (status.st_dev, status.st_ino)
            holder = held.get(identity)
            if holder is not None and holder.path != path:
                continue
            if holder is None and self._was_finished(path, status):
                continue
            if path not in self._streams and new.setdefault(identity, (status.st_mtime_ns, path))[1] != path:
                continue  # another name of a file that is opened in this look
            present[path] = identity
        self._open_all(sorted((modified_ns, path, identity) for identity, (modified_ns, path) in new.items()))
        return present

    def _matches(self) -> list[str]:
        found = {path for pattern in self._patterns for path in glob.iglob(pattern, recursive=True)}  # noqa: PTH207 (patterns are absolute)
        return sorted(path for path in found if not path.endswith(_COMPRESSED))

    def _open_all(self, new: Sequence[tuple[int, str, tuple[int, int]]]) -> None:
        """(when it was last written, path, identity) of logs, oldest first. Of more than find a place the newest are opened."""
        while len(self._streams) + len(new) > MAX_FILES and self._forget_one():
            pass
        room = max(0, MAX_FILES - len(self._streams))
        self._counts["files_beyond_limit"] = max(0, len(new) - room)
        for _, path, identity in new[len(new) - room :] if len(new) > room else new:
            self._open(path, identity)

    def _open(self, path: str, identity: tuple[int, int]) -> None:
        try:
            cursor = Cursor.opened_as(path, identity)
        except FileNotFoundError:
            return  # renamed since the look
        except OSError:
            self._note_unreadable(path)
            return
        if cursor is None:
            return
        self._unreadable.discard(path)
        self._streams[path] = _Stream(path, self._parser(cursor.mtime_ns), cursor)

    def _note_unreadable(self, path: str) -> None:
        if path not in self._unreadable:
            self._unreadable.add(path)
            self._counts["unreadable"] += 1

    def _forget_one(self) -> bool:
        for path, stream in self._streams.items():
            if not stream.cursor.is_open:
                for name, count in stream.parser.counters.items():
                    self._past[name] = self._past.get(name, 0) + count
                del self._streams[path]
                return True
        return False

    def _attach(self, stream: _Stream) -> bool:
        """After a restart: find the file again, under its own name or the one that a rotation gave it."""
        stream.is_restored = False
        if stream.cursor.reopen(stream.path):
            return True
        if stream.cursor.offset == 0:
            return False  # nothing of it was read: its path is opened anew
        try:
            with os.scandir(Path(stream.path).parent) as entries:
                names = [entry.path for entry in entries if entry.inode() == stream.cursor.inode]
        except OSError:
            return False
        return any(stream.cursor.reopen(name) for name in names)

    def _was_finished(self, path: str, status: os.stat_result) -> bool:
        """Whether this is a rotated file that was read to its end, and no new one with an old inode number."""
        identity = (status.st_dev, status.st_ino)
        fingerprint = self._finished.get(identity)
        if fingerprint is None:
            return False
        seen = (*identity, status.st_size, status.st_mtime_ns)
        if self._verified.get(path) == seen:
            return True
        is_same = begins_with(path, identity, fingerprint)
        if is_same is None:
            return True  # renamed meanwhile: the next look sees what stands there then
        if is_same:
            self._verified[path] = seen
            return True
        del self._finished[identity]
        return False

    def _read(
        self,
        stream: _Stream,
        present: dict[str, tuple[int, int]],
        budget: int,
        records: list[tuple[str, Step | Event]],
    ) -> int:
        try:
            while budget > 0:
                if stream.cursor.was_rewritten():
                    self._counts["truncations"] += 1
                    stream.cursor.rewind()
                    stream.parser.next_file(stream.cursor.mtime_ns)
                began_ns = time.thread_time_ns()
                data = stream.cursor.read(min(stream.chunk_bytes, budget))
                if data:
                    budget -= len(data)
                    stream.quiet_since_s = None
                    stream.has_news = True
                    stream.parser.mtime_ns = stream.cursor.mtime_ns
                    found = stream.parser.feed(stream.text_of(data))
                    stream.count(data, found)
                    records.extend((stream.path, record) for record in found)
                    stream.pace(time.thread_time_ns() - began_ns)
                    if time.thread_time_ns() > self._until_ns:
                        return 0
                elif not self._move_on(stream, present):
                    stream.is_caught_up = True
                    self._listen(stream, records)
                    break
        except InputError:  # an event file, and no package that reads it: nothing of it is lost, it is read when there is one
            self._note_unreadable(stream.path)
            stream.cursor.rewind()
        except OSError:
            # A stale handle on a network disk: the file is opened again by name in the next poll.
            self._note_unreadable(stream.path)
            stream.close()
            stream.is_restored = True
        else:
            if self._unreadable:
                self._unreadable.discard(stream.path)
        return budget

    def _listen(self, stream: _Stream, records: list[tuple[str, Step | Event]]) -> None:
        """At the end of what is there: after each silence of ``IDLE_S``, once, what waits for a further line is given out."""
        now_s = self._clock.monotonic_s()
        if stream.has_news:
            stream.has_news, stream.silent_since_s, stream.silences = False, now_s, 0
        elif stream.silences < len(IDLE_S) and now_s - stream.silent_since_s >= IDLE_S[stream.silences]:
            stream.silences += 1
            records.extend((stream.path, record) for record in stream.parser.idle())

    def _move_on(self, stream: _Stream, present: dict[str, tuple[int, int]]) -> bool:
        """At the end of a file: go on with the one that took its place. False when there is none."""
        identity = present.get(stream.path)
        if identity == stream.cursor.identity and stream.cursor.is_open:
            stream.quiet_since_s = None
            return False
        if identity is None:
            if stream.cursor.is_open and not Path(stream.path).exists():
                now_s = self._clock.monotonic_s()
                stream.quiet_since_s = now_s if stream.quiet_since_s is None else stream.quiet_since_s
                if now_s - stream.quiet_since_s >= _DELETED_GRACE_S:
                    stream.close()
            return False
        try:
            if Path(stream.path).stat().st_size == 0:
                return False  # after a rename the writer goes on in the old file until it opens the new one
            successor = Cursor.opened_as(stream.path, identity)
        except FileNotFoundError:
            successor = None
        if successor is None:
            return False  # it was rotated away since the look: the next one sees it under its new name
        if stream.cursor.offset > 0:
            self._counts["rotations"] += 1
            self._finish(stream.cursor)
            stream.parser.next_file(successor.mtime_ns)
        stream.close()
        stream.cursor = successor
        present[stream.path] = successor.identity
        return True

    def _finish(self, cursor: Cursor) -> None:
        self._finished[cursor.identity] = cursor.fingerprint()
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]
        if len(self._verified) > _MAX_FINISHED:
            self._verified.clear()

    def to_state(self) -> dict[str, Any]:
        """JSON values only: every position, torn line and parser."""
        return {
            "version": 1,
            "streams": [
                {
                    "path": path,
                    "cursor": stream.cursor.to_state(),
                    "parser": stream.parser.to_state(),
                    "events": stream.events.to_state() if stream.events is not None else None,
                    "read": [stream.lines, stream.has_steps],
                }
                for path, stream in self._streams.items()
            ],
            "finished": [[*identity, *fingerprint] for identity, fingerprint in self._finished.items()],
            "counters": self._counts,
            "past": self._past,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken, also when files were rotated since."""
        if state.get("version") != 1:
            raise InputError(f"The kept positions in the logs have version {state.get('version')!r}, not 1, which is known here.")
        self.close()
        self._streams = {}
        for saved in state["streams"]:
            parser = self._parser()
            parser.restore(saved["parser"])
            stream = _Stream(saved["path"], parser, Cursor.from_state(saved["cursor"]))
            stream.is_restored = True
            stream.lines, stream.has_steps = saved.get("read", (0, parser.format is not None))
            if saved.get("events") is not None:
                stream.events = EventFileReader()
                stream.events.restore(saved["events"])
            self._streams[stream.path] = stream
        self._finished = {(device, inode): (length, digest) for device, inode, length, digest in state["finished"]}
        self._counts = {name: int(count) for name, count in state["counters"].items()}
        self._past = {name: int(count) for name, count in state["past"].items()}
