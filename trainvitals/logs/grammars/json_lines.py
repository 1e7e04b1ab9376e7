"""One line as a JSON object; several formats write such lines."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def json_object(line: str) -> dict[str, Any] | None:
    """The object that the line holds; None when it holds none. Bare NaN and Infinity are accepted."""
    try:
        record = json.loads(line)
        if _SURROGATE.search(line):  # half a character can be neither stored nor printed
            record = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
