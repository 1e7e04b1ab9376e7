"""Tells in one pass over a chunk of a log that no line of it can speak of a fault, which nearly always is so.

A search for each of the table's literals in each line would cost as much as reading the line. Without digits, blanks and
signs a trainer's lines are all alike: the few different ones that are left of a chunk are searched, and remembered.
"""

from __future__ import annotations

import re

from trainvitals.logs.faults.reader import Faults

_DROPPED = b"0123456789 .,:+-\t"
_COLOUR = re.compile(rb"\x1b\[[\d;]{0,20}m")
_MAX_KNOWN = 1000


def shape(data: bytes) -> bytes:
    """What is the same in all lines of one kind: ``data`` without digits, blanks and signs."""
    return data.translate(None, _DROPPED)


class FaultScreen:
    """Remembers at most ``_MAX_KNOWN`` kinds of lines; forgetting them costs time only, so this is no state."""

    def __init__(self) -> None:
        self._literals = tuple(Faults.LITERALS)
        self._shapes = tuple(shape(literal.encode()) for literal in self._literals)
        self._known: set[bytes] = set()

    def may_concern(self, line: str) -> bool:
        """Whether the line holds one of the literals."""
        return any(literal in line for literal in self._literals)

    def is_harmless(self, data: bytes) -> bool:
        """True only when ``may_concern`` says no to every line of ``data``, and to each part of one."""
        if b"\x1b" in data:
            data = _COLOUR.sub(b"", data)
            if b"\x1b" in data:
                return False  # some other code, or half of one, may stand in the middle of a word
        new = set(shape(data).split(b"\n")) - self._known
        if not new:
            return True
        text = b"\n".join(new)
        if any(shape in text for shape in self._shapes):
            return False
        if len(self._known) + len(new) > _MAX_KNOWN:
            self._known.clear()
        if len(text) < 1 << 16:
            self._known |= new
        return True
