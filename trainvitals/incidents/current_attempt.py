"""Which start of the trainer runs now: the one that detection goes on with. Pure.

Numbers are given as files are found: an old log that is copied beside the running one gets the highest number. By its own times it
was over before; a restart is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

#: How much newer the points of a start must be than those of one that was numbered after it. Less is a former trainer that still
#: prints, or the clock of another machine. As ``detect.engine.GOES_ON_AFTER_NS``.
GOES_ON_AFTER_NS = 600 * 10**9


class Numbered(Protocol):
    """One start of the trainer. It may have ``newest_ns``: of its newest point or its begin, UTC ns by the trainer's own clock, None = not
    known; the number alone decides then."""

    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Numbered)


def goes_on(newest_ns: int | None, later_ns: int | None) -> bool:
    """Whether a start with a point at ``newest_ns`` runs on although another was numbered after it, whose newest is ``later_ns``."""
    return newest_ns is not None and later_ns is not None and newest_ns - later_ns >= GOES_ON_AFTER_NS


def in_order(attempts: Sequence[T]) -> tuple[T, ...]:
    """As they ran, the current one last: by number, an old one that was numbered late before those that go on after it."""
    ordered: list[T] = []
    for attempt in sorted(attempts, key=lambda one: one.number):
        place = len(ordered)
        while place and goes_on(_newest_ns(ordered[place - 1]), _newest_ns(attempt)):
            place -= 1
        ordered.insert(place, attempt)
    return tuple(ordered)


def current_attempt(attempts: Sequence[T]) -> T | None:
    """The one that runs now, or ran last; None when there is none."""
    ordered = in_order(attempts)
    return ordered[-1] if ordered else None


def later_numbers(attempts: Sequence[Numbered], number: int) -> frozenset[int]:
    """Numbers of the starts that ran after that one; of one that is not among ``attempts`` the higher ones."""
    numbers = [attempt.number for attempt in in_order(attempts)]
    if number not in numbers:
        return frozenset(other for other in numbers if other > number)
    return frozenset(numbers[numbers.index(number) + 1 :])


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """The same, kept up step by step. newest_ns: of its newest point. number 0: none was read yet."""

    number: int = 0
    newest_ns: int | None = None

    def with_step(self, number: int, time_ns: int | None) -> RunningAttempt:
        """After a step of ``number``."""
        if number == self.number:
            known = [one for one in (self.newest_ns, time_ns) if one is not None]
            return RunningAttempt(number, max(known, default=None))
        if number > self.number:
            return self if goes_on(self.newest_ns, time_ns) else RunningAttempt(number, time_ns)
        return RunningAttempt(number, time_ns) if goes_on(time_ns, self.newest_ns) else self


def _newest_ns(attempt: Numbered) -> int | None:
    newest_ns: int | None = getattr(attempt, "newest_ns", None)
    return newest_ns
