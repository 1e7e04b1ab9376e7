"""Logs that are found and grow, and tell no step: that must not read as "waiting for the first step"."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.logs.registry import GRAMMARS

#: A trainer prints so much before its first step; less says nothing.
LEAST_LINES = 50
_STEPS = (1, 2, 5)
NEXT_STEP = (
    "If the trainer already trains, write a [formats.NAME] table for its lines (docs/formats.md) and start watch again: "
    "the lines that are there are read then, too"
)


def unread_words(logs: Sequence[tuple[str, int, str | None]]) -> str:
    """A sentence; "" when there is nothing to say. logs: (path, lines read, format if one was found) of those without a step.

    The number of lines is rounded down to 1, 2 or 5 of its power of ten: it is told again when there are many more, not at each line.
    """
    lines = sum(count for _, count, _ in logs)
    if lines < LEAST_LINES:
        return ""
    path, _, format = max(logs, key=lambda one: one[1])
    where = path if len(logs) == 1 else f"{len(logs):,} files, most of them in {path}"
    read = f"read as {format}" if format else "in no format that is known"
    return f"log found, more than {_rounded(lines):,} lines read and no step in them: {where}, {read}. {NEXT_STEP}"


def _rounded(lines: int) -> int:
    power: int = 10 ** (len(str(lines)) - 1)
    return max(step * power for step in _STEPS if step * power <= lines)


def reading_digest(format: str, custom: Mapping[str, type[Any]]) -> str:
    """Changes when lines may be read in another way than before: another format is set, one was added, or a pattern was changed."""
    patterns = {name: str(getattr(getattr(grammar, "pattern", None), "pattern", "")) for name, grammar in custom.items()}
    told = "\n".join((format, *GRAMMARS, *(f"{name} {pattern}" for name, pattern in patterns.items())))
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]
