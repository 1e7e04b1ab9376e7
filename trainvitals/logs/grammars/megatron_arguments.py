"""What Megatron prints of itself before it trains: the block of its arguments, and the line of its parallel layout.

``------------ arguments ------------``, one ``  name ........ value`` a line, ``-------- end of arguments --------``. Rank 0
prints it once a start, so its beginning is the sign of a new start of the trainer, before any step. GPT-NeoX puts
``....default`` or ``....updated`` behind each value. The parser asks this reader for every line of which the format in use
makes no record, because the block comes before the first line by which a format is found.
"""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammar import Record, phase
from trainvitals.logs.grammars.config_dump import config_events, scalar
from trainvitals.records import Event

MAX_ARGUMENTS = 3900
_MAX_CHARACTERS = 256 * 1024
_MAX_VALUE_CHARACTERS = 1000
#: A block that a crash cut off ends after so many lines that are none of its own.
_MAX_OTHER_LINES = 2000

_BEGIN = re.compile(r"-{8,60} arguments -{8,60}", re.ASCII)
_END = re.compile(r"-{8,60} end of arguments -{8,60}", re.ASCII)
_ROW = re.compile(r"\s{0,20}([A-Za-z_]\w{0,200}) (\.{0,80})(?: (.*))?", re.ASCII | re.DOTALL)
#: A name of this length and more has no dots behind it, in one of the two widths that were in use (32 and 48).
_NAME_WITHOUT_DOTS = 32
_ORIGIN = re.compile(r"\.{0,80}(?:default|updated)\Z", re.ASCII)
_LAYOUT = re.compile(r"\busing world size: \d{1,9}\b", re.ASCII)
_SIZE = re.compile(r"([a-z][a-z -]{0,60}?)[ -]size: (\d{1,9})\b", re.ASCII)


class MegatronArguments:
    """State: the rows of a block that has begun, and whether this start was told already.

    Rows beyond 3,900 or 256 KiB are left out, and their number is told as ``config_keys_left_out``.
    """

    def __init__(self) -> None:
        self._rows: dict[str, str] | None = None
        self._characters = 0
        self._others = 0
        self._is_start_told = False
        self._left_out = 0

    def feed(self, line: str) -> list[Record]:
        """Events that this line completes. Never raises, whatever the line is."""
        if self._rows is not None:
            return self._row(line, self._rows)
        if "arguments -" in line:
            return self._begin(line) if _BEGIN.search(line) and not _END.search(line) else []
        if "using world size" in line and (found := _LAYOUT.search(line)) is not None:
            return self._layout(line, found.start())
        return []

    def _begin(self, line: str) -> list[Record]:
        self._rows, self._characters, self._others, self._left_out = {}, 0, 0, 0
        return self._start(line)

    def _start(self, line: str) -> list[Record]:
        if self._is_start_told:
            return []
        self._is_start_told = True
        return [phase("start", "begin", line.strip())]

    def _row(self, line: str, rows: dict[str, str]) -> list[Record]:
        if "arguments -" in line:
            if _END.search(line):
                return self._end(rows)
            if _BEGIN.search(line):
                return self._begin(line)
        found = _ROW.fullmatch(line)
        if found is None or not (found[2] or (found[3] and len(found[1]) >= _NAME_WITHOUT_DOTS)):
            self._others += 1
            if self._others > _MAX_OTHER_LINES:
                self._rows, self._is_start_told = None, False
            return []
        value = (found[3] or "").strip()[:_MAX_VALUE_CHARACTERS]
        self._characters += len(found[1]) + len(value)
        if len(rows) >= MAX_ARGUMENTS or self._characters > _MAX_CHARACTERS:
            self._left_out += 1
        else:
            rows[found[1]] = value
        return []

    def _end(self, rows: dict[str, str]) -> list[Record]:
        self._rows, self._is_start_told = None, False
        if not rows:
            return []
        if all(_ORIGIN.search(value) for value in rows.values()):
            rows = {name: _ORIGIN.sub("", value) for name, value in rows.items()}
        values = {name: scalar(value) for name, value in rows.items()}
        if self._left_out:
            values["config_keys_left_out"] = self._left_out
        return [*config_events(values, f"{len(rows) + self._left_out} arguments of Megatron")]

    def _layout(self, line: str, start: int) -> list[Record]:
        values: dict[str, int] = {}
        for name, size in _SIZE.findall(line[start : start + 1000].removeprefix("using ")):
            words = name.replace("-", " ").split()
            # "context-parallel size: 1 tensor-model-parallel size: 2": one generation forgot a comma.
            values.setdefault("_".join(word for word in words if word != "and") + "_size", int(size))
        data = {"section": "layout", "values": values, "part": 0, "parts": 1}
        return [*self._start(line), Event("metadata", None, text=line.strip()[:500], data=data)]

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "rows": self._rows,
            "characters": self._characters,
            "others": self._others,
            "is_start_told": self._is_start_told,
            "left_out": self._left_out,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._rows = None if state["rows"] is None else dict(state["rows"])
        self._characters, self._others = int(state["characters"]), int(state["others"])
        self._is_start_told, self._left_out = bool(state["is_start_told"]), int(state["left_out"])
