"""Quiet hours by the wall clock of a time zone, over changes of summer time. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from trainvitals.settings_alerts import TargetSettings, quiet_minutes

#: When what happened in a day is summed up for a target without quiet hours: minutes after midnight.
MORNING_MINUTES = 9 * 60


def is_quiet(target: TargetSettings, wall_ns: int) -> bool:
    """Whether what is not critical waits now. The hours may go over midnight; what the clock says counts, so in the night of a change
    they are an hour longer or shorter, and an hour that comes twice is quiet twice."""
    span = quiet_minutes(target.quiet_hours)
    if span is None:
        return False
    start, end = span
    local = _local(target, wall_ns)
    minute = local.hour * 60 + local.minute
    return start <= minute < end if start < end else minute >= start or minute < end


def held_until(target: TargetSettings, wall_ns: int) -> str:
    """``07:00 (Asia/Shanghai)`` while what is not critical waits, which the watchdogs keep and no outbox knows; "" when nothing waits."""
    span = quiet_minutes(target.quiet_hours)
    if span is None or not is_quiet(target, wall_ns):
        return ""
    return f"{span[1] // 60 % 24:02d}:{span[1] % 60:02d} ({target.quiet_timezone})"


def day(target: TargetSettings, wall_ns: int) -> str:
    """The day that a summary belongs to: it changes at the end of the quiet hours, without them at nine in the morning."""
    span = quiet_minutes(target.quiet_hours)
    local = _local(target, wall_ns).replace(tzinfo=None)
    return (local - timedelta(minutes=span[1] if span is not None else MORNING_MINUTES)).date().isoformat()


def _local(target: TargetSettings, wall_ns: int) -> datetime:
    return datetime.fromtimestamp(max(0, wall_ns) // 10**9, UTC).astimezone(ZoneInfo(target.quiet_timezone))
