"""Reading and writing the small JSON documents of the control directory: each check names the file, the key and what it must be.

Times in the files are RFC 3339 UTC with nanoseconds, so that people can read them; in the records they are UTC ns.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from trainvitals.errors import ControlError, InputError

MAX_COUNTER = 2**63 - 1
#: Texts that may have lines.
PROSE = ("reason", "text")
_MISSING = {"by": "who asks", "reason": "why", "text": "in a few words what there is to know"}
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


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


def dump(document: Mapping[str, Any]) -> str:
    """One JSON object with a final newline, in ASCII."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n"


def load(text: str | bytes, where: str, schemas: tuple[int, ...]) -> Mapping[str, Any]:
    """The object in ``text``. ``InputError`` when it is none, or of a schema that is not among ``schemas``."""
    if not text.strip():
        raise InputError(f"{where} is empty.")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON ({error}); it may be half written.") from error
    if not isinstance(raw, dict):
        raise InputError(f"{where} must hold one JSON object, not {type(raw).__name__}.")
    schema = raw.get("schema")
    if isinstance(schema, bool) or schema not in schemas:
        known = ", ".join(map(str, schemas))
        raise InputError(f"{where} has schema {shown(schema)}, this version understands {known}; update the older side.")
    return raw


def shown(value: object) -> str:
    """A value from outside, short enough for a sentence."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a very large number"
    return text if len(text) <= 60 else text[:57] + "..."


def wrong(where: str, key: str, wanted: str, value: object) -> InputError:
    """What is raised for a value that is not what it must be."""
    return InputError(f"{where}: {key} must be {wanted}, not {shown(value)}.")


def text(raw: Mapping[str, Any], key: str, where: str, longest: int | None) -> str:
    """Text, empty when it is not there."""
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or (longest is not None and len(value) > longest):
        raise wrong(where, key, "text" if longest is None else f"text of at most {longest} characters", value)
    return value


def count(raw: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    """A whole number from 0 to ``MAX_COUNTER``."""
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNTER:
        raise wrong(where, key, "a whole number, 0 or more", value)
    return value


def optional_count(raw: Mapping[str, Any], key: str, where: str) -> int | None:
    """As ``count``; None when it is not there."""
    return None if raw.get(key) is None else count(raw, key, where)


def optional_flag(raw: Mapping[str, Any], key: str, where: str) -> bool | None:
    """True or false; None when it is not there."""
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong(where, key, "true, false or null", value)
    return value


def choice(raw: Mapping[str, Any], key: str, where: str, choices: tuple[str, ...], default: str | None = None) -> str:
    """One of ``choices``."""
    value = raw.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise wrong(where, key, "one of " + ", ".join(choices), value)
    return value


def time_ns(raw: Mapping[str, Any], key: str, where: str) -> int | None:
    """UTC ns; None when it is not there."""
    value = raw.get(key)
    if value is None:
        return None
    try:
        return from_rfc3339(value)
    except (TypeError, ValueError) as error:
        raise wrong(where, key, 'a UTC time such as "2026-01-02T03:04:05Z"', value) from error


def checked_text(name: str, value: str, longest: int, *, may_be_empty: bool = False) -> str:
    """What a person wrote, without space around it; ``ControlError`` when it is missing, too long, or no plain text."""
    text = value.strip()
    if not text and not may_be_empty:
        raise ControlError(f"{name} is missing: say {_MISSING.get(name, name)}.")
    if len(text) > longest:
        raise ControlError(f"{name} has {len(text)} characters; the longest allowed is {longest}.")
    if not text.isprintable() and not (name in PROSE and all(c.isprintable() or c in "\n\t" for c in text)):
        raise ControlError(f"{name} holds control characters; write plain text.")
    return text
