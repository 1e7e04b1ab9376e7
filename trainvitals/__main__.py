"""``python -m trainvitals COMMAND``: finds the command's file, runs it, and turns errors into sentences and exit codes.

Exit codes: 0 fine, 1 found a fault or refused, 2 wrong usage or unreadable input. stdout is data, stderr is for people.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from trainvitals import __version__
from trainvitals.errors import TrainvitalsError

#: command -> (module under trainvitals.cli, one line of help)
COMMANDS = {
    "demo": ("demo", "a small real training run with faults on a schedule, and everything else, on this machine"),
    "up": ("up", "all parts for one machine as child processes, restarted when they die"),
    "watch": ("watch", "the watchdog of one run"),
    "run": ("run", "supervise a trainer: start it, say why it ended, start it again from the newest safe checkpoint"),
    "import": ("import_", "back-fill logs, trainer_state.json, CSV or event files of a run into the store"),
    "parse": ("parse", "a trainer's log as JSON lines of steps and events"),
    "detect": ("detect", "findings in a log or a CSV of a curve, as JSON lines"),
    "checkpoint": ("checkpoint", "list, verify or show the checkpoints in a directory"),
    "control": ("control", "pause, resume, checkpoint or stop a run through its control file"),
    "audit": ("audit", "check the audit of a run, a chain of hashes, or show its newest records"),
    "incident": ("incident", "what is open in a run: list it, say that you have it, silence a rule for a while"),
    "report": ("report", "one incident as one HTML file that stands alone"),
    "annotate": ("annotate", "tell the watchdog of a run what was changed on purpose: it silences what that explains"),
    "alert": ("alert", "test a target of alerts; list what was sent and what was not, send it again, use a target again"),
    "spool": ("spool", "what waits on this machine for the store: list it, send refused points again or drop them, deliver it"),
    "wall": ("wall", "links by which the read-only wall opens in a wiki: make one, list them, revoke one"),
    "store": ("store", "check, set up or copy the store that the settings name"),
    "doctor": ("doctor", "look at settings, store, rights, file systems, control, logs, driver and clock, and say what to do"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never shows a traceback for an error raised on purpose."""
    _speak_utf8()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m trainvitals", description="Health of large pre-training runs.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module_name, help_line) in COMMANDS.items():
        command = commands.add_parser(name, help=help_line, description=help_line[0].upper() + help_line[1:] + ".")
        if name == wanted:
            module = importlib.import_module(f"trainvitals.cli.{module_name}")
            module.add_arguments(command)
            command.set_defaults(run_command=module.run)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run_command(options)
        sys.stdout.flush()
        return code
    except TrainvitalsError as error:
        _say(options.command, str(error))
        return error.exit_code
    except BrokenPipeError:
        _forget_stdout()  # the reader of a pipe (head, less) went away
        return 0
    except OSError as error:
        # A path that no command foresaw (too long, gone meanwhile), or a full disk behind stdout.
        where = f" {error.filename}" if error.filename is not None else ""
        _say(options.command, f"The system refused{where}: {error.strerror or error}. Check the path, its rights and the disk.")
        _forget_stdout()
        return TrainvitalsError.exit_code
    except KeyboardInterrupt:
        return 130


def _speak_utf8() -> None:
    """Data is UTF-8 whatever the locale says (RFC 8259); a terminal keeps its own letters, and what it has not is escaped."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # none, a closed one, or another program's object in its place
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def _say(command: str, sentence: str) -> None:
    # Arguments and names can hold anything: control characters must not reach the terminal.
    printable = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in sentence)
    with contextlib.suppress(OSError):  # stderr is gone as well; the exit code still tells
        print(f"trainvitals {command}: {printable}", file=sys.stderr)  # noqa: T201


def _forget_stdout() -> None:
    """Point stdout elsewhere, so that the flush at the exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
