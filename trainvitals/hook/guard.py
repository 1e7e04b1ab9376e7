"""What a trainer calls must not raise into it: failures of a callback are counted and told, and training goes on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")


class Tells(Protocol):
    """The part of a recorder that is needed to tell of a failure."""

    def event(self, kind: str, /, step: object = None, text: str = "", **data: object) -> None: ...


class Failures:
    """Counts failures; tells of the first, second, fourth, eighth …: a failure at each step must not fill the disk."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def add(self, where: str, error: Exception, recorder: Tells | None) -> None:
        """Count one failure. Never raises."""
        self.count += 1
        try:
            self.last = f"{where}: {type(error).__name__}: {error}"[:500]
        except Exception:  # noqa: BLE001 - an exception whose text raises; its type still tells something
            self.last = f"{where}: {type(error).__name__}"
        if self.count & (self.count - 1):
            return
        text = f"the callback failed {self.count} times; last in {self.last}"
        try:
            if recorder is not None:
                recorder.event("message", text=text, callback_failures=self.count)
            print(f"trainvitals hook: {text}. Training goes on.", file=sys.stderr)  # noqa: T201 - the trainer's own log
        except Exception:  # noqa: BLE001 - stderr is gone; the count and the event still tell
            self.count += 1

    def taken(self, name: str, convert: Callable[[Any], Value], value: object, default: Value, recorder: Tells | None) -> Value:
        """An argument, converted; else ``default``, and one failure more. Never raises."""
        try:
            return convert(value)
        except Exception as error:  # noqa: BLE001 - a class of somebody's own may raise anything; counted and told
            self.add(f"{name} (taken: {default})", error, recorder)
            return default


class Guarded:
    """Base of the callbacks. ``failures``: what went wrong in them."""

    failures: Failures
    _recorder: Any


def never_raises(method: Method) -> Method:
    """A method of a ``Guarded`` whose exceptions are counted; it gives None then. KeyboardInterrupt passes through."""

    @functools.wraps(method)
    def guarded(self: Guarded, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and told
            self.failures.add(method.__name__, error, self._recorder)
            return None

    return cast(Method, guarded)
