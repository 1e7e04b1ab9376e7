"""``incident list|acknowledge|silence|unsilence RUN_DIR``: what is open in a run, who has it, and what nobody is told of.

``list`` reads what the run's watchdog wrote into ``incidents/``; the others ask the watchdog and wait for its answer. stdout: one JSON
object a line; stderr: one sentence. Exit codes: 0 applied (list: nothing of warning or more is open), 1 refused, not answered, or
something is open, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from trainvitals.cli.access import require_operator
from trainvitals.cli.answer import wait_for_answer, waits_sentence
from trainvitals.cli.control import seconds
from trainvitals.clock import SystemClock
from trainvitals.control.audited import ask_watchdog
from trainvitals.control.document import to_rfc3339
from trainvitals.control.requests import ACKNOWLEDGE, SILENCE, WatchRequest
from trainvitals.errors import ControlError, InputError
from trainvitals.incidents.amounts import span
from trainvitals.incidents.silences import checked_silence
from trainvitals.masking import mask_text
from trainvitals.records import Incident
from trainvitals.watch.incident_files import read_index

OK, REFUSED = 0, 1
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|min|h|d)", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "Exit code 0: applied; list: nothing is open. 1: refused, nobody watches, not answered within --wait; list: something is open. "
        "2: wrong usage."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="incidents of the run, open ones first, and silences")
    listing.add_argument("run_dir", metavar="RUN_DIR", help="run directory that trainer, watchdog and dashboard share")
    listing.add_argument("--open", action="store_true", help="only what is open, and the silences")
    taking = actions.add_parser(
        "acknowledge", help="say that you have an incident: no reminders, no second target until it is over"
    )
    _common(taking)
    taking.add_argument("incident", metavar="INCIDENT", help="its id, or a unique beginning of it, see `incident list`")
    taking.add_argument("--note", default="", metavar="TEXT", help="what you do about it")
    silencing = actions.add_parser(
        "silence", help="tell nobody of what fits, until the time is over; it is stored and shown all the same"
    )
    _common(silencing)
    for name, what in (
        ("rule", "rule, a name or a pattern such as loss_*"),
        ("family", "incident group: loss, time, checkpoint, rank, …"),
    ):
        silencing.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=f"{what}; default: all")
    silencing.add_argument(
        "--up-to",
        choices=("info", "warning", "critical"),
        default="warning",
        help="the gravest that is silent (default: warning)",
    )
    silencing.add_argument(
        "--for", dest="duration", type=_duration, required=True, metavar="TIME", help="30m, 2h, 1d; at most 31 days"
    )
    silencing.add_argument("--comment", default="", metavar="WHY", help="why; required")
    ending = actions.add_parser("unsilence", help="end a silence now")
    _common(ending)
    ending.add_argument("silence", metavar="SILENCE", help="its id, or the first eight characters of it, see `incident list`")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory that trainer, watchdog and dashboard share")
    parser.add_argument("--by", default="", metavar="WHO", help="who says so; required")
    parser.add_argument("--run", dest="run_name", default="", metavar="RUN", help="name of the run; refused when it is another's")
    parser.add_argument(
        "--config", metavar="FILE", help="settings file that says who may act on the run (default: as everywhere)"
    )
    parser.add_argument("--wait", type=seconds, default=10.0, metavar="S", help="seconds to wait for the watchdog (default 10)")


def run(args: argparse.Namespace) -> int:
    """Raises ``InputError`` for wrong usage."""
    if args.action == "list":
        return _list(Path(args.run_dir), only_open=args.open)
    if not args.by.strip():
        raise InputError("--by is missing: whoever comes next asks who it was.")
    if args.action == "acknowledge":
        kind, data, why = ACKNOWLEDGE, {"incident": args.incident, "note": mask_text(args.note)}, args.note
    elif args.action == "unsilence":
        kind, data, why = SILENCE, {"end": args.silence}, ""
    else:
        data = {
            "rules": args.rule, "families": args.family, "up_to": args.up_to, "seconds": args.duration, "comment": mask_text(args.comment),
        }  # fmt: skip
        kind, why = SILENCE, args.comment
        checked_silence(data, identifier="", by=args.by, begin_ns=0)
    return _ask(args, kind, data, why)


def _ask(args: argparse.Namespace, kind: str, data: dict[str, Any], why: str) -> int:
    run_dir = Path(args.run_dir)
    try:
        require_operator(run_dir, args.run_name, args.action, args.by, why, args.config)
        request = ask_watchdog(args.run_dir, args.run_name, kind=kind, by=args.by, source="cli", data=data)
    except ControlError as error:
        return _say(args.action, REFUSED, "refused", str(error), None)
    answer = wait_for_answer(run_dir, request, args.wait)
    if answer is None:
        sentence = waits_sentence(run_dir, request, args.wait, "The request")
        return _say(args.action, REFUSED, "not_answered", sentence, request)
    code = OK if answer.outcome == "applied" else REFUSED
    return _say(args.action, code, answer.outcome, answer.sentence, answer.request or request)


def _list(run_dir: Path, *, only_open: bool) -> int:
    if not run_dir.is_dir():
        raise InputError(f"There is no run directory {run_dir}.")
    incidents, silences, clock_ns = *read_index(run_dir), SystemClock().time_ns()
    ordered = sorted(incidents, key=lambda one: (not one.is_open, -one.severity.rank, -one.opened_at_ns))
    for incident in ordered:
        if incident.is_open or not only_open:
            print(json.dumps(_row(incident)))  # noqa: T201 - stdout is data
    for silence in silences:
        if clock_ns < silence.until_ns:
            told = {"silence": silence.id, "what": silence.words(), "until": to_rfc3339(silence.until_ns)}
            print(json.dumps(told | {"by": silence.by, "comment": silence.comment}))  # noqa: T201
    are_open = [one for one in incidents if one.is_open]
    worst = max(are_open, key=lambda one: one.severity.rank, default=None)
    if worst is None:
        _tell(
            "Nothing is open."
            if incidents
            else "No incident so far; the watchdog writes them into incidents/ of the run directory."
        )
        return OK
    since = span((clock_ns - worst.opened_at_ns) / 1e9)
    _tell(f"{len(are_open)} open; the gravest, {worst.severity.value} for {since}: {worst.title}")
    return REFUSED


def _row(incident: Incident) -> dict[str, Any]:
    closed = incident.closed_at_ns
    return {
        "incident": incident.id, "state": "open" if incident.is_open else "over", "severity": incident.severity.value,
        "opened": to_rfc3339(incident.opened_at_ns), "closed": None if closed is None else to_rfc3339(closed),
        "first_step": incident.first_step, "last_step": incident.last_step, "rules": list(incident.rules), "title": incident.title,
        "acknowledged_by": incident.acknowledged_by or None,
        "silenced_until": None if incident.silenced_until_ns is None else to_rfc3339(incident.silenced_until_ns),
    }  # fmt: skip


def _say(action: str, code: int, outcome: str, sentence: str, request: WatchRequest | None) -> int:
    told: dict[str, object] = {"action": action, "outcome": outcome}
    if request is not None:
        told["id"] = request.id
    print(json.dumps(told | {"sentence": sentence}))  # noqa: T201 - stdout is data
    _tell(sentence)
    return code


def _tell(sentence: str) -> None:
    print("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence), file=sys.stderr)  # noqa: T201


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 30m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]
