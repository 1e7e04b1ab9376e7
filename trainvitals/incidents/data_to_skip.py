"""The data around an onset that a restart may skip: a suggestion, from the run's own data events where they tell it. Pure.

Google's PaLM restarted from about 100 steps before a spike and skipped 200 to 500 batches; the spikes did not come again, and the
same batches on another checkpoint did not bring them (Chowdhery et al., PaLM, section 5.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.records import Event

BEFORE_STEPS = 100
LEAST_BATCHES, MOST_BATCHES = 200, 500


@dataclass(frozen=True)
class DataToSkip:
    """Batches of the steps ``first_step`` to ``last_step``; samples where data events tell them (None = they do not)."""

    first_step: int
    last_step: int
    first_sample: int | None = None
    last_sample: int | None = None

    @property
    def sentence(self) -> str:
        """For people; always a suggestion."""
        what = f"the data of steps {self.first_step:,} to {self.last_step:,}"
        if self.first_sample is not None and self.last_sample is not None:
            what += f" (samples {self.first_sample:,} to {self.last_sample:,})"
        return f"Consider skipping {what}: spikes often do not come again without the batches around them (PaLM)."


def data_to_skip(data: Sequence[Event], from_step: int | None, onset: int | None, last_step: int | None) -> DataToSkip | None:
    """200 to 500 batches that cover the onset and what was seen of the trouble; None when the steps are not known.

    data: events of kind ``data``, any order. from_step: of the checkpoint, which has seen everything up to it.
    """
    if from_step is None or onset is None:
        return None
    first = max(from_step + 1, onset - BEFORE_STEPS)
    seen = last_step if last_step is not None else onset
    last = min(max(first + LEAST_BATCHES - 1, seen), first + MOST_BATCHES - 1)
    known = sorted(
        (event.step, event.data["sample_first"], event.data["sample_last"])
        for event in data
        if event.step is not None and _is_whole(event.data.get("sample_first")) and _is_whole(event.data.get("sample_last"))
    )
    return DataToSkip(first, last, _sample(known, first, at_end=False), _sample(known, last, at_end=True))


def _sample(known: Sequence[tuple[int, int, int]], step: int, *, at_end: bool) -> int | None:
    """The first (or last) sample of a step's batch, between the two events around it; None beyond the last one or without order."""
    before = [one for one in known if one[0] <= step]
    after = [one for one in known if one[0] >= step]
    if not before or not after:
        return None
    (step_a, first_a, last_a), (step_b, first_b, last_b) = before[-1], after[0]
    a, b = (last_a, last_b) if at_end else (first_a, first_b)
    if b < a or last_a < first_a or last_b < first_b:
        return None  # a new epoch began, or another source: nothing is known of what lies between
    return a if step_b == step_a else a + (b - a) * (step - step_a) // (step_b - step_a)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
