"""``detect FILE``: what the rules find in a log or a CSV of a curve, one JSON line per finding, when it closes or at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from trainvitals.cli.contents import names_instead
from trainvitals.cli.parse import FORMAT_HELP, OWN_FORMAT, custom_formats, read_log
from trainvitals.detect.engine import Engine
from trainvitals.errors import InputError
from trainvitals.records import Event, Finding, Severity, Step, to_json_number

FOUND_A_FAULT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "file", metavar="FILE", help="whatever parse takes, or a CSV (step,loss,grad_norm,lr,throughput); - = stdin, .gz is fine"
    )
    parser.add_argument("--format", default="auto", metavar="NAME", help=FORMAT_HELP)
    parser.add_argument("--timezone", default="UTC", metavar="ZONE", help="time zone of times that name none (default: UTC)")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings whose [detect.RULE], [breaker] and [formats.NAME] tables are used; else defaults",
    )
    parser.epilog = "Exit code 0: nothing worse than info. 1: at least one warning. 2: no training step could be read."


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a finding of at least a warning was made, else 0. Raises ``InputError`` when nothing of a training was read."""
    engine = _engine(args.config)
    is_bad = False
    newest: dict[str, Finding] = {}
    counts = {"steps": 0, "findings": 0}
    for found in _findings(args, engine, counts):
        counts["findings"] += 1
        if found.severity is not Severity.INFO:
            is_bad = True
        if found.is_open:
            newest[found.id] = found
        else:
            newest.pop(found.id, None)
            sys.stdout.write(_line(found))
    if not counts["steps"] and not counts["findings"]:
        shown = "standard input" if args.file == "-" else args.file
        names = names_instead(args.file) or f"Check the file, or name its --format. {OWN_FORMAT}."
        raise InputError(f"{shown} holds no training step in a format that is known. {names}")
    for found in newest.values():
        sys.stdout.write(_line(found))
    return FOUND_A_FAULT if is_bad else 0


def _engine(config: str | None) -> Engine:
    if config is None:
        return Engine()
    from trainvitals import settings  # only when asked for: reading a curve needs none

    loaded = settings.load(config)
    return Engine(tunables=loaded.detect, breaker=loaded.breaker)


def _findings(args: argparse.Namespace, engine: Engine, counts: dict[str, int]) -> Iterator[Finding]:
    for record in _records(args.file, args.format, args.timezone, args.config):
        counts["steps"] += isinstance(record, Step)
        yield from engine.update(record)
    yield from engine.finish()


def _records(file: str, format: str, timezone: str, config: str | None) -> Iterator[Step | Event]:
    """As ``parse`` reads it. Raises ``InputError``."""
    for _, records in read_log(file, format, timezone, custom_formats(config)):
        yield from records


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
