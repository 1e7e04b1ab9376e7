"""What a person asks of a run's watchdog: one small file a request in ``control/requests/``, and the answer in ``answered/`` there.

The kind is open: today ``annotation``; a watchdog refuses a kind that it does not know, in words. Standard library only.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.control import document
from trainvitals.control.document import checked_text, to_rfc3339
from trainvitals.control.records import MAX_NAME, MAX_REASON
from trainvitals.errors import ControlError, InputError

SCHEMA = 1
SCHEMAS = (1,)
ANNOTATION = "annotation"
BREAKER = "breaker"
ACKNOWLEDGE = "acknowledge"
SILENCE = "silence"
BREAKER_MODES = ("off", "dry-run", "armed")
SOURCES = ("ui", "cli", "webhook")
OUTCOMES = ("applied", "refused")
MAX_KIND = 64
MAX_KINDS = 100
#: Of ``data`` as JSON: a note of 2,000 characters in any script, and its rules.
MAX_DATA_BYTES = 32_768
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"([0-9]{{1,19}})-({_ID})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """One request. id: a UUID. issued_at_ns: UTC ns. source: ui, cli or webhook. run: the one that is meant, "" = any.

    data: JSON values, as the kind wants them; only its size is checked here.
    """

    kind: str
    by: str
    source: str
    data: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    id: str = ""
    issued_at_ns: int = 0

    @property
    def name(self) -> str:
        """Its file's name: names in order of time."""
        return f"{self.issued_at_ns}-{self.id}.json"

    def to_document(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "schema": SCHEMA, "id": self.id, "kind": self.kind, "run": self.run, "issued_at": to_rfc3339(self.issued_at_ns),
            "by": self.by, "source": self.source, "data": dict(self.data),
        }  # fmt: skip

    def to_json(self) -> str:
        """One JSON object with a final newline. Raises ``ControlError`` for ``data`` that is no JSON or too long."""
        try:
            text = document.dump(self.to_document())
            size = len(json.dumps(self.data, allow_nan=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise ControlError(f"The data of the request cannot be written as JSON: {error}.") from error
        if size > MAX_DATA_BYTES:
            raise ControlError(f"The request has {size:,} bytes of data; the most is {MAX_DATA_BYTES:,}.")
        return text

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> WatchRequest:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = document.load(text, where, SCHEMAS)
        return cls.from_document(raw, where)

    @classmethod
    def from_document(cls, raw: Mapping[str, Any], where: str, most_bytes: int = MAX_DATA_BYTES) -> WatchRequest:
        """As ``from_json``, of an object that was read. most_bytes: of ``data``."""
        data = raw.get("data", {})
        if not isinstance(data, dict):
            raise document.wrong(where, "data", "an object", data)
        try:
            size = len(json.dumps(data))
        except RecursionError as error:
            raise InputError(f"{where}: data is nested too deeply.") from error
        if size > most_bytes:
            raise InputError(f"{where}: data has {size:,} bytes; the most is {most_bytes:,}.")
        return cls(
            kind=_plain(raw, "kind", where, MAX_KIND),
            by=_plain(raw, "by", where, MAX_NAME),
            source=document.choice(raw, "source", where, SOURCES),
            data=data,
            run=_plain(raw, "run", where, MAX_NAME, may_be_empty=True),
            id=_id(raw, where),
            issued_at_ns=document.time_ns(raw, "issued_at", where) or 0,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the request in the file ``name``. outcome: applied or refused. sentence: for a person.

    request: as it was carried out (secrets masked), None when it could not be read. answered_at_ns: UTC ns.
    """

    name: str
    outcome: str
    sentence: str
    answered_at_ns: int
    request: WatchRequest | None = None

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return document.dump(
            {
                "schema": SCHEMA, "name": self.name, "outcome": self.outcome, "sentence": self.sentence,
                "answered_at": to_rfc3339(self.answered_at_ns),
                "request": None if self.request is None else self.request.to_document(),
            }
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Answer:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = document.load(text, where, SCHEMAS)
        request = raw.get("request")
        if request is not None and not isinstance(request, dict):
            raise document.wrong(where, "request", "an object or null", request)
        return cls(
            name=document.text(raw, "name", where, MAX_NAME),
            outcome=document.choice(raw, "outcome", where, OUTCOMES),
            sentence=document.text(raw, "sentence", where, None),
            answered_at_ns=document.time_ns(raw, "answered_at", where) or 0,
            request=None
            if request is None
            else WatchRequest.from_document(request, where, 2 * MAX_DATA_BYTES),  # a mask may be longer
        )


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who reads the requests here, told by itself every few seconds: the file's age says whether it still does.

    breaker: mode of the circuit breaker that is in force, "" = not told (an older watchdog). breaker_hold: what forbids it to pause now.
    """

    run: str
    kinds: tuple[str, ...]
    host: str = ""
    pid: int = 0
    breaker: str = ""
    breaker_hold: str = ""

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return document.dump(
            {
                "schema": SCHEMA, "run": self.run, "kinds": list(self.kinds), "host": self.host, "pid": self.pid,
                "breaker": self.breaker, "breaker_hold": self.breaker_hold,
            }
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Watcher:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = document.load(text, where, SCHEMAS)
        kinds = raw.get("kinds", [])
        if not isinstance(kinds, list) or len(kinds) > MAX_KINDS or not all(isinstance(kind, str) for kind in kinds):
            raise document.wrong(where, "kinds", f"a list of at most {MAX_KINDS} texts", kinds)
        return cls(
            run=document.text(raw, "run", where, MAX_NAME),
            kinds=tuple(kinds),
            host=document.text(raw, "host", where, None),
            pid=document.count(raw, "pid", where, 0),
            breaker=document.text(raw, "breaker", where, MAX_NAME),
            breaker_hold=document.text(raw, "breaker_hold", where, MAX_REASON),
        )


def new_id() -> str:
    """A UUID that nobody else has."""
    return str(uuid.uuid4())


def name_parts(name: str) -> tuple[int, str] | None:
    """(issued_at_ns, id) of a request's file name; None when it is the name of something else."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), found[2])


def checked_note_text(text: str) -> str:
    """The words of a note; ``ControlError`` when there are none, too many, or characters that are no text."""
    return checked_text("text", text, MAX_REASON)


def checked_breaker_mode(data: Mapping[str, Any]) -> str:
    """The mode that a request of the kind ``breaker`` asks for. Raises ``InputError``."""
    return document.choice(data, "mode", "the request", BREAKER_MODES)


def _plain(raw: Mapping[str, Any], key: str, where: str, longest: int, *, may_be_empty: bool = False) -> str:
    value = document.text(raw, key, where, longest)
    try:
        return checked_text(key, value, longest, may_be_empty=may_be_empty)
    except ControlError as error:
        raise InputError(f"{where}: {error}") from error


def _id(raw: Mapping[str, Any], where: str) -> str:
    value = raw.get("id")
    if not isinstance(value, str) or re.fullmatch(_ID, value, re.ASCII) is None:
        raise document.wrong(where, "id", "a UUID in lower case", value)
    return value
