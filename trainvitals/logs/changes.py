"""Notices that a log goes on in another trainer's format: logs that were appended, or a new trainer in an old file.

Two formats may be alive side by side in one log (MLPerf lines beside Megatron's, DeepSpeed's beside Hugging Face's). So
one claimed line is no change: it takes ``LINES_TO_CHANGE`` of them with no step of the grammar in use in between, and the
more the more often the log has changed before. A weak grammar gives way to the first line that a strong one claims, and
takes over from a strong one only when ``WEAK_LINES_TO_CHANGE`` of its lines say that the strong one has ended.

Lines that only their shape can read (``by_shape``) never claim anything: they take over where the grammar in use tells no loss (DeepSpeed's
lines beside a trainer of one's own), or has ended; and give way to a known trainer's lines though their own go on between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainvitals.logs.finder import Located, claimant
from trainvitals.logs.grammars.by_shape import ByShape, may_read
from trainvitals.logs.times import LineTimes
from trainvitals.records import Step

LINES_TO_CHANGE = 3
WEAK_LINES_TO_CHANGE = 150
#: Each change makes the next one so many times as hard, up to the fourth part of what can be kept.
_GROWTH = 4
_MAX_LINES_TO_CHANGE = 48
#: Steps of ``by_shape`` after which another trainer's few lines are forgotten.
_STEPS_TO_FORGET = 20
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
        self._has_loss = False
        self._is_by_shape = False
        self._steps = 0
        self.dropped_lines = 0

    def offer(self, line: str, end: int, in_use: type[Any]) -> tuple[type[Any], list[Located]] | None:
        """The grammar to go on with and the lines it must be fed, from its first one on; None: nothing changes."""
        among = self._among.get(in_use.name)
        if among is None:
            among = self._among[in_use.name] = tuple(grammar for grammar in self._all if grammar.name != in_use.name)
        other = claimant(line, among)
        self._is_by_shape = in_use is ByShape
        if other is None and not self._is_by_shape and may_read(line) and not in_use.claims(line):
            other = ByShape
        if other is None:
            if self._claims:
                self._keep(end, line, "")
            return None
        name = other.name
        self._keep(end, line, name)
        self._claims[name] = self._claims.get(name, 0) + 1
        self._steps = 0
        is_stronger = in_use.is_weak and not other.is_weak and not self._is_by_shape
        if not is_stronger and self._claims[name] < self._wanted(in_use, other):
            return None
        first = next(index for index, entry in enumerate(self._lines) if entry[2] == name)
        lines = [(place, text) for place, text, _ in self._lines[first:]]
        if other is ByShape and not _gives_steps(text for _, text in lines):
            self._claims[name] = 0
            return None
        self._changes += not is_stronger
        self.forget()
        return other, lines

    def _wanted(self, in_use: type[Any], other: type[Any]) -> int:
        wanted = min(LINES_TO_CHANGE * _GROWTH**self._changes, _MAX_LINES_TO_CHANGE)
        if other is ByShape:
            return WEAK_LINES_TO_CHANGE if self._has_loss else wanted
        return WEAK_LINES_TO_CHANGE if other.is_weak and (self._is_by_shape or not in_use.is_weak) else wanted

    def step_seen(self, step: Step) -> None:
        """The grammar in use lives: it gave a step."""
        self._has_loss = "loss" in step.values or "loss" in step.nonfinite
        if not self._claims:
            return
        if self._is_by_shape:
            self._steps += 1
            if self._steps < _STEPS_TO_FORGET:
                return
        elif not self._has_loss and ByShape.name in self._claims:
            self._claims = {ByShape.name: self._claims[ByShape.name]}
            return
        self.forget()

    def forget(self) -> None:
        """Begin to look anew."""
        self._steps = 0
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
            "in_use": [self._has_loss, self._is_by_shape, self._steps],
            "dropped_lines": self.dropped_lines,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._lines = [(int(end), str(line), str(name)) for end, line, name in state["lines"]]
        self._characters = sum(len(line) for _, line, _ in self._lines)
        self._claims = {str(name): int(count) for name, count in state["claims"].items()}
        self._has_loss, self._is_by_shape, self._steps = state["in_use"]
        self._changes, self.dropped_lines = int(state["changes"]), int(state["dropped_lines"])


def _gives_steps(lines: Iterable[str]) -> bool:
    trial = ByShape(LineTimes())
    return any(isinstance(record, Step) for line in lines for record in trial.feed(line))
