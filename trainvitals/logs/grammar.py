"""What a grammar is: one trainer's way of writing, one line at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainvitals.records import Event, Step

Record = Step | Event


class Grammar(Protocol):
    """Turns lines into records. It knows nothing of attempts: it emits ``Step.attempt`` 0, or the number its file names.

    A ``resume`` event, or a ``phase`` event start/begin, tells the caller that what follows is a new start of the trainer.
    A line that is not understood gives nothing; one that claims to be a record and is broken counts in ``bad_records``.
    """

    name: str
    #: What a line holds that matters although it comes before the first record, by which the format is found.
    prelude: tuple[str, ...]
    bad_records: int

    def feed(self, line: str) -> list[Record]:
        """Records that this line completes. Never raises, whatever the line is."""
        ...

    def finish(self) -> list[Record]:
        """Records that only the end of the file completes."""
        ...

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken."""
        ...

    @staticmethod
    def sniff(lines: Sequence[str]) -> float:
        """How sure it is that these lines are its own: 0 not at all, 1 a line that no other program writes."""
        ...


def message(text: str, data: dict[str, Any], step: int | None = None, time_ns: int | None = None) -> Event:
    """An event of kind ``message``."""
    return Event("message", time_ns, step=step, text=text[:500], data=data)


def phase(name: str, state: str, text: str, step: int | None = None, time_ns: int | None = None, **data: Any) -> Event:
    """An event of kind ``phase``; ``state`` is begin or end."""
    return Event("phase", time_ns, step=step, text=text[:500], data={"phase": name, "state": state, **data})
