"""Reads a made-up log as ``parse`` does, or looks for faults in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainvitals.logs.faults.reader import Faults
from trainvitals.logs.framing import split_noise
from trainvitals.logs.parser import Parser
from trainvitals.logs.times import LineTimes
from trainvitals.records import Event, Step

DATA = Path(__file__).parent / "data"
#: The files' mtime, for times without a year: 2026-01-03.
MTIME_NS = 1_767_400_000_000_000_000
#: 2026-01-02 03:04:00 UTC, when every made-up log begins.
BEGIN_NS = 1_767_323_040_000_000_000
OVERFLOW = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"


def read(data: bytes | str, format: str = "auto") -> tuple[Parser, list[Step], list[Event]]:
    """The parser, the steps and the events other than attempts."""
    parser = Parser(format, mtime_ns=MTIME_NS)
    raw = data.encode() if isinstance(data, str) else data
    records = parser.feed(raw) + parser.finish()
    events = [record for record in records if isinstance(record, Event) and record.kind != "attempt_start"]
    return parser, [record for record in records if isinstance(record, Step)], events


def read_file(name: str) -> tuple[Parser, list[Step], list[Event]]:
    """As ``read``, of a file of ``data``."""
    return read((DATA / name).read_bytes())


def faults_of(text: str, faults: Faults | None = None) -> list[Event]:
    """What ``Faults`` makes of a text by itself."""
    faults = faults or Faults(LineTimes("UTC", MTIME_NS))
    events: list[Event] = []
    for raw in text.splitlines():
        line, prefix = split_noise(raw)
        if line:
            events += faults.feed(line.rstrip(), prefix)
    return events + faults.finish()


def seconds(step: Step) -> float | None:
    """Seconds since ``BEGIN_NS``."""
    return None if step.time_ns is None else (step.time_ns - BEGIN_NS) / 1e9


def read_in_pieces(data: bytes, width: int) -> list[Any]:
    """Fed in chunks of ``width`` bytes, by a parser that goes through its state as JSON after each."""
    parser = Parser("auto", mtime_ns=MTIME_NS)
    records: list[Any] = []
    for start in range(0, len(data), width):
        records += parser.feed(data[start : start + width])
        state = json.loads(json.dumps(parser.to_state()))
        parser = Parser("auto", mtime_ns=MTIME_NS)
        parser.restore(state)
    return records + parser.finish()
