"""Feeds the breaker's pure decision with what the other detectors saw and turns a pause into a finding."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
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
    obstacle,
    started,
)
from trainvitals.detect.findings import Context, format_step
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.tunables import numbers_of
from trainvitals.records import Event, Severity, Step

LR_POINTS = 20
LR_RISE = 1.001
#: Of one decision after another the first is logged, then one of its kind in so many points, because what is left becomes less; trips,
#: alerts, holds and what holds always.
LOGGED_EVERY_POINTS = 20
MAX_LOGGED = 50
AUTOMATIC = ("breaker", "trainvitals", "watch")
#: Of these the reason counts points; another one stays what it is and is logged once.
COUNTING = ("cool_down", "start")
#: What a trainer answers to a request that pauses and resumes nothing.
NO_PAUSE = ("checkpoint", "failed", "expired")


class BreakerDetector(FamilyDetector):
    """``breaker_trip``: where the breaker, armed, would pause; ``breaker_alert``: N anomalous points in a row.

    ``decision`` is the newest evaluation with its reason. ``logged``: what changed in it, not taken yet, each
    ``{"step", "time_ns", "decision", "reason"}``.
    """

    family = "breaker"
    rules = ("breaker_trip", "breaker_alert")
    STATE: ClassVar[tuple[str, ...]] = (
        "ledger", "_lr", "_is_warmed_up", "_stored", "_stored_decision", "logged", "_logged_kind", "_logged_at", "_is_lr_rising", "_is_pause_wanted",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, loss: LossDetector, limits: BreakerLimits) -> None:
        super().__init__(context, tuned)
        self._loss = loss
        self._limits = limits
        self._lr: deque[float] = deque(maxlen=LR_POINTS)
        self._is_warmed_up = False
        self._state = BreakerState()
        self.decision = Decision("none")
        spike = numbers_of("loss_spike", tuned)
        self._hot_z = spike["z"] / spike["sensitivity"]
        self._min_excess = spike["min_excess"] / spike["sensitivity"]
        self.logged: list[dict[str, Any]] = []
        self._logged_kind = "none"
        self._logged_at = -LOGGED_EVERY_POINTS
        self._is_lr_rising = False
        self._is_pause_wanted = False

    def hold(self) -> str:
        """What forbids a pause now, a clause; "" when nothing does."""
        forbidden = obstacle(self._state, self._limits, self.context.time_ns, is_lr_rising=self._is_lr_rising)
        if forbidden is not None:
            return forbidden.words + (
                "; a loss that is no number pauses all the same" if forbidden.kind in ("start", "warm_up") else ""
            )
        until = self.context.silences.get("loss_spike", -1) - self.context.points
        return "" if until < 0 else f"a note explains the loss for {until + 1} more points, unless it blows up"

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
        is_lr_rising = self._is_lr_rising = self._is_warming_up()
        kind: Literal["finite", "nonfinite", "missing"] = "finite" if context.loss is not None else "missing"
        seen = Seen(
            "nonfinite" if context.loss_is_bad and context.has_had_loss else kind,
            step.time_ns,
            self._incident(),
            is_lr_rising,
            self._is_anomalous(),
        )
        self._state, self.decision = decide(self._state, seen, self._limits)
        self._log(step)
        if self.decision.decision == "alert":
            self.ledger.mark(
                "breaker_alert",
                Severity.WARNING,
                f"{self.decision.reason} (step {format_step(step.step)})",
                first_step=step.step if seen.incident is None else seen.incident.first_step,
                value=context.loss,
                expected=loss.level,
                data={"in_a_row": self._limits.anomalous_in_a_row},
            )
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
            is_person = self._is_persons(data, event.source)
        else:
            # A trainer that leaves a pause was let go by a person: the breaker never resumes.
            is_person = event.kind == "phase" and data.get("phase") == "paused" and data.get("state") == "end"
        if is_person:
            self._state = handled_by_person(self._state, self._limits)
        elif event.kind == "attempt_start":
            self._state = started(self._state)

    def _is_persons(self, data: Mapping[str, Any], source: str) -> bool:
        """Whether somebody paused or resumed. Who asks for a checkpoint asks, by the way, for what the run does anyhow."""
        by = str(data.get("by") or data.get("source") or source).lower()
        desired, state = data.get("desired"), data.get("state")
        was_wanted = self._is_pause_wanted or self.context.is_paused
        if desired in ("pause", "paused"):
            self._is_pause_wanted = True
        elif desired in ("resume", "run", "running"):
            self._is_pause_wanted = False
            if state in NO_PAUSE or (state == "requested" and not was_wanted):
                return False
        else:
            return False
        return state != "checkpoint" and not by.startswith(AUTOMATIC)

    def _is_anomalous(self) -> bool:
        context, loss = self.context, self._loss
        if context.loss_is_bad:
            return context.has_had_loss
        if context.loss is None or loss.z is None or not loss.is_warm or context.is_silenced("loss_spike"):
            return False
        if loss.incident is not None and loss.incident.get("is_return"):
            return False
        is_high = loss.z >= self._hot_z and loss.excess(context.loss) >= self._min_excess
        return is_high and not loss.scale.is_negligible(context.loss)

    def _log(self, step: Step) -> None:
        """Keep what changed for whoever writes it down (``take_log``)."""
        decision = self.decision
        is_after_trip = decision.is_repeated or (self._state.is_latched and decision.decision == "count")
        kind = f"{decision.decision}/{decision.obstacle}".removesuffix("/")
        is_counting = decision.decision == "count" or decision.obstacle in COUNTING
        if is_after_trip or (kind == self._logged_kind and not is_counting):
            return
        is_weighty = decision.decision in ("pause", "alert", "hold") and kind != self._logged_kind
        if not is_weighty and self.context.points - self._logged_at < LOGGED_EVERY_POINTS:
            return
        self._logged_kind, self._logged_at = kind, self.context.points
        reason = decision.reason or "nothing is counted any more: the loss is usual"
        entry = {"step": step.step, "time_ns": step.time_ns, "decision": decision.decision, "reason": reason}
        self.logged = [*self.logged, entry][-MAX_LOGGED:]

    def take_log(self) -> list[dict[str, Any]]:
        """What changed in the decision since the last call, oldest first."""
        taken, self.logged = self.logged, []
        return taken

    def _is_warming_up(self) -> bool:
        """Rising ever since the start; a learning rate that grows later on is a cause, not a warm-up."""
        if self._is_warmed_up or len(self._lr) < LR_POINTS:
            return False
        self._is_warmed_up = self._lr[-1] <= self._lr[0] * LR_RISE
        return not self._is_warmed_up

    def _incident(self) -> IncidentSeen | None:
        incident, loss = self._loss.incident, self._loss
        if incident is None or incident.get("is_return"):
            return None
        has_progress = loss.initial is not None and loss.initial > incident["level"]
        return IncidentSeen(
            level=incident["level"],
            value=incident["value"],
            peak=incident["peak_median"],
            lost_progress=loss.lost_progress(incident["value"]) if has_progress else None,
            first_step=incident["first_step"],
        )
