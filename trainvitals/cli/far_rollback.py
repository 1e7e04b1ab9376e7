"""``control rollback`` of a run whose directory lies on another host: signed, through the store, answered by its supervisor."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from trainvitals import settings as settings_module
from trainvitals.access import Identity, refusal
from trainvitals.cli import rollback_doubt
from trainvitals.clock import Clock, SystemClock
from trainvitals.control import supervised
from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_REASON
from trainvitals.errors import ControlError, InputError, SettingsError, StoreError
from trainvitals.masking import mask_text
from trainvitals.records import Event
from trainvitals.settings import RunSettings, Settings
from trainvitals.store.open import open_store
from trainvitals.web import remote

LOOK_EVERY_S = 1.0
#: The clocks of two hosts may differ by so much.
SLACK_NS = 300 * 10**9
KINDS = ("supervisor", "control", "watch")
OK, REFUSED = 0, 1


def far_run(args: argparse.Namespace) -> tuple[Settings, RunSettings] | None:
    """The run that is meant, when it is one of the settings that is reached through the store and has no directory here."""
    if Path(args.run_dir).is_dir():
        return None
    try:
        settings = settings_module.load(args.config)
    except SettingsError:
        if args.config:
            raise
        return None
    place = Path(args.run_dir).absolute()
    for run in settings.runs:
        is_meant = run.name == args.run_name if args.run_name else run.name == args.run_dir or Path(run.dir).absolute() == place
        if is_meant and remote.is_far(run):
            return settings, run
    return None


def go_back(args: argparse.Namespace, settings: Settings, run: RunSettings, clock: Clock | None = None) -> int:
    """Send it, and wait for what the supervisor says. Raises ``ControlError``, ``InputError`` or ``StoreError``."""
    clock = clock or SystemClock()
    if not args.to:
        raise InputError("--to CHECKPOINT is missing: name the checkpoint to go back to, by its path on the run's host.")
    if sentence := refusal(settings.access, run.name, Identity(args.by)):
        raise ControlError(sentence)
    if args.skip_samples and not supervised.is_skip(args.skip_samples):
        raise InputError(f"The samples to skip are written A:B, two whole numbers, not {args.skip_samples!r}.")
    if not args.anyway and (doubt := rollback_doubt.doubt_stored(settings, run, args.to)):
        rollback_doubt.refuse(args.to, doubt)
        return REFUSED
    data = {
        "to": args.to,
        "reason": mask_text(checked_text("reason", args.reason, MAX_REASON)),
        "skip_samples": args.skip_samples,
    }
    since_ns, until_s = clock.time_ns(), clock.monotonic_s() + args.wait
    sent = remote.send(settings, run, kind=supervised.ROLLBACK, who=Identity(args.by), data=data, clock=clock)
    store = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    trouble = ""
    try:
        while True:
            try:
                now_ns = clock.time_ns()
                outcome, said = answer(store.events(run.name, KINDS, since_ns - SLACK_NS, now_ns + SLACK_NS), sent)
            except StoreError as error:
                outcome, said, trouble = "not_answered", "", f" {error}"
            left_s = until_s - clock.monotonic_s()
            if outcome in ("applied", "refused") or left_s <= 0:
                break
            clock.sleep(min(LOOK_EVERY_S, left_s))
    finally:
        store.close()
    sentence = said or f"Sent, signed, through the store; the run's watchdog has not answered yet.{trouble}"
    print(json.dumps({"action": "rollback", "outcome": outcome, "to": args.to, "request": sent, "sentence": sentence}))  # noqa: T201
    print("".join(c if c.isprintable() else "?" for c in sentence), file=sys.stderr)  # noqa: T201
    return OK if outcome == "applied" else REFUSED


def answer(events: Iterable[Event], request_id: str) -> tuple[str, str]:
    """(outcome, sentence) of a request by what was stored since: applied, refused, passed_on or not_answered. Pure."""
    outcome, said = "not_answered", ""
    for event in events:
        if event.data.get("request") != request_id:
            continue
        if event.kind == "supervisor" and event.data.get("state") in ("taken", "refused"):
            return ("applied" if event.data["state"] == "taken" else "refused"), event.text
        if event.kind == "watch" and event.data.get("outcome") == "refused":
            return "refused", event.text
        if event.kind == "control" and event.data.get("outcome") == "applied":
            outcome, said = "passed_on", f"{event.text} It has not answered yet; it may still look at the checkpoint."
    return outcome, said
