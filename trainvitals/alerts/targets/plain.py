"""Messages as plain text, and what keeps untrusted text from being more than text in a chat."""

from __future__ import annotations

from trainvitals.alerts.words import Message

#: Cannot be seen and joins two characters: "@all" with it names nobody, "<at" with it begins no tag.
_JOINER = "\u2060"
_ELLIPSIS = "…"


def harmless(text: str) -> str:
    """The same to the eye; no mention and no tag to a chat service, whatever it looks for in a text."""
    return text.replace("@", f"@{_JOINER}").replace("<", f"<{_JOINER}")


def as_lines(message: Message, *, with_headline: bool = True) -> list[str]:
    """Headline, one line for each pair, the link last and as it is: a joiner in it would lead nowhere."""
    lines = [harmless(message.headline)] if with_headline else []
    lines += [harmless(f"{label}: {text}" if label else text) for label, text in message.lines]
    return lines


def fit(lines: list[str], link: str, most_bytes: int) -> str:
    """The lines, and the link behind them in whole, in at most so many bytes of UTF-8; whole lines go first, then the last is cut."""
    tail = f"\n{link}" if link and len(link.encode("utf-8")) < most_bytes // 2 else ""
    room = most_bytes - len(tail.encode("utf-8"))
    text = "\n".join(lines)
    if len(text.encode("utf-8")) <= room:
        return text + tail
    kept = list(lines)
    while len(kept) > 1 and len("\n".join([*kept, _ELLIPSIS]).encode("utf-8")) > room:
        kept.pop()
    text = "\n".join([*kept, _ELLIPSIS])
    return cut_bytes(text, room) + tail


def cut_bytes(text: str, most_bytes: int) -> str:
    """At most so many bytes of UTF-8, cut between two characters."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return encoded.decode("utf-8")
    mark = _ELLIPSIS.encode("utf-8")
    return encoded[: max(0, most_bytes - len(mark))].decode("utf-8", "ignore") + _ELLIPSIS
