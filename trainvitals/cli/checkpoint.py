"""``checkpoint list|verify|show DIR``: what the checkpoints in a directory are worth; exit 1 when one is incomplete or corrupt."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from trainvitals.checkpoints import find, inspect
from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.inspection import checked_level
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

BAD = (CheckpointState.INCOMPLETE, CheckpointState.CORRUPT)
#: A checkpoint that is not good and changed this recently may still be on its way.
RECENT_S = 60
_COLUMNS = ("STEP", "STATE", "LEVEL", "FORMAT", "OPTIMIZER", "FILES", "SIZE", "PATH")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "action",
        choices=("list", "verify", "show"),
        help="list: names and sizes; verify: also the structure of each file; show: verify, with all reasons",
    )
    parser.add_argument("directory", metavar="DIR", help="a directory of checkpoints, or one checkpoint (directory or file)")
    parser.add_argument(
        "--level",
        choices=[level.value for level in VerificationLevel],
        help="how far to look (default: presence for list, else structure); content and load are not in this version",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per checkpoint instead of a table")
    parser.epilog = "Exit code 0: all fine. 1: one is incomplete or corrupt. 2: something could not be read."


def run(args: argparse.Namespace) -> int:
    """Print one line per checkpoint; 0 all fine, 1 a bad one was found, 2 something could not be read."""
    level = checked_level(args.level or (VerificationLevel.PRESENCE if args.action == "list" else VerificationLevel.STRUCTURE))
    reports: list[CheckpointReport] = []
    unreadable = 0
    for path in find(args.directory):
        try:
            report = inspect(path, level)
        except InputError as error:
            unreadable += 1
            _say(str(error))
            continue
        reports.append(report)
        if args.json:
            print(json.dumps(_to_json(report)), flush=True)  # noqa: T201
    if not args.json:
        _table(reports, with_all_reasons=args.action == "show")
    if not reports and not unreadable:
        _say(f"No checkpoints in {printable(args.directory)}.")
    for report in reports:
        if (
            report.state in BAD
            and report.modified_at_ns is not None
            and 0 <= time.time_ns() - report.modified_at_ns < RECENT_S * 10**9
        ):
            _say(f"{printable(report.path)} changed less than {RECENT_S} s ago: a save may still be running, look again.")
    if unreadable:
        return 2
    return 1 if any(report.state in BAD for report in reports) else 0


def _to_json(report: CheckpointReport) -> dict[str, object]:
    return {
        "path": report.path,
        "step": report.step,
        "format": report.format,
        "state": report.state.value,
        "level": report.level.value if report.level is not None else None,
        "has_optimizer": report.has_optimizer,
        "files": report.files,
        "bytes": report.bytes,
        "reasons": list(report.reasons),
    }


def _table(reports: Sequence[CheckpointReport], with_all_reasons: bool) -> None:
    if not reports:
        return
    rows = [_COLUMNS, *(_row(report) for report in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())  # noqa: T201
        if number:
            reasons = reports[number - 1].reasons
            for reason in reasons if with_all_reasons else reasons[:1]:
                print(f"    {reason}")  # noqa: T201


def _row(report: CheckpointReport) -> tuple[str, ...]:
    optimizer = {True: "yes", False: "no", None: "?"}[report.has_optimizer]
    return (
        "?" if report.step is None else f"{report.step}",
        report.state.value,
        report.level.value if report.level is not None else "-",
        report.format,
        optimizer,
        f"{report.files}",
        _size(report.bytes),
        printable(report.path, 500),
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
