"""What a message that one incident is over says of the others: it must not read as all-clear. English and Chinese. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainvitals.alerts.notice import Item, Notice
from trainvitals.alerts.text import cut

#: Of the incident that is over, in the headline.
_OVER_CHARACTERS = (200, 40, 24)


def headline_parts(
    notice: Notice, over: str, suffix: str, told: Callable[[Item], str], *, is_chinese: bool
) -> Iterator[tuple[str, str]]:
    """(what is open, what is over) for the lock screen, the longest first; over: the sentence of what is over. suffix: how long it took."""
    rest = len(notice.still_open) - 1
    first = told(notice.still_open[0])
    if rest:
        first += f"，另有 {rest} 项" if is_chinese else f" and {rest} more"
    for limit in _OVER_CHARACTERS:
        short = cut(over, limit)
        yield first, f"已结束：{short}{suffix}" if is_chinese else f"over: {short}{suffix}"
    yield first, ""


def tail(notice: Notice, *, is_chinese: bool) -> str:
    """Behind ``RECOVERED`` when what is left is no emergency; "" = nothing is left."""
    count = len(notice.still_open)
    if not count:
        return ""
    return f"但仍有 {count} 项警告" if is_chinese else f"but still open: {count} warning{'s' if count != 1 else ''}"


def body_line(notice: Notice, told: Callable[[Item], str], since: Callable[[int], str], *, is_chinese: bool) -> str:
    """All of them with the moment they began; "" = nothing is left."""
    if is_chinese:
        return "；".join(f"{told(one)}（自 {since(one.at_ns)} UTC）" for one in notice.still_open)
    return "; ".join(f"{one.verb.value} · {told(one)} (since {since(one.at_ns)} UTC)" for one in notice.still_open)
