"""The watchdog's state as it is kept: JSON, compressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

#: What reading and taking up a state that another version wrote may raise.
KEPT_ERRORS = (ValueError, KeyError, TypeError, zlib.error)


def packed(state: Mapping[str, Any] | None) -> bytes:
    """Small, because it is written with every commit."""
    return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)


def was_watched(blob: bytes | None) -> bool:
    """Whether a state, of whatever version, says that the run was seen alive."""
    try:
        return blob is not None and unpacked(blob)["engine"]["_stall"]["_was_live"] is True
    except KEPT_ERRORS:
        return False


def unpacked(blob: bytes) -> Any:
    """What ``packed`` was given."""
    return json.loads(zlib.decompress(blob))
