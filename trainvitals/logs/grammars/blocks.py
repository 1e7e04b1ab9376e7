"""What grammars of records over several lines share: a header opens a record, its lines fill it, anything else closes it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from trainvitals.logs.grammar import LineByLine, Record
from trainvitals.logs.grammars.cells import Names, metrics_of, parse_large_number
from trainvitals.records import Step

#: Lines of one record that are kept; the rest is left out.
MAX_LINES = 300
#: Characters of a header that are compared with what stands before the lines of its record.
_HEAD = 160
_DIGIT = re.compile(r"\d", re.ASCII)


class BlockByBlock(LineByLine, ABC):
    """State: the record that is open, if any, and how its header began. A record that is silent for some seconds is given out as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Any] | None = None
        self._head = ""

    def idle(self) -> list[Record]:
        """The record that is open: nothing more came for some seconds."""
        return self.close()

    def finish(self) -> list[Record]:
        """The record that is open: the file ends."""
        return self.close()

    def begin(self, step: int | None, time_ns: int | None, header: str = "") -> list[Record]:
        """Open a record, which ends the one before; ``step`` None: its lines will tell; ``header``: the line that opens it.

        The same step again is another rank's header between the lines of the first: one record.
        """
        if self._open is not None and step is not None and self._open["step"] == step:
            return []
        records = self.close()
        self._open = {"step": step, "time_ns": time_ns, "pairs": []}
        self._head = _DIGIT.sub("0", header[:_HEAD])
        return records

    def is_inside(self, before: str) -> bool:
        """Whether a line that has ``before`` in front is one of a record's: nothing, or what stands before the last header too.

        Log services put a time or a name before each line; the digits of a time may differ.
        """
        before = before.rstrip()
        return not before or (len(before) < _HEAD and self._head.startswith(_DIGIT.sub("0", before)))

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def put(self, key: str, value: str) -> None:
        """A line of the open record."""
        if self._open is not None and len(self._open["pairs"]) < MAX_LINES:
            self._open["pairs"].append([key, value])

    def close(self) -> list[Record]:
        """End the open record. One whose step nobody told counts as bad."""
        if self._open is None:
            return []
        opened, self._open = self._open, None
        pairs: dict[str, str] = dict(reversed(opened["pairs"]))
        step = self.step_of(opened["step"], pairs)
        if step is None:
            self.bad_records += 1
            return []
        metrics = metrics_of(opened["pairs"], self.names(pairs), parse_large_number)
        return [Step(step, 0, opened["time_ns"], metrics.values, metrics.nonfinite)]

    def step_of(self, step: int | None, pairs: dict[str, str]) -> int | None:
        """The record's step, from its header and its lines."""
        return step

    @abstractmethod
    def names(self, pairs: dict[str, str]) -> Names:
        """The schema's names for those of the record's lines."""

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"bad_records": self.bad_records, "open": self._open, "head": self._head}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken."""
        super().restore(state)
        opened = state["open"]
        self._open = {**opened, "pairs": [list(pair) for pair in opened["pairs"]]} if opened is not None else None
        self._head = state["head"]
