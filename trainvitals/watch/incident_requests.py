"""What a person asks of incidents, from a page or the command line: to have one, to silence something, to end a silence. Pure.

The data of a request of the kind ``acknowledge``: ``incident``, ``note``. Of the kind ``silence``: ``rules``, ``families``, ``runs``
(lists of names or patterns), ``up_to``, ``seconds``, ``comment``; or ``end``, the id of the silence that is to end.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainvitals.control.document import checked_text
from trainvitals.control.requests import WatchRequest
from trainvitals.errors import InputError
from trainvitals.identity import event_id
from trainvitals.incidents.silences import MAX_COMMENT, Silence, checked_silence
from trainvitals.masking import mask_cut_text
from trainvitals.records import Event, Incident

MAX_ID = 300
MAX_NOTE = 2_000


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """incident: its id, or a unique beginning of it."""

    incident: str
    note: str


def acknowledgement(request: WatchRequest) -> Acknowledgement:
    """Raises ``ControlError`` or ``InputError`` for what is none."""
    return Acknowledgement(
        checked_text("incident", _text(request.data, "incident"), MAX_ID),
        mask_cut_text(checked_text("note", _text(request.data, "note"), MAX_NOTE, may_be_empty=True), MAX_NOTE),
    )


def acknowledged(run: str, request: WatchRequest, incident: Incident, note: str, last_step: int | None) -> tuple[Event, str]:
    """(the event, what is answered)."""
    data = {"incident": incident.id, "note": note, "by": request.by, "request": request.id}
    text = f"{request.by} has it: {incident.title}" + (f" ({note})" if note else "")
    sentence = f"{request.by} has the incident {incident.id} until it is over: no reminders, no second target. Its end is told."
    return _event("acknowledgement", run, request, text, data, last_step), sentence


def silence_to_end(request: WatchRequest) -> str:
    """The id of the silence that is to end; "" when a new one is asked for."""
    return checked_text("end", _text(request.data, "end"), MAX_ID, may_be_empty=True)


def silence(run: str, request: WatchRequest) -> Silence:
    """Raises ``InputError`` for what is none, and for one that does not concern this run."""
    found = checked_silence(request.data, identifier=request.id, by=request.by, begin_ns=request.issued_at_ns)
    if found.runs and not any(fnmatch.fnmatchcase(run, pattern) for pattern in found.runs):
        raise InputError(f"it is for runs named {', '.join(found.runs)}, this is {run!r}")
    return found


def silenced(
    run: str, request: WatchRequest, silence: Silence, changed: Sequence[Incident], last_step: int | None
) -> tuple[Event, str]:
    """(the event, what is answered)."""
    until = f"{datetime.fromtimestamp(silence.until_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    comment = mask_cut_text(silence.comment, MAX_COMMENT)
    data = {
        "silence": silence.id, "until_ns": silence.until_ns, "rules": list(silence.rules), "families": list(silence.families),
        "runs": list(silence.runs), "up_to": silence.up_to.value, "seconds": request.data.get("seconds"), "comment": comment,
        "by": request.by, "request": request.id,
    }  # fmt: skip
    open_now = f" It covers {len(changed)} that {'is' if len(changed) == 1 else 'are'} open." if changed else ""
    sentence = f"Silent until {until}: {silence.words()}.{open_now} What is graver, and any other rule, is told."
    return _event("silence", run, request, f"{silence.words()} until {until}, {request.by}: {comment}", data, last_step), sentence


def unsilenced(run: str, request: WatchRequest, silence: Silence, last_step: int | None) -> tuple[Event, str]:
    """(the event, what is answered)."""
    data = {"silence": silence.id, "end": silence.id, "until_ns": request.issued_at_ns, "by": request.by, "request": request.id}
    sentence = f"The silence of {silence.by} is over ({silence.words()}): what is open and was silent is told now."
    return _event("silence", run, request, f"ended by {request.by}: {silence.words()}", data, last_step), sentence


def _event(
    kind: str, run: str, request: WatchRequest, text: str, data: Mapping[str, Any], last_step: int | None
) -> Event:  # fmt: skip
    return Event(
        kind, request.issued_at_ns, step=last_step, id=event_id(run, "request", request.id), source=request.source, text=text,
        data=data,
    )  # fmt: skip


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{key} must be a text")
    return value
