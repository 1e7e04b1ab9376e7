"""``watch --run RUN``: the watchdog of one run, until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from trainvitals import settings as settings_module
from trainvitals.attempts import hold_watch_lock
from trainvitals.checkpoints.life import Patience
from trainvitals.checkpoints.resume_choice import choose_all
from trainvitals.checkpoints.watcher import CheckpointWatcher
from trainvitals.cli.watch_alerts import WatchAlerts
from trainvitals.cli.watch_checkpoints import checkpoint_verifier
from trainvitals.clock import Clock, StopSignal, SystemClock
from trainvitals.errors import InputError, SettingsError, StoreError
from trainvitals.hook.process import pid_namespace
from trainvitals.logs.registry import home_made_grammars
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.store.protocol import Sink
from trainvitals.store.rollup_driver import DirtyNotes
from trainvitals.store.sink import open_sink, waiting_s
from trainvitals.watch.alerting import Alerting
from trainvitals.watch.breaker_action import BreakerAction
from trainvitals.watch.checkpoint_room import rooms_of
from trainvitals.watch.checkpoint_scan import CheckpointScanner
from trainvitals.watch.control_adapter import adapter_for
from trainvitals.watch.maintenance import Maintenance
from trainvitals.watch.postmortem import PostmortemRunner
from trainvitals.watch.proc import read_process
from trainvitals.watch.sources import LocalProcessTable, RunSources
from trainvitals.watch.watchdog import Watchdog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", required=True, help="name of the run, as in the settings")
    parser.add_argument("--config", metavar="FILE", help="settings file (default: $TRAINVITALS_CONFIG, else ./trainvitals.toml)")
    parser.add_argument("--run-dir", metavar="DIR", help="run directory; with it the run needs no settings file")
    parser.add_argument(
        "--log", action="append", default=[], metavar="GLOB", help="log files of the trainer, quoted; as often as needed"
    )
    parser.add_argument(
        "--checkpoints", action="append", default=[], metavar="DIR", help="directory of checkpoints; as often as needed"
    )
    parser.add_argument("--format", metavar="NAME", help="grammar of the logs: auto (default) or a name of docs/formats.md")


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    run_settings = _run_settings(settings, options)
    clock = SystemClock()
    stop = StopSignal()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    _make_run_dir(run_settings.dir)
    with hold_watch_lock(run_settings.dir):
        _write_run_file(run_settings, clock)
        sink = open_sink(settings, f"watch/{run_settings.name}", _say, clock)
        reader = open_store(settings.store, influxdb=settings.influxdb)
        store = DirtyNotes(sink, clock)
        maintenance = Maintenance(
            run_settings.name, reader, store, settings.retention, clock, _say, waiting_s=lambda: waiting_s(sink)
        )
        alerts = WatchAlerts(settings, run_settings, clock, _say)
        try:
            alerts.start()  # what an earlier watch left is delivered although the store may be away
            watchdog = build(settings, run_settings, store, clock, alerts=alerts.alerting)
            _restore(watchdog)
            watchdog.note("the watchdog started", pid=os.getpid())
            while not stop.is_set():
                alerts.beat()
                alerts.store(watchdog.store_trouble)
                # Behind: read on at once. Up to date: wait a little.
                if not watchdog.turn():
                    maintenance.poll()
                    stop.wait(settings.watch.poll_s)
            watchdog.note("the watchdog was stopped", pid=os.getpid())
            watchdog.last_turn()
            watchdog.close()
        finally:
            alerts.stop()
            maintenance.close()
            reader.close()
            sink.close()
    return 0


def build(
    settings: Settings, run_settings: RunSettings, store: Sink, clock: Clock, *, scan_in_thread: bool = True,
    alerts: Alerting | None = None,
) -> Watchdog:  # fmt: skip
    """A watchdog with its real parts; without ``alerts`` it tells nobody."""
    host = socket.gethostname()
    patience = Patience(settings.watch.checkpoint_settle_s, settings.watch.checkpoint_unfinished_s)
    verifier = checkpoint_verifier(settings, run_settings, clock, in_thread=scan_in_thread)
    watcher = CheckpointWatcher(run_settings.checkpoints, clock, patience, verifier=verifier, run=run_settings.name)
    return Watchdog(
        settings, run_settings, store, clock,
        sources=RunSources(
            run_settings, clock, LocalProcessTable(host, read_process, pid_namespace()), custom=home_made_grammars(settings.formats)
        ),
        scanner=CheckpointScanner(
            watcher, clock, settings.watch.checkpoint_scan_s, in_thread=scan_in_thread, choose=lambda: choose_all(watcher.reports),
            look_at_rooms=lambda: rooms_of(run_settings.checkpoints, clock.time_ns()),
        ),
        breaker=BreakerAction(run_settings), node=host, say=_say,
        postmortems=PostmortemRunner(run_settings, settings.logs),
        adapter=adapter_for(run_settings, clock, read_process, pid_namespace()),
        alerts=alerts,
    )  # fmt: skip


def _restore(watchdog: Watchdog) -> None:
    """A store that cannot be opened delays nothing: detection, the breaker and the messages need none."""
    try:
        watchdog.restore()
    except StoreError as error:
        watchdog.begin_without_store(str(error))


def _run_settings(settings: Settings, options: argparse.Namespace) -> RunSettings:
    if any(known.name == options.run for known in settings.runs):
        chosen = settings.run(options.run)
    elif options.run_dir:
        table = {"name": options.run, "dir": str(Path(options.run_dir).absolute())}
        chosen = settings_module.parse({"runs": [table]}).runs[0]
    else:
        raise SettingsError(
            f"Run {options.run!r} stands in no settings file; give --config FILE, or --run-dir DIR with --log and --checkpoints."
        )
    changes: dict[str, object] = {}
    if options.run_dir:
        changes["dir"] = str(Path(options.run_dir).absolute())
    if options.log:
        changes["logs"] = tuple(str(Path(pattern).absolute()) for pattern in options.log)
    if options.checkpoints:
        changes["checkpoints"] = tuple(str(Path(folder).absolute()) for folder in options.checkpoints)
    if options.format:
        changes["log_format"] = options.format
    return replace(chosen, **changes)  # type: ignore[arg-type]


def _write_run_file(run_settings: RunSettings, clock: Clock) -> None:
    """``run.json``: what this directory is, for people and for tools that find it."""
    path = Path(run_settings.dir) / "run.json"
    if path.exists():
        return
    created = datetime.fromtimestamp(clock.time_ns() // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
    temporary = path.with_name(f".run.json.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"schema": 1, "run": run_settings.name, "created": created}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:  # for people only: nothing of the watch depends on it
        _say(f"cannot write {path}: {error.strerror or error}; going on without it.")
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _make_run_dir(run_dir: str) -> None:
    try:
        Path(run_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The run directory {run_dir} cannot be made: {error.strerror or error}.") from error


def _say(sentence: str) -> None:
    # Log lines and names can hold anything: control characters must not reach the terminal.
    printable = "".join(c if c.isprintable() else "�" for c in sentence)
    with contextlib.suppress(OSError, ValueError):  # a full disk or a closed terminal must not end the watch; all is stored too
        print(f"{datetime.now(UTC):%H:%M:%S}Z watch: {printable}", file=sys.stderr, flush=True)  # noqa: T201
