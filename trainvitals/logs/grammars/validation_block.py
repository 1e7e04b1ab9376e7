"""Lines of a validation that do not say it themselves: a line above them does, ``Evaluating...`` or ``--- Test ---``.

Such a line opens a block. It ends with a line that goes on behind the last step of the training, that tells a learning rate or a gradient norm,
or that speaks of training, of an epoch, of a start. A block takes only lines that count from the beginning, and so many at most: that the
trainer has started again must not stay unseen.
"""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammars.line_shapes import Reading, epoch_line
from trainvitals.logs.grammars.shape_words import LEVELS, VALIDATION, metric_of, word_set, words_of

#: Before any shape is in use, and then.
_MAX_LINES_BEFORE = 200
_MAX_LINES = 300
#: A validation's first line counts no higher, or no higher than the training's lines are apart.
_FIRST = 100
_MAX_CHARACTERS = 160
_STAMP = re.compile(r"\A[\[(]?\d[\d:.,/ TZ+-]{4,40}[\])]?|[\w/.-]{1,200}\.py(?::\d{1,6})?", re.ASCII)
_PERPLEXITY = re.compile(r"\b(?:comput|calculat|measur)ing (?:the )?perplexity", re.IGNORECASE)
_DOING = frozenset({"evaluating", "validating"})
_AROUND = word_set(
    "running run start starting begin beginning phase mode loop pass now the on model of for at epoch step inference"
)
_OVER = word_set("done finished finish complete completed end ended after every skip skipping")
_TRAINING = word_set(
    """train training trainer resumed resuming resume restored restoring restart restarting traceback error exception killed
    launching loading checkpoint"""
)

Place = tuple[int, int]


class ValidationBlock:
    """State: whether one is open, how many lines it has, the last one's place and shape, and how far two are apart."""

    def __init__(self) -> None:
        self.is_open = False
        self._lines = 0
        self._place: Place | None = None
        self._shape = ""
        self._spacing = 0

    def look(self, line: str, has_shape: bool) -> None:
        """A line that tells no step may open a block, or end it."""
        if len(line) > _MAX_CHARACTERS:
            return
        text = _STAMP.sub(" ", line)
        words = [word for word in words_of(text)[:20] if word not in LEVELS or word.startswith("train")]
        spoken = frozenset(words)
        if not spoken.isdisjoint(VALIDATION) or _PERPLEXITY.search(text):
            self._name(text, words, spoken, has_shape)
        elif not spoken.isdisjoint(_TRAINING) or epoch_line(line) is not None:
            self.is_open = False

    def _name(self, text: str, words: list[str], spoken: frozenset[str], has_shape: bool) -> None:
        has_number = any(character.isdigit() for character in text)
        if not spoken.isdisjoint(_OVER):
            self.is_open = False
        elif (
            not _DOING.isdisjoint(words[:4])
            or _PERPLEXITY.search(text)
            or (spoken <= VALIDATION | _AROUND and (has_shape or not has_number))
        ):
            self._open()
        elif has_number and not has_shape:  # its result
            self.is_open = False

    def _open(self) -> None:
        self.is_open, self._lines, self._place, self._shape, self._spacing = True, 0, None, "", 0

    def holds(self, reading: Reading, place: Place, last: Place | None, interval: int, total: int | None) -> bool:
        """Whether the line is the validation's. ``last``, ``total``: what the training told of its place; None as long as nothing did."""
        if not self.is_open:
            return False
        before, self._place = self._place, place
        self._lines += 1
        if self._lines > (_MAX_LINES_BEFORE if last is None else _MAX_LINES) or _is_of_training(reading):
            self.is_open = False
        elif last is None:
            self._shape = self._shape or reading.shape
            self.is_open = reading.shape == self._shape
        elif not (total and reading.total and reading.total != total):
            goes_on = before is not None and place[1] == before[1] + self._spacing and place[1] != last[1] + interval
            is_back = place <= last
            is_first = before is None and is_back and place[1] > max(interval, _FIRST)
            self.is_open = not is_first and (is_back or goes_on)
        if before is not None:
            self._spacing = place[1] - before[1]
        return self.is_open

    def to_state(self) -> list[Any]:
        """JSON values only."""
        return [self.is_open, self._lines, list(self._place) if self._place else None, self._shape, self._spacing]

    def restore(self, state: list[Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self.is_open, self._lines, place, self._shape, self._spacing = state
        self._place = (int(place[0]), int(place[1])) if place else None


def _is_of_training(reading: Reading) -> bool:
    """Whether the line tells what no validation has."""
    named = (metric_of(pair.key, pair.unit) for pair in reading.pairs if pair.key)
    return any(found is not None and found[1] in ("lr", "grad_norm") for found in named)
