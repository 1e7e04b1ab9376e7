"""``parse FILE``: a log, CSV or ``trainer_state.json`` as JSON lines of steps and events."""

from __future__ import annotations

import argparse
import codecs
import gzip
import io
import itertools
import re
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from trainvitals.cli.record_json import RecordLines
from trainvitals.errors import InputError
from trainvitals.logs.grammars.tensorboard_records import lines_of_chunks, lines_of_directory, looks_like_event_file
from trainvitals.logs.long_json import broken_into_lines, is_long_document
from trainvitals.logs.parser import Parser
from trainvitals.logs.registry import home_made_grammars
from trainvitals.records import Event, Step

_CHUNK_BYTES = 1 << 18
_LONGEST_MAGIC = 64
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HOLE = re.compile(rb"\0{64,}")
_BINARY_MAGIC = (
    b"PK\x03\x04",
    b"\x7fELF",
    b"\x89PNG",
    b"SQLite format 3\x00",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"\x80\x02",
)


#: What to do with a log that no grammar knows.
OWN_FORMAT = "Write a [formats.NAME] table for its lines (docs/formats.md) and name it: --config FILE --format NAME"
FORMAT_HELP = "grammar: auto (found by itself, also when it changes inside the file) or a name of docs/formats.md"


class _Source(Protocol):
    """``read1`` returns what is there: a damaged file gives all that stands before the damage."""

    def read(self, size: int = -1, /) -> bytes: ...

    def read1(self, size: int = -1, /) -> bytes: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="log, CSV, JSON, event file or a directory of them; .gz too, - = stdin")
    parser.add_argument("--format", default="auto", metavar="NAME", help=FORMAT_HELP)
    parser.add_argument("--timezone", default="UTC", metavar="ZONE", help="time zone of times that name none (default: UTC)")
    parser.add_argument("--config", metavar="FILE", help="settings whose [formats.NAME] tables are known as formats too")
    parser.epilog = "Exit code 0: read, also when no training step was found, which stderr says. 2: cannot be read as a log."


def run(args: argparse.Namespace) -> int:
    """Prints one JSON object a line; exit code 2 when the file cannot be read as text."""
    steps = 0
    parser: Parser | None = None
    write_line = RecordLines().line
    try:
        for reader, records in read_log(args.file, args.format, args.timezone, custom_formats(args.config)):
            parser = reader
            steps += sum(isinstance(record, Step) for record in records)
            sys.stdout.write("".join(map(write_line, records)))
            if args.file == "-":
                sys.stdout.flush()  # a pipe may be a trainer that goes on for weeks
    finally:
        if parser is not None and (left_out := told_counters(parser.counters, parser.ranks_seen)):
            print(f"trainvitals parse: {args.file}: {left_out}.", file=sys.stderr)  # noqa: T201
    if steps == 0:
        format = parser.format if parser is not None else None
        found = f"; it was read as {format}" if format else f"; no known format was recognised. {OWN_FORMAT}"
        shown = "standard input" if args.file == "-" else args.file
        print(f"trainvitals parse: no training step in {shown}{found}".rstrip(".") + ".", file=sys.stderr)  # noqa: T201
    return 0


#: Counter of ``Parser`` -> what it counts, for people.
_COUNTERS = {
    "repeated_steps": "steps seen again",
    "bad_records": "broken records left out",
    "capped_lines": "overlong lines cut",
    "torn_lines": "torn lines lost",
    "dropped_metrics": "values left out of more than 100 extra metrics",
    "dropped_lines": "lines of another format lost",
    "failed_lines": "lines on which this program failed (please report one of them)",
}


def told_counters(counters: Mapping[str, int], ranks_seen: int = 1) -> str:
    """What was left out of a log, as a sentence without its end; empty when nothing was."""
    words = {**_COUNTERS, "repeated_steps": f"steps seen again ({ranks_seen:,} ranks print)"} if ranks_seen > 1 else _COUNTERS
    return ", ".join(f"{count:,} {words.get(name, name)}" for name, count in counters.items() if count)


def custom_formats(config: str | None) -> Mapping[str, type[Any]]:
    """The home-made formats of a settings file; none without one."""
    if config is None:
        return {}
    from trainvitals import settings  # only when asked for: reading a log needs none

    return home_made_grammars(settings.load(config).formats)


def read_log(
    name: str, format: str = "auto", timezone: str = "UTC", custom: Mapping[str, type[Any]] = MappingProxyType({})
) -> Iterator[tuple[Parser, list[Step | Event]]]:
    """The records of a file (``-``: standard input) in pieces, with the parser that read them.

    Raises ``InputError`` when it cannot be read, is a Git LFS pointer, or is no text.
    """
    shown = "standard input" if name == "-" else name
    with reading(shown), ExitStack() as stack:
        mtime_ns = None
        if name == "-":
            raw: _Source = cast(io.BufferedReader, sys.stdin.buffer)
        else:
            path = Path(name)
            if path.is_dir():
                parser = Parser("tensorboard" if format == "auto" else format, timezone)
                for lines in lines_of_directory(path):
                    yield parser, parser.feed(lines)
                yield parser, parser.finish()
                return
            mode = path.stat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise InputError(f"{name} is a device and has no end; name a log file, or - for standard input.")
            raw = stack.enter_context(path.open("rb"))
            mtime_ns = path.stat().st_mtime_ns
        parser = Parser(format, timezone, mtime_ns, custom=custom)
        for chunk in text_chunks(raw, stack, shown):
            yield parser, parser.feed(chunk)
        yield parser, parser.finish()


@contextmanager
def reading(shown: str) -> Iterator[None]:
    """What goes wrong while a file is read, as an ``InputError`` for people."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{shown} is a damaged gzip file ({error}); everything before the damage was read.") from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(f"Cannot read {shown}: {error.strerror or error}.") from error


def text_chunks(raw: _Source, stack: ExitStack, shown: str) -> Iterable[bytes]:
    """The text of an open file in pieces: unzipped, event files as lines. Raises ``InputError`` for what is no log."""
    first = _beginning(raw)
    rest = raw
    if first.startswith(_GZIP_MAGIC):
        unzipped = gzip.GzipFile(fileobj=io.BufferedReader(_Joined(first, raw)), mode="rb")
        stack.callback(unzipped.close)
        rest = unzipped
        first = _beginning(rest)
    chunks = itertools.chain([first] if first else [], iter(lambda: rest.read1(_CHUNK_BYTES), b""))
    if first.startswith(_UTF16):
        yield from _as_utf8(chunks)
        return
    if looks_like_event_file(first):
        yield from lines_of_chunks(chunks)
        return
    _refuse_what_is_no_log(first, shown)
    yield from broken_into_lines(chunks) if is_long_document(first) else chunks


def _as_utf8(chunks: Iterable[bytes]) -> Iterable[bytes]:
    """What PowerShell and some editors write: UTF-16 with a byte order mark."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _beginning(raw: _Source) -> bytes:
    """Enough to tell what it is, and no more: a pipe's first lines are wanted before it has filled a whole chunk."""
    first = b""
    while len(first) < _CHUNK_BYTES and b"\n" not in first and (len(first) < _LONGEST_MAGIC or first.lstrip().startswith(b"{")):
        more = raw.read1(_CHUNK_BYTES - len(first))
        if not more:
            break
        first += more
    return first


def _refuse_what_is_no_log(first: bytes, shown: str) -> None:
    if first.startswith(_LFS_POINTER):
        raise InputError(f"{shown} is a Git LFS pointer, not the file itself; fetch the content with `git lfs pull`.")
    # A log truncated under its writer has a hole of NUL bytes, mostly at its beginning, and is still a log.
    if first.startswith(_BINARY_MAGIC) or b"\0" in _HOLE.sub(b"", first[:8192].strip(b"\0")):
        raise InputError(f"{shown} is a binary file, not a text log; parse reads logs, CSV, JSON lines and trainer_state.json.")


class _Joined(io.RawIOBase):
    """A stream whose first bytes were read already: standard input cannot be wound back."""

    def __init__(self, first: bytes, rest: _Source) -> None:
        super().__init__()
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._first[: len(buffer)] if self._first else self._rest.read(len(buffer))
        self._first = self._first[len(data) :]
        buffer[: len(data)] = data
        return len(data)
