"""``audit``: check the chain of a run's audit, or show its newest records.

stdout is data; stderr is for people. Exit codes: 0 the chain is whole, 1 it is broken (the first broken record is named), 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.control.audit import AuditRecord, Head, newest
from trainvitals.control.audit_chain import Anchor, Chain, history_anchors, verify
from trainvitals.control.document import to_rfc3339
from trainvitals.errors import InputError, SettingsError
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store

OK, BROKEN = 0, 1
DEFAULT_LAST = 20
MAX_LAST = 100_000
#: Newest heads of the store that are compared.
MAX_HEADS = 100_000
_EVER_NS = 2**62


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit code 0: the chain is whole. 1: it is broken; the first broken record is named. 2: wrong usage."
    parser.add_argument(
        "action", choices=("verify", "show"), metavar="ACTION", help="verify: check the chain; show: newest records"
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory that trainer and dashboard share")
    parser.add_argument("--json", action="store_true", help="print JSON: one object (verify), one a line (show)")
    parser.add_argument("--last", type=_count, default=DEFAULT_LAST, metavar="N", help=f"records shown (default {DEFAULT_LAST})")
    parser.add_argument("--config", metavar="FILE", help="settings file: the heads kept in its store are compared, too (verify)")
    parser.add_argument(
        "--run", default="", metavar="RUN", help="name of the run in the store (default: the one of this directory)"
    )


def run(args: argparse.Namespace) -> int:
    """Check or show. Raises ``InputError`` for wrong usage, ``ControlError`` for an unsafe place."""
    if not Path(args.run_dir).is_dir():
        raise InputError(f"There is no run directory {args.run_dir}; name the directory that trainer and dashboard share.")
    return _show(args) if args.action == "show" else _verify(args)


def _verify(args: argparse.Namespace) -> int:
    anchors = history_anchors(args.run_dir)
    of_store = _store_anchors(args) if args.config else []
    chain = verify(args.run_dir, [*anchors, *of_store])
    sentence = chain.problem or _whole(chain)
    if not args.config:
        sentence += " Heads kept in the store were not compared: give --config FILE."
    if args.json:
        document = {
            "outcome": "intact" if chain.is_intact else "broken", "records": chain.records, "first": chain.first_n,
            "head": {"n": chain.head.n, "hash": chain.head.hash}, "broken": chain.broken_n, "torn": chain.torn,
            "open_bytes": chain.open_bytes, "anchors": {"history": len(anchors), "store": len(of_store)}, "sentence": sentence,
        }  # fmt: skip
        print(json.dumps(document))  # noqa: T201 - stdout is data
    print(_printable(sentence), file=sys.stderr if args.json else sys.stdout)
    return OK if chain.is_intact else BROKEN


def _whole(chain: Chain) -> str:
    if not chain.records:
        return "Nothing was audited here yet."
    said = f"The audit is whole: records {chain.first_n} to {chain.head.n}, and {chain.anchors} heads kept elsewhere fit."
    if chain.torn:
        said += f" {chain.torn} writers were killed while they wrote; the next one closed what they left."
    if chain.open_bytes:
        said += f" Its end holds {chain.open_bytes} bytes of a writer that was killed or writes at this moment."
    return said


def _show(args: argparse.Namespace) -> int:
    for record in newest(args.run_dir, args.last):
        print(json.dumps(_document(record)) if args.json else _printable(_line(record)))  # noqa: T201 - stdout is data
    return OK


def _document(record: AuditRecord) -> dict[str, object]:
    return {
        "n": record.n, "time": to_rfc3339(record.time_ns), "kind": record.kind, "run": record.run, "by": record.by,
        "source": record.source, "data": dict(record.data), "hash": record.hash,
    }  # fmt: skip


def _line(record: AuditRecord) -> str:
    said = " ".join(f"{key}={value}" for key, value in record.data.items() if key != "key" and value not in (None, ""))
    return f"{record.n}  {to_rfc3339(record.time_ns)[:19]}Z  {record.kind}  {record.by or '-'} ({record.source or '-'})  {said}"


def _store_anchors(args: argparse.Namespace) -> list[Anchor]:
    settings = settings_module.load(args.config)
    name = args.run or _run_of(settings, args.run_dir).name
    store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    try:
        events = store.events(name, ["audit"], 0, _EVER_NS, MAX_HEADS, newest_first=True)
    finally:
        store.close()
    found = []
    for event in events:
        n, digest = event.data.get("n"), event.data.get("hash")
        if isinstance(n, int) and not isinstance(n, bool) and isinstance(digest, str):
            found.append(Anchor(Head(n, digest), f"the store of {args.config}"))
    return found


def _run_of(settings: Settings, run_dir: str) -> RunSettings:
    place = Path(run_dir).resolve()
    for known in settings.runs:
        if Path(known.dir).resolve() == place:
            return known
    raise SettingsError(f"No run of {settings.path} has the directory {run_dir}; say which one is meant: --run RUN.")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MAX_LAST or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {MAX_LAST:,}")
    return int(text)
