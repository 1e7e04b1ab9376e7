"""The last way back before what a person's note calls meant: nothing is told for a while then, and it must not be lost unseen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainvitals.detect.annotations import points_of, rules_of
from trainvitals.incidents.rollback import RollbackInputs, recommend
from trainvitals.records import CheckpointReport, Event

#: Those whose silence hides that weights are damaged.
RULES = ("loss_spike", "loss_divergence", "loss_level_shift", "loss_drift", "grad_norm_spike")


class BeforeNote:
    """Which checkpoint is kept while a note silences what would say that it is needed."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._until = -1

    def take(self, event: Event, last_step: int | None, gap_steps: int) -> None:
        """A note. gap_steps: between two points. Without a step of its own it counts from the last one on."""
        step = event.step if event.step is not None else last_step
        if step is None or not rules_of(event.data, RULES):
            return
        # A second note within the first one's silence hides the same.
        self._step = min(step, self._step) if self._step is not None and self._is_silent(last_step) else step
        self._until = max(self._until, step + points_of(event.data) * max(1, gap_steps))

    def checkpoint(self, inputs: RollbackInputs) -> CheckpointReport | None:
        """The one to be kept now, None when no note is in force."""
        if self._step is None or not self._is_silent(inputs.last_step) or (inputs.last_step or 0) < self._step:
            return None
        before = [one for one in inputs.checkpoints if one.step is not None and one.step < self._step]
        return recommend(replace(inputs, checkpoints=before)).checkpoint

    def to_state(self) -> list[int | None]:
        """JSON values only."""
        return [self._step, self._until]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._step, self._until = state.get("before_note") or (None, -1)

    def _is_silent(self, last_step: int | None) -> bool:
        return self._step is not None and last_step is not None and last_step <= self._until
