"""Finds the format of a log, and keeps the few lines before the first record that its grammar will want to see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainvitals.logs.quoted import is_code
from trainvitals.logs.registry import GRAMMARS

#: Lines that a CSV or a JSON document may take to show what it is.
_HEADER_LINES = 20
_BAR = "%|"
_MAX_KEPT_LINES = 256
_MAX_KEPT_CHARACTERS = 1000

#: (end, line): the byte offset just behind a line, and its text.
Located = tuple[int, str]


def claimant(line: str, grammars: Iterable[type[Any]]) -> type[Any] | None:
    """The first of ``grammars`` that knows ``line`` for its own; its literals are asked before it, because that is fast.

    What stands between backticks is a document that speaks of such a line: a README or a comment that a log shows.
    So is what stands between quotation marks.
    """
    if "`" in line and not line.startswith("{"):
        return None
    for grammar in grammars:
        literals = grammar.literals
        if literals:
            for literal in literals:
                if literal in line:
                    break
            else:
                continue
        if grammar.claims(line):
            return grammar if grammar.is_document or not is_code(line) else None
    return None


class Prelude:
    """State: the lines kept, each with the offset behind it.

    Of a moving bar only the newest is kept, and what every rank says only once.
    """

    def __init__(self, grammars: Iterable[type[Any]]) -> None:
        self._literals = tuple(dict.fromkeys(literal for grammar in grammars for literal in grammar.prelude))
        self.kept: list[Located] = []

    def look(self, line: str, end: int) -> None:
        """Keep ``line`` if a grammar may want it."""
        for literal in self._literals:
            if literal in line:
                break
        else:
            return
        at = line.find(literal)
        text = line[max(0, at - _MAX_KEPT_CHARACTERS // 2) : at + _MAX_KEPT_CHARACTERS // 2]
        if literal == _BAR and self.kept and _BAR in self.kept[-1][1]:
            self.kept.pop()
        elif any(text == known for _, known in self.kept):
            return
        self.kept.append((end, text))
        del self.kept[:-_MAX_KEPT_LINES]

    def take(self) -> list[Located]:
        """The lines kept; none are from now on."""
        kept, self.kept = self.kept, []
        return kept

    def to_state(self) -> list[Located]:
        """JSON values only."""
        return list(self.kept)

    def restore(self, state: Iterable[Iterable[Any]]) -> None:
        """Continue where ``to_state`` was taken."""
        self.kept = [(int(end), str(line)) for end, line in state]


class FormatFinder:
    """State: number of lines seen, and whether the first of them may be a CSV's header."""

    def __init__(self, custom: Mapping[str, type[Any]]) -> None:
        self._lines = 0
        self._is_csv_possible = True
        self._all = (*custom.values(), *GRAMMARS.values())
        self._logs = tuple(grammar for grammar in self._all if not grammar.is_document)

    def find(self, line: str) -> type[Any] | None:
        """The grammar that knows this line for its own; None as long as no line can be nothing else."""
        if self._lines > _HEADER_LINES:
            return claimant(line, self._logs)
        is_comment = line.startswith("#")
        self._lines += not is_comment  # comments above a header may be long
        among = self._logs if self._lines > _HEADER_LINES else self._all
        if not self._is_csv_possible:
            among = tuple(grammar for grammar in among if grammar.name != "curve_csv")
        self._is_csv_possible = self._is_csv_possible and is_comment
        return claimant(line, among)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"lines": self._lines, "is_csv_possible": self._is_csv_possible}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._lines, self._is_csv_possible = int(state["lines"]), bool(state["is_csv_possible"])
