"""Finds the format of a log, and keeps the few lines before the first record that its grammar will want to see."""

from __future__ import annotations

from typing import Any

from trainvitals.logs.curve_csv import CurveCsv
from trainvitals.logs.grammar import Grammar
from trainvitals.logs.registry import GRAMMARS
from trainvitals.logs.times import LineTimes

#: Lines that a CSV or a JSON document may take to show what it is.
_HEADER_LINES = 20
_PRELUDE = tuple(dict.fromkeys(literal for grammar in GRAMMARS.values() for literal in grammar.prelude))
_BAR = "%|"
_MAX_KEPT_LINES = 256
_MAX_KEPT_CHARACTERS = 1000


class FormatFinder:
    """State: number of lines seen, and the lines kept (with the offset behind each)."""

    def __init__(self) -> None:
        self._lines = 0
        self._is_csv_possible = True
        self.kept: list[tuple[int, str]] = []

    def find(self, line: str, end: int, times: LineTimes) -> Grammar | None:
        """The grammar that knows this line for its own; None as long as no line can be nothing else."""
        is_comment = line.startswith("#")
        self._lines += not is_comment  # comments above a header may be long
        for grammar in GRAMMARS.values():
            if grammar.is_document and (self._lines > _HEADER_LINES or (grammar is CurveCsv and not self._is_csv_possible)):
                continue
            if grammar.claims(line):
                found: Grammar = grammar(times)
                return found
        self._is_csv_possible = self._is_csv_possible and is_comment
        self._keep(line, end)
        return None

    def _keep(self, line: str, end: int) -> None:
        for literal in _PRELUDE:
            at = line.find(literal)
            if at >= 0:
                break
        else:
            return
        text = line[max(0, at - _MAX_KEPT_CHARACTERS // 2) : at + _MAX_KEPT_CHARACTERS // 2]
        if literal == _BAR and self.kept and _BAR in self.kept[-1][1]:
            self.kept.pop()  # of a moving bar only the newest matters
        elif any(text == known for _, known in self.kept):
            return  # every rank says it
        self.kept.append((end, text))
        del self.kept[:-_MAX_KEPT_LINES]

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"lines": self._lines, "is_csv_possible": self._is_csv_possible, "kept": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._lines, self._is_csv_possible = int(state["lines"]), bool(state["is_csv_possible"])
        self.kept = [(int(end), str(line)) for end, line in state["kept"]]
