"""Tells a trainer's line from the same line as text: in a program, in a test of a log reader, in a document."""

from __future__ import annotations

import re

_CODE = re.compile(
    r"""\A(?:[E>]\s)?\s{0,80}(?:[rbuf]{0,2}["']|[\w.]{1,60}\s?=\s?[rbuf]{0,2}["']|(?:print|assert)\b[ (])|\\n["']\s?[,)]{0,2}\Z|\{'[^{}]{1,4000}\},\Z"""
)


def is_code(line: str) -> bool:
    """Whether the line stands in a program: a test of a log reader, a list of losses that somebody copied."""
    return _CODE.search(line) is not None


def is_quoted(line: str) -> bool:
    """Whether the line stands in a program or between backticks: a README or a comment that a log shows."""
    return ("`" in line and not line.startswith("{")) or is_code(line)
