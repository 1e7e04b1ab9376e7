"""Bytes of a log into text pieces: line ends, terminal codes, launcher prefixes, torn and overlong lines.

A piece ends at ``\\n`` or ``\\r``: progress bars write ``\\r`` and the next logger goes on in the same physical line. Where the
``\\r`` were lost, a piece ends where the next bar begins.
"""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.bars import MARK, last_boundary, split_bars

#: Bytes kept of one line; the rest is dropped and the line counted.
MAX_LINE_BYTES = 64 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"[\r\n]")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# A bare number before a colon or in brackets is a prefix only when no number but a bar's follows: "1: 2" is somebody's data.
_WORDS_FOLLOW = r"(?=\s*(?:[^\s\d.+-]|\d{1,3}%[| ]))"
_PREFIX = re.compile(
    r"""(?:
      \[(?:
        (?:default|rank)\d{1,7}\]:[ ]?               # torchrun --tee, newer torch
      | [A-Za-z][\w.-]{0,80}:\d{1,7}\]:[ ]?          # [node12:3]:
      | \d{1,4},(?:mpirank:)?\d{1,7}(?:,[\w.-]{1,80})?\]<std(?:out|err|diag)>:[ ]?  # mpirun --tag-output, SageMaker
      | pod/[\w./-]{1,200}\][ ]                     # kubectl logs --prefix
      | \d{1,7}\][ ]WORDS                           # line numbers of a log viewer
      )
    | [ ]{0,6}\d{1,7}:[ ]WORDS                       # srun -l
    | (?!(?:step|iter|iteration|epoch|batch|loss|layer|level|update)[.\d-]*:)
      [A-Za-z][A-Za-z.-]*\d[A-Za-z0-9.-]{0,80}:[ ]WORDS  # DeepSpeed pdsh: gpu250, node-r7i4n5
    | \([\w.-]{1,80}(?:\([\w.-]{1,80}\))?[ ]pid=\d{1,9}(?:,[ ]ip=[\w.:-]{1,60})?\)[ ]  # Ray
    | (?!(?:step|iter|iteration|epoch|batch|loss|layer|level|update)-)
      [A-Za-z][\w.-]{0,80}-\d{1,4}[ ]{1,40}\|[ ]     # docker compose
    | \d\d:\d\d:\d\d\.\d{3}[ ]                       # ts
    )""".replace("WORDS", _WORDS_FOLLOW),
    re.VERBOSE | re.ASCII,
)
_MAX_PREFIXES = 6
_NO_ORIGIN = re.compile(r"\[\d{1,7}\][ ]|\d\d:\d\d:\d\d\.\d{3}[ ]", re.ASCII)


#: Byte offset just behind the line end, text without noise, launcher prefixes that stood before it ("" mostly).
Piece = tuple[int, str, str]


def split_noise(text: str) -> tuple[str, str]:
    """Text without terminal codes and launcher prefixes, and those prefixes (which name ranks and hosts); inner blanks stay."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    start = 0
    for _ in range(_MAX_PREFIXES):
        found = _PREFIX.match(text, start)
        if found is None:
            break
        start = found.end()
    return (text[start:], text[:start]) if start else (text, "")


def strip_noise(text: str) -> str:
    """``text`` without terminal codes and launcher prefixes."""
    return split_noise(text)[0]


def origin_of(prefix: str) -> str:
    """What of a launcher's prefixes names a rank, host or process: without times and a viewer's line numbers."""
    return _NO_ORIGIN.sub("", prefix).strip()


class LineFramer:
    """Feed bytes in any chunks, take whole pieces out. Empty pieces are left out.

    ``capped_lines`` counts lines longer than ``MAX_LINE_BYTES``. Memory is bounded by that length.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._is_overlong = False
        self._offset = 0
        self.capped_lines = 0

    @property
    def offset(self) -> int:
        """Bytes fed since the start or the last ``discard``."""
        return self._offset

    @property
    def has_torn_line(self) -> bool:
        return bool(self._pending)

    def feed(self, data: bytes) -> list[str]:
        """The pieces that ``data`` completes."""
        return [text for _, text, _ in self.feed_located(data)]

    def feed_located(self, data: bytes) -> list[Piece]:
        """As ``feed``, each piece with its place and its prefix."""
        pieces: list[Piece] = []
        base = self._offset
        self._offset = base + len(data)
        start = 0
        if self._pending:
            found = _LINE_END.search(data)
            if found is None:
                self._keep(data, self._offset, pieces)
                return pieces
            start = found.end()
            self._keep(data[: found.start()], base + start - 1, pieces)
            self._take(base + start, pieces)
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if end >= start:
            self._whole_lines(data[start:end], base + start, pieces)
            start = end + 1
        if start < len(data):
            self._keep(data[start:], self._offset, pieces)
        return pieces

    def _whole_lines(self, body: bytes, offset: int, pieces: list[Piece]) -> None:
        """``body``: lines with their ends between them, but none behind the last one."""
        is_noisy = b"\x1b" in body or b"\0" in body or (b"\xef" in body and _BYTE_ORDER_MARK in body)
        has_bars = b"%" in body and MARK in body  # one byte is found ten times as fast as two
        match = _PREFIX.match
        # One pass over the chunk is several times as fast as one a line; a \r is as long as a \n, so places stay.
        for raw in body.replace(b"\r", b"\n").split(b"\n"):
            offset += len(raw) + 1
            if not raw:
                continue
            if len(raw) > MAX_LINE_BYTES or (has_bars and raw.count(MARK) > 1):
                self._keep(raw, offset - 1, pieces)
                self._take(offset, pieces)
                continue
            if is_noisy:
                text, prefix = _clean(raw)
            else:
                text, prefix = raw.decode("utf-8", "replace"), ""
                if match(text) is not None:
                    text, prefix = split_noise(text)
                text = text.rstrip()
            if text:
                pieces.append((offset, text, prefix))

    def finish(self) -> list[Piece]:
        """The torn last line as it is; call it when nothing more will come."""
        pieces: list[Piece] = []
        if self._pending:
            self._take(self._offset, pieces)
        return pieces

    def discard(self) -> bool:
        """Forget a torn line and count offsets from 0 again: another file begins. True when there was one."""
        was_torn = bool(self._pending)
        self._pending.clear()
        self._is_overlong = False
        self._offset = 0
        return was_torn

    def _keep(self, data: bytes, end: int, pieces: list[Piece]) -> None:
        """``end``: the place behind ``data``. A line of bars may be longer than any cap: it is given out as it grows."""
        if not self._pending:
            data = data.lstrip(b"\0")  # the hole of a truncated log may be longer than any line
        while True:
            room = MAX_LINE_BYTES - len(self._pending)
            self._pending += data[:room]
            data = data[room:]
            if not data or self._is_overlong:
                return
            boundary = last_boundary(self._pending)
            if boundary == 0:
                self._is_overlong = True
                self.capped_lines += 1
                return
            self._give_out(bytes(self._pending[:boundary]), end - len(data) - len(self._pending), pieces)
            del self._pending[:boundary]

    def _take(self, end: int, pieces: list[Piece]) -> None:
        """The line is complete; ``end``: the place behind its end."""
        raw = bytes(self._pending)
        self._pending.clear()
        self._is_overlong = False
        before = len(pieces)
        self._give_out(raw, end - 1 - len(raw), pieces)
        if len(pieces) > before:
            pieces[-1] = (end, *pieces[-1][1:])

    def _give_out(self, raw: bytes, start: int, pieces: list[Piece]) -> None:
        line_prefix = ""
        for part in split_bars(raw):
            start += len(part)
            text, prefix = _clean(part)
            line_prefix = prefix or line_prefix
            if text:
                pieces.append((start, text, line_prefix))

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "pending": self._pending.decode("latin-1"),
            "is_overlong": self._is_overlong,
            "offset": self._offset,
            "capped_lines": self.capped_lines,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._pending = bytearray(str(state["pending"]).encode("latin-1"))
        self._is_overlong = bool(state["is_overlong"])
        self._offset = int(state["offset"])
        self.capped_lines = int(state["capped_lines"])


def _clean(raw: bytes) -> tuple[str, str]:
    # A log truncated under a writer that does not append gets a hole: NUL bytes up to the old position.
    text = raw.decode("utf-8", "replace").strip("\0").removeprefix("\ufeff")
    text, prefix = split_noise(text)
    return text.rstrip(), prefix
