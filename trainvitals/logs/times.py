"""Times as trainers print them, as UTC nanoseconds. A time that is not written is None, never a guess from the clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.errors import InputError

_SECOND_NS = 1_000_000_000
#: What no time goes on with.
_ENDS = ("", " ", "]")
#: Nanoseconds of a fraction's last digit, by the number of its digits.
_POWERS: tuple[int, ...] = tuple(10 ** (9 - digits) for digits in range(10))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Up to the year 2100: what lies beyond is a damaged record, and would not fit the store's 64 bits much later.
MAX_TIME_NS = 4_102_444_800 * _SECOND_NS
#: ``2026-01-02 03:04:05,123``, ``2026-01-02T03:04:05.123456Z``, ``2026/01/02 03:04:05``
_FULL = re.compile(r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z\b|[+-]\d\d:?\d\d)?", re.ASCII)
#: glog and c10: ``W0407 08:18:54.022000``, ``E102 03:04:05.123456789`` (month without a zero); mmengine: ``01/02 03:04:05``
_NO_YEAR = re.compile(r"(?:\b[IWEF](\d{1,2}?)(\d\d)|(?<![\d/])(\d\d)/(\d\d)) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)


def zone(name: str) -> tzinfo:
    """The time zone of that name, or an ``InputError`` that says what to write."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f'{name!r} is not a known time zone; write for example "UTC" or "Asia/Shanghai".') from error


class LineTimes:
    """Finds the time in a line. Naive times are in ``timezone``; a missing year comes from the file's mtime.

    In the hour that a clock shows twice when summer time ends, the one that is nearer to the time found last counts: ``last_ns``.
    """

    def __init__(self, timezone: str = "UTC", mtime_ns: int | None = None) -> None:
        self._zone = zone(timezone)
        self.mtime_ns = mtime_ns
        self.last_ns: int | None = None
        # Logs say the same minute in the same place many times over: what is around its seconds, and its time.
        self._before, self._behind, self._minute_ns = "\0", "", 0

    def find(self, text: str) -> int | None:
        """The last full time in ``text`` (the nearest to the record), else one without a year; None when there is none."""
        if text.startswith(self._before) and text.endswith(self._behind):
            time_ns = self._in_known_minute(text)
            if time_ns is not None:
                return time_ns
        full = list(_FULL.finditer(text))
        if full:
            found = full[-1]
            year, month, day, hour, minute, second, fraction, offset = found.groups()
            time_ns = self._to_ns((year, month, day, hour, minute, second), fraction, offset)
            if (
                time_ns is not None
                and time_ns > 60 * _SECOND_NS
                and offset is None
                and text[found.end() : found.end() + 1] in _ENDS
            ):
                self._before, self._behind = text[: found.start(6)], text[found.end() :]
                self._minute_ns = time_ns - int(second) * _SECOND_NS - _fraction_ns(fraction)
            return time_ns
        without = _NO_YEAR.search(text)
        if without is None or self.mtime_ns is None:
            return None
        month, day = (without[1], without[2]) if without[1] else (without[3], without[4])
        modified = _EPOCH + timedelta(microseconds=self.mtime_ns // 1000)
        for year_number in (modified.year, modified.year - 1):
            parts = (str(year_number), month, day, without[5], without[6], without[7])
            time_ns = self._to_ns(parts, without[8], None)
            # A log is not written after its own mtime; one day covers time zones.
            if time_ns is not None and time_ns <= self.mtime_ns + 86_400 * _SECOND_NS:
                return time_ns
        return None

    def _in_known_minute(self, text: str) -> int | None:
        """The time, when ``text`` differs from the one before in seconds and their fraction only."""
        seconds = text[len(self._before) : len(text) - len(self._behind)]
        if len(seconds) < 2 or not seconds.isascii() or not seconds[:2].isdigit() or seconds[:2] >= "60":
            return None
        if len(seconds) == 2:
            return self._minute_ns + int(seconds) * _SECOND_NS
        fraction = seconds[3:]
        if seconds[2] not in ".," or not fraction.isdigit() or len(fraction) > 9:
            return None
        return self._minute_ns + int(seconds[:2]) * _SECOND_NS + int(fraction) * _POWERS[len(fraction)]

    def _to_ns(self, parts: tuple[str, ...], fraction: str | None, offset: str | None) -> int | None:
        year, month, day, hour, minute, second = map(int, parts)
        try:
            moment = datetime(year, month, day, hour, minute, second, tzinfo=self._offset(offset))
            time_ns = _since_epoch_ns(moment)
            if offset is None and self._zone is not UTC:
                time_ns = self._nearer(time_ns, _since_epoch_ns(moment.replace(fold=1)))
        except (ValueError, OverflowError):
            return None
        return checked_time_ns(time_ns + _fraction_ns(fraction))

    def _nearer(self, first_ns: int, second_ns: int) -> int:
        # Earlier the second time: the clock was put forward, and no time is there twice.
        if second_ns > first_ns and self.last_ns is not None and abs(second_ns - self.last_ns) < abs(first_ns - self.last_ns):
            first_ns = second_ns
        self.last_ns = first_ns
        return first_ns

    def _offset(self, text: str | None) -> tzinfo:
        if text is None:
            return self._zone
        if text == "Z":
            return UTC
        minutes = int(text[1:3]) * 60 + int(text[-2:])
        return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _since_epoch_ns(moment: datetime) -> int:
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * _SECOND_NS


def _fraction_ns(fraction: str | None) -> int:
    return int(fraction) * _POWERS[len(fraction)] if fraction else 0


def checked_time_ns(value: object) -> int | None:
    """``value`` if it is a plausible time in nanoseconds, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_TIME_NS:
        return value
    return None


def rfc3339(time_ns: int | None) -> str | None:
    """``2026-01-02T03:04:05.123456Z`` in UTC, cut to microseconds; None stays None."""
    if time_ns is None:
        return None
    moment = _EPOCH + timedelta(microseconds=time_ns // 1000)
    return moment.isoformat().replace("+00:00", "Z")
