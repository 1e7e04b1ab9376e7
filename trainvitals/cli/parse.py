"""``parse FILE``: a log, CSV or ``trainer_state.json`` as JSON lines of steps and events."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, cast

from trainvitals.errors import InputError
from trainvitals.logs.parser import Parser
from trainvitals.logs.registry import FORMATS
from trainvitals.logs.times import rfc3339
from trainvitals.records import Event, Step

_CHUNK_BYTES = 1 << 18
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_GZIP_MAGIC = b"\x1f\x8b"
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


#: ``FORMATS`` holds other spellings of these as well.
FORMAT_HELP = "grammar: auto (found by itself), megatron, huggingface, nanogpt, hook, csv or trainer_state"


class _Source(Protocol):
    """``read1`` returns what is there: a damaged file gives all that stands before the damage."""

    def read(self, size: int = -1, /) -> bytes: ...

    def read1(self, size: int = -1, /) -> bytes: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the log; .gz is accepted, - reads standard input")
    parser.add_argument("--format", default="auto", choices=FORMATS, metavar="NAME", help=FORMAT_HELP)
    parser.add_argument("--timezone", default="UTC", metavar="ZONE", help="time zone of times that name none (default: UTC)")
    parser.epilog = "Exit code 0: read, also when no training step was found, which stderr says. 2: cannot be read as a log."


def run(args: argparse.Namespace) -> int:
    """Prints one JSON object a line; exit code 2 when the file cannot be read as text."""
    steps = 0
    parser_format = None
    for parser, records in read_log(args.file, args.format, args.timezone):
        for record in records:
            steps += isinstance(record, Step)
            sys.stdout.write(json.dumps(as_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
        parser_format = parser.format
    if steps == 0:
        found = f"; it was read as {parser_format}" if parser_format else "; no known format was recognised"
        print(f"trainvitals parse: no training step in {args.file}{found}.", file=sys.stderr)  # noqa: T201
    return 0


def as_json(record: Step | Event) -> dict[str, Any]:
    """The record as the command line prints it: times RFC 3339 in UTC or null, no NaN."""
    if isinstance(record, Step):
        return {
            "type": "step",
            "step": record.step,
            "attempt": record.attempt,
            "time": rfc3339(record.time_ns),
            "values": dict(record.values),
            "nonfinite": dict(record.nonfinite),
        }
    return {
        "type": "event",
        "kind": record.kind,
        "step": record.step,
        "time": rfc3339(record.time_ns),
        "text": record.text.encode("utf-8", "replace").decode(),
        "data": dict(record.data),
    }


def read_log(name: str, format: str = "auto", timezone: str = "UTC") -> Iterator[tuple[Parser, list[Step | Event]]]:
    """The records of a file (``-``: standard input) in pieces, with the parser that read them.

    Raises ``InputError`` when it cannot be read, is a Git LFS pointer, or is no text.
    """
    shown = "standard input" if name == "-" else name
    try:
        with ExitStack() as stack:
            mtime_ns = None
            if name == "-":
                raw: _Source = cast(io.BufferedReader, sys.stdin.buffer)
            else:
                path = Path(name)
                if path.is_dir():
                    raise InputError(f"{name} is a directory; name a log file in it.")
                mode = path.stat().st_mode
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    raise InputError(f"{name} is a device and has no end; name a log file, or - for standard input.")
                raw = stack.enter_context(path.open("rb"))
                mtime_ns = path.stat().st_mtime_ns
            parser = Parser(format, timezone, mtime_ns)
            for chunk in _text_chunks(raw, stack, shown):
                yield parser, parser.feed(chunk)
            yield parser, parser.finish()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{shown} is a damaged gzip file ({error}); everything before the damage was read.") from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(f"Cannot read {shown}: {error.strerror or error}.") from error


def _text_chunks(raw: _Source, stack: ExitStack, shown: str) -> Iterable[bytes]:
    first = raw.read(_CHUNK_BYTES)
    rest = raw
    if first.startswith(_GZIP_MAGIC):
        unzipped = gzip.GzipFile(fileobj=io.BufferedReader(_Joined(first, raw)), mode="rb")
        stack.callback(unzipped.close)
        rest = unzipped
        first = rest.read1(_CHUNK_BYTES)
    _refuse_what_is_no_log(first, shown)
    while first:
        yield first
        first = rest.read1(_CHUNK_BYTES)


def _refuse_what_is_no_log(first: bytes, shown: str) -> None:
    if first.startswith(_LFS_POINTER):
        raise InputError(f"{shown} is a Git LFS pointer, not the file itself; fetch the content with `git lfs pull`.")
    # A log truncated under its writer begins with a hole of NUL bytes, and is still a log.
    if first.startswith(_BINARY_MAGIC) or b"\0" in first[:8192].strip(b"\0"):
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
