"""What the supervisor of the trainer says that a person must hear of: it starts the trainer no more, or the job's time runs out.

The supervisor decides (docs/supervisor.md); here its decision becomes a finding, so that it is told like any other trouble of the run.
"""

from __future__ import annotations

from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_duration
from trainvitals.records import Event, Severity, Step

FAILED = "restart_failed"
LOOP = "restart_loop"
LIMIT = "time_limit_near"
HOLDING = "run_dead_holding_nodes"
#: States of a ``supervisor`` event after which nothing is started any more, and those after which something is.
ENDS = ("held", "gave_up")
GOES_ON = ("released", "started", "adopted", "done")
#: How the run is started, where the supervisor stands inside the job: as long as it holds the run, the job holds its nodes.
INSIDE = "allocation"
MAX_REASON = 400


class SupervisorDetector(FamilyDetector):
    """``restart_failed``, ``restart_loop``, ``time_limit_near``, ``run_dead_holding_nodes``. Of the liveness family: a death and the
    restart that did not come of it are one incident."""

    family = "liveness"
    rules = (FAILED, LOOP, LIMIT, HOLDING)
    STATE = ("ledger", "_nodes", "_idle_since_ns")

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._nodes = 0
        self._idle_since_ns: int | None = None  # since when the job keeps nodes on which nothing trains

    def on_step(self, step: Step) -> None:
        for rule in (FAILED, LOOP):
            found = self.ledger.open.get(rule)
            # Steps of the start that died may be read after the decision that followed it.
            if found is not None and (step.time_ns is None or found.time_ns is None or step.time_ns > found.time_ns):
                self.ledger.close(rule, ending="; steps come again")
                self._give_up_nodes("; steps come again")

    def on_event(self, event: Event) -> None:
        if event.kind == "attempt_end":
            self.ledger.close(LIMIT, ending="; the trainer ended")
        if event.kind != "supervisor":
            return
        state = event.data.get("state")
        if state in ENDS:
            self._held(event)
        elif state == "storage_hangs":
            self._held(event, "the supervisor cannot start it again")
        elif state in GOES_ON:
            ending = "; " + (
                "the trainer was started again" if state != "released" else event.text[:MAX_REASON].strip() or "released"
            )
            for rule in (FAILED, LOOP, LIMIT):
                self.ledger.close(rule, ending=ending)
            self._give_up_nodes(ending)
        elif state == "left":
            self._give_up_nodes("; the supervisor left, and its job with it")
        elif state == "ended":
            self.ledger.close(LIMIT, ending="; the trainer ended")
        elif state == LIMIT:
            self._limit(event)

    def on_tick(self, now_ns: int) -> None:
        if self._idle_since_ns is None:
            return
        idle_s, numbers = (now_ns - self._idle_since_ns) / 1e9, self.numbers[HOLDING]
        if idle_s < numbers["holding_s"]:
            return
        kept = f"its {format_count(self._nodes, 'node')}" if self._nodes else "its nodes"
        message = f"nothing trains for {format_duration(idle_s)}, and the job keeps {kept}: let the run go on, or end the job"
        severity = Severity.CRITICAL if idle_s >= numbers["critical_s"] else Severity.WARNING
        data = {"nodes": self._nodes}
        if HOLDING in self.ledger.open:
            self.ledger.escalate(HOLDING, severity, message, value=idle_s, data=data)
        else:
            self.ledger.open_finding(HOLDING, severity, message, time_ns=self._idle_since_ns, value=idle_s, data=data)

    def _give_up_nodes(self, ending: str) -> None:
        self._idle_since_ns = None
        self.ledger.close(HOLDING, ending=ending)

    def _held(self, event: Event, what: str = "the supervisor starts it no more") -> None:
        data = event.data
        if data.get("road") == INSIDE and self._idle_since_ns is None:
            self._idle_since_ns, self._nodes = event.time_ns, max(0, _whole(data.get("nodes")) or 0)
        # A hold for any other reason is the same to who reads it: the restart did not come about.
        rule = LOOP if data.get("rule") == LOOP else FAILED
        # As the supervisor says it to a terminal: behind the reason stands the command that lets it go on.
        reason = str(data.get("reason") or event.text.removeprefix("not starting it again: ").partition(" To go on: ")[0])
        message = f"{what}: {reason[:MAX_REASON].strip().rstrip('.')}"
        self.ledger.open_finding(
            rule, Severity.CRITICAL, message, time_ns=event.time_ns, data={"rule": str(data.get("rule") or "")[:64]}
        )

    def _limit(self, event: Event) -> None:
        left_s = _number(event.data.get("remaining_s"))
        if left_s is None:
            return
        is_soon = left_s <= self.numbers[LIMIT]["warning_s"] or event.severity.rank >= Severity.WARNING.rank
        severity = Severity.WARNING if is_soon else Severity.INFO
        message = f"the job's time limit ends the trainer in {format_duration(max(0.0, left_s))}"
        data = {"ends_at_ns": _whole(event.data.get("ends_at_ns"))}
        if LIMIT in self.ledger.open:
            self.ledger.escalate(LIMIT, severity, message, value=left_s, data=data)
        else:
            self.ledger.open_finding(LIMIT, severity, message, time_ns=event.time_ns, value=left_s, data=data)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and -1e12 < value < 1e12 else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
