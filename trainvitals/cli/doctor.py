"""``doctor``: looks at everything that a run needs before it costs a night, and says what to do.

stdout: one line (``--json``: one object) for each finding; stderr: one sentence at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.clock import SystemClock
from trainvitals.doctor import of_machine, of_run
from trainvitals.doctor.check import FAULT, WARNING, Checkup, Finding, Result, fault, ok, warning
from trainvitals.doctor.runner import examine
from trainvitals.errors import SettingsError
from trainvitals.settings import Settings

#: The checkout or image; an installed wheel has no collectors.
CHECKOUT = Path(__file__).resolve().parent.parent.parent
_WORDS = {"ok": "ok     ", WARNING: "WARNING", FAULT: "FAULT  "}
USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit code 0: no fault (there may be warnings). 1: at least one fault. 2: the settings cannot be used. Each check: docs/doctor.md."
    parser.add_argument("--config", metavar="FILE", help="settings file (default: $TRAINVITALS_CONFIG, else ./trainvitals.toml)")
    parser.add_argument("--run", default="", metavar="RUN", help="only what belongs to this run")
    parser.add_argument("--json", action="store_true", help="one object a finding: check, subject, state, text, advice")
    parser.add_argument(
        "--deadline", type=_seconds, default=10.0, metavar="S", help="seconds that one check may take (default 10)"
    )


def run(options: argparse.Namespace) -> int:
    """Look, and tell. Raises nothing for what is found."""
    try:
        settings = _loaded(options.config, options.deadline)
        if options.run:
            settings.run(options.run)
    except SettingsError as error:
        _tell(Result("settings", "", fault(str(error), "correct it first: nothing else can be looked at.")), options.json)
        return USAGE
    counts = {"ok": 0, WARNING: 0, FAULT: 0}
    first = [Result("settings", "", finding) for finding in _of_settings(settings)]
    for result in itertools.chain(
        first, examine(checkups(settings, options.run, options.deadline), options.deadline, SystemClock())
    ):
        counts[result.finding.state] += 1
        _tell(result, options.json)
    told = [
        f"{counts[state]} {word}{'' if counts[state] == 1 else 's'}" for state, word in ((FAULT, "fault"), (WARNING, "warning"))
    ]
    print(f"{', '.join(told)}, {counts['ok']} in order.", file=sys.stderr)  # noqa: T201
    return 1 if counts[FAULT] else 0


def _loaded(path: str | None, deadline_s: float) -> Settings:
    """The settings, read in a thread: they may lie on a mount that hangs. Raises ``SettingsError``."""
    done: queue.SimpleQueue[Settings | SettingsError] = queue.SimpleQueue()

    def load() -> None:
        try:
            done.put(settings_module.load(path))
        except SettingsError as error:
            done.put(error)
        except Exception as error:  # noqa: BLE001 - told as what it is
            done.put(SettingsError(f"The settings cannot be read ({type(error).__name__}: {error})."))

    threading.Thread(target=load, daemon=True).start()
    try:
        found = done.get(timeout=deadline_s)
    except queue.Empty:
        raise SettingsError(
            f"{path or 'The settings file'} was not read within {deadline_s:g} s: it is no file, or its file system hangs."
        ) from None
    if isinstance(found, SettingsError):
        raise found
    return found


def checkups(settings: Settings, only: str, deadline_s: float) -> list[Checkup]:
    """Everything to look at. only: a run's name, "" = all and this machine."""
    clock = SystemClock()
    found: list[Checkup] = [] if only else of_machine.checkups(settings, clock, CHECKOUT, deadline_s)
    for run_settings in settings.runs:
        if only in ("", run_settings.name):
            found += of_run.checkups(settings, run_settings, clock)
    return found


def _of_settings(settings: Settings) -> Sequence[Finding]:
    if not settings.path:
        return [warning("no settings file: everything has its default", "write ./trainvitals.toml, or give --config FILE.")]
    if not settings.runs:
        return [warning(f"{settings.path} names no run", "add a [[runs]] table with name, dir and logs or a hook.")]
    return [ok(f"{settings.path}, {len(settings.runs)} run{'s' if len(settings.runs) > 1 else ''}")]


def _tell(result: Result, as_json: bool) -> None:
    finding = result.finding
    if as_json:
        document = {"check": result.check, "subject": result.subject, **asdict(finding)}
        print(json.dumps(document), flush=True)  # noqa: T201 - stdout is data
        return
    where = f"{result.check} {result.subject}".strip()
    advice = f"\n        → {finding.advice}" if finding.advice else ""
    text = f"{_WORDS[finding.state]} {where}: {finding.text}{advice}"
    # Names and paths can hold anything: control characters must not reach the terminal.
    print("".join(c if c.isprintable() or c == "\n" else "?" for c in text), flush=True)  # noqa: T201


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.1 to 600")
    return value
