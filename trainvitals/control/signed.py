"""A request that goes through the store: its canonical form, its signature, and when it counts. Pure. Standard library only.

Whoever can write to the store can put rows there; only who holds the key can make one that counts. The signature is HMAC-SHA256 (RFC
2104) over the envelope's own bytes, and is looked at before anything in them is. The envelope says for which run it is, until when it
counts, and holds a number that is used once, so a copy of it counts neither for another run, nor later, nor twice.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainvitals.control import document
from trainvitals.control.document import checked_text, to_rfc3339
from trainvitals.control.records import MAX_NAME
from trainvitals.control.requests import MAX_DATA_BYTES, MAX_KIND, SOURCES, WatchRequest, new_id
from trainvitals.errors import ControlError, InputError

SCHEMA = 1
SCHEMAS = (1,)
#: Of the envelope: InfluxDB keeps no longer text.
MAX_BYTES = 60_000
#: What is signed begins with this, so that no other thing that was ever signed with the key is taken for a request.
_PURPOSE = b"trainvitals request 1\n"
_VERSION = "v1="
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
#: No request counts for longer, whatever it says.
MAX_VALID_S = 3600.0
#: How far the clock of whoever asks may be ahead.
MAX_AHEAD_S = 300.0

#: Why a request is refused, by which refusals are counted.
UNREADABLE, UNSIGNED, WRONG_SIGNATURE = "unreadable", "unsigned", "wrong signature"
OTHER_RUN, UNKNOWN_KIND, STALE, FROM_THE_FUTURE, REPLAYED = "other run", "unknown kind", "stale", "from the future", "replayed"
NOT_AN_OPERATOR, NOT_CARRIED_OUT = "not an operator", "not carried out"
REASONS = (
    UNREADABLE, UNSIGNED, WRONG_SIGNATURE, OTHER_RUN, UNKNOWN_KIND, STALE, FROM_THE_FUTURE, REPLAYED, NOT_AN_OPERATOR,
    NOT_CARRIED_OUT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What is signed. id: a UUID. nonce: 128 bits in hexadecimal, used once. by: who asks; is_proven: a login vouches for the name.

    issued_at_ns, expires_at_ns: UTC ns. expected_seq: of the control file as the person saw it, None = does not matter.
    """

    kind: str
    run: str
    by: str
    source: str
    data: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    nonce: str = ""
    issued_at_ns: int = 0
    expires_at_ns: int = 0
    expected_seq: int | None = None
    is_proven: bool = False

    def to_text(self) -> str:
        """Canonical JSON: sorted keys, no spaces, ASCII. Raises ``ControlError`` for ``data`` that is no JSON or too long."""
        try:
            text = json.dumps(
                {
                    "schema": SCHEMA, "id": self.id, "nonce": self.nonce, "run": self.run, "kind": self.kind, "by": self.by,
                    "is_proven": self.is_proven, "source": self.source, "issued_at": to_rfc3339(self.issued_at_ns),
                    "expires_at": to_rfc3339(self.expires_at_ns), "expected_seq": self.expected_seq, "data": dict(self.data),
                },
                sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"),
            )  # fmt: skip
        except (ValueError, TypeError, RecursionError) as error:
            raise ControlError(f"The data of the request cannot be written as JSON: {error}.") from error
        if len(text) > MAX_BYTES:
            raise ControlError(f"The request has {len(text):,} bytes; the most is {MAX_BYTES:,}.")
        return text

    @classmethod
    def from_text(cls, text: str, where: str) -> SignedRequest:
        """Raises ``InputError`` naming the key and what it must be."""
        if len(text) > MAX_BYTES:
            raise InputError(f"{where} has {len(text):,} characters; the most is {MAX_BYTES:,}.")
        raw = document.load(text, where, SCHEMAS)
        nonce, is_proven = raw.get("nonce"), raw.get("is_proven")
        if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
            raise document.wrong(where, "nonce", "32 hexadecimal digits", nonce)
        if not isinstance(is_proven, bool):
            raise document.wrong(where, "is_proven", "true or false", is_proven)
        known = WatchRequest.from_document(raw, where)
        return cls(
            kind=known.kind, run=known.run, by=known.by, source=known.source, data=known.data, id=known.id, nonce=nonce,
            issued_at_ns=known.issued_at_ns, expires_at_ns=document.time_ns(raw, "expires_at", where) or 0,
            expected_seq=document.optional_count(raw, "expected_seq", where), is_proven=is_proven,
        )  # fmt: skip

    @property
    def watch_request(self) -> WatchRequest:
        """The same as it stands in a file of the run directory."""
        return WatchRequest(
            kind=self.kind, by=self.by, source=self.source, data=self.data, run=self.run, id=self.id, issued_at_ns=self.issued_at_ns
        )  # fmt: skip


def new_request(
    *, kind: str, run: str, by: str, source: str, data: Mapping[str, Any], now_ns: int, valid_s: float,
    expected_seq: int | None = None, is_proven: bool = False,
) -> SignedRequest:  # fmt: skip
    """A request of this moment with an id and a nonce of its own. Raises ``ControlError`` for what a person left out."""
    checked_text("kind", kind, MAX_KIND)
    if source not in SOURCES:
        raise ControlError(f"source must be one of {', '.join(SOURCES)}, not {source!r}.")
    if len(json.dumps(dict(data), allow_nan=False)) > MAX_DATA_BYTES:
        raise ControlError(f"The request has too much data; the most is {MAX_DATA_BYTES:,} bytes.")
    return SignedRequest(
        kind=kind, run=checked_text("run", run, MAX_NAME), by=checked_text("by", by, MAX_NAME), source=source, data=data,
        id=new_id(), nonce=os.urandom(16).hex(), issued_at_ns=now_ns,
        expires_at_ns=now_ns + round(min(valid_s, MAX_VALID_S) * 1e9), expected_seq=expected_seq, is_proven=is_proven,
    )  # fmt: skip


def sign(text: str, key: bytes) -> str:
    """``v1=`` and the HMAC-SHA256 of the envelope's bytes in hexadecimal."""
    return _VERSION + hmac.new(key, _PURPOSE + text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def is_signed(text: str, signature: str, keys: Sequence[bytes]) -> bool:
    """Whether one of the keys made this signature of this text. Takes as long for a wrong one as for the right one."""
    given = signature.encode("utf-8", "replace")
    found = [hmac.compare_digest(sign(text, key).encode(), given) for key in keys]
    return any(found)


def read(text: str, signature: str, keys: Sequence[bytes]) -> tuple[SignedRequest | None, str, str]:
    """(the request, "", "") of an envelope whose signature is right, else (None, reason, sentence). Never raises."""
    if not signature:
        return None, UNSIGNED, "it has no signature"
    if not is_signed(text, signature, keys):
        return None, WRONG_SIGNATURE, "its signature was made with none of the keys of this watchdog"
    try:
        return SignedRequest.from_text(text, "the request"), "", ""
    except InputError as error:
        return None, UNREADABLE, str(error).rstrip(".")


def objection(request: SignedRequest, run: str, kinds: Sequence[str], now_ns: int) -> tuple[str, str]:
    """(reason, sentence) why a request whose signature is right does not count here and now; ("", "") when it does."""
    if request.run != run:
        return OTHER_RUN, f"it is for the run {request.run!r}, this is {run!r}"
    if request.kind not in kinds:
        return UNKNOWN_KIND, f"this watchdog knows no requests of the kind {request.kind!r}, only {', '.join(kinds)}"
    ahead_s = (request.issued_at_ns - now_ns) / 1e9
    if ahead_s > MAX_AHEAD_S:
        return FROM_THE_FUTURE, f"it was issued {ahead_s:,.0f} s from now; set the clocks of both hosts"
    valid_s = (request.expires_at_ns - request.issued_at_ns) / 1e9
    if not 0 < valid_s <= MAX_VALID_S:
        return STALE, f"it says that it counts for {valid_s:,.0f} s; the most is {MAX_VALID_S:,.0f}"
    late_s = (now_ns - request.expires_at_ns) / 1e9
    if late_s >= 0:
        return STALE, f"it came {late_s:,.0f} s after its end; look at the run as it is now, then ask again"
    return "", ""
