"""Which start of the trainer a step belongs to, and which lines only repeat one.

Steps go up. An equal one is a repetition (all ranks print). A smaller one within ``REORDER_POINTS`` logged points is late
(ranks overtake each other); further back it is a rewind, which is a new attempt. After a sign of a restart (a checkpoint
was loaded, a header was written) any next step is a new attempt.

A rank whose output is held back in blocks of 8 KiB prints many old steps at once. They are no rewind, and repetitions, when
their times are older than the newest step's by up to ``MAX_HELD_BACK_NS`` (what was started again is newer; a clock that
was set, or a container in another time zone, is further off), or when the launcher's prefix names another
rank than that of the newest step, and that rank goes on where it stood itself (or begins where the attempt began).

A trainer that is started again soon goes back by a few points only, and so do ranks that overtake each other. Two signs tell them apart:
ranks print one step within seconds, so a smaller step that is ``RESTART_NS`` newer than the newest one is a rewind; and where
lines hold no times, but every step so far was told once, nobody else prints: a smaller step from which the next one goes on through what was told
before is a rewind. Until that one comes a step is held. A table has one writer: there a smaller step that was told before is a rewind at once.

As long as an attempt has told one step only, nobody knows how far its steps are apart: a smaller one is that of a rank which is a line behind, if
the first one was told twice or the launcher's prefix names another rank.

A line may be torn in the middle of its step, so a step that is absurdly far ahead is held too. It is one when the next goes on behind it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from enum import Enum
from typing import Any

from trainvitals.records import Step
from trainvitals.schema import SECOND_NS

#: How many logged points ranks may overtake each other.
REORDER_POINTS = 5
MAX_HELD_BACK_NS = 1800 * SECOND_NS
#: Ranks work in step, and their hosts' clocks differ by less; what is seen of their differences is added three times.
RESTART_NS = 30 * SECOND_NS
#: A step ahead by so many times as much as was reached so far, or as is usual between two, is held.
_ABSURD = 1_000
#: Steps that were told once each, before a repetition is no longer another rank's.
_FEW_POINTS = 3
#: Ranks of the largest jobs whose every rank prints, and a little more.
_MAX_ORIGINS = 8192
_MAX_COUNTED_STEPS = 200


class Verdict(Enum):
    """What a step is to the attempt in progress."""

    NEW_ATTEMPT = "new attempt"
    NEXT = "next"
    REPEATED = "repeated"
    TORN = "torn"


#: The counter of what gives no record.
LEFT_OUT = {Verdict.REPEATED: "repeated_steps", Verdict.TORN: "torn_lines"}


class AttemptTracker:
    """State: the largest steps of the attempt in progress, at most ``REORDER_POINTS`` + 1, the restart mark, and of up to
    ``_MAX_ORIGINS`` ranks the last step each."""

    def __init__(self) -> None:
        self.number = 0
        self._recent: list[int] = []  # ascending
        self._is_restarting = False
        self._named = 0
        self._is_other_file = False
        self._first = 0
        self._newest_ns: int | None = None
        self._newest_origin = ""
        self._origins: dict[str, int] = {}  # rank as the launcher names it -> its own last step
        self._lines: dict[int, int] = {}  # repeated step -> how many lines told it
        self._spread_ns = 0  # by how much a repeated line's time was beyond the newest step's
        self._held: tuple[Step, str] | None = None
        #: How many ranks print: the most lines that told one step.
        self.ranks_seen = 1

    @property
    def is_between(self) -> bool:
        """No attempt is in progress: none has begun, or the trainer is starting again."""
        return self.number == 0 or self._is_restarting

    def restart(self) -> None:
        """The trainer starts again: the next step opens an attempt."""
        self._is_restarting = True

    def other_file(self) -> None:
        """Another file begins: a job that starts again overwrites its log, so a smaller step is no late one."""
        self._is_other_file = True

    def admit(self, step: Step, is_ordered: bool = False, origin: str = "", is_table: bool = False) -> list[tuple[Step, Verdict]]:
        """The steps that are judged now: this one, unless only the next can tell, and before it one that was held."""
        judged = self.release(step)
        if not is_ordered and self._is_absurd(step):
            self._held = (step, origin)
            return judged
        if is_table and self._is_among(step) and step.step in self._recent[:-1]:
            self.restart()
        elif not is_ordered and self._is_doubtful(step, origin, 1 if is_table else _FEW_POINTS):
            self._held = (step, origin)
            return judged
        return [*judged, (step, self.judge(step.step, step.attempt, is_ordered, step.time_ns, origin))]

    def release(self, following: Step | None = None) -> list[tuple[Step, Verdict]]:
        """The step that is held: a new attempt when ``following`` goes on from it through steps that were told, else a repetition."""
        if self._held is None:
            return []
        (step, origin), self._held = self._held, None
        if step.step > self._recent[-1]:
            is_true = following is not None and following.step >= step.step
            return [(step, self.judge(step.step, step.attempt, False, step.time_ns, origin) if is_true else Verdict.TORN)]
        if following is not None and step.step < following.step <= self._recent[-1] and not self.is_between:
            self.restart()
            return [(step, self.judge(step.step, step.attempt, False, step.time_ns, origin))]
        if self.is_between:
            return [(step, Verdict.REPEATED)]
        return [
            (step, self.judge(step.step, step.attempt, False, step.time_ns if step.step < self._recent[-1] else None, origin))
        ]

    def _is_among(self, step: Step) -> bool:
        return bool(self._recent) and not self._is_restarting and step.attempt == self._named and not self._is_other_file

    def _is_doubtful(self, step: Step, origin: str, few: int) -> bool:
        recent = self._recent
        if not self._is_among(step):
            return False
        if step.time_ns is not None and self._newest_ns is not None:
            return step.step == recent[-1] and self._is_much_newer(step.time_ns)
        is_back = step.step < recent[-1] and self._is_near(step.step, False)
        return is_back and not origin and not self._lines and len(recent) >= few

    def _is_absurd(self, step: Step) -> bool:
        if step.step < _ABSURD * _ABSURD or not self._is_among(step):
            return False
        recent = self._recent
        spacing = (recent[-1] - recent[0]) // (len(recent) - 1) if len(recent) > 1 else 1
        return step.step > _ABSURD * (recent[-1] + _ABSURD * max(1, spacing))

    def _is_much_newer(self, time_ns: int | None) -> bool:
        return (
            time_ns is not None and self._newest_ns is not None and time_ns > self._newest_ns + RESTART_NS + 3 * self._spread_ns
        )

    def judge(self, step: int, named: int = 0, is_ordered: bool = False, time_ns: int | None = None, origin: str = "") -> Verdict:
        """``named``: the attempt's number in the file, 0 = not said. ``is_ordered``: one writer, nothing can be late.

        ``origin``: who printed it, as the launcher names ranks; "" where it does not.
        """
        recent = self._recent
        if recent and step > recent[-1] and named == self._named and not self._is_restarting:
            self._is_other_file = False  # what nearly every line is
            recent.append(step)
            if len(recent) > REORDER_POINTS + 1:
                del recent[0]
            self._newest_ns = time_ns
            if origin or self._newest_origin:
                self._note(origin, step)
            return Verdict.NEXT
        is_new = self.number == 0 or self._is_restarting or named != self._named
        if not is_new and not is_ordered and step < recent[-1] and self._is_much_newer(time_ns):
            is_new = True
        if (
            not is_new
            and not self._is_near(step, is_ordered or self._is_other_file)
            and (is_ordered or not self._is_a_line_behind(origin))
        ):
            if not is_ordered and self._is_held_back(step, time_ns, origin):
                self._remember(origin, step)
                self._count_line(step)
                return Verdict.REPEATED
            is_new = True
        self._named, self._is_other_file = named, False
        if is_new:
            self._is_restarting = False
            self.number += 1
            self._recent, self._first, self._newest_ns = [step], step, time_ns
            self._origins.clear()
            self._lines.clear()
            self._spread_ns = 0
            self._note(origin, step)
            return Verdict.NEW_ATTEMPT
        self._remember(origin, step)
        if time_ns is not None and self._newest_ns is not None and not self._is_much_newer(time_ns):
            self._spread_ns = max(self._spread_ns, time_ns - self._newest_ns)
        at = bisect_left(self._recent, step)
        if at < len(self._recent) and self._recent[at] == step:
            self._count_line(step)
            return Verdict.REPEATED
        insort(self._recent, step)
        del self._recent[: -(REORDER_POINTS + 1)]
        return Verdict.NEXT

    def _count_line(self, step: int) -> None:
        lines = self._lines.get(step, 1) + 1
        self._lines[step] = lines
        self.ranks_seen = max(self.ranks_seen, lines)
        if len(self._lines) > _MAX_COUNTED_STEPS:
            del self._lines[next(iter(self._lines))]

    def _note(self, origin: str, step: int) -> None:
        self._newest_origin = origin
        self._remember(origin, step)

    def _remember(self, origin: str, step: int) -> None:
        if not origin:
            return
        self._origins[origin] = step
        if len(self._origins) > _MAX_ORIGINS:
            del self._origins[next(iter(self._origins))]

    def _is_held_back(self, step: int, time_ns: int | None, origin: str) -> bool:
        if time_ns is not None and self._newest_ns is not None:
            # A time without a fraction is cut to its second.
            newest_ns = self._newest_ns if time_ns % SECOND_NS else self._newest_ns // SECOND_NS * SECOND_NS
            if newest_ns - MAX_HELD_BACK_NS <= time_ns < newest_ns:
                return True
        if not origin or origin == self._newest_origin:
            return False
        own = self._origins.get(origin)
        return step == self._first if own is None else step > own

    def _is_near(self, step: int, is_ordered: bool) -> bool:
        recent = self._recent
        if step >= recent[-1]:
            return True
        if is_ordered:
            return False
        if step >= recent[0]:
            return True
        if len(recent) > REORDER_POINTS:
            return False
        spacing = (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 1
        return recent[-1] - step <= REORDER_POINTS * spacing

    def _is_a_line_behind(self, origin: str) -> bool:
        """A step below the only one that the attempt has told so far: whether another rank printed it."""
        is_other = bool(origin) and bool(self._newest_origin) and origin != self._newest_origin and origin not in self._origins
        return len(self._recent) == 1 and not self._is_other_file and (bool(self._lines) or is_other)

    def to_state(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "recent": self._recent,
            "is_restarting": self._is_restarting,
            "named": self._named,
            "is_other_file": self._is_other_file,
            "first": self._first,
            "newest": [self._newest_ns, self._newest_origin],
            "origins": self._origins,
            "lines": list(self._lines.items()),
            "ranks_seen": self.ranks_seen,
            "spread_ns": self._spread_ns,
            "held": _of_step(*self._held) if self._held is not None else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.number = int(state["number"])
        self._recent = [int(step) for step in state["recent"]]
        self._is_restarting = bool(state["is_restarting"])
        self._named = int(state["named"])
        self._is_other_file = bool(state["is_other_file"])
        self._first = int(state["first"])
        self._newest_ns, self._newest_origin = state["newest"]
        self._origins = {str(origin): int(step) for origin, step in state["origins"].items()}
        self._lines = {int(step): int(count) for step, count in state["lines"]}
        self.ranks_seen = int(state["ranks_seen"])
        self._spread_ns = int(state.get("spread_ns", 0))
        held = state.get("held")
        self._held = (Step(*held[:6]), str(held[6])) if held is not None else None


def _of_step(step: Step, origin: str) -> list[Any]:
    return [step.step, step.attempt, step.time_ns, dict(step.values), dict(step.nonfinite), step.time_estimated, origin]
