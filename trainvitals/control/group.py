"""A run of many ranks acts as one: rank 0 decides and says it, every rank carries it out at the end of the same step.

Every few steps all ranks meet: rank 0 broadcasts words until one of them ends the meeting. Between two meetings nobody waits for anybody. The
words, the pace and both sides are here, without any library; what carries them between processes is a ``Channel``. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

#: The trainer's exit code for "parked": it saved and gives its nodes back (EX_TEMPFAIL of sysexits.h).
PARK_CODE = 75
#: What a parked trainer's hook says of its end. Launchers turn exit codes into others, so this is what counts.
PARKED_END = "stopped: parked"
#: torchrun sets it. It takes every code but 0 for a failure, starts the ranks again, and ends with 1 itself.
TORCHRUN = "TORCHELASTIC_RUN_ID"
#: What ``at_step`` answers.
ANSWERS = ("continue", "stop", "park")
#: First of the numbers of a word: ranks with different versions of this protocol must not misread each other.
PROTOCOL = 0x7669_7401
WORD_NUMBERS = 5
VOTE_NUMBERS = 3
MAX_TEXT_BYTES = 2048
MAX_INTERVAL = 10_000
#: Steps may become slower at any time: the way up to fewer meetings is taken in parts.
MAX_GROWTH = 4
_NOBODY = 2**31 - 1


def exit_code_of(answer: str, environment: Mapping[str, str]) -> int:
    """Of a program whose loop was left with this answer: 75 when it was parked, except under torchrun."""
    return PARK_CODE if answer == "park" and TORCHRUN not in environment else 0


class PeersLost(RuntimeError):
    """The ranks cannot reach each other any more; what torch itself raised is its cause.

    is_early: at the beginning of a meeting, when nothing is decided yet and everybody may as well go on alone.
    """

    is_early = False


class Op(IntEnum):
    """GO ends the meeting. FLAG ends it, too, and tells whether the trainer is to save first. HOLD: still held."""

    GO = 1
    DRAIN = 2
    SAVE = 3
    HOLD = 4
    FLAG = 5


@dataclass(frozen=True, slots=True)
class Word:
    """step: of rank 0. value: of GO the index of the answer, of FLAG 0 or 1. interval: steps until the next meeting."""

    op: Op
    step: int
    value: int = 0
    interval: int = 1

    @property
    def answer(self) -> str:
        return ANSWERS[self.value]

    def to_numbers(self) -> tuple[int, ...]:
        """``WORD_NUMBERS`` whole numbers of 64 bits."""
        return (PROTOCOL, int(self.op), self.step, self.value, self.interval)

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> Word:
        """Raises ``PeersLost`` for what no rank 0 of this version says."""
        try:
            protocol, op, step, value, interval = numbers
            word = cls(Op(op), step, value, interval)
        except ValueError as error:
            raise PeersLost(f"rank 0 said what is no word of this protocol: {list(numbers)[:8]}") from error
        if protocol != PROTOCOL or not 0 <= value < len(ANSWERS) or not 1 <= interval <= MAX_INTERVAL:
            raise PeersLost(
                f"rank 0 said what is no word of this protocol: {list(numbers)}; install one version of trainvitals on all ranks"
            )
        return word


def vote(rank: int, step: int, problem: str) -> tuple[int, ...]:
    """One rank's result; the element-wise minimum over all ranks is what ``counted`` reads."""
    return (rank if problem else _NOBODY, step, -step)


def counted(minimum: Sequence[int]) -> tuple[int | None, str]:
    """(lowest rank with a problem or None, "" or that the ranks are not at the same step)."""
    failed, least, negative_most = minimum
    apart = "" if least == -negative_most else f"the ranks are at different steps, from {least} to {-negative_most}"
    return (None if failed == _NOBODY else failed), apart


def to_bytes(text: str) -> bytes:
    """Exactly ``MAX_TEXT_BYTES``, cut or filled up with zeros."""
    return text.replace("\0", "?").encode("utf-8", "replace")[:MAX_TEXT_BYTES].ljust(MAX_TEXT_BYTES, b"\0")


def from_bytes(data: bytes) -> str:
    """The text of ``to_bytes``."""
    return data.rstrip(b"\0").decode("utf-8", "ignore")


def next_interval(interval: int, elapsed_s: float, wanted_s: float) -> int:
    """Steps between two meetings so that about ``wanted_s`` of training lie between them, after ``interval`` steps took ``elapsed_s``."""
    step_s = elapsed_s / max(1, interval)
    if not step_s > 0.0:
        return min(MAX_INTERVAL, interval * MAX_GROWTH)
    return max(1, min(MAX_INTERVAL, interval * MAX_GROWTH, math.ceil(min(wanted_s / step_s, MAX_INTERVAL))))


class Pace:
    """Counts calls, not step numbers: all ranks make the same calls, whatever they count."""

    def __init__(self) -> None:
        self.interval = 1
        self._calls = 0

    @property
    def is_due(self) -> bool:
        """The next call is a meeting."""
        return self._calls + 1 >= self.interval

    def passed(self) -> None:
        """A call without a meeting."""
        self._calls += 1

    def met(self, interval: int) -> None:
        """A meeting ended."""
        self.interval, self._calls = interval, 0


class Channel(Protocol):
    """Between the ranks. Each method is called by all ranks in the same order, and raises ``PeersLost``."""

    def say(self, word: Word, *, is_patient: bool) -> None:
        """Rank 0. is_patient: others may come later by minutes, as between two steps; else they wait for it now."""
        ...

    def hear(self, *, is_patient: bool) -> Word:
        """All others: what rank 0 said."""
        ...

    def weigh(self, step: int, problem: str) -> str:
        """Give this rank's result ("" = done); returns the same on all ranks: "" or what went wrong, with the rank."""
        ...

    def share(self, text: str) -> str:
        """Rank 0's text on all ranks."""
        ...


class Crew(Protocol):
    """Who carries out what the client decides: one process, or all ranks together. A method may raise anything."""

    @property
    def errors(self) -> int:
        """Exceptions of the trainer's functions that were kept here."""
        ...

    @property
    def can_save(self) -> bool: ...

    @property
    def hold_period_s(self) -> float:
        """Longest time between two calls of ``held``."""
        ...

    def is_ready(self, step: int) -> bool:
        """A save can be carried out right now."""
        ...

    def drain(self, step: int) -> str:
        """Finish asynchronous saves that are under way; "" or why not."""
        ...

    def save(self, step: int) -> str:
        """Save and return when it is on disk; "" or why there is no checkpoint."""
        ...

    def held(self) -> None:
        """Still held."""
        ...


class Alone:
    """One process: calls the trainer's own functions. errors: exceptions of theirs that were kept here. holds: calls of ``held``."""

    hold_period_s = 1.0

    def __init__(
        self,
        on_checkpoint: Callable[[int], object] | None = None,
        drain: Callable[[], object] | None = None,
        while_held: Callable[[], object] | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> None:
        self.errors = 0
        self.holds = 0
        self._on_checkpoint, self._drain, self._while_held, self._is_ready = on_checkpoint, drain, while_held, is_ready

    @property
    def can_save(self) -> bool:
        return self._on_checkpoint is not None

    def is_ready(self, step: int) -> bool:
        return self._is_ready is None or bool(self._is_ready(step))

    def drain(self, step: int) -> str:
        if self._drain is None:
            return ""
        return self._tried("an earlier asynchronous save", "drain", self._drain)

    def save(self, step: int) -> str:
        on_checkpoint = self._on_checkpoint
        if on_checkpoint is None:
            return "the trainer gave no on_checkpoint function"
        return self._tried("the checkpoint", "on_checkpoint", lambda: on_checkpoint(step))

    def held(self) -> None:
        self.holds += 1
        if self._while_held is None:
            return
        try:
            self._while_held()
        except Exception:  # noqa: BLE001 - a heartbeat of the trainer's own; counted, and the other ranks go on waiting together
            self.errors += 1

    def _tried(self, what: str, name: str, function: Callable[[], object]) -> str:
        try:
            return f"{what} failed: {name} returned False" if function() is False else ""
        except Exception as error:  # noqa: BLE001 - the trainer's own function may raise anything; it is told, not thrown
            self.errors += 1
            return f"{what} failed: {type(error).__name__}: {error}"[:500]


class Leader:
    """Rank 0's crew: says to all ranks what it does itself at the same moment."""

    def __init__(self, channel: Channel, hands: Alone, hold_period_s: float) -> None:
        self.hold_period_s = hold_period_s
        #: Words of this meeting so far.
        self.words = 0
        self._channel, self._hands = channel, hands
        self._step = 0

    @property
    def errors(self) -> int:
        return self._hands.errors

    @property
    def can_save(self) -> bool:
        return self._hands.can_save

    def is_ready(self, step: int) -> bool:
        return self._hands.is_ready(step)

    def begin(self, step: int) -> None:
        """A meeting begins."""
        self._step, self.words = step, 0

    def drain(self, step: int) -> str:
        self._say(Word(Op.DRAIN, step))
        return self._channel.weigh(step, self._hands.drain(step))

    def save(self, step: int) -> str:
        self._say(Word(Op.SAVE, step))
        return self._channel.weigh(step, self._hands.save(step))

    def held(self) -> None:
        self._say(Word(Op.HOLD, self._step))
        self._hands.held()

    def end(self, answer: str, interval: int) -> None:
        """The meeting ends: go on, or leave the loop."""
        self._say(Word(Op.GO, self._step, ANSWERS.index(answer), interval))

    def flag(self, wants_save: bool) -> None:
        """The meeting ends; whether the trainer is to save before the next one."""
        self._say(Word(Op.FLAG, self._step, int(wants_save)))

    def _say(self, word: Word) -> None:
        try:
            self._channel.say(word, is_patient=self.words == 0)
        except PeersLost as error:
            error.is_early = self.words == 0
            raise
        self.words += 1


def follow(channel: Channel, hands: Alone, step: int) -> Word:
    """Any rank but 0: do what is said until a word ends the meeting, and return that one. Raises ``PeersLost``."""
    is_first = True
    while True:
        try:
            word = channel.hear(is_patient=is_first)
        except PeersLost as error:
            error.is_early = is_first
            raise
        is_first = False
        if word.op is Op.DRAIN:
            channel.weigh(step, hands.drain(step))
        elif word.op is Op.SAVE:
            channel.weigh(step, hands.save(step))
        elif word.op is Op.HOLD:
            hands.held()
        else:
            return word
