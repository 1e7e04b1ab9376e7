"""The contents of the two control files: frozen records that check themselves and name what is wrong.

Times in the files are RFC 3339 UTC with nanoseconds, so that people can read them; in the records they are UTC ns.
Unknown keys are ignored (a newer writer may add some); an unknown ``schema`` is refused.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.errors import InputError

SCHEMA = 1
#: Schemas that this version understands; the status file lists them so that a writer can choose.
SCHEMAS = (1,)
DESIRED = ("running", "paused", "stopped")
STATES = ("running", "pausing", "paused", "resuming", "checkpointing", "stopping", "stopped")
MAX_NAME = 200
MAX_REASON = 2000
MAX_COUNTER = 2**63 - 1
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """What people want of a run: a level, not a queue. The one with the highest ``seq`` counts.

    checkpoint_request: counter; a value above ``ControlStatus.checkpoint_done`` means "make one now", once per value.
    expires_at_ns: not applied after this moment (None = never). valid_from_step: not applied before this step.
    source: ui, cli, webhook, breaker. action: the word that made this request, for the audit.
    """

    run: str = ""
    seq: int = 0
    desired: str = "running"
    checkpoint_request: int = 0
    by: str = ""
    source: str = ""
    reason: str = ""
    action: str = ""
    request_id: str = ""
    issued_at_ns: int = 0
    expires_at_ns: int | None = None
    valid_from_step: int | None = None

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return _dump(
            {
                "schema": SCHEMA,
                "run_id": self.run,
                "seq": self.seq,
                "request_id": self.request_id,
                "action": self.action,
                "desired": self.desired,
                "checkpoint_request": self.checkpoint_request,
                "issued_at": to_rfc3339(self.issued_at_ns),
                "expires_at": None if self.expires_at_ns is None else to_rfc3339(self.expires_at_ns),
                "valid_from_step": self.valid_from_step,
                "by": self.by,
                "source": self.source,
                "reason": self.reason,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "control.json") -> ControlRequest:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = _load(text, where)
        return cls(
            run=_text(raw, "run_id", where, MAX_NAME),
            seq=_count(raw, "seq", where),
            desired=_choice(raw, "desired", where, DESIRED),
            checkpoint_request=_count(raw, "checkpoint_request", where, 0),
            by=_text(raw, "by", where, MAX_NAME),
            source=_text(raw, "source", where, MAX_NAME),
            reason=_text(raw, "reason", where, MAX_REASON),
            action=_text(raw, "action", where, MAX_NAME),
            request_id=_text(raw, "request_id", where, MAX_NAME),
            issued_at_ns=_time(raw, "issued_at", where) or 0,
            expires_at_ns=_time(raw, "expires_at", where),
            valid_from_step=_optional_count(raw, "valid_from_step", where),
        )


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """What the trainer does, written by the control client of rank 0 alone.

    attempt: starts of the control client in this directory. ack_seq: highest request received by the trainer's poll
    thread; applied_seq: highest carried out at a step boundary; refused_seq and refusal: the last one that was received
    and not carried out, and why. step, step_age_s: last step ended, and seconds since then on the trainer's monotonic
    clock at the heartbeat (a hung step shows here while the heartbeat goes on). ended: the process said good-bye.
    bad_reads: looks at control.json that gave nothing usable.
    """

    run: str = ""
    attempt: int = 0
    state: str = "running"
    desired: str = "running"
    ack_seq: int = 0
    ack_request_id: str = ""
    applied_seq: int = 0
    refused_seq: int = 0
    refusal: str = ""
    checkpoint_done: int = 0
    applied_at_step: int | None = None
    checkpoint_step: int | None = None
    checkpoint_verified: bool | None = None
    error: str | None = None
    heartbeat_ns: int = 0
    heartbeat_seq: int = 0
    pause_started_ns: int | None = None
    since_ns: int | None = None
    step: int | None = None
    step_age_s: float | None = None
    by: str = ""
    source: str = ""
    reason: str = ""
    pid: int = 0
    host: str = ""
    bad_reads: int = 0
    ended: bool = False
    hook_version: str = ""
    schemas: tuple[int, ...] = SCHEMAS

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return _dump(
            {
                "schema": SCHEMA,
                "schemas": list(self.schemas),
                "run_id": self.run,
                "attempt": self.attempt,
                "state": self.state,
                "desired": self.desired,
                "ack_seq": self.ack_seq,
                "ack_request_id": self.ack_request_id,
                "applied_seq": self.applied_seq,
                "refused_seq": self.refused_seq,
                "refusal": self.refusal,
                "checkpoint_done": self.checkpoint_done,
                "applied_at_step": self.applied_at_step,
                "checkpoint_step": self.checkpoint_step,
                "checkpoint_verified": self.checkpoint_verified,
                "error": self.error,
                "heartbeat": to_rfc3339(self.heartbeat_ns),
                "heartbeat_seq": self.heartbeat_seq,
                "pause_started": None if self.pause_started_ns is None else to_rfc3339(self.pause_started_ns),
                "since": None if self.since_ns is None else to_rfc3339(self.since_ns),
                "step": self.step,
                "step_age_s": self.step_age_s,
                "by": self.by,
                "source": self.source,
                "reason": self.reason,
                "pid": self.pid,
                "host": self.host,
                "bad_reads": self.bad_reads,
                "ended": self.ended,
                "hook_version": self.hook_version,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "control_status.json") -> ControlStatus:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = _load(text, where)
        verified, ended, age = raw.get("checkpoint_verified"), raw.get("ended", False), raw.get("step_age_s")
        if verified is not None and not isinstance(verified, bool):
            raise _wrong(where, "checkpoint_verified", "true, false or null", verified)
        if not isinstance(ended, bool):
            raise _wrong(where, "ended", "true or false", ended)
        if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not 0 <= age < 1e12):
            raise _wrong(where, "step_age_s", "seconds, 0 or more, or null", age)
        schemas = raw.get("schemas", [SCHEMA])
        if not isinstance(schemas, list) or not all(isinstance(item, int) for item in schemas):
            raise _wrong(where, "schemas", "a list of whole numbers", schemas)
        return cls(
            run=_text(raw, "run_id", where, MAX_NAME),
            attempt=_count(raw, "attempt", where, 0),
            state=_choice(raw, "state", where, STATES),
            desired=_choice(raw, "desired", where, DESIRED, "running"),
            ack_seq=_count(raw, "ack_seq", where),
            ack_request_id=_text(raw, "ack_request_id", where, MAX_NAME),
            applied_seq=_count(raw, "applied_seq", where, 0),
            refused_seq=_count(raw, "refused_seq", where, 0),
            refusal=_text(raw, "refusal", where, None),
            checkpoint_done=_count(raw, "checkpoint_done", where, 0),
            applied_at_step=_optional_count(raw, "applied_at_step", where),
            checkpoint_step=_optional_count(raw, "checkpoint_step", where),
            checkpoint_verified=verified,
            error=_text(raw, "error", where, None) or None,
            heartbeat_ns=_time(raw, "heartbeat", where) or 0,
            heartbeat_seq=_count(raw, "heartbeat_seq", where, 0),
            pause_started_ns=_time(raw, "pause_started", where),
            since_ns=_time(raw, "since", where),
            step=_optional_count(raw, "step", where),
            step_age_s=None if age is None else float(age),
            by=_text(raw, "by", where, None),
            source=_text(raw, "source", where, None),
            reason=_text(raw, "reason", where, None),
            pid=_count(raw, "pid", where, 0),
            host=_text(raw, "host", where, None),
            bad_reads=_count(raw, "bad_reads", where, 0),
            ended=ended,
            hook_version=_text(raw, "hook_version", where, None),
            schemas=tuple(schemas),
        )


def to_rfc3339(time_ns: int) -> str:
    """``2026-01-02T03:04:05.000000006Z``; ``InputError`` outside the years 1970 to 9999."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    if not 0 <= seconds < 253_402_300_800:
        raise InputError(f"The time {time_ns} ns lies outside the years 1970 to 9999; check the clock of this machine.")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds:09d}Z"


def from_rfc3339(text: str) -> int:
    """UTC ns; ``ValueError`` when it is not a UTC time with a final Z."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(text)
    seconds = calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S"))
    if seconds < 0:
        raise ValueError(text)
    return seconds * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n"


def _load(text: str | bytes, where: str) -> Mapping[str, Any]:
    if not text.strip():
        raise InputError(f"{where} is empty.")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON ({error}); it may be half written.") from error
    if not isinstance(raw, dict):
        raise InputError(f"{where} must hold one JSON object, not {type(raw).__name__}.")
    schema = raw.get("schema")
    if isinstance(schema, bool) or schema not in SCHEMAS:
        known = ", ".join(map(str, SCHEMAS))
        raise InputError(f"{where} has schema {_shown(schema)}, this version understands {known}; update the older side.")
    return raw


def _shown(value: object) -> str:
    """A value from outside, short enough for a sentence."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a very large number"
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(where: str, key: str, wanted: str, value: object) -> InputError:
    return InputError(f"{where}: {key} must be {wanted}, not {_shown(value)}.")


def _text(raw: Mapping[str, Any], key: str, where: str, longest: int | None) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or (longest is not None and len(value) > longest):
        raise _wrong(where, key, "text" if longest is None else f"text of at most {longest} characters", value)
    return value


def _count(raw: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNTER:
        raise _wrong(where, key, "a whole number, 0 or more", value)
    return value


def _optional_count(raw: Mapping[str, Any], key: str, where: str) -> int | None:
    return None if raw.get(key) is None else _count(raw, key, where)


def _choice(raw: Mapping[str, Any], key: str, where: str, choices: tuple[str, ...], default: str | None = None) -> str:
    value = raw.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise _wrong(where, key, "one of " + ", ".join(choices), value)
    return value


def _time(raw: Mapping[str, Any], key: str, where: str) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    try:
        return from_rfc3339(value)
    except (TypeError, ValueError) as error:
        raise _wrong(where, key, 'a UTC time such as "2026-01-02T03:04:05Z"', value) from error
