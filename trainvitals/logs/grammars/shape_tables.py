"""Tables of unknown trainers: a line of names, then lines of as many numbers, ``epoch  iteration  main/loss  elapsed_time``."""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammars.line_shapes import MAX_LINE, Pair, Reading
from trainvitals.logs.grammars.shape_words import counter_of, loss_rank, step_rank, words_of
from trainvitals.logs.values import parse_number

_MAX_COLUMNS = 40
_GAP = re.compile(r"\s{2,}|\t|\s{0,4}\|\s{0,4}")
_CELL = re.compile(r"[^\s|]{1,60}")
_NAME = re.compile(r"[A-Za-z#][\w #./@%()-]{0,40}\Z", re.ASCII)


class ShapeTables:
    """State: the names of the columns of the last line that looked like a table's first, and where they stand."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._starts: list[int] = []  # where each stands in its line

    def look(self, line: str) -> Reading | None:
        """The row that the line is; a line of names is remembered."""
        if len(line) > MAX_LINE:
            return None
        if not self._names or not line.lstrip(" |")[:1].isdigit():
            if "oss" in line.lower() and (names := _header(line)):
                self._names, self._starts = names, _starts(line, names)
            elif self._names and line.lstrip(" ").startswith("|--"):
                self._names, self._starts = [], []  # a document's table
            return None
        cells = [(found.start(), found[0]) for found in _CELL.finditer(line)]
        if len(cells) == len(self._names):
            return self._row(list(zip(self._names, (cell for _, cell in cells), strict=True)))
        placed = self._placed(cells)  # Chainer leaves a column empty
        return self._row(placed) if placed else None

    def _placed(self, cells: list[tuple[int, str]]) -> list[tuple[str, str]]:
        """The cells under their names; none when one stands under no name."""
        placed: list[tuple[str, str]] = []
        for at, cell in cells if 1 < len(cells) < len(self._names) else ():
            name = next(
                (name for name, start in zip(self._names, self._starts, strict=True)
                 if abs(at - start) <= 1 or abs(at + len(cell) - start - len(name)) <= 1),
                None,
            )  # fmt: skip
            if name is None or (placed and placed[-1][0] == name):
                return []
            placed.append((name, cell))
        return placed

    def _row(self, cells: list[tuple[str, str]]) -> Reading | None:
        epoch: int | None = None
        steps: list[tuple[int, int, str]] = []
        pairs: list[Pair] = []
        for name, cell in cells:
            counter = _counter(name)
            if counter is not None:
                if not (cell.isascii() and cell.isdigit() and len(cell) <= 15):
                    return None
                if counter[0] == "epoch":
                    epoch = int(cell) if epoch is None else epoch
                else:
                    steps.append((step_rank(counter[1]), int(cell), name))
            elif parse_number(cell) is not None:
                pairs.append(Pair(name, cell))
        losses = [(rank, index) for index, pair in enumerate(pairs) if (rank := loss_rank(pair.key)) is not None]
        if not losses or (not steps and epoch is None):
            return None
        _, position, step_name = min(steps) if steps else (0, epoch or 0, "epoch")
        kind = "table" if steps else "epoch"
        shape = f"{kind}|{step_name}|{' '.join(self._names)[:300]}"
        return Reading(
            shape, kind, position, None, epoch if steps else None, None, step_name, pairs[min(losses)[1]], tuple(pairs)
        )

    def to_state(self) -> list[list[Any]]:
        """JSON values only."""
        return [list(self._names), list(self._starts)]

    def restore(self, state: list[Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._names, self._starts = [str(name) for name in state[0]], [int(start) for start in state[1]]


def _header(line: str) -> list[str]:
    """The names of a table's columns; none where the line is no such line."""
    names = [name for name in _GAP.split(line.strip(" |\t")) if name]
    if not 2 <= len(names) <= _MAX_COLUMNS or not all(_NAME.match(name) for name in names):
        return []
    has_counter = any(_counter(name) is not None for name in names)
    return names if has_counter and any(loss_rank(name) is not None for name in names) else []


def _starts(line: str, names: list[str]) -> list[int]:
    starts: list[int] = []
    at = 0
    for name in names:
        at = line.find(name, at)
        starts.append(at)
        at += len(name)
    return starts


def _counter(name: str) -> tuple[str, str] | None:
    if name in ("#", "E"):  # spaCy
        return ("step", "#") if name == "#" else ("epoch", "E")
    counter = counter_of(name)
    return counter if counter is not None and len(words_of(name)) <= 3 else None
