"""What a target is: it makes one request of a message, and says of an answer whether the message has arrived."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainvitals.alerts.http import MAX_ANSWER_BYTES, Answer
from trainvitals.alerts.notice import Notice
from trainvitals.alerts.secret import Credentials
from trainvitals.alerts.words import Message

DELIVERED, RETRY, PERMANENT, GONE = "delivered", "retry", "permanent", "gone"
#: What may pass by itself, of the 4xx. RFC 9110 (408), RFC 8470 (425), RFC 6585 (429).
_PASSING = frozenset({408, 425, 429})
#: Characters that are kept of an error.
MAX_ERROR = 250
#: Of an answer that was cut off somewhere: its end may be the beginning of a secret.
_CUT_OFF = 300
#: One code of Feishu stands for "bad request" and for this; the words tell them apart.
_PASSING_WORDS = ("frequency limited", "freq out of limit", "too fast", "too many request", "over limit")


@dataclass(frozen=True, slots=True)
class Letter:
    """One request, ready to send. The address may hold a secret, and so may the body."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """outcome: delivered, retry, permanent, or gone (410: the receiver wants nothing any more). error: one sentence, may hold secrets: it
    is cut only after they were masked, because half a secret is not known as one."""

    outcome: str
    error: str = ""


class Target(Protocol):
    """One kind of receiver."""

    #: Attempts in any minute that the service takes of one receiver.
    per_minute: int
    #: Whether the target needs a secret; a missing one is an error before anything is sent.
    needs_secret: bool

    def letter(self, notice: Notice, message: Message, credentials: Credentials, id: str, now_ns: int) -> Letter:
        """Raises ``SettingsError`` for a secret that cannot be used. ``id`` is the same at each try."""
        ...

    def verdict(self, answer: Answer) -> Verdict:
        """Of an answer, or of what failed on the way to one."""
        ...


def by_status(answer: Answer) -> Verdict:
    """What the status alone says; 2xx is delivered."""
    if answer.error:
        return Verdict(PERMANENT if answer.is_final else RETRY, answer.error)
    status = answer.status
    if 200 <= status < 300:
        return Verdict(DELIVERED)
    said = f"the receiver answered {status}{excerpt(answer.body)}"
    if status == 410:
        return Verdict(GONE, said)
    if 300 <= status < 400:
        return Verdict(
            PERMANENT, f"the receiver answered {status}, a redirect, which is not followed: write the address that it leads to"
        )
    if status in _PASSING or status >= 500:
        return Verdict(RETRY, said)
    return Verdict(PERMANENT, said)


def by_code(answer: Answer, name: str, passing: frozenset[int]) -> Verdict:
    """For services that answer 200 to everything and say in the body, under ``name``, what became of it: 0 is delivered. Some say with
    400 that they are asked too often (Feishu: ccfos/nightingale issue 1437): that passes, too."""
    verdict = by_status(answer)
    is_refusal = verdict.outcome == PERMANENT and not answer.error and 400 <= answer.status < 500
    if verdict.outcome != DELIVERED and not is_refusal:
        return verdict
    try:
        said = json.loads(answer.body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        said = None
    code = said.get(name) if isinstance(said, dict) else None
    if is_refusal:
        words = str(said.get("msg") or said.get("errmsg") or "").lower() if isinstance(said, dict) else ""
        is_asked_less = isinstance(code, int) and (code in passing or any(one in words for one in _PASSING_WORDS))
        return Verdict(RETRY, verdict.error) if is_asked_less else verdict
    if code == 0 and not isinstance(code, bool):
        return verdict
    if isinstance(code, bool) or not isinstance(code, int):
        return Verdict(RETRY, f"the receiver answered 200 without {name}{excerpt(answer.body)}")
    text = answer.body[:500].decode("utf-8", "replace").lower()
    is_passing = code in passing or any(words in text for words in _PASSING_WORDS)
    return Verdict(RETRY if is_passing else PERMANENT, f"the receiver answered {name} {code}{excerpt(answer.body)}")


def shortened(error: str) -> str:
    """As it is kept and shown; its secrets are masked already."""
    return error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 1] + "…"


def excerpt(body: bytes) -> str:
    """``: `` and what a receiver said, on one line; "" when it said nothing."""
    text = " ".join("".join(c if c.isprintable() else " " for c in body.decode("utf-8", "replace")).split())
    if len(body) >= MAX_ANSWER_BYTES:
        text = text[:-_CUT_OFF]
    return f": {text}" if text else ""


def json_body(value: Any) -> bytes:
    """JSON that every receiver reads: ``NaN`` and infinity, which JSON has not, as texts."""
    return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
