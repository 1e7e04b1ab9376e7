"""Rows of the outbox as people and senders see them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainvitals.alerts.notice import Notice

_MAX_TEXT = 2_000
_MAX_LIST = 40


@dataclass(frozen=True, slots=True)
class Claim:
    """One message that this sender may deliver now. attempt: number of the row in which its end is written."""

    seq: int
    id: str
    target: str
    notice: Notice
    tries: int
    attempt: int
    lease: str


@dataclass(frozen=True, slots=True)
class Message:
    """A row for people. error: of the last attempt, without secrets; state: waiting, sent, dead or overtaken."""

    id: str
    target: str
    state: str
    kind: str
    severity: str
    run: str
    incident_id: str
    what: str
    created_ns: int
    not_before_ns: int
    settled_ns: int | None
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try. status: of HTTP, None when there was no answer; outcome: sending, delivered, retry, permanent, gone or expired."""

    number: int
    at_ns: int
    status: int | None
    duration_ms: float | None
    outcome: str
    error: str


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """How a target does. disabled_ns: since when nothing is sent to it, None when it is in use."""

    name: str
    last_ok_ns: int | None = None
    last_failure_ns: int | None = None
    failures_in_a_row: int = 0
    error: str = ""
    disabled_ns: int | None = None
    waiting: int = 0
    dead: int = 0

    @property
    def works(self) -> bool:
        """Whether its last attempt arrived; a target that was never used has not failed."""
        return self.disabled_ns is None and not self.failures_in_a_row


def message_id(notice_id: str, target: str) -> str:
    """The id that the receiver sees at every try. No dot: Standard Webhooks signs "id.timestamp.body"."""
    return "msg_" + sha256(f"{notice_id}\0{target}".encode("utf-8", "replace")).hexdigest()[:32]


def boot_id() -> str:
    """Of this boot of the machine, "" where there is none: monotonic seconds of another boot mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


def messages(connection: sqlite3.Connection, state: str, target: str, limit: int) -> list[Message]:
    """The newest ones first; "" stands for every state and every target."""
    rows = connection.execute(
        "SELECT id, target, state, notice, created_ns, not_before_ns, settled_ns, tries, error FROM message "
        "WHERE (? = '' OR state = ?) AND (? = '' OR target = ?) ORDER BY seq DESC LIMIT ?",
        (state, state, target, target, limit),
    )
    found = []
    for id, name, its_state, text, created_ns, not_before_ns, settled_ns, tries, error in rows:
        try:
            notice = json.loads(text)
        except ValueError:
            notice = {}
        told = {key: str(notice.get(key, "")) for key in ("kind", "severity", "run", "incident_id", "what")}
        found.append(
            Message(
                id=id, target=name, state=its_state, created_ns=created_ns, not_before_ns=not_before_ns, settled_ns=settled_ns,
                tries=tries, error=error, **told,
            )
        )  # fmt: skip
    return found


def health(connection: sqlite3.Connection, targets: Iterable[str]) -> list[TargetHealth]:
    """Of each of these targets, in their order."""
    known = {
        row[0]: row
        for row in connection.execute(
            "SELECT name, last_ok_ns, last_failure_ns, failures_in_a_row, error, disabled_ns FROM target"
        )
    }
    counts = {
        (name, state): number
        for name, state, number in connection.execute(
            "SELECT target, state, count(*) FROM message WHERE state = 'waiting' OR (state = 'dead' AND kind <> 'test') GROUP BY target, state"
        )
    }
    return [
        replace(
            TargetHealth(*known.get(name, (name,))), waiting=counts.get((name, "waiting"), 0), dead=counts.get((name, "dead"), 0)
        )
        for name in targets
    ]


def bounded(notice: Notice) -> Notice:
    """The same with texts and lists that are short enough to keep and to send, and without what no encoding takes."""
    return Notice.from_mapping(_bounded(notice.to_mapping()))


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _bounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bounded(inner) for inner in value[:_MAX_LIST]]
    return value
