"""The part of a curve that an address names: ``from`` and ``to``, as steps or as times. Read leniently, written one way."""

from __future__ import annotations

import re
from datetime import UTC, datetime

RANGES: dict[str, float] = {"15m": 900.0, "30m": 1800.0, "6h": 6 * 3600.0, "24h": 86400.0, "run": 0.0}
_STEP = re.compile(r"[0-9]{1,15}")
_ATTEMPT = re.compile(r"[0-9]{1,9}")
_EPOCH = re.compile(r"[0-9]{1,19}")


def read(by: str, first: str | None, last: str | None) -> tuple[int | None, int | None] | None:
    """(start, end) in steps or UTC ns, each None when not named; None when nothing usable is named."""
    start, end = _one(by, first), _one(by, last)
    if start is None and end is None:
        return None
    if start is not None and end is not None and start > end:
        start, end = end, start
    return start, end


def _one(by: str, text: str | None) -> int | None:
    if not text:
        return None
    if by == "step":
        return int(text) if _STEP.fullmatch(text) else None
    if _EPOCH.fullmatch(text):  # seconds, milliseconds or nanoseconds since the epoch, by size
        number = int(text)
        return number * (10**9 if number < 10**11 else 10**6 if number < 10**14 else 1)
    try:
        parsed = datetime.fromisoformat(text)
        whole = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        return round(whole.timestamp()) * 10**9
    except (ValueError, OverflowError, OSError):
        return None


def attempt(text: str | None) -> int | None:
    """The number of a start that an address names; None when it names none."""
    return int(text) if text and _ATTEMPT.fullmatch(text) else None


def write(by: str, start: int, end: int) -> dict[str, str]:
    """Query parameters ``by``, ``from`` and ``to``: steps, or UTC times to the second."""
    if by == "step":
        return {"by": "step", "from": str(start), "to": str(end)}
    return {"by": "time", "from": _time(start), "to": _time(end)}


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_chart(by: str, shown: tuple[float, float]) -> tuple[int, int]:
    """What a chart shows (steps, or UTC milliseconds) as (start, end) of a query (steps, or UTC ns), widened to whole ones."""
    unit = 1 if by == "step" else 10**6
    start = max(0, int(shown[0] // 1) * unit)
    return start, max(start + unit, (int(shown[1] // 1) + 1) * unit)


def around(first_step: int, last_step: int | None) -> tuple[int, int]:
    """Steps worth seeing around an incident: as much before it as it is long, and no less than 200."""
    last = last_step if last_step is not None else first_step + 200
    air = max(200, last - first_step)
    return max(0, first_step - air), last + air
