"""JSON documents that stand on one long line, broken into the lines a pretty printer would have made, with flat memory.

``trainer_state.json`` and Megatron-LM's golden values are read line by line; written compactly they are one line beyond the framer's cap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from trainvitals.logs.framing import MAX_LINE_BYTES

_MARK = re.compile(rb'[\\"{}\[\],]')
_DOCUMENT = re.compile(rb'"(?:log_history|start_step)"\s{0,9}:')
_OPEN = frozenset(b"{[")
_CLOSE = frozenset(b"}]")
_COMMA = ord(",")
_MAX_DEPTH = 32


def is_long_document(first: bytes) -> bool:
    """Whether the bytes begin a document of one of these kinds whose first line is longer than the framer keeps."""
    head = first[:MAX_LINE_BYTES]
    return (
        len(head) == MAX_LINE_BYTES
        and head.lstrip()[:1] == b"{"
        and b"\n" not in head.strip()
        and _DOCUMENT.search(head) is not None
    )


def broken_into_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same document with a line end behind each opening bracket and comma and before each closing bracket.

    What lies deeper than any of these documents reaches stays on one line: brackets alone would be a line a byte.
    """
    is_text = is_escaped = False
    depth = 0
    for chunk in chunks:
        parts: list[bytes] = []
        start = 0
        if is_escaped:
            is_escaped, start = False, 1
            parts.append(chunk[:1])
        for found in _MARK.finditer(chunk, start):
            at, mark = found.start(), chunk[found.start()]
            if at < start:
                continue  # what was escaped
            if is_text:
                if mark == 0x22:
                    is_text = False
                elif mark == 0x5C:
                    is_escaped = at + 1 >= len(chunk)
                    parts.append(chunk[start : at + 2])
                    start = at + 2
            elif mark == 0x22:
                is_text = True
            else:
                depth += 0 if mark == _COMMA else 1 if mark in _OPEN else -1
                if depth > _MAX_DEPTH:
                    continue
                is_close = mark in _CLOSE
                parts.append(chunk[start:at] + b"\n" + chunk[at : at + 1] if is_close else chunk[start : at + 1] + b"\n")
                start = at + 1
        parts.append(chunk[start:])
        yield b"".join(parts)
