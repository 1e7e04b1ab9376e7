"""Long JSON in little memory: whether it is well-formed, and an abridged document of it.

A ``trainer_state.json`` holds every logged step of the run: a parsed one of a million lines takes a gigabyte.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from typing import Any

from trainvitals.checkpoints.files import Reader
from trainvitals.checkpoints.json_file import BadJson

CHUNK_BYTES = 1 << 20
#: Elements of a list that the abridged document keeps: the last ones.
KEPT_ELEMENTS = 20
MAX_TOKEN_CHARACTERS = 1 << 20
MAX_KEPT_CHARACTERS = 1 << 16
MAX_KEYS = 10_000
MAX_DEPTH = 200
MAX_DIGITS = 4_000
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:(?P<mark>[{}\[\],:])"
    r'|(?P<text>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<word>true|false|null|NaN|-?Infinity)"
    r"|(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?))"
)
_SPACE = " \t\n\r"
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _AFTER, _END = range(7)


def read(reader: Reader) -> dict[str, Any]:
    """The top-level object without what is nested in it, and with the last ``KEPT_ELEMENTS`` of its lists; {} for a list. NaN and
    Infinity are accepted. Raises ``BadJson`` when it is no well-formed object or list."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    walk = _Walk()
    rest, offset = "", 0
    while True:
        raw = reader.read(offset, min(CHUNK_BYTES, max(0, reader.size - offset)))
        offset += len(raw)
        is_last = not raw
        try:
            rest = walk.take(rest + decoder.decode(raw, final=is_last), is_last)
        except UnicodeDecodeError as error:
            raise BadJson("it is not UTF-8 text") from error
        if is_last:
            return walk.document()


class _Walk:
    """One pass over the tokens. ``_stack`` holds the open brackets; a value of the top-level object is kept as its text."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expected = _VALUE
        self._key = ""
        self._kept: dict[str, Any] = {}
        self._texts: list[str] = []
        self._characters = 0
        self._elements: deque[str] = deque(maxlen=KEPT_ELEMENTS)

    @property
    def _is_top(self) -> bool:
        """Between the brackets of the top-level object, and of nothing in it."""
        return self._stack == ["{"]

    def document(self) -> dict[str, Any]:
        """After the last token."""
        if self._expected != _END:
            raise BadJson("it ends in the middle")
        return self._kept

    def take(self, text: str, is_last: bool) -> str:
        """Returns the part that the next chunk must complete."""
        position = 0
        while True:
            found = _TOKEN.match(text, position)
            if found is None or (not is_last and found["mark"] is None and _may_go_on(text, found.end())):
                break
            position = found.end()
            self._token(found)
        rest = text[position:]
        if is_last and rest.strip(_SPACE):
            raise BadJson("it is not valid JSON, or it ends in the middle")
        if len(rest) > MAX_TOKEN_CHARACTERS + CHUNK_BYTES:
            raise BadJson("it is not valid JSON, or it holds a text longer than any checkpoint does")
        return rest

    def _token(self, found: re.Match[str]) -> None:
        token, mark = found[0].strip(_SPACE), found["mark"]
        if mark is None:
            if found["number"] is not None and len(token) > MAX_DIGITS:
                raise BadJson("it holds a number that no checkpoint has")
            self._scalar(token, is_text=found["text"] is not None)
        elif mark in "{[":
            self._open(mark)
        elif mark in "}]":
            self._close(mark)
        elif mark == ":":
            self._step(_COLON, _VALUE)
            if not self._is_top:
                self._keep(token)
        else:
            self._comma(token)

    def _scalar(self, token: str, *, is_text: bool) -> None:
        if self._expected in (_KEY, _FIRST_KEY):
            if not is_text:
                raise BadJson("it names a key that is no text")
            if self._is_top:
                self._name(token)
            else:
                self._keep(token)
            self._expected = _COLON
            return
        if self._expected not in (_VALUE, _FIRST_VALUE) or not self._stack:
            raise BadJson("it is not valid JSON, or neither object nor list")
        self._keep(token)
        self._value_ended()

    def _name(self, token: str) -> None:
        self._key = str(json.loads(token))
        if self._key in self._kept:
            raise BadJson("it names the same key twice")
        if len(self._kept) >= MAX_KEYS:
            raise BadJson("it has more keys than any checkpoint does")
        self._kept[self._key] = None
        self._texts, self._characters = [], 0
        self._elements.clear()

    def _open(self, mark: str) -> None:
        if self._expected not in (_VALUE, _FIRST_VALUE) or len(self._stack) >= MAX_DEPTH:
            raise BadJson("it is not valid JSON, or nested too deeply")
        self._stack.append(mark)
        if len(self._stack) > 2:
            self._keep(mark)
        self._expected = _FIRST_KEY if mark == "{" else _FIRST_VALUE

    def _close(self, mark: str) -> None:
        opened = "{" if mark == "}" else "["
        if not self._stack or self._stack[-1] != opened or self._expected not in (_AFTER, _FIRST_KEY, _FIRST_VALUE):
            raise BadJson("it is not valid JSON: a bracket closes what was not open")
        self._stack.pop()
        if not self._stack:
            self._expected = _END
            return
        if self._is_top:
            self._kept[self._key] = _parsed(self._elements) if mark == "]" else {}
            self._expected = _AFTER
            return
        self._keep(mark)
        self._value_ended()

    def _comma(self, token: str) -> None:
        if self._expected != _AFTER:
            raise BadJson("it is not valid JSON: a comma stands where none may be")
        if len(self._stack) > 2:
            self._keep(token)
        self._expected = _KEY if self._stack[-1] == "{" else _VALUE

    def _step(self, expected: int, following: int) -> None:
        if self._expected != expected:
            raise BadJson("it is not valid JSON: a colon stands where none may be")
        self._expected = following

    def _keep(self, token: str) -> None:
        self._characters += len(token)
        if self._characters <= MAX_KEPT_CHARACTERS:
            self._texts.append(token)

    def _value_ended(self) -> None:
        self._expected = _AFTER
        if len(self._stack) > 2:
            return
        if self._characters <= MAX_KEPT_CHARACTERS:
            text = "".join(self._texts)
            if self._is_top:
                self._kept[self._key] = json.loads(text)
            elif self._stack[-1] == "[" and len(self._stack) == 2:
                self._elements.append(text)
        self._texts, self._characters = [], 0


def _may_go_on(text: str, end: int) -> bool:
    """Whether a number that ends there may be cut by the end of the chunk: ``1`` of ``1.5e3``."""
    return end >= len(text) - MAX_DIGITS and not text[end:].strip("0123456789.eE+-")


def _parsed(elements: deque[str]) -> list[Any]:
    return [json.loads(text) for text in elements]
