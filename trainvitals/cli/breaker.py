"""``control breaker``: ask the watchdog of a run to arm or disarm its circuit breaker, and wait until it says that it did.

stdout: one JSON object; stderr: one sentence. Exit codes: 0 applied, 1 refused or not answered, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trainvitals.cli.access import require_operator
from trainvitals.cli.answer import wait_for_answer, waits_sentence
from trainvitals.control.audited import ask_watchdog
from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_REASON
from trainvitals.control.requests import BREAKER, BREAKER_MODES
from trainvitals.errors import ControlError, InputError
from trainvitals.masking import mask_text

OK, REFUSED = 0, 1


def set_mode(args: argparse.Namespace) -> int:
    """Ask and wait. Raises ``InputError`` for wrong usage."""
    if args.mode is None:
        raise InputError(f"--mode is missing: {', '.join(BREAKER_MODES)}.")
    run_dir = Path(args.run_dir)
    try:
        data = {"mode": args.mode, "reason": mask_text(checked_text("reason", args.reason, MAX_REASON))}
        require_operator(run_dir, args.run_name, BREAKER, args.by, args.reason, args.config)
        request = ask_watchdog(run_dir, args.run_name, kind=BREAKER, by=args.by, source="cli", data=data)
    except ControlError as error:
        return _say(args.mode, REFUSED, "refused", str(error))
    answer = wait_for_answer(run_dir, request, args.wait)
    if answer is None:
        return _say(args.mode, REFUSED, "not_answered", waits_sentence(run_dir, request, args.wait, "The request"), request.id)
    return _say(args.mode, OK if answer.outcome == "applied" else REFUSED, answer.outcome, answer.sentence, request.id)


def _say(mode: str, code: int, outcome: str, sentence: str, request_id: str = "") -> int:
    told = {"action": BREAKER, "mode": mode, "outcome": outcome, "id": request_id, "sentence": sentence}
    print(json.dumps(told))  # noqa: T201 - stdout is data
    print("".join(c if c.isprintable() else "?" for c in sentence), file=sys.stderr)  # noqa: T201
    return code
