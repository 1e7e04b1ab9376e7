"""``store copy FROM TO``: the history of one store in another, with progress for people and a summary for programs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.clock import Clock, SystemClock
from trainvitals.errors import InputError
from trainvitals.settings import Settings
from trainvitals.store.copy import END_NS, Report, copy_store
from trainvitals.store.open import SCHEME, open_store
from trainvitals.store.protocol import Store
from trainvitals.store.retention import cutoffs

HOUR_NS = 3_600 * 10**9
#: A copy that goes on reads this much again: rows may have come late while it was away.
READ_AGAIN_NS = HOUR_NS
TELL_EVERY_S = 2.0
#: Key of the progress file for what it is the progress of; no measurement is called so.
_OF = "of"
#: Differences that the summary lists.
MAX_LISTED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="store to read, such as sqlite:///var/lib/trainvitals/trainvitals.db")
    parser.add_argument("target", metavar="TO", help="store to write, such as influxdb+https://host:8086 (rights: [influxdb])")
    parser.add_argument("--config", help="settings file")
    parser.add_argument("--progress", metavar="FILE", help="where to keep how far the copy came (default: in this user's state)")
    parser.add_argument("--from-start", action="store_true", help="forget how far an earlier copy came")


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    if _place(options.source) == _place(options.target):
        raise InputError("FROM and TO are the same store; name two.")
    kept_at = Path(options.progress) if options.progress else _default_progress_file(options.source, options.target)
    progress = Progress(kept_at, SystemClock())
    if options.from_start:
        progress.forget()
    report = copy(settings, options.source, options.target, progress, SystemClock())
    if not report.is_complete:
        progress.forget()  # the next call starts from the beginning
    print(json.dumps(summary(options.source, options.target, report)))  # noqa: T201
    return 0 if report.is_complete else 1


def copy(settings: Settings, source_url: str, target_url: str, progress: Progress, clock: Clock) -> Report:
    """Open both, copy, count, close."""
    source = open_store(source_url, read_only=True, influxdb=settings.influxdb)
    try:
        target = open_store(target_url, influxdb=settings.influxdb)
        try:
            # What is about to be deleted in the target is left; an hour more, so that nothing goes while we count.
            since_ns = {name: end + HOUR_NS for name, end in cutoffs(settings.retention, clock.time_ns(), {}).items()}
            databases = f"{settings.influxdb.database}\n{settings.influxdb.database_long}"
            progress.begin(f"{source_url}\n{target_url}\n{databases}\n{_first_event(source)}")
            done_ns = {name: time_ns - READ_AGAIN_NS for name, time_ns in progress.load().items()}
            return copy_store(source, target, done_ns, since_ns, progress.tell)
        finally:
            target.close()
    finally:
        source.close()


def _place(url: str) -> str:
    """The same text for every way to write one file."""
    return os.path.realpath(url.removeprefix(SCHEME)) if url.startswith(SCHEME) else url.rstrip("/")


def _first_event(source: Store) -> str:
    """What tells a history from another one that lies at the same address later."""
    events = source.events(None, (), 0, END_NS, limit=1)
    return f"{events[0].time_ns} {events[0].id}" if events else ""


def summary(source_url: str, target_url: str, report: Report) -> dict[str, object]:
    """JSON values; addresses hold no secrets (``open_store`` refuses those that do)."""
    return {
        "from": source_url, "to": target_url, "complete": report.is_complete,
        "rows": {
            name: {"copied": report.copied.get(name, 0), "from": report.source[name], "to": report.target[name]}
            for name in report.source
        },
        "series_that_differ": len(report.differences),
        "differences": [asdict(difference) for difference in report.differences[:MAX_LISTED]],
    }  # fmt: skip


class Progress:
    """How far a copy between two stores came: kept in a small file, told on stderr."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._of = ""
        self._reached: dict[str, int] = {}
        self._told_s = -TELL_EVERY_S

    def begin(self, between: str) -> None:
        """``between``: the two stores in words; progress of a copy between others does not count."""
        self._of = hashlib.sha256(between.encode("utf-8", "replace")).hexdigest()

    def load(self) -> Mapping[str, int]:
        """Measurement -> time that was reached; empty when there is nothing to go on from."""
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            if kept.pop(_OF, "") != self._of:
                _say("the earlier copy was of another history or between other databases; everything is copied")
                kept = {}
            self._reached = {str(name): int(time_ns) for name, time_ns in kept.items()}
        except FileNotFoundError:
            self._reached = {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _say(f"how far an earlier copy came cannot be read ({error}); everything is copied again")
            self._reached = {}
        return dict(self._reached)

    def forget(self) -> None:
        """The next copy starts from the beginning."""
        self._path.unlink(missing_ok=True)
        self._reached = {}

    def tell(self, measurement: str, rows: int, reached_ns: int) -> None:
        """Keep it, and say it now and then."""
        self._reached[measurement] = reached_ns
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            temporary.write_text(json.dumps({_OF: self._of, **self._reached}), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise InputError(f"Cannot keep how far the copy came in {self._path}: {error.strerror or error}.") from error
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            reached = datetime.fromtimestamp(reached_ns / 1e9, UTC)
            _say(f"{measurement}: {rows:,} rows copied, up to {reached:%Y-%m-%d %H:%M:%S}Z")


def _default_progress_file(source_url: str, target_url: str) -> Path:
    name = hashlib.sha256(f"{source_url}\n{target_url}".encode("utf-8", "replace")).hexdigest()[:16]
    return settings_module.default_directory() / f"copy-{name}.json"


def _say(sentence: str) -> None:
    print(f"store copy: {sentence}", file=sys.stderr, flush=True)  # noqa: T201
