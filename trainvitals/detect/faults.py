"""Faults of the log that are findings of their own: a hanging collective, and memory that is used up.

A line alone is only suspicion, as for ``run_dead``: when steps go on after it, a mark on the chart is left.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_step
from trainvitals.records import Event, Severity, Step

#: Ranks named in a message.
NAMED_RANKS = 8


class FaultDetector(FamilyDetector):
    """``nccl_timeout``, ``out_of_memory``."""

    family = "liveness"
    rules = ("nccl_timeout", "out_of_memory")
    STATE = ("ledger", "_held", "_is_finished")

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        #: rule -> time, message, data and step of the first line since the last step
        self._held: dict[str, dict[str, Any]] = {}
        self._is_finished = False  # the trainer said so, and made no step since
        self._grace_ns = {rule: round(numbers["fault_grace_s"] * 1e9) for rule, numbers in self.numbers.items()}

    def on_step(self, step: Step) -> None:
        for rule, held in self._held.items():
            message = f"{held['message']}; steps go on at {format_step(step.step)}"
            self.ledger.mark(rule, Severity.INFO, message, first_step=held["step"], time_ns=held["time_ns"], data=held["data"])
        self._held, self._is_finished = {}, False
        if self.ledger.open:
            self._close(f"; steps go on at {format_step(step.step)}")

    def on_event(self, event: Event) -> None:
        if event.kind == "attempt_start":
            self.confirm_now()
            self._close("; the trainer was started again")
        if event.kind == "phase" and event.data.get("phase") == "finished" and event.data.get("state") != "end":
            self._is_finished = True
        rule = str(event.data.get("class"))
        if event.kind == "fault" and rule in self.rules and rule not in self._held and rule not in self.ledger.open:
            message = _message(rule, event, self.context.step)
            self._held[rule] = {
                "time_ns": event.time_ns,
                "message": message,
                "data": _data(event),
                "step": self.context.step,
                "in_pause": self.context.is_paused,
            }

    def on_tick(self, now_ns: int) -> None:
        for rule, held in list(self._held.items()):
            if held["time_ns"] is None:
                held["time_ns"] = now_ns
            elif now_ns - held["time_ns"] >= self._grace_ns[rule] and (held.get("in_pause") or not self.context.is_paused):
                self._open(rule)

    def confirm_now(self) -> None:
        """No more records of this start will come: nothing went on after it."""
        for rule in list(self._held):
            self._open(rule)

    def _open(self, rule: str) -> None:
        held = self._held.pop(rule)
        # Ranks of a run that is done leave one after the other: who waits for another one then costs nothing.
        severity = Severity.WARNING if self._is_finished and rule == "nccl_timeout" else Severity.CRITICAL
        self.ledger.open_finding(
            rule, severity, held["message"], first_step=held["step"], time_ns=held["time_ns"], data=held["data"]
        )

    def _close(self, ending: str) -> None:
        for rule in self.rules:
            self.ledger.close(rule, ending=ending)


def _message(rule: str, event: Event, step: int) -> str:
    data = event.data
    who = f" on {str(data['host'])[:100]}" if data.get("host") else ""
    who += f" rank {data['rank']}" if _is_whole(data.get("rank")) else ""
    who += f" [{str(data['place'])[:200]}]" if data.get("place") else ""
    if rule == "out_of_memory":
        what = "the host's memory is used up" if data.get("memory") == "host" else "GPU memory is used up"
        return f"{what}{who} after step {format_step(step)}: {event.text[:200].strip()}"
    operation = f" of {str(data['op'])[:60]}" if data.get("op") else ""
    waited = data.get("ranks_seen_count")
    parts = [f"{format_count(waited, 'rank')} waited"] if _is_whole(waited) else []
    idle = [rank for rank in data.get("ranks_not_waiting") or () if _is_whole(rank)]
    missing = [rank for rank in data.get("ranks_missing") or () if _is_whole(rank) and rank not in idle]
    silent = data.get("ranks_missing_count")
    if _is_whole(silent) and _is_whole(waited) and silent > waited:
        parts.append(f"{silent:,} others said nothing (a part of the job waited, or the log does not hold all ranks)")
    elif missing:
        places = data.get("ranks_missing_places") or {}
        shown = [f"{rank} [{places[str(rank)]}]" if str(rank) in places else str(rank) for rank in missing[:NAMED_RANKS]]
        named = ", ".join(shown) + (" …" if len(missing) > NAMED_RANKS else "")
        at_least = "at least " if data.get("is_at_least") else ""
        parts.append(f"{at_least}rank{'' if len(missing) == 1 else 's'} {named} said nothing")
    if idle:
        named = ", ".join(map(str, idle[:NAMED_RANKS])) + (" …" if len(idle) > NAMED_RANKS else "")
        parts.append(f"rank{'' if len(idle) == 1 else 's'} {named} had no collective pending: look there first")
    elif _is_whole(data.get("rank_behind")):
        parts.append(f"rank {data['rank_behind']} had queued less work than the others")
    return f"NCCL timeout{operation} after step {format_step(step)}" + (f": {', '.join(parts)}" if parts else "")


def _data(event: Event) -> dict[str, Any]:
    names = (
        "class",
        "count",
        "rank",
        "host",
        "memory",
        "op",
        "seq_num",
        "timeout_ms",
        "ranks_seen_count",
        "ranks_missing_count",
        "rank_behind",
        "ranks_not_waiting",
    )
    return {name: event.data[name] for name in names if name in event.data}


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
