"""A pause that was asked for and does not come: steps go on, or the trainer said that it could not.

Whoever asked (a person, the breaker) believes that the GPUs stopped spoiling the weights. ``watch`` tells of the request itself; the
trainer's hook tells what became of it.
"""

from __future__ import annotations

from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_duration, format_step
from trainvitals.records import Event, Severity, Step

RULE = "pause_not_honoured"
PAUSE = ("pause", "paused")
#: What the hook says of a request that it received and did not carry out.
REFUSALS = ("failed", "expired", "refused_to_start", "hold_ended")


class PauseDetector(FamilyDetector):
    """``pause_not_honoured``."""

    family = "control"
    rules = (RULE,)
    STATE = ("ledger", "_asked")

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._asked: dict[str, Any] = {}  # the request that is under way: by, step, time_ns, points since

    def on_step(self, step: Step) -> None:
        asked = self._asked
        if not asked:
            return
        asked["points"] += 1
        numbers = self.numbers[RULE]
        waited_s = None
        if step.time_ns is not None and asked["time_ns"] is not None:
            waited_s = (step.time_ns - asked["time_ns"]) / 1e9
        # The trainer looks at its control file once a second: at many steps a second some come before it can know.
        is_late = asked["points"] >= numbers["points_without_time"] if waited_s is None else waited_s >= numbers["min_wait_s"]
        if asked["points"] > numbers["points"] and is_late:
            since = format_count(asked["points"], "point") if waited_s is None else format_duration(waited_s)
            self._open(f"asked to pause {asked['by']}after step {format_step(asked['step'])}; steps go on for {since}", asked)

    def on_event(self, event: Event) -> None:
        data = event.data
        state = str(data.get("state"))
        if event.kind in ("attempt_start", "attempt_end"):
            self._settle("; the trainer ended" if event.kind == "attempt_end" else "; the trainer was started again")
        elif event.kind == "phase" and data.get("phase") in ("paused", "finished") and state != "end":
            self._settle("; it paused" if data["phase"] == "paused" else "; it finished")
        elif event.kind == "control":
            self._on_control(event, state)

    def on_resume(self, from_step: int) -> None:
        self._settle("; the trainer was started again")

    def _on_control(self, event: Event, state: str) -> None:
        is_pause = event.data.get("desired") in PAUSE
        if state == "requested" and is_pause:
            if RULE not in self.ledger.open and not self.context.is_paused:
                self._asked = self._request(event)
        elif state in REFUSALS and is_pause:
            asked = self._asked or self._request(event)
            why = event.text[:300].strip() or state.replace("_", " ")
            self._open(f"the pause that was asked for {asked['by']}did not come: {why}", asked)
        elif state == "paused":
            self._settle("; it paused")
        elif not is_pause:
            self._settle("; a pause is no longer asked for")

    def _request(self, event: Event) -> dict[str, Any]:
        # The time of the last step, not of the request: clocks of two machines may differ, those of two steps do not.
        time_ns = self.context.time_ns
        by = str(event.data.get("by") or event.data.get("source") or "")[:100]
        return {"by": f"by {by} " if by else "", "step": self.context.step, "time_ns": time_ns, "points": 0}

    def _open(self, message: str, asked: dict[str, Any]) -> None:
        self._asked = {}
        data = {"by": asked["by"][3:].strip(), "points": asked["points"]}
        self.ledger.open_finding(
            RULE, Severity.CRITICAL, message, first_step=asked["step"], value=float(asked["points"]), data=data
        )

    def _settle(self, ending: str) -> None:
        self._asked = {}
        self.ledger.close(RULE, None, ending)
