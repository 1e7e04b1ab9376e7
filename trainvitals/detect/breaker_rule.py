"""Feeds the breaker's pure decision with what the other detectors saw and turns a pause into a finding."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Literal

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.breaker import (
    BreakerLimits,
    BreakerState,
    Decision,
    IncidentSeen,
    Seen,
    decide,
    handled_by_person,
    started,
)
from trainvitals.detect.findings import Context, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.records import Event, Severity, Step

LR_POINTS = 20
LR_RISE = 1.001
AUTOMATIC = ("breaker", "trainvitals", "watch")


class BreakerDetector(FamilyDetector):
    """``breaker_trip``: where the breaker, armed, would pause. ``decision`` is the newest evaluation with its reason."""

    family = "breaker"
    rules = ("breaker_trip",)
    STATE: ClassVar[tuple[str, ...]] = ("ledger", "_lr", "_is_warmed_up", "_stored", "_stored_decision")

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector, limits: BreakerLimits) -> None:
        super().__init__(context, tuned)
        self._loss = loss
        self._limits = limits
        self._lr: deque[float] = deque(maxlen=LR_POINTS)
        self._is_warmed_up = False
        self._state = BreakerState()
        self.decision = Decision("none")

    @property
    def _stored(self) -> dict[str, Any]:
        return self._state.to_state()

    @_stored.setter
    def _stored(self, stored: dict[str, Any]) -> None:
        self._state = BreakerState.from_state(stored)

    @property
    def _stored_decision(self) -> list[str]:
        return [self.decision.decision, self.decision.reason]

    @_stored_decision.setter
    def _stored_decision(self, stored: list[str]) -> None:
        self.decision = Decision(stored[0], stored[1])  # type: ignore[arg-type]

    def on_step(self, step: Step) -> None:
        lr = step.values.get("lr")
        if lr is not None:
            self._lr.append(lr)
        context, loss = self.context, self._loss
        is_lr_rising = self._is_warming_up()
        kind: Literal["finite", "nonfinite", "missing"] = "finite" if context.loss is not None else "missing"
        seen = Seen("nonfinite" if context.loss_is_bad else kind, step.time_ns, self._incident(), is_lr_rising)
        self._state, self.decision = decide(self._state, seen, self._limits)
        if self.decision.decision == "pause":
            first_step = step.step if seen.incident is None else seen.incident.first_step
            self.ledger.mark(
                "breaker_trip",
                Severity.CRITICAL,
                f"the breaker would pause at step {format_step(step.step)}: {self.decision.reason}",
                first_step=first_step,
                value=context.loss,
                expected=loss.level,
                data={"decision": "pause", "reason": self.decision.reason},
            )

    def on_resume(self, from_step: int) -> None:
        self._state = started(self._state)
        self._lr.clear()
        self._is_warmed_up = False

    def on_event(self, event: Event) -> None:
        data = event.data
        if event.kind == "control":
            by = str(data.get("by") or data.get("source") or event.source).lower()
            is_person = data.get("desired") in ("pause", "paused", "resume", "run", "running") and not by.startswith(AUTOMATIC)
        else:
            # A trainer that leaves a pause was let go by a person: the breaker never resumes.
            is_person = event.kind == "phase" and data.get("phase") == "paused" and data.get("state") == "end"
        if is_person:
            self._state = handled_by_person(self._state, self._limits)
        elif event.kind == "attempt_start":
            self._state = started(self._state)

    def _is_warming_up(self) -> bool:
        """Rising ever since the start; a learning rate that grows later on is a cause, not a warm-up."""
        if self._is_warmed_up or len(self._lr) < LR_POINTS:
            return False
        self._is_warmed_up = self._lr[-1] <= self._lr[0] * LR_RISE
        return not self._is_warmed_up

    def _incident(self) -> IncidentSeen | None:
        incident, loss = self._loss.incident, self._loss
        if incident is None:
            return None
        has_progress = loss.initial is not None and loss.initial > incident["level"]
        return IncidentSeen(
            level=incident["level"],
            value=incident["value"],
            peak=incident["peak_median"],
            lost_progress=loss.lost_progress(incident["value"]) if has_progress else None,
            first_step=incident["first_step"],
        )
