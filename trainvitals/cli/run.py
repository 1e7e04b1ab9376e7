"""``run [--config FILE] -- COMMAND …``: supervise a trainer. Exit 0: it finished or was stopped. 1: it must not go on. 75: parked."""

from __future__ import annotations

import argparse
import signal
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from trainvitals import settings as settings_module
from trainvitals.clock import StopSignal, SystemClock
from trainvitals.errors import InputError, SettingsError, StoreError
from trainvitals.settings import RunSettings, Settings
from trainvitals.supervisor.loop import Supervisor

if TYPE_CHECKING:
    from trainvitals.store.protocol import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--run", default="", help="name of the run, as in the settings; not needed when they name only one")
    parser.add_argument("--config", metavar="FILE", help="settings file (default: $TRAINVITALS_CONFIG, else ./trainvitals.toml)")
    parser.add_argument("--run-dir", metavar="DIR", help="run directory; with it the run needs no settings file")
    parser.add_argument(
        "--checkpoints", action="append", default=[], metavar="DIR", help="directory of checkpoints; as often as needed"
    )
    parser.add_argument(
        "trainer", nargs=argparse.REMAINDER, metavar="-- COMMAND",
        help="the trainer and its arguments; {resume_from}, {step}, {skip_samples}, {exclude} and {nodes} are filled in",
    )  # fmt: skip
    parser.epilog = "Exit code 0: finished, or stopped. 1: it cannot start. 2: wrong usage. 75: the trainer parked itself."


def run(options: argparse.Namespace) -> int:
    """Until the training is over. Raises ``InputError`` or ``SettingsError`` for wrong usage."""
    command = options.trainer[1:] if options.trainer[:1] == ["--"] else options.trainer
    if not command:
        raise InputError("No command: write run [options] -- COMMAND and its arguments.")
    settings = settings_module.load(options.config)
    run_settings = _run_settings(settings, options)
    if not run_settings.checkpoints:
        raise SettingsError(
            "The run has no checkpoint directory; without one every restart would begin at step 0: give --checkpoints DIR."
        )
    try:
        Path(run_settings.dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make the run directory {run_settings.dir}: {error.strerror or error}.") from error
    stop = StopSignal()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)

    def store() -> Store:
        # Imported here: it brings half a second of libraries that a start of the trainer need not wait for.
        from trainvitals.store.open import SCHEME, open_store

        if settings.store.startswith(SCHEME) and not Path(settings.store.removeprefix(SCHEME)).exists():
            raise StoreError(f"There is no store {settings.store} (yet), so nothing of incidents is known.")
        return open_store(settings.store, read_only=True, influxdb=settings.influxdb)

    supervisor = Supervisor(run_settings, settings.supervisor, command, SystemClock(), stop, open_store=store)
    return supervisor.run()


def _run_settings(settings: Settings, options: argparse.Namespace) -> RunSettings:
    if options.run_dir is None:
        if not options.run and len(settings.runs) != 1:
            names = ", ".join(run.name for run in settings.runs) or "none"
            raise SettingsError(f"Which run? Give --run NAME; the settings name: {names}. Or give --run-dir DIR.")
        known = settings.run(options.run) if options.run else settings.runs[0]
    else:
        known = next((run for run in settings.runs if run.name == options.run), RunSettings(name=options.run or "run"))
        known = replace(known, dir=str(Path(options.run_dir).absolute()))
    if options.checkpoints:
        known = replace(known, checkpoints=tuple(str(Path(one).absolute()) for one in options.checkpoints))
    return known
