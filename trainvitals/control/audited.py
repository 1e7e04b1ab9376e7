"""Asking with an audit: each request is in the audit before it is in its file, and so is what became of those that were not written.

A request that cannot be audited is refused, except a pause: the training's safety comes first, and who asked is told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.clock import Clock
from trainvitals.control import inbox
from trainvitals.control.audit import append, newest
from trainvitals.control.audit_head import Head
from trainvitals.control.records import ControlRequest
from trainvitals.control.request import submit
from trainvitals.control.requests import WatchRequest
from trainvitals.errors import ControlConflict, ControlError, InputError

PAUSE = "pause"
#: Records in which a request from elsewhere is looked for: what was written just before a kill is among the newest.
LOOKED_THROUGH = 200
RunDir = str | os.PathLike[str]


class _NotAuditedError(ControlError):
    """The audit took nothing, so nothing more is to be told to it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """request: what stands in the control file. warning: for the person, "" = none (a pause that could not be audited)."""

    request: ControlRequest
    warning: str = ""


def ask(
    run_dir: RunDir, run: str, *, action: str, by: str, source: str, reason: str, expected_seq: int | None = None,
    clock: Clock | None = None, expires_s: float | None = None, save: bool | None = None, how: str | None = None,
    request_id: str = "",
) -> Asked:  # fmt: skip
    """``control.request.submit`` with its record. Raises as that does, and ``ControlError`` for what cannot be audited.

    request_id: of a request from elsewhere; what was audited of it before a kill is not audited again."""
    warning = ""

    def record(request: ControlRequest) -> Head:
        nonlocal warning
        data = {"seq": request.seq, "action": action, "desired": request.desired, "reason": request.reason, "save": request.save}
        data |= {"how": request.how} if request.how else {}
        if request_id:
            data["request"] = request_id
        try:
            if request_id and (head := _audited_before(run_dir, request_id, request.seq)) is not None:
                return head
            return append(run_dir, "request", run=request.run, by=by, source=source, data=data, clock=clock)
        except (ControlError, OSError) as error:
            if action != PAUSE:
                raise _NotAuditedError(f"Nothing was asked, because it could not be audited: {error}") from error
            warning = f"It is not in the audit: {error}"
            return Head()

    try:
        request = submit(
            run_dir, run, action=action, by=by, source=source, reason=reason, expected_seq=expected_seq, clock=clock,
            expires_s=expires_s, save=save, how=how, audit=record, request_id=request_id,
        )  # fmt: skip
    except _NotAuditedError:
        raise
    except ControlError as error:
        data = {"action": action, "reason": reason, "why": str(error), "is_conflict": isinstance(error, ControlConflict)}
        note = _try(run_dir, "not_asked", run=run, by=by, source=source, data=data, clock=clock)
        if note:
            raise type(error)(f"{error} {note}") from error
        raise
    return Asked(request, warning)


def ask_watchdog(
    run_dir: RunDir, run: str, *, kind: str, by: str, source: str, data: dict[str, Any], clock: Clock | None = None
) -> WatchRequest:
    """``control.inbox.submit`` with its record. Raises as that does, and ``ControlError`` for what cannot be audited."""

    def record(request: WatchRequest) -> None:
        told = {"request": request.id, "kind": kind, "asked": dict(request.data)}
        try:
            append(run_dir, "request", run=run, by=by, source=source, data=told, clock=clock)
        except (ControlError, OSError) as error:
            raise ControlError(f"Nothing was asked, because it could not be audited: {error}") from error

    return inbox.submit(run_dir, run, kind=kind, by=by, source=source, data=data, clock=clock, audit=record)


def audit_request(run_dir: RunDir, request: WatchRequest, road: str, clock: Clock | None = None) -> None:
    """The record of a request to the watchdog that came by another road than a file; once, also after a kill. Raises
    ``ControlError`` for what cannot be audited."""
    data = {"request": request.id, "kind": request.kind, "asked": dict(request.data), "road": road}
    try:
        if _audited_before(run_dir, request.id) is None:
            append(run_dir, "request", run=request.run, by=request.by, source=request.source, data=data, clock=clock)
    except (ControlError, OSError) as error:
        raise ControlError(f"Nothing was done, because it could not be audited: {error}") from error


def _audited_before(run_dir: RunDir, request_id: str, seq: int | None = None) -> Head | None:
    for record in reversed(newest(run_dir, LOOKED_THROUGH)):
        if record.kind == "request" and record.data.get("request") == request_id and record.data.get("seq") == seq:
            return record.head
    return None


def refused_access(
    run_dir: RunDir, run: str, *, by: str, source: str, data: Mapping[str, Any], clock: Clock | None = None
) -> str:
    """Keep that somebody was refused; returns why it could not be kept, "" when it was. Never raises for what the disk does."""
    return _try(run_dir, "access_refused", run=run, by=by, source=source, data=data, clock=clock)


def _try(
    run_dir: RunDir, kind: str, *, run: str, by: str, source: str, data: Mapping[str, Any], clock: Clock | None
) -> str:  # fmt: skip
    try:
        append(run_dir, kind, run=run, by=by, source=source, data=data, clock=clock)
    except (ControlError, InputError, OSError) as error:
        return f"It is not in the audit: {error}"
    return ""
