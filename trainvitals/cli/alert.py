"""``alert``: whether a target can be reached, what was told to whom, and what did not arrive."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from uuid import uuid4

from trainvitals import settings as settings_module
from trainvitals.alerts.http import TIMEOUT_S
from trainvitals.alerts.notice import Notice, NoticeKind, Verb
from trainvitals.alerts.outbox import Outbox
from trainvitals.alerts.outbox_rows import Attempt, Message, TargetHealth, message_id
from trainvitals.alerts.quiet import held_until
from trainvitals.alerts.sender import Delivery
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError, StoreUnavailable
from trainvitals.records import Severity
from trainvitals.settings import Settings

_LONGEST_TEST_S = 3 * TIMEOUT_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code 0: delivered, or nothing wrong. 1: test: not delivered; list: a target fails or a message was not delivered; "
        "send-again, drop: a message is not there. 2: wrong usage or settings. Details: docs/alerts.md."
    )
    parser.add_argument(
        "action", choices=("test", "list", "send-again", "drop", "enable"),
        help="test: send a message to TARGET now; list: targets and messages; send-again, drop: messages that were not delivered; "
        "enable: use TARGET again after it answered 410 Gone",
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="TARGET|ID", help="a target of the settings, or messages as list names them")
    parser.add_argument("--all", action="store_true", help="send-again, drop: all that were not delivered")
    parser.add_argument("--dead", action="store_true", help="list: only what was not delivered")
    parser.add_argument("--target", default="", help="list, send-again, drop: only of this target")
    parser.add_argument("--limit", type=_number, default=50, help="messages that list shows, the newest first")
    parser.add_argument("--json", action="store_true", help="list as JSON lines")
    parser.add_argument("--config", help="settings file")


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 100_000:
        raise ValueError(text)
    return number


def run(options: argparse.Namespace) -> int:
    settings = settings_module.load(options.config)
    if options.target:
        _known(settings, options.target)
    outbox = Outbox(settings.outbox_path)
    try:
        if options.action == "list":
            return _list(settings, outbox, options)
        if options.action in ("send-again", "drop"):
            return _settle(outbox, options)
        if len(options.names) != 1:
            raise InputError(f"Say which target: alert {options.action} TARGET.")
        target = options.names[0]
        _known(settings, target)
        if options.action == "enable":
            was_off = outbox.enable(target)
            _say(f"{target} is used again." if was_off else f"{target} was in use.")
            return 0
        return _test(settings, outbox, target)
    finally:
        outbox.close()


def _known(settings: Settings, target: str) -> None:
    if target not in settings.alert_targets:
        known = ", ".join(settings.alert_targets) or "none; write an [alerts.targets.NAME] table"
        raise InputError(f"No target {target!r} in {settings.path or 'the settings'}; known: {known}.")


def _test(settings: Settings, outbox: Outbox, target: str) -> int:
    """0 when it was delivered, 1 when not. Another process that sends for this machine may be the one that delivers it."""
    notice = test_notice(settings, time.time_ns())
    id = message_id(notice.id, target)
    outbox.enqueue(notice, target)
    delivery = Delivery(settings, target, outbox)
    clock = SystemClock()
    until_s = clock.monotonic_s() + _LONGEST_TEST_S
    while (message := _message(outbox, target, id)).state == "waiting":
        if clock.monotonic_s() > until_s:
            raise StoreUnavailable(f"The message to {target} is still waiting behind others; see `alert list --target {target}`.")
        if not delivery.turn():
            clock.sleep(0.1)
    attempts = outbox.attempts(id)
    took = f" in {attempts[-1].duration_ms:.0f} ms" if attempts and attempts[-1].duration_ms is not None else ""
    if message.state == "sent":
        _say(f"{target}: delivered{took}.")
        return 0
    _say(f"{target}: not delivered{took}: {message.error}.")
    return 1


def test_notice(settings: Settings, now_ns: int) -> Notice:
    """A message that says of itself that nothing is wrong."""
    return Notice(
        id=f"test-{uuid4().hex}", kind=NoticeKind.TEST, number=1, run="test", incident_id=f"test/{uuid4().hex}", family="test",
        severity=Severity.INFO, verb=Verb.TEST, rule="", rules=(),
        what=f"a test of alerts from {socket.gethostname()}; nothing is wrong", at_ns=now_ns, opened_at_ns=now_ns,
        link=settings.dashboard.public_url,
    )  # fmt: skip


def _message(outbox: Outbox, target: str, id: str) -> Message:
    for message in outbox.messages(target=target, limit=200):
        if message.id == id:
            return message
    raise StoreUnavailable(f"The outbox {outbox.path} has lost the message; was it replaced?")


def _list(settings: Settings, outbox: Outbox, options: argparse.Namespace) -> int:
    """1 when something was not delivered or a target is failing, 0 otherwise."""
    names = [options.target] if options.target else list(settings.alert_targets)
    targets = outbox.health(names)
    messages = outbox.messages("dead" if options.dead else "", options.target, options.limit)
    lost = outbox.lost()
    if options.json:
        for health in targets:
            _out(
                json.dumps(
                    {"type": "target", "kind": settings.alert_targets[health.name].kind, "works": health.works, **asdict(health)}
                )
            )
        for message in messages:
            attempts = [asdict(attempt) for attempt in outbox.attempts(message.id)]
            _out(json.dumps({"type": "message", **asdict(message), "attempts": attempts}))
        if lost:
            _out(json.dumps({"type": "lost", "messages": lost}))
    else:
        if not targets:
            _say("No target: write an [alerts.targets.NAME] table into the settings.")
        for health in targets:
            _out(_target_line(settings, health))
        for message in messages:
            _out(_message_line(message))
            for attempt in outbox.attempts(message.id):
                _out(_attempt_line(attempt))
        if any(message.state == "dead" and message.kind == NoticeKind.TEST.value for message in messages):
            _say("A test that was not delivered is listed here and not counted: nobody missed anything.")
        if lost:
            _say(f"{lost:,} messages were dropped undelivered because too many waited.")
    return 1 if any(health.dead or not health.works for health in targets) else 0


def _settle(outbox: Outbox, options: argparse.Namespace) -> int:
    if bool(options.names) == options.all:
        raise InputError(f"Say which messages to {options.action}: their ids from `alert list --dead`, or --all.")
    ids = options.names or [message.id for message in outbox.messages("dead", options.target, 100_000)]
    act = outbox.send_again if options.action == "send-again" else outbox.forget
    done = [id for id in ids if act(id)]
    for id in options.names:
        if id not in done:
            _say(f"{id} is no message that was not delivered.")
    words = "will be sent again" if options.action == "send-again" else "dropped"
    _say(f"{len(done):,} {'message' if len(done) == 1 else 'messages'} {words}.")
    return 0 if len(done) == len(ids) else 1


def _target_line(settings: Settings, health: TargetHealth) -> str:
    if health.disabled_ns is not None:
        state = f"switched off since {_time(health.disabled_ns)}: {health.error}"
    elif health.failures_in_a_row:
        state = f"failing, {health.failures_in_a_row} in a row: {health.error}"
    else:
        state = f"last delivered {_time(health.last_ok_ns)}" if health.last_ok_ns is not None else "never used"
    kind = settings.alert_targets[health.name].kind
    until = held_until(settings.alert_targets[health.name], time.time_ns())
    held = f"; quiet hours: what is not critical is held by the watchdog until {until}" if until else ""
    return _printable(f"{health.name} ({kind}): {state}; {health.waiting:,} waiting, {health.dead:,} not delivered{held}")


def _message_line(message: Message) -> str:
    words = {"sent": "delivered", "dead": "NOT DELIVERED", "overtaken": "not sent, it was over"}.get(message.state, message.state)
    return _printable(
        f"  {message.id}  {_time(message.created_ns)}  {message.target}  {words}  {message.severity} {message.run} {message.kind}: {message.what}"
    )


def _attempt_line(attempt: Attempt) -> str:
    status = f" {attempt.status}" if attempt.status is not None else ""
    took = f" in {attempt.duration_ms:.0f} ms" if attempt.duration_ms is not None else ""
    error = f": {attempt.error}" if attempt.error else ""
    return _printable(f"      {_time(attempt.at_ns)}  {attempt.outcome}{status}{took}{error}")


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")


def _printable(text: str) -> str:
    # A receiver's answer or a run's name can hold anything: control characters must not reach the terminal.
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _out(line: str) -> None:
    print(line)  # noqa: T201


def _say(sentence: str) -> None:
    print(_printable(sentence), file=sys.stderr)  # noqa: T201
