"""``annotate``: tell the watchdog of a run what was changed on purpose, wait until it has taken the note, and say what it silences.

stdout: one JSON object; stderr: one sentence. Exit codes: 0 applied, 1 refused or not answered, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trainvitals.cli.access import require_operator
from trainvitals.cli.answer import wait_for_answer, waits_sentence
from trainvitals.cli.control import seconds
from trainvitals.control.audited import ask_watchdog
from trainvitals.control.requests import ANNOTATION, WatchRequest, checked_note_text
from trainvitals.detect.annotations import CHANGES, FREE_NOTE, MAX_POINTS, checked_note, rules_of
from trainvitals.detect.findings import DEFAULT_SILENCE_POINTS
from trainvitals.detect.rules import RULES
from trainvitals.errors import ControlError, InputError
from trainvitals.masking import mask_text

OK, REFUSED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit code 0: applied. 1: refused, nobody watches, or not answered within --wait. 2: wrong usage."
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory that trainer, watchdog and dashboard share")
    parser.add_argument("text", metavar="TEXT", help="what there is to know, in a few words")
    parser.add_argument("--by", default="", metavar="WHO", help="who says so; required")
    parser.add_argument("--step", type=int, metavar="N", help="from which step on (default: the newest one)")
    parser.add_argument(
        "--change", choices=(*CHANGES, FREE_NOTE), default=FREE_NOTE, metavar="WHAT",
        help=f"what was changed: {', '.join(CHANGES)}; or {FREE_NOTE} (default), which silences nothing by itself",
    )  # fmt: skip
    parser.add_argument(
        "--rules", action="append", default=[], metavar="RULE",
        help="silence this rule, too (a name or a pattern such as loss_*); as often as needed, or with commas",
    )  # fmt: skip
    parser.add_argument(
        "--points", type=int, metavar="N",
        help=f"for how many points (default {DEFAULT_SILENCE_POINTS}, at most {MAX_POINTS:,})",
    )  # fmt: skip
    parser.add_argument("--run", dest="run_name", default="", metavar="RUN", help="name of the run; refused when it is another's")
    parser.add_argument(
        "--config", metavar="FILE", help="settings file that says who may act on the run (default: as everywhere)"
    )
    parser.add_argument("--wait", type=seconds, default=10.0, metavar="S", help="seconds to wait for the watchdog (default 10)")


def run(args: argparse.Namespace) -> int:
    """Ask and wait. Raises ``InputError`` for wrong usage."""
    if not args.by.strip():
        raise InputError("--by is missing: a note without a name cannot be asked about.")
    named = [pattern.strip() for argument in args.rules for pattern in argument.split(",") if pattern.strip()]
    said = {"step": args.step, "change": args.change, "text": args.text, "rules": named, "points": args.points}
    note = checked_note(said, list(RULES))
    data = {"step": note.step, "text": mask_text(note.text), **note.to_data()}
    try:
        checked_note_text(note.text)
        require_operator(Path(args.run_dir), args.run_name, "annotate", args.by, note.text, args.config)
        request = ask_watchdog(args.run_dir, args.run_name, kind=ANNOTATION, by=args.by, source="cli", data=data)
    except ControlError as error:
        return _say(REFUSED, "refused", str(error), None)
    answer = wait_for_answer(Path(args.run_dir), request, args.wait)
    if answer is None:
        sentence = waits_sentence(Path(args.run_dir), request, args.wait, "The note")
        return _say(REFUSED, "not_answered", sentence, request)
    return _say(OK if answer.outcome == "applied" else REFUSED, answer.outcome, answer.sentence, answer.request or request)


def _say(code: int, outcome: str, sentence: str, request: WatchRequest | None) -> int:
    told: dict[str, object] = {"action": "annotate", "outcome": outcome}
    if request is not None:
        data = request.data
        told |= {
            "id": request.id,
            "step": data.get("step"),
            "change": data.get("change"),
            "silences": rules_of(data, list(RULES)),
        }
    print(json.dumps(told | {"sentence": sentence}))  # noqa: T201 - stdout is data
    print("".join(c if c.isprintable() else "?" for c in sentence), file=sys.stderr)  # noqa: T201
    return code
