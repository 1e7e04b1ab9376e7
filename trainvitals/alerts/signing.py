"""Signatures of messages: pure functions of secret, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import quote

from trainvitals.alerts.secret import Secret
from trainvitals.errors import SettingsError

_PREFIX = "whsec_"
#: standard-webhooks, spec/standard-webhooks.md: between 24 and 64 bytes.
KEY_BYTES = (24, 64)


def standard_webhooks(secrets: Sequence[Secret], id: str, timestamp_s: int, body: bytes) -> str:
    """The header ``webhook-signature``: one ``v1,…`` for each secret, so that a receiver may change over at any time
    (standard-webhooks, spec/standard-webhooks.md). Raises ``SettingsError`` for a secret that is none."""
    signed = f"{id}.{timestamp_s}.".encode("ascii") + body
    return " ".join(
        "v1," + base64.b64encode(hmac.new(webhook_key(secret), signed, hashlib.sha256).digest()).decode("ascii")
        for secret in secrets
    )


def webhook_key(secret: Secret) -> bytes:
    """The key of ``whsec_`` and base64 of 24 to 64 bytes. Raises ``SettingsError`` without showing it."""
    try:
        key = base64.b64decode(secret.reveal().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise SettingsError(
            f"A secret of a webhook must be {_PREFIX} and base64 of {KEY_BYTES[0]} to {KEY_BYTES[1]} random bytes; make one with "
            "`python3 -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"`."
        )
    return key


def feishu(secret: Secret, timestamp_s: int) -> str:
    """``sign`` in the body of a message to Feishu or Lark, valid for an hour: the key is the text, the message is empty
    (go-gitea/gitea pull 34802)."""
    key = f"{timestamp_s}\n{secret.reveal()}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode("ascii")


def dingtalk(secret: Secret, timestamp_ms: int) -> str:
    """``sign`` in the query of a DingTalk address, percent-encoded already: encoded once more it is refused
    (wowiwj/ding-notice issue 11)."""
    message = f"{timestamp_ms}\n{secret.reveal()}".encode()
    digest = hmac.new(secret.reveal().encode(), message, hashlib.sha256).digest()
    return quote(base64.b64encode(digest).decode("ascii"), safe="")
