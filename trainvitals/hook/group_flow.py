"""How a trainer that saves and ends by itself, when its callback asks for that, carries out what all ranks decided. Needs no library."""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Obeys(Protocol):
    """The part of ``group_control.GroupControl`` that is needed."""

    @property
    def exit_code(self) -> int: ...

    @property
    def holds(self) -> int: ...

    def at_start(self) -> str | None: ...

    def wants_save(self, step: int) -> bool: ...

    def at_step(self, step: int) -> str: ...

    def close(self) -> None: ...


def tell_refusal(sentence: str, is_first_rank: bool) -> None:
    """In the trainer's own log, once."""
    if is_first_rank:
        printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence)
        print(f"trainvitals: {printable}", file=sys.stderr, flush=True)  # noqa: T201 - the trainer's own log


class SavedSteps:
    """What the trainer has saved by itself: a client of its own asks whether the checkpoint of a step is there."""

    def __init__(self) -> None:
        self.newest: int | None = None

    def has(self, step: int) -> bool:
        return self.newest == step


class FlagFlow:
    """For the Hugging Face Trainer: it saves after ``on_step_end`` when ``should_save`` is set there, then calls ``on_save``.

    So a pause is decided at the end of a step, begun by the Trainer's own save, and held in ``on_save``. Raises ``PeersLost``.
    """

    def __init__(self, control: Obeys, saved: SavedSteps) -> None:
        self._control, self._saved = control, saved
        self._awaited: int | None = None

    def step_ended(self, step: int, flags: Any) -> None:
        if self._control.wants_save(step):
            self._awaited = step
            flags.should_save = True
        else:
            self._obey(step, flags)

    def saved(self, step: int, flags: Any) -> None:
        self._saved.newest = step
        if self._awaited is not None:
            self._obey(step, flags)

    def step_begins(self, step: int, flags: Any) -> None:
        """Another callback, or a save of the best only, took the flag away: the request is left for a later step."""
        if self._awaited is not None:
            self._obey(step, flags)

    def _obey(self, step: int, flags: Any) -> None:
        self._awaited = None
        if self._control.at_step(step) != "continue":
            flags.should_training_stop = True
