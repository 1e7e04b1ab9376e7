"""State as JSON values: a class names its attributes once in ``STATE`` and is saved and restored from that list.

A restored object must continue exactly as if it had never stopped, so an attribute that changes while running and is not in
``STATE`` is a fault; tests/detect/test_engine_state.py compares the two ways.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from trainvitals.detect.statistics import SortedWindow


class Stateful:
    """Attributes may be JSON values, deques, ``SortedWindow``s, other ``Stateful``s, or lists of those three."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def to_state(self) -> dict[str, Any]:
        """A mapping of JSON values, independent of this object from now on."""
        return {name: _encode(getattr(self, name)) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was taken; a name that an older version did not know keeps its start value."""
        for name in self.STATE:
            if name in state:
                setattr(self, name, _decode(getattr(self, name), state[name]))


def _encode(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.to_state()
    if isinstance(value, SortedWindow):
        return list(value.arrival)
    if isinstance(value, (list, tuple, deque)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return value


def _decode(current: Any, stored: Any) -> Any:
    if isinstance(current, Stateful):
        current.restore(stored)
        return current
    if isinstance(current, SortedWindow):
        return SortedWindow(current.size, stored)
    if isinstance(current, deque):
        return deque((_encode(item) for item in stored), maxlen=current.maxlen)
    if isinstance(current, list) and current and isinstance(current[0], Stateful):
        for item, item_state in zip(current, stored, strict=True):
            item.restore(item_state)
        return current
    return _encode(stored)
