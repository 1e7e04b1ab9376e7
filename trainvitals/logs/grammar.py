"""What a grammar is: one trainer's way of writing, one line at a time."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from trainvitals.records import Event, Step

Record = Step | Event


class Grammar(Protocol):
    """Turns lines into records. It knows nothing of attempts: it emits ``Step.attempt`` 0, or the number its file names.

    A ``resume`` event, or a ``phase`` event start/begin, tells the caller that what follows is a new start of the trainer.
    A line that is not understood gives nothing; one that claims to be a record and is broken counts in ``bad_records``.
    Made with ``Grammar(times: LineTimes)``.
    """

    #: As ``--format`` takes it and as documents call it.
    name: ClassVar[str]
    #: Which trainers write this, for people.
    title: ClassVar[str]
    #: Whether it was written from a trainer's source and never met a real log; the documentation says so.
    is_from_source: ClassVar[bool]
    #: A few made-up lines in the real shape, for the documentation; a test reads them.
    example: ClassVar[str]
    #: Every line that ``claims`` says yes to holds one of these: asked first, because it is fast. Empty = always ask.
    literals: ClassVar[tuple[str, ...]]
    #: What a line holds that matters although it comes before the first record, by which the format is found.
    prelude: ClassVar[tuple[str, ...]]
    #: A file of this format holds nothing else (CSV, JSON): found in its first lines, and no place to look for faults.
    is_document: ClassVar[bool]
    #: Gives way to any other grammar that claims a line of the same log (what a library prints beside the trainer).
    is_weak: ClassVar[bool]
    bad_records: int

    @staticmethod
    def claims(line: str) -> bool:
        """Whether no other program writes such a line. Never raises, and never for a line that gives no record."""
        ...

    def feed(self, line: str) -> list[Record]:
        """Records that this line completes. Never raises, whatever the line is."""
        ...

    def idle(self) -> list[Record]:
        """Nothing more came for some seconds: what waits for a further line is given out as it is. Called again, without a line between,
        when nothing came for minutes."""
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


class LineByLine:
    """What most grammars are: nothing waits for a further line."""

    is_from_source: ClassVar[bool] = False
    literals: ClassVar[tuple[str, ...]] = ()
    prelude: ClassVar[tuple[str, ...]] = ()
    is_document: ClassVar[bool] = False
    is_weak: ClassVar[bool] = False

    def __init__(self) -> None:
        self.bad_records = 0

    def idle(self) -> list[Record]:
        """Nothing waits."""
        return []

    def finish(self) -> list[Record]:
        """Nothing waits."""
        return []

    def to_state(self) -> dict[str, Any]:
        """No state but the count."""
        return {"bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        """No state but the count."""
        self.bad_records = int(state["bad_records"])


def message(text: str, data: dict[str, Any], step: int | None = None, time_ns: int | None = None) -> Event:
    """An event of kind ``message``."""
    return Event("message", time_ns, step=step, text=text[:500], data=data)


def phase(name: str, state: str, text: str, step: int | None = None, time_ns: int | None = None, **data: Any) -> Event:
    """An event of kind ``phase``; ``state`` is begin or end."""
    return Event("phase", time_ns, step=step, text=text[:500], data={"phase": name, "state": state, **data})
