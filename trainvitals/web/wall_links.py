"""The signed links by which the wall opens where nobody can log in: a frame in a wiki. Pure.

A link lets look at one run until it ends, and nothing else: it names no person and gives no right to act. The key is
``base64url(payload) + "." + base64url(HMAC-SHA256)``, without padding. Links may be seen by many: they end, and each can be revoked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any

VERSION = 1
#: What can be shown, in the order in which it stands on the wall.
SHOWS = ("verdict", "curves", "nodes", "checkpoints")
#: Longest key that is looked at: a run's name may take 128 characters of any script.
MAX_KEY = 2048
MAX_RUN = 512
#: Other signatures made with the same secret say nothing here.
_PURPOSE = b"trainvitals wall link v1\n"
_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9_-]{1,2048}", re.ASCII)


@dataclass(frozen=True)
class WallLink:
    """id: 12 hex digits, by which it is revoked. expires_s: UTC seconds. shows: what it may show, empty = everything."""

    id: str
    run: str
    expires_s: int
    shows: tuple[str, ...] = ()


def is_id(text: str) -> bool:
    """Whether this could be the id of a link."""
    return _ID.fullmatch(text) is not None


def sign(link: WallLink, secret: bytes) -> str:
    """The key of a link. Raises ``ValueError`` for one that ``read`` would refuse."""
    payload: dict[str, Any] = {"v": VERSION, "id": link.id, "run": link.run, "exp": link.expires_s}
    if link.shows:
        payload["show"] = list(link.shows)
    text = json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")
    key = f"{_encoded(text)}.{_encoded(_signature(text, secret))}"
    if read(key, secret) != link:
        raise ValueError(f"no link can be made for {link.run[:60]!r}")
    return key


def read(key: str, secret: bytes) -> WallLink | None:
    """The link of a key; None for one that this secret did not sign, whatever it holds. Looks into it only after that."""
    if len(key) > MAX_KEY:
        return None
    head, dot, tail = key.partition(".")
    text, told = _decoded(head), _decoded(tail)
    if not dot or text is None or told is None or not hmac.compare_digest(told, _signature(text, secret)):
        return None
    try:
        return _link(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _link(payload: Any) -> WallLink | None:
    if not isinstance(payload, dict) or payload.get("v") != VERSION:
        return None
    id, run, expires_s, shows = (payload.get(name) for name in ("id", "run", "exp", "show"))
    if not isinstance(id, str) or not is_id(id) or not isinstance(run, str) or not 0 < len(run) <= MAX_RUN:
        return None
    if not isinstance(expires_s, int) or isinstance(expires_s, bool):
        return None
    if shows is not None and not (
        isinstance(shows, list) and shows and all(isinstance(one, str) and one in SHOWS for one in shows)
    ):
        return None
    return WallLink(id, run, expires_s, tuple(shows or ()))


def _signature(text: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, _PURPOSE + text, hashlib.sha256).digest()


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decoded(text: str) -> bytes | None:
    """None for what is no base64url, or would be written in another way by ``_encoded``: one link has one key."""
    if _PART.fullmatch(text) is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return raw if _encoded(raw) == text else None
