"""``checkpoint list|verify|show DIR``: what the checkpoints in a directory are worth; exit 1 when one is incomplete or corrupt."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from trainvitals.checkpoints import copy_check, find, pinning
from trainvitals.checkpoints.files import FAULT, fault, printable
from trainvitals.checkpoints.findings import many
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.inspection import checked_level
from trainvitals.checkpoints.resume_choice import choose, choose_all
from trainvitals.cli.checkpoint_guard import Guard
from trainvitals.cli.checkpoint_work import Kept, look, quick
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

BAD = (CheckpointState.INCOMPLETE, CheckpointState.CORRUPT)
#: A checkpoint that is not good and changed this recently may still be on its way.
RECENT_S = 60
#: A file that is fetched from tape may take minutes; whoever waits for that says so.
DEADLINE_S = 120.0
_COLUMNS = ("STEP", "STATE", "LEVEL", "FORMAT", "OPTIMIZER", "FILES", "SIZE", "PATH")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "action",
        choices=("list", "verify", "show", "compare"),
        help="list: names and sizes; verify: also into each file; show: verify, with all reasons; compare: DIR with its copy COPY",
    )
    parser.add_argument("directory", metavar="DIR", help="a directory of checkpoints, or one checkpoint (directory or file)")
    parser.add_argument("copy", metavar="COPY", nargs="?", help="compare only: the copy (on the shared file system) of DIR")
    parser.add_argument(
        "--level",
        choices=[level.value for level in VerificationLevel],
        help="how far to look (default: presence for list, else structure); content reads every byte, load starts a child process",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per checkpoint instead of a table")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="before a resume, within a minute: is what was verified before (--record, or a manifest) as it was?",
    )
    parser.add_argument(
        "--record", metavar="DIR", help="directory in which hashes are kept and compared with (watch: RUN_DIR/checkpoint_hashes)"
    )
    parser.add_argument("--share", metavar="K/N", help="level content of the K-th of N parts only; the hashes go to --record")
    parser.add_argument(
        "--merge",
        metavar="PATH",
        action="append",
        default=[],
        help="records of --share on other nodes: their files are not read again",
    )
    parser.add_argument(
        "--mb-per-s", type=float, default=0.0, metavar="X", help="read at most so fast, in MB/s (default: no limit)"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_S,
        metavar="S",
        help=f"end with a sentence when the file system answers nothing for so many seconds ({DEADLINE_S:g}; 0: wait for ever)",
    )
    parser.epilog = (
        "Exit code 0: all fine. 1: one is incomplete or corrupt. 2: something could not be read or was never verified."
    )


def run(args: argparse.Namespace) -> int:
    """Print one line per checkpoint; 0 all fine, 1 a bad one was found, 2 something could not be read."""
    if args.deadline < 0:
        raise InputError("--deadline must not be negative.")
    if args.action == "compare":
        with Guard(args.directory, args.deadline):
            return _compare(args)
    if args.copy is not None:
        raise InputError(f"checkpoint {args.action} takes one directory; {printable(args.copy)} is one too many.")
    level = checked_level(args.level or (VerificationLevel.PRESENCE if args.action == "list" else VerificationLevel.STRUCTURE))
    kept = Kept.of(args.record, args.merge, args.share, args.mb_per_s)
    if args.share and level is not VerificationLevel.CONTENT:
        raise InputError("--share is for --level content.")
    if args.quick and (args.level or args.share):
        raise InputError("--quick is a look of its own: leave out --level and --share.")
    reports: list[CheckpointReport] = []
    with Guard(args.directory, args.deadline, lambda: None if args.json else _table(reports, with_all_reasons=True)) as guard:
        return _looked_at(args, level, kept, reports, guard)


def _looked_at(
    args: argparse.Namespace, level: VerificationLevel, kept: Kept, reports: list[CheckpointReport], guard: Guard
) -> int:
    unreadable = 0
    for path in find(args.directory):
        guard.at = path
        try:
            report = quick(path, kept) if args.quick else look(path, level, kept)
        except InputError as error:
            unreadable += 1
            _say(str(error))
            continue
        except Exception as error:  # noqa: BLE001 (one that was made to break a look must not hide the others)
            unreadable += 1
            _say(f"{printable(path, 500)}: {fault(error)}.")
            continue
        reports.append(report)
        unreadable += any(FAULT in reason for reason in report.reasons)
        if args.quick and report.state not in BAD and report.level is not VerificationLevel.CONTENT:
            unreadable += 1
        if args.json:
            print(json.dumps(_to_json(report)), flush=True)  # noqa: T201
    guard.at = args.directory
    if not args.json:
        is_deep = level in (VerificationLevel.CONTENT, VerificationLevel.LOAD)
        _table(reports, with_all_reasons=args.action == "show" or args.quick or is_deep)
        if args.action == "list":
            _choices(args.directory, reports)
    if not reports and not unreadable:
        _say(f"No checkpoints in {printable(args.directory)}.")
    _pinned(args.directory, reports)
    below = [report for report in reports if report.level is not level and report.state not in BAD]
    if below and not args.quick and not args.share and args.level:
        _say(f"{len(below)} of {len(reports)} did not reach level {level}: the reasons say what is not proven.")
    for trouble in kept.troubles:
        _say(trouble)
    for report in reports:
        if (
            report.state in BAD
            and report.modified_at_ns is not None
            and 0 <= time.time_ns() - report.modified_at_ns < RECENT_S * 10**9
        ):
            _say(f"{printable(report.path)} changed less than {RECENT_S} s ago: a save may still be running, look again.")
    if any(report.state in BAD for report in reports):
        return 2 if unreadable and not args.quick else 1
    return 2 if unreadable else 0


def _compare(args: argparse.Namespace) -> int:
    if args.copy is None:
        raise InputError("checkpoint compare takes two directories: the original and its copy.")
    result = copy_check.compare(args.directory, args.copy, Pace(SystemClock(), args.mb_per_s))
    if args.json:
        values = {
            "path": args.directory, "copy": args.copy, "equal": result.is_equal, "files": result.files, "bytes": result.bytes,
            "by": result.by, "reasons": list(result.reasons),
        }  # fmt: skip
        print(json.dumps(values))  # noqa: T201
    else:
        word = "equal" if result.is_equal else "NOT equal"
        print(f"{word}: {many(result.files, 'file')}, {_size(result.bytes)}, compared by {result.by}")  # noqa: T201
        for reason in result.reasons:
            print(f"    {reason}")  # noqa: T201
    return 0 if result.is_equal else 1


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
        "proof": report.proof.value or None,
        "has_rng": report.has_rng,
        "has_scheduler": report.has_scheduler,
        "has_data_position": report.has_data_position,
        "world_size": report.world_size,
        "parallel": dict(report.parallel),
        "loss": report.loss,
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


def _choices(directory: str, reports: Sequence[CheckpointReport]) -> None:
    """What a restart would load, under the table."""
    choices = choose_all(reports)
    # Where all checkpoints are gone, a pointer may still name one.
    alone = None if choices else choose(directory, [])
    for choice in choices if alone is None else [alone]:
        what = "from step 0" if choice.path is None else printable(choice.path, 500)
        print(f"A restart would load: {what} (by {printable(choice.how)})")  # noqa: T201
        if choice.problem:
            print(f"    {choice.problem}")  # noqa: T201


def _pinned(directory: str, reports: Sequence[CheckpointReport]) -> None:
    """Where copies lie that are kept from the trainer's own deletion: they may be the last good ones, and no table names them."""
    places = {os.path.abspath(directory), *(os.path.dirname(os.path.abspath(report.path)) for report in reports)}  # noqa: PTH100, PTH120
    for place in sorted(places):
        try:
            kept = pinning.pins(place)
        except pinning.CannotPin as error:
            _say(f"What is kept from deletion cannot be read: {error}.")
            continue
        for path in kept:
            _say(f"Kept from deletion: {printable(path, 500)} (look at it by this path)")


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
