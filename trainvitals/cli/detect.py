"""``detect FILE``: what the rules find in a log or a CSV of a curve, one JSON line per finding, when it closes or at the end."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from trainvitals.detect.engine import Engine
from trainvitals.errors import InputError
from trainvitals.logs.parser import FORMATS, Parser
from trainvitals.records import Event, Finding, Severity, Step, to_json_number

CHUNK_BYTES = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
FOUND_A_FAULT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "file", metavar="FILE", help="a trainer's log or a CSV (step,loss,grad_norm,lr,throughput); - = stdin, .gz is fine"
    )
    parser.add_argument("--format", default="auto", choices=FORMATS, help="grammar of the file (default: found by itself)")
    parser.add_argument("--timezone", default="UTC", help="time zone of times that name none")
    parser.add_argument(
        "--config", metavar="FILE", help="settings whose [detect.RULE] and [breaker] tables are used; else defaults"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a finding of at least a warning was made, else 0."""
    engine = _engine(args.config)
    is_bad = False
    newest: dict[str, Finding] = {}
    for found in _findings(args, engine):
        if found.severity is not Severity.INFO:
            is_bad = True
        if found.is_open:
            newest[found.id] = found
        else:
            newest.pop(found.id, None)
            sys.stdout.write(_line(found))
    for found in newest.values():
        sys.stdout.write(_line(found))
    return FOUND_A_FAULT if is_bad else 0


def _engine(config: str | None) -> Engine:
    if config is None:
        return Engine()
    from trainvitals import settings  # only when asked for: reading a curve needs none

    loaded = settings.load(config)
    return Engine(tunables=loaded.detect, breaker=loaded.breaker)


def _findings(args: argparse.Namespace, engine: Engine) -> Iterator[Finding]:
    for record in _records(args.file, args.format, args.timezone):
        yield from engine.update(record)
    yield from engine.finish()


def _records(file: str, format: str, timezone: str) -> Iterator[Step | Event]:
    if file == "-":
        yield from _parse(sys.stdin.buffer, Parser(format=format, timezone=timezone), "stdin")
        return
    path = Path(file)
    try:
        parser = Parser(format=format, timezone=timezone, mtime_ns=path.stat().st_mtime_ns)
        with path.open("rb") as opened:
            yield from _parse(opened, parser, file)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read {file}: {reason}. Name a readable log or CSV file.") from error


def _parse(opened: BinaryIO, parser: Parser, name: str) -> Iterator[Step | Event]:
    stream: Any = opened
    head = opened.peek(2)[:2] if hasattr(opened, "peek") else b""
    if head == GZIP_MAGIC:
        stream = gzip.GzipFile(fileobj=opened)
    records = 0
    while chunk := stream.read(CHUNK_BYTES):
        for record in parser.feed(chunk):
            records += 1
            yield record
    for record in parser.finish():
        records += 1
        yield record
    if records == 0:
        raise InputError(f"{name} holds no training step in a format that is known. Check the file, or name its --format.")


def _line(finding: Finding) -> str:
    row = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "detected_step": finding.detected_step,
        "value": to_json_number(finding.value),
        "expected": to_json_number(finding.expected),
        "message": finding.message,
    }
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
