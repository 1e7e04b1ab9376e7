"""Numbers, sizes and times as people read them. Pure; used by every page, so that the same thing reads the same everywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.incidents.verdict import span as span
from trainvitals.records import NonFinite

UNKNOWN = "–"


def number(value: float | None, nonfinite: NonFinite | None = None) -> str:
    """About four digits: ``2.310``, ``14.20``, ``66,120``, ``2.61 M``, ``3.0e-04``; ``NaN``, ``+Inf``, ``−Inf``; – when unknown."""
    if nonfinite is not None:
        return {"nan": "NaN", "inf": "+Inf", "-inf": "−Inf"}[nonfinite]
    if value is None:
        return UNKNOWN
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e12:
        return f"{value:.3g}"
    for limit, letter in ((1e9, "G"), (1e6, "M")):
        if size >= limit:
            return f"{value / limit:.2f} {letter}"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 10:
        return f"{value:.2f}"
    if size >= 0.01:
        return f"{value:.3f}"
    return f"{value:.1e}"


def step_time(seconds: float | None, nonfinite: NonFinite | None = None) -> str:
    """``12.40 s``, ``0.350 s``, ``4.2 ms``, ``less than 0.1 ms``; a time of 0 is not known."""
    if nonfinite is not None or seconds is None or seconds <= 0:
        return number(None, nonfinite)
    if seconds < 1e-4:
        return "less than 0.1 ms"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{number(seconds)} s"


def step(value: int | None) -> str:
    """``48,310``; – when unknown."""
    return UNKNOWN if value is None else f"{value:,}"


def count(value: int | None) -> str:
    """A small whole number as it is; – when unknown."""
    return UNKNOWN if value is None else str(value)


def size(value: int | None) -> str:
    """``213 GB``, ``1.5 MB``, ``512 B`` (powers of ten, as storage is sold)."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.5 else f"{amount:.3g} {unit}"
        amount /= 1000
    return UNKNOWN


def coarse(seconds: float | None) -> str:
    """Like ``span`` without seconds above a minute: ``9 min``; for ages that nobody reads to the second."""
    return span(seconds) if seconds is None or not 60 <= seconds < 600 else f"{seconds // 60:.0f} min"


#: Longer than anything here was: the time 0 is no time.
NEVER_S = 20 * 365 * 86_400.0


def age(seconds: float | None) -> str:
    """``4 min 12 s ago``; ``never`` when unknown, or since the year that stands for never."""
    return "never" if seconds is None or seconds > NEVER_S else f"{span(seconds)} ago"


def against(value: float | None, usual: float | None) -> str:
    """A value against what is usual: ``usual 2.31``, ``66× usual`` when far from it; empty when nothing is known."""
    if usual is None:
        return ""
    if value is not None and usual > 0 and value >= 5 * usual:
        return f"{value / usual:,.0f}× usual {number(usual)}"
    return f"usual {number(usual)}"


def zone(name: str) -> ZoneInfo:
    """The time zone of that name, UTC when this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def moment(time_ns: int | None, zone_name: str = "UTC", *, now_ns: int | None = None) -> str:
    """``03:12:40 CST · 19:12 UTC``, with the date when it is not today (in that zone); one time only when the zone is UTC."""
    if time_ns is None:
        return UNKNOWN
    local_zone = zone(zone_name)
    local = datetime.fromtimestamp(time_ns // 10**9, local_zone)
    day = ""
    if now_ns is None or datetime.fromtimestamp(now_ns // 10**9, local_zone).date() != local.date():
        day = f"{local:%Y-%m-%d} "
    name = f"{local:%Z}" or zone_name
    if local.utcoffset() == datetime.fromtimestamp(time_ns // 10**9, UTC).utcoffset():
        return f"{day}{local:%H:%M:%S} UTC"
    utc = datetime.fromtimestamp(time_ns // 10**9, UTC)
    utc_day = f"{utc:%m-%d} " if utc.date() != local.date() else ""
    return f"{day}{local:%H:%M:%S} {name} · {utc_day}{utc:%H:%M} UTC"


def zone_note(zone_name: str, now_ns: int) -> str:
    """What a time axis in UTC needs said beside it: ``times in UTC``, ``times in UTC (CST is UTC+8)``."""
    local = datetime.fromtimestamp(now_ns // 10**9, zone(zone_name))
    offset = local.utcoffset()
    if not offset:
        return "times in UTC"
    minutes = round(offset.total_seconds() / 60)
    hours = f"{abs(minutes) // 60}" + (f":{abs(minutes) % 60:02d}" if minutes % 60 else "")
    sign = "+" if minutes > 0 else "−"
    name = f"{local:%Z}"
    label = name if name.isalpha() else zone_name
    return f"times in UTC ({label} is UTC{sign}{hours})"


def clock(time_ns: int | None, zone_name: str = "UTC", *, now_ns: int | None = None) -> str:
    """``02:11`` in the run's zone; with ``now_ns`` the date stands before it when that is more than 20 h ago."""
    if time_ns is None:
        return UNKNOWN
    is_old = now_ns is not None and now_ns - time_ns > 20 * 3600 * 10**9
    return f"{datetime.fromtimestamp(time_ns // 10**9, zone(zone_name)):{'%Y-%m-%d ' if is_old else ''}%H:%M}"
