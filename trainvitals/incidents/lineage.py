"""Which start of the trainer wrote a checkpoint, and whether that start's history is the one that goes on. Pure.

Going back leaves checkpoints of a history that was given up beside those of the one that goes on; both verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.incidents.current_attempt import in_order
from trainvitals.incidents.suspect import Attempt
from trainvitals.records import CheckpointReport


@dataclass(frozen=True)
class _Start:
    """One start of the trainer: its steps lie above ``above`` and reach ``last`` (None = it is not known how far)."""

    number: int
    started_ns: int
    above: int
    last: int | None


class Lineage:
    """Of a run whose starts are ``attempts``. gap_steps: steps between two records, by which a last step may lag."""

    def __init__(self, attempts: Sequence[Attempt], gap_steps: int = 1) -> None:
        self._starts = [_start_of(one, gap_steps) for one in in_order(attempts) if one.first_step is not None]
        self._slack = 2 * gap_steps
        self._reach = self._chain()

    def abandoned_by(self, checkpoint: CheckpointReport) -> int | None:
        """Number of the start that gave this checkpoint's history up by going on from another; None when it is not given up.

        The writer is known by the time of the files; a copy that lost it counts as written by whoever can have written it.
        """
        step = checkpoint.step
        if step is None or not self._starts:
            return None
        for writer in self._writers(checkpoint, step):
            limit = self._reach.get(writer.number, -1)
            if limit is not None and step > limit:
                return self._who_left(writer, step)
        return None

    def _who_left(self, writer: _Start, step: int) -> int:
        later = self._starts[self._starts.index(writer) + 1 :]
        return next((start.number for start in later if start.above < step), later[0].number)

    def _writers(self, checkpoint: CheckpointReport, step: int) -> list[_Start]:
        modified_ns = checkpoint.modified_at_ns
        if modified_ns is not None:
            newest = next((s for s in reversed(self._starts) if s.started_ns <= modified_ns and self._can_reach(s, step)), None)
            if newest is not None:
                return [newest]
        return [start for start in self._starts if self._can_reach(start, step)]

    def _can_reach(self, start: _Start, step: int) -> bool:
        return start.above < step and (start.last is None or step <= start.last + self._slack)

    def _chain(self) -> dict[int, int | None]:
        """Start -> highest step of it that belongs to the history of the newest one; None = all. Others do not belong."""
        reach: dict[int, int | None] = {}
        limit: int | None = None
        for start in reversed(self._starts):
            if limit is None:
                reach[start.number] = None
            elif start.above >= limit or (start.last is not None and start.last + self._slack < limit):
                continue  # it never came as far, or began beyond: the newer one went on from another
            else:
                reach[start.number] = limit
            limit = start.above
        return reach


def _start_of(attempt: Attempt, gap_steps: int) -> _Start:
    first = attempt.first_step or 0
    above = attempt.resumed_from_step if attempt.resumed_from_step is not None else max(0, first - gap_steps)
    return _Start(attempt.number, attempt.started_ns, above, attempt.last_step)
