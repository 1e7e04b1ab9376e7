"""``control``: ask a run to pause, go on, save or stop, wait for the trainer's answer, and say what happened.

stdout: one JSON object; stderr: one sentence. Exit codes: 0 carried out, 1 refused, not acknowledged or in conflict, 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from trainvitals.checkpoints import inspect
from trainvitals.checkpoints.files import fault
from trainvitals.cli import far_rollback, rollback_doubt
from trainvitals.cli.access import require_operator
from trainvitals.cli.breaker import set_mode
from trainvitals.clock import SystemClock
from trainvitals.control import ControlRequest, ControlStatus, init, look, read_request, read_status, supervised
from trainvitals.control.audited import ask
from trainvitals.control.records import HOW
from trainvitals.control.requests import BREAKER_MODES
from trainvitals.control.rollback import rollback_commands
from trainvitals.control.sharing import group_id, share
from trainvitals.control.view import ControlState, fallback_commands, is_for_the_supervisor
from trainvitals.errors import ControlConflict, ControlError, InputError
from trainvitals.records import CheckpointState

ACTIONS = ("init", "show", "pause", "resume", "checkpoint", "stop", "rollback", "breaker")
LOOK_EVERY_S = 0.1
OK, REFUSED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "action", choices=ACTIONS, metavar="ACTION",
        help="show: what the trainer does; pause: save, then hold; resume: go on; checkpoint: save now; stop: save, then end; "
        "rollback: ask the supervisor to go back, without one print the way; breaker: ask the watchdog to arm or disarm it; "
        "init: make the control files",
    )  # fmt: skip
    parser.epilog = "Exit code 0: carried out. 1: refused, in conflict, or not answered within --wait. 2: wrong usage."
    parser.add_argument(
        "run_dir",
        metavar="RUN_DIR",
        help="run directory that trainer and dashboard share; of a rollback also the name of a run that is reached through the store",
    )
    parser.add_argument("--by", default="", metavar="WHO", help="who asks; required for all but init and show")
    parser.add_argument("--reason", default="", metavar="WHY", help="why; required for all but init and show")
    parser.add_argument("--to", default="", metavar="CHECKPOINT", help="checkpoint to go back to (rollback)")
    parser.add_argument("--mode", choices=BREAKER_MODES, metavar="MODE", help=f"breaker: one of {', '.join(BREAKER_MODES)}")
    parser.add_argument(
        "--skip-samples", default="", metavar="A:B", help="samples to leave out after going back (rollback by a supervisor)"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="settings file that says who may act on the run (default: as everywhere)"
    )
    parser.add_argument("--wait", type=seconds, default=10.0, metavar="S", help="seconds to wait for the trainer (default 10)")
    parser.add_argument(
        "--run", dest="run_name", default="", metavar="RUN", help="name of the run; refused when the directory is another's"
    )
    parser.add_argument("--expected-seq", type=int, metavar="N", help="refuse when another request than number N stands there")
    parser.add_argument(
        "--no-save",
        action="store_true",
        help="pause without saving first, so that no older checkpoint is deleted for the new one",
    )
    parser.add_argument(
        "--how", choices=HOW, help="of a pause. hold: wait on the nodes; park: save, end with exit code 75 and give the nodes back "
        "(default: as the trainer is set up)",
    )  # fmt: skip
    parser.add_argument(
        "--group", default="", metavar="G", help="init: the group that trainer and dashboard share, when they are different users"
    )
    parser.add_argument("--anyway", action="store_true", help="rollback: go back although the checkpoint is suspect")
    parser.add_argument("--expires", type=seconds, metavar="S", help="not carried out when the trainer sees it later than this")


def run(args: argparse.Namespace) -> int:
    """Carry out one action. Raises ``InputError`` for wrong usage, ``ControlError`` for a refusal."""
    run_dir = Path(args.run_dir)
    far = far_rollback.far_run(args) if args.action == "rollback" else None
    if far is None and not run_dir.is_dir():
        raise InputError(f"There is no run directory {run_dir}; name the directory that trainer and dashboard share.")
    if args.action == "init":
        return _init(args, run_dir)
    if args.action == "show":
        state = look(run_dir, SystemClock().time_ns())
        _print({"action": "show", "outcome": state.state, **dataclasses.asdict(state)}, state.sentence)
        return REFUSED if state.state == "unreadable" else OK
    for option in ("by", "reason"):
        if not getattr(args, option).strip():
            raise InputError(f"--{option} is missing: a run is never paused, stopped or changed without a name and a reason.")
    if far is not None:
        return far_rollback.go_back(args, *far)
    if args.action == "breaker":
        return set_mode(args)
    if args.action == "rollback":
        require_operator(run_dir, args.run_name, args.action, args.by, args.reason, args.config)
        return _rollback(args)
    try:
        require_operator(run_dir, args.run_name, args.action, args.by, args.reason, args.config)
        asked = ask(
            run_dir, args.run_name, action=args.action, by=args.by, source="cli", reason=args.reason,
            expected_seq=args.expected_seq, expires_s=args.expires, save=False if args.no_save else None, how=args.how,
        )  # fmt: skip
    except ControlConflict as error:
        return _say(args, REFUSED, "conflict", str(error), _request_or_none(run_dir))
    except ControlError as error:
        return _say(args, REFUSED, "refused", str(error), _request_or_none(run_dir))
    if asked.warning:
        print("".join(c if c.isprintable() else "?" for c in asked.warning), file=sys.stderr)  # noqa: T201
    return _wait(args, run_dir, asked.request)


def _init(args: argparse.Namespace, run_dir: Path) -> int:
    if args.group:
        group_id(args.group)  # a name that is wrong must change nothing
    request = init(run_dir, args.run_name)
    sentence = f"Control files are ready in {run_dir / 'control'} (seq {request.seq})."
    if args.group:
        kept = share(run_dir, args.group)
        sentence += f" The group {args.group} may read and write there, whatever the umask of its members."
        if kept:
            sentence += f" {kept} older files belong to other users and stay as they are until they are replaced."
    return _say(args, OK, "ready", sentence, request)


def outcome(request: ControlRequest, status: ControlStatus | None) -> str:
    """applied, refused, superseded, acknowledged, not_acknowledged, not_wired or ended. Pure."""
    if status is None:
        return "not_wired"
    if status.refused_seq == request.seq and request.seq > 0:
        return "refused"
    if status.applied_seq == request.seq and status.state in ("running", "paused", "stopped"):
        return "applied"
    if max(status.applied_seq, status.ack_seq) > request.seq:
        return "superseded"
    if status.ack_seq == request.seq and not status.ended:
        return "acknowledged"
    return "ended" if status.ended else "not_acknowledged"


#: A resume of a trainer that is gone, under a live supervisor: carried out as far as anybody can tell before its first step.
STARTS = "supervisor_starts"
#: A resume that the supervisor answered with another hold, because what stood in its way still does.
HELD_AGAIN = "held_again"
_SENTENCES = {
    "applied": "Done.",
    "refused": "The trainer refused it.",
    "superseded": "Somebody asked for something newer meanwhile.",
    "acknowledged": "The trainer has seen it and acts when the step now running ends; look again with: control show",
    "not_acknowledged": "The trainer has not acknowledged it.",
    "not_wired": "The request is written.",
    STARTS: "The supervisor starts the trainer.",
    "ended": "The trainer has ended; it will see the request ({what}) when it starts again.",
}


def _wait(args: argparse.Namespace, run_dir: Path, request: ControlRequest) -> int:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + args.wait
    while True:
        status = _status_or_none(run_dir)
        result = outcome(request, status)
        is_final = result in ("applied", "refused", "superseded")
        if is_final or clock.monotonic_s() >= deadline_s:
            break
        clock.sleep(min(LOOK_EVERY_S, max(0.0, deadline_s - clock.monotonic_s())))
    state = look(run_dir, clock.time_ns())
    if not is_final and state.supervisor and is_for_the_supervisor(request, status, state.heartbeat_age_s or 0.0):
        result = STARTS
    # What an ended trainer said last would only contradict what has just been asked.
    ended = _SENTENCES["ended"].format(what=f"{args.action}, seq {request.seq}")
    sentence = ended if result == "ended" else f"{_SENTENCES[result]} {state.sentence}"
    if result == "applied" and args.action == "checkpoint" and status is not None and status.checkpoint_step is not None:
        sentence = f"Done: checkpoint {status.checkpoint_step:,}. {state.sentence}"
    if not is_final and (held := _held_again(run_dir, request)) is not None:
        result, sentence = HELD_AGAIN, f"The supervisor has looked at it and holds the run again: {held}"
    if result in ("not_acknowledged", "not_wired") and args.action in ("pause", "stop"):
        by_hand = fallback_commands(_status_or_none(run_dir))
        sentence += "" if by_hand in sentence else f" To stop it by hand: {by_hand}."
    return _say(args, OK if result in ("applied", STARTS) else REFUSED, result, sentence, request, state)


def _held_again(run_dir: Path, request: ControlRequest) -> str | None:
    """Why, when what was asked for is replaced by a hold of the supervisor; None when it is not."""
    now = _request_or_none(run_dir)
    is_replaced = now is not None and now.seq > request.seq and now.desired == "stopped" and now.source == "supervisor"
    return now.reason if is_replaced and now is not None and request.desired == "running" else None


def _rollback(args: argparse.Namespace) -> int:
    """The supervisor carries it out; without one nothing restarts the trainer, so the commands are for a person."""
    if not args.to:
        raise InputError("--to CHECKPOINT is missing: name the checkpoint to go back to (see: checkpoint list).")
    checkpoint = Path(args.to)
    if not checkpoint.exists():
        raise InputError(f"There is no checkpoint {checkpoint}; look with: python -m trainvitals checkpoint list DIRECTORY")
    doubt = "" if args.anyway else rollback_doubt.doubt_here(Path(args.run_dir), args.run_name, checkpoint, args.config)
    if supervised.supervisor_of(args.run_dir) is not None:
        if doubt:
            rollback_doubt.refuse(str(checkpoint), doubt)
            return REFUSED
        return _ask_supervisor(args, checkpoint)
    commands = rollback_commands(args.run_dir, checkpoint, args.by, args.reason)
    problem = _problem(str(checkpoint)) or doubt
    sentence = "No supervisor runs this trainer, so nothing was changed. " + (f"{problem} " if problem else "")
    sentence += f"{_ONLY_FILES} To go back by hand:\n" + "\n".join(commands)
    state = look(args.run_dir, SystemClock().time_ns())
    _print(
        {"action": "rollback", "outcome": "by_hand", "commands": commands, "state": state.state, "problem": problem or None},
        sentence,
    )
    return REFUSED


def _ask_supervisor(args: argparse.Namespace, checkpoint: Path) -> int:
    """Ask, and wait for its answer: it looks at the checkpoint first."""
    clock = SystemClock()
    request = supervised.ask_rollback(
        args.run_dir, args.run_name, to=str(checkpoint.absolute()), by=args.by, reason=args.reason, source="cli",
        skip_samples=args.skip_samples,
    )  # fmt: skip
    until_s = clock.monotonic_s() + args.wait
    while (answer := supervised.answer_to(args.run_dir, request)) is None and clock.monotonic_s() < until_s:
        clock.sleep(min(LOOK_EVERY_S, max(0.0, until_s - clock.monotonic_s())))
    result = answer.outcome if answer is not None else "not_answered"
    sentence = (
        answer.sentence if answer is not None else "The supervisor has not answered yet; it may still look at the checkpoint."
    )
    _print({"action": "rollback", "outcome": result, "to": str(checkpoint), "sentence": sentence}, sentence)
    return OK if result == "applied" else REFUSED


_ONLY_FILES = (
    "Only its files are looked at here: whether the loss was healthy when it was saved, or a later step is safe, the dashboard's page "
    "Checkpoints tells."
)


def _problem(checkpoint: str) -> str:
    """What speaks against its files, as a sentence; "" when their structure is whole. A deeper look is the first of the commands."""
    try:
        report = inspect(checkpoint)
    except InputError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 (one that was made to break a look must not take the way back away)
        return f"It could not be looked at: {fault(error)}."
    if report.state is CheckpointState.VERIFIED:
        return ""
    state = report.state.value.replace("_", " ")
    why = f": {report.reasons[0]}" if report.reasons else ""
    is_bad = report.state in (CheckpointState.INCOMPLETE, CheckpointState.CORRUPT)
    return f"Do not go back to it: it is {state}{why}." if is_bad else f"Nothing verifies its files ({state}{why})."


def _say(
    args: argparse.Namespace,
    code: int,
    result: str,
    sentence: str,
    request: ControlRequest | None,
    state: ControlState | None = None,
) -> int:
    document: dict[str, object] = {"action": args.action, "outcome": result}
    if request is not None:
        document |= {"seq": request.seq, "desired": request.desired, "by": request.by, "reason": request.reason}
    if state is not None:
        document |= {"state": state.state, "ack_seq": state.ack_seq, "step": state.at_step}
    _print(document | {"sentence": sentence}, sentence)
    return code


def _print(document: dict[str, object], sentence: str) -> None:
    print(json.dumps(document))  # noqa: T201 - stdout is data
    print("".join(c if c.isprintable() or c == "\n" else "?" for c in sentence), file=sys.stderr)  # noqa: T201


def _request_or_none(run_dir: Path) -> ControlRequest | None:
    try:
        return read_request(run_dir)
    except (InputError, ControlError, OSError):
        return None


def _status_or_none(run_dir: Path) -> ControlStatus | None:
    try:
        return read_status(run_dir)
    except (InputError, ControlError, OSError):
        return None


def seconds(text: str) -> float:
    """An argument that is a length of time."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
