"""Notices that a log goes on in another trainer's format: logs that were appended, or a new trainer in an old file.

Two formats may be alive side by side in one log (MLPerf lines beside Megatron's, DeepSpeed's beside Hugging Face's). So
one claimed line is no change: it takes ``LINES_TO_CHANGE`` of them with no step of the grammar in use in between, and the
more the more often the log has changed before. A weak grammar gives way to the first line that a strong one claims, and
takes over from a strong one only when ``WEAK_LINES_TO_CHANGE`` of its lines say that the strong one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainvitals.logs.finder import Located, claimant

LINES_TO_CHANGE = 3
WEAK_LINES_TO_CHANGE = 150
#: Each change makes the next one so many times as hard, up to the fourth part of what can be kept.
_GROWTH = 4
_MAX_LINES_TO_CHANGE = 48
MAX_LINES = 200
MAX_CHARACTERS = 64 * 1024


class FormatChanges:
    """State: the lines since the last step from which the grammar in use made no record, each with the one who claimed it.

    At most ``MAX_LINES`` lines and ``MAX_CHARACTERS``: of what goes beyond, lines that nobody claimed are let go first.
    ``dropped_lines`` counts claimed ones that went too.
    """

    def __init__(self, grammars: tuple[type[Any], ...]) -> None:
        self._all = tuple(grammar for grammar in grammars if not grammar.is_document)
        self._among: dict[str, tuple[type[Any], ...]] = {}
        self._lines: list[tuple[int, str, str]] = []
        self._characters = 0
        self._claims: dict[str, int] = {}
        self._changes = 0
        self.dropped_lines = 0

    @property
    def is_pending(self) -> bool:
        """Whether another grammar has claimed a line since the last step."""
        return bool(self._claims)

    def offer(self, line: str, end: int, in_use: type[Any]) -> tuple[type[Any], list[Located]] | None:
        """The grammar to go on with and the lines it must be fed, from its first one on; None: nothing changes."""
        among = self._among.get(in_use.name)
        if among is None:
            among = self._among[in_use.name] = tuple(grammar for grammar in self._all if grammar.name != in_use.name)
        other = claimant(line, among)
        if other is None:
            if self._claims:
                self._keep(end, line, "")
            return None
        name = other.name
        self._keep(end, line, name)
        self._claims[name] = self._claims.get(name, 0) + 1
        is_stronger = in_use.is_weak and not other.is_weak
        if not is_stronger:
            wanted = min(LINES_TO_CHANGE * _GROWTH**self._changes, _MAX_LINES_TO_CHANGE)
            if self._claims[name] < (WEAK_LINES_TO_CHANGE if other.is_weak and not in_use.is_weak else wanted):
                return None
        first = next(index for index, entry in enumerate(self._lines) if entry[2] == name)
        lines = [(place, text) for place, text, _ in self._lines[first:]]
        self._changes += not is_stronger
        self.forget()
        return other, lines

    def forget(self) -> None:
        """The grammar in use lives: it gave a step."""
        self._lines, self._characters, self._claims = [], 0, {}

    def _keep(self, end: int, line: str, name: str) -> None:
        lines = self._lines
        lines.append((end, line, name))
        self._characters += len(line)
        while len(lines) > MAX_LINES or (self._characters > MAX_CHARACTERS and len(lines) > 1):
            index = next((index for index, entry in enumerate(lines[:-1]) if not entry[2]), 0)
            gone = lines.pop(index)
            self._characters -= len(gone[1])
            self.dropped_lines += bool(gone[2])

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "lines": list(self._lines),
            "claims": dict(self._claims),
            "changes": self._changes,
            "dropped_lines": self.dropped_lines,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._lines = [(int(end), str(line), str(name)) for end, line, name in state["lines"]]
        self._characters = sum(len(line) for _, line, _ in self._lines)
        self._claims = {str(name): int(count) for name, count in state["claims"].items()}
        self._changes, self.dropped_lines = int(state["changes"]), int(state["dropped_lines"])
