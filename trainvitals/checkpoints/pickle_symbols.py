"""What stands for the objects of a pickle that is read without being loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class BadPickle(Exception):
    """The bytes are no valid pickle. The text says why."""


class PickleTooLarge(Exception):
    """More than is looked at here: nothing is wrong, nothing is proven."""


class Global:
    """A class or function, by name: ``torch.float32``. Nothing is known of it but the name."""

    __slots__ = ("builder", "name")

    def __init__(self, name: str, builder: Callable[[Any], Any] | None) -> None:
        self.name = name
        self.builder = builder


class Instance:
    """What the pickle would make by calling ``of``; ``state``: what it would then set, after the reader's builder."""

    __slots__ = ("arguments", "of", "state")

    def __init__(self, of: Any, arguments: Any) -> None:
        self.of = of
        self.arguments = arguments
        self.state: Any = None

    @property
    def name(self) -> str:
        return self.of.name if type(self.of) is Global else ""


class Opaque:
    """A value that is not followed: a text too long, a huge number, bytes."""

    __slots__ = ()


OPAQUE = Opaque()


def hashable(key: Any) -> Any:
    """A key that is safe to hash: a tuple may be nested so deep, or share so much, that its hash never ends."""
    if type(key) in (str, int, float, bool, Instance, Global, Opaque) or key is None:
        return key
    if type(key) is tuple and len(key) <= 16 and all(type(item) in (str, int, float, bool) or item is None for item in key):
        return key
    return OPAQUE
