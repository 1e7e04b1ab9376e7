"""What a watchdog has to commit next, and the form in which its state is kept."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainvitals.records import Point


@dataclass
class Pending:
    """What the next commit writes; announcements are said once it is written."""

    points: list[Point] = field(default_factory=list)
    announcements: list[str] = field(default_factory=list)
    changed: bool = False


def packed(state: Mapping[str, Any] | None) -> bytes:
    """JSON, compressed: thousands of checkpoints are megabytes."""
    return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)


def unpacked(blob: bytes) -> Any:
    """The inverse of ``packed``. Raises ``ValueError`` or ``zlib.error``."""
    return json.loads(zlib.decompress(blob))
