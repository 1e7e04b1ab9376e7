"""Arming and disarming the circuit breaker of a run, asked for from a page or the command line → the mode in force, and its event."""

from __future__ import annotations

from typing import Any

from trainvitals.control.document import checked_text
from trainvitals.control.records import MAX_REASON
from trainvitals.control.requests import BREAKER_MODES, WatchRequest, checked_breaker_mode
from trainvitals.detect.engine import Engine
from trainvitals.identity import event_id
from trainvitals.masking import mask_cut_text
from trainvitals.records import Event, Severity
from trainvitals.watch.breaker_action import BreakerAction


class BreakerMode:
    """Of one run. What a person asked for counts, over restarts, until somebody asks for something else."""

    def __init__(self, run: str, breaker: BreakerAction) -> None:
        self._run, self._breaker = run, breaker
        self._of_settings = breaker.mode
        self._asked = ""

    @property
    def mode(self) -> str:
        """The one in force: off, dry-run or armed."""
        return self._asked or self._of_settings

    def told(self, engine: Engine) -> tuple[str, str]:
        """The mode in force, and what forbids a pause now ("" when nothing does)."""
        return self.mode, "" if self.mode == "off" else engine.breaker_hold()

    def apply(self, request: WatchRequest, last_step: int | None) -> tuple[Event, str]:
        """(the event, what is answered). Raises ``InputError`` or ``ControlError`` for what is no mode or has no reason."""
        mode = checked_breaker_mode(request.data)
        reason = mask_cut_text(checked_text("reason", str(request.data.get("reason") or ""), MAX_REASON), MAX_REASON)
        before = self.mode
        self._take(mode)
        words = "off" if mode == "off" else mode
        sentence = f"The breaker of this run is {words} now; it was {before}. {self._origin()}"
        data: dict[str, Any] = {
            "decision": "mode", "mode": mode, "before": before, "by": request.by, "reason": reason, "request": request.id,
        }  # fmt: skip
        event = Event(
            "breaker", request.issued_at_ns, step=last_step, id=event_id(self._run, "request", request.id),
            severity=Severity.INFO, source=request.source, text=f"{words} by {request.by}: {reason}", data=data,
        )  # fmt: skip
        return event, sentence

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {"asked": self._asked}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken; an empty state goes by the settings."""
        asked = str(state.get("asked", ""))
        self._take(asked if asked in BREAKER_MODES else "")

    def _take(self, asked: str) -> None:
        self._asked = asked
        self._breaker.mode = self.mode

    def _origin(self) -> str:
        return f"trainvitals.toml says {self._of_settings}; what was asked for here counts until somebody changes it here."
