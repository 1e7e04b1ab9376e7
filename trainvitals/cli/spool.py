"""``spool``: what waits on this machine for the store, and what the store refused for good."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from trainvitals import settings as settings_module
from trainvitals.errors import InputError, StoreUnavailable
from trainvitals.settings import Settings
from trainvitals.store.open import open_store
from trainvitals.store.sink import spool_files
from trainvitals.store.spool_codec import decode_batch
from trainvitals.store.spool_file import DeadLetter, SpoolFile
from trainvitals.store.spool_shipper import Outcome, Shipper


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("list", "resend", "drop", "ship"),
        help="list: spools and refused points; resend, drop: refused points; ship: deliver what waits, now",
    )  # fmt: skip
    parser.add_argument("ids", nargs="*", type=_number, metavar="ID", help="refused points, as list numbers them")
    parser.add_argument("--all", action="store_true", help="all refused points")
    parser.add_argument("--spool", default="", metavar="OWNER", help="only this spool, as list names it (watch/RUN)")
    parser.add_argument("--limit", type=_number, default=100, help="refused points that list shows of each spool")
    parser.add_argument("--json", action="store_true", help="list as JSON lines")
    parser.add_argument("--config", help="settings file")


def _number(text: str) -> int:
    """Argparse turns the ``ValueError`` into a sentence; SQLite counts no further."""
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(text)
    return number


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    with _open(settings, options.spool) as files:
        if options.action == "list":
            return _list(files, options.limit, options.json)
        if options.action == "ship":
            return _ship(settings, files)
        return _settle(files, options)


@contextmanager
def _open(settings: Settings, owner: str) -> Iterator[list[SpoolFile]]:
    files = list(spool_files(settings))
    try:
        chosen = [file for file in files if not owner or file.stats().owner == owner]
        if owner and not chosen:
            known = ", ".join(file.stats().owner for file in files) or "none"
            raise InputError(f"No spool of {owner!r} in {settings.spool_directory}; known: {known}.")
        if not chosen:
            print(f"No spool in {settings.spool_directory}: nothing waits here.", file=sys.stderr)  # noqa: T201
        yield chosen
    finally:
        for file in files:
            file.close()


def _list(files: list[SpoolFile], limit: int, as_json: bool) -> int:
    """1 when points were refused, 0 otherwise."""
    found = 0
    for file in files:
        stats = file.stats()
        found += stats.dead_letters
        letters = file.dead_letters(limit)
        if as_json:
            _out(json.dumps({"type": "spool", "path": str(file.path), **asdict(stats)}))
            for letter in letters:
                _out(json.dumps({"type": "dead_letter", "owner": stats.owner, **_readable(letter)}))
            continue
        _out(
            f"{_printable(stats.owner)}: {stats.waiting:,} waiting ({stats.bytes / 1e6:,.1f} MB, oldest {stats.oldest_age_s:,.0f} s), "
            f"{stats.delivered:,} delivered, {stats.dropped:,} dropped, {stats.dead_letters:,} refused  [{file.path}]"
        )
        for path in file.damaged_files():
            _out(f"  damaged and set aside: {path}")
        for letter in letters:
            shown = _readable(letter)
            _out(f"  {letter.id}  {shown['refused_at']}  {_printable(letter.reason)}")
            for point in shown["content"]:
                _out(f"      {json.dumps(point)}")
        if stats.dead_letters > len(letters):
            _out(f"  … and {stats.dead_letters - len(letters):,} more (--limit)")
    return 1 if found else 0


def _settle(files: list[SpoolFile], options: argparse.Namespace) -> int:
    if bool(options.ids) == options.all:
        raise InputError(f"Say which refused points to {options.action}: their numbers from `spool list`, or --all.")
    if options.ids and len(files) > 1:
        owners = ", ".join(file.stats().owner for file in files)
        raise InputError(f"Numbers count in one spool; add --spool with one of {owners}.")
    ids = None if options.all else options.ids
    points = sum(file.resend(ids) if options.action == "resend" else file.forget(ids) for file in files)
    words = "to be sent again" if options.action == "resend" else "dropped"
    print(f"{points:,} {'point' if points == 1 else 'points'} {words}.", file=sys.stderr)  # noqa: T201
    return 0 if points or options.all else 1


def _ship(settings: Settings, files: list[SpoolFile]) -> int:
    """Deliver until every spool is empty. 1 when another process ships from one; ``StoreUnavailable`` when the store fails."""
    store = open_store(settings.store, influxdb=settings.influxdb)
    is_busy = False
    try:
        for file in files:
            shipper = Shipper(file, store)
            while (outcome := shipper.ship_once()) is Outcome.DELIVERED:
                pass
            stats = file.stats()
            if outcome is Outcome.FAILED:
                raise StoreUnavailable(f"{stats.waiting:,} points of {stats.owner} still wait: {shipper.fault}")
            is_busy = is_busy or outcome is Outcome.BUSY
            words = (
                "is being delivered by its own process" if outcome is Outcome.BUSY else f"{stats.delivered:,} delivered so far"
            )
            print(f"{_printable(stats.owner)}: {words}.", file=sys.stderr)  # noqa: T201
    finally:
        store.close()
    return 1 if is_busy else 0


def _readable(letter: DeadLetter) -> dict[str, Any]:
    try:
        content = [asdict(point) for point in decode_batch(letter.body)]
    except ValueError:
        content = []
    refused_at = datetime.fromtimestamp(letter.refused_ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
    return {"id": letter.id, "refused_at": refused_at, "points": letter.points, "reason": letter.reason, "content": content}


def _printable(text: str) -> str:
    # A server's answer or a run's name can hold anything: control characters must not reach the terminal.
    return "".join(c if c.isprintable() else "�" for c in text)


def _out(line: str) -> None:
    print(line)  # noqa: T201
