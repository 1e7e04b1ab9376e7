"""The trainer is gone: it said so when it ended, its process disappeared, or the log holds a line nothing survives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_step
from trainvitals.records import Event, Finding, Severity, Step

#: Beginnings of reasons of ``attempt_end`` that mean "as wished". They are no findings.
GOOD_REASONS = ("finish", "complete", "done", "success", "stop", "requested", "superseded")
#: Reasons that an operator knows of or a scheduler undoes: looked at within hours, nobody is woken.
SOFT_REASONS = frozenset({"time_limit", "timeout", "preempted", "requeued", "cancelled", "canceled", "rotated", "unknown", ""})
#: Classes of ``fault`` events after which no trainer goes on: those of the logs' table of faults, and the supervisor's own.
DEADLY_CLASSES = frozenset(
    {
        "out_of_memory", "nccl_timeout", "node_failure", "gpu_error", "cuda_error", "crashed", "config_error", "exception", "killed",
        "process_failed", "process_gone", "disk_full", "storage_error", "numerics", "cancelled", "time_limit", "preempted",
    }
)  # fmt: skip
#: What launchers and ranks say of a death elsewhere; another class that is told before the run is called dead says more.
CONSEQUENCES = frozenset({"process_failed", "cancelled", "killed", "network", "nccl_timeout"})
#: What processes, launchers and schedulers say while all is being taken down: behind the trainer's last word it costs nothing but a look.
AT_EXIT = CONSEQUENCES | {"crashed", "time_limit", "preempted"}
#: With numbers that mean failing hardware. A run may go on after one, so only a log that ends in it is dead of it.
LAST_WORDS = "xid"
#: After a way back was asked for and the trainer was ended, a start must come within this; a queue is one, too.
WAY_BACK_NS = 15 * 60 * 10**9


def is_deadly(event: Event) -> bool:
    """Whether a ``fault`` event lets no trainer go on, by its class or by what followed it. A row of loss-scale halvings (a
    warning) is of a deadly class, and is none."""
    data = event.data
    kind, followed_by = str(data.get("class")), data.get("followed_by")
    if data.get("survived") is True or (kind == "numerics" and event.severity is Severity.WARNING):
        return False
    return kind in DEADLY_CLASSES or (isinstance(followed_by, Mapping) and any(name in DEADLY_CLASSES for name in followed_by))


def _is_way_back(event: Event) -> bool:
    """Whether the supervisor ends, or has ended, the trainer because a person asked to go back."""
    data = event.data
    return (data.get("state"), data.get("why")) == ("ending", "rollback") or (data.get("state"), data.get("kind")) == (
        "ended", "rollback",
    )  # fmt: skip


class LivenessDetector(FamilyDetector):
    """``run_dead``. A deadly line alone is only suspicion: steps may go on (a retry, another job's output)."""

    family = "liveness"
    rules = ("run_dead",)
    STATE = (
        "ledger", "_suspected", "_suspected_class", "_suspected_ns", "_suspected_step", "_suspected_in_pause", "_closed", "_is_wished",
        "_wished_ns", "_is_finished",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._grace_ns = round(self.numbers["run_dead"]["fault_grace_s"] * 1e9)
        self._suspected: str | None = None  # what the log said
        self._suspected_class = ""
        self._suspected_ns: int | None = None
        self._suspected_step = 0
        self._suspected_in_pause = False
        self._is_finished = False  # the trainer said so, and made no step since
        self._wished_ns: int | None = None  # since when it is gone for that, and nothing was started
        self._is_wished = False  # a person asked for a way back, and the supervisor ends the trainer for it
        self._closed: dict[str, Any] = {}  # the last one, for a post-mortem that comes after the next start

    def on_step(self, step: Step) -> None:
        self._suspected, self._is_wished, self._wished_ns, self._is_finished = None, False, None, False
        if self.ledger.open:
            self._close(f"; steps go on at {format_step(step.step)}")

    def on_event(self, event: Event) -> None:
        if event.kind == "supervisor" and _is_way_back(event):
            # Its end may have been read before this: the trainer's file and the supervisor's are two.
            self._is_wished, self._suspected, self._wished_ns = True, None, event.time_ns
            self._close("; the supervisor ended it, to go back as somebody asked")
        elif event.kind == "supervisor" and event.data.get("state") == "started":
            self._wished_ns = None
        elif self._is_wished and event.kind in ("attempt_end", "fault", "postmortem"):
            self.context.is_ended = True
        elif event.kind == "attempt_end":
            self._on_end(event)
        elif event.kind == "fault":
            self._on_fault(event)
        elif event.kind == "attempt_start":
            self._is_wished, self._wished_ns = False, None
            self._confirm(event.time_ns)
            self._close("; the trainer was started again")
        elif event.kind == "postmortem":
            self._on_postmortem(event)
        elif event.kind == "phase" and event.data.get("phase") == "finished" and event.data.get("state") != "end":
            self._is_finished = True

    def _on_fault(self, event: Event) -> None:
        kind, text = str(event.data.get("class")), event.text[:200].strip()
        is_last_words = kind == LAST_WORDS and event.severity is Severity.CRITICAL and event.data.get("survived") is not True
        if is_deadly(event):
            is_news = self._suspected is None or self._suspected_class == LAST_WORDS
            is_better = self._suspected_class in CONSEQUENCES and kind not in CONSEQUENCES
        else:
            is_news, is_better = is_last_words and self._suspected is None, False
        if is_news:
            self._suspected_ns, self._suspected_step = event.time_ns, self.context.step
            self._suspected_in_pause = self.context.is_paused
        if is_news or is_better:
            before = f"{self._suspected}; then " if self._suspected and self._suspected_class == LAST_WORDS else ""
            self._suspected, self._suspected_class = before + (text or kind.replace("_", " ")), kind
            if kind != LAST_WORDS:  # that a run which may be dead makes no steps is no second trouble
                self.context.is_ended = True

    def _close(self, ending: str) -> None:
        closed = self.ledger.close("run_dead", ending=ending)
        if closed is not None:
            self._closed = asdict(closed)

    def _on_postmortem(self, event: Event) -> None:
        """The finding says what the ends of all logs told, also when the trainer was started again meanwhile."""
        cause = event.data.get("cause")
        if not isinstance(cause, Mapping):
            return
        found = self.ledger.open.get("run_dead")
        if found is None and self._closed:
            found = Finding(**{**self._closed, "severity": Severity(self._closed["severity"])})
        if found is None or found.attempt != event.attempt or "cause" in found.data:
            return
        data = {name: cause.get(name) for name in ("class", "host", "rank", "place")}
        # The cause first: what the log said at once is mostly a launcher's complaint, and titles are cut at their end.
        head, _, told = found.message.partition(": ")
        first, _, ending = told.partition("; ")
        name, kind = str(cause.get("name") or ""), str(cause.get("class") or "").replace("_", " ")
        is_the_same = bool(first) and first in (name, kind, f"{kind}: {name}")
        error, _, detail = told.partition(": ")
        is_named = bool(detail) and re.search(rf"\b{re.escape(error)}\b", name) is not None
        rest = ending if is_the_same else detail if is_named else f"first told as: {told}" if told else ""
        message = f"{head}: {event.text.removeprefix('cause: ')[:400]}" + (f"; {rest}" if rest else "")
        self.ledger.amend(replace(found, message=message, data={**found.data, "cause": data}))

    def on_tick(self, now_ns: int) -> None:
        if self._wished_ns is not None and now_ns - self._wished_ns >= WAY_BACK_NS:
            message = (
                f"the trainer was ended after step {format_step(self.context.step)} to go back, and nothing was started since"
            )
            self.ledger.open_finding(
                "run_dead", Severity.CRITICAL, message, time_ns=self._wished_ns, data={"class": "not_started"}
            )
            self._wished_ns = None
        # No step tells whether a pause goes on; but a trainer that heard of the pause lived then, whatever it printed before.
        is_quiet = self.context.is_paused and not self._suspected_in_pause
        if self._suspected is None or is_quiet or self._suspected_class == LAST_WORDS:
            return
        if self._suspected_ns is None:
            self._suspected_ns = now_ns
        if now_ns - self._suspected_ns >= self._grace_ns:
            self._confirm(self._suspected_ns)

    def confirm_now(self) -> None:
        """No more records will come: the suspicion is the last word."""
        self._confirm(self._suspected_ns)

    def _confirm(self, time_ns: int | None) -> None:
        if self._suspected is None:
            return
        when = f"after step {format_step(self._suspected_step)}" if self.context.points else "before any step was read"
        message = f"the run died {when}: {self._suspected}"
        is_at_exit = self._is_finished and self._suspected_class in AT_EXIT
        if is_at_exit:
            message = f"the trainer said {when} that it was done, and then: {self._suspected}"
        severity = Severity.WARNING if is_at_exit or self._suspected_class in SOFT_REASONS else Severity.CRITICAL
        self._suspected = None
        data = {"class": self._suspected_class}
        self.ledger.open_finding("run_dead", severity, message, first_step=self._suspected_step, time_ns=time_ns, data=data)

    def _on_end(self, event: Event) -> None:
        reason = str(event.data.get("reason") or "").strip().lower().replace(" ", "_")
        exit_code = event.data.get("exit_code")
        if reason.startswith(GOOD_REASONS):
            self._suspected = None
            return
        if self._suspected is not None:
            self._confirm(event.time_ns)
            return
        if exit_code == 0 and reason in SOFT_REASONS - {"time_limit", "preempted", "cancelled", "canceled"}:
            return
        is_soft = reason in SOFT_REASONS and exit_code in (None, 0)
        told = str(event.data.get("reason") or "")[:200].strip() or "no reason was given"
        code = "" if exit_code is None else f" (exit code {exit_code})"
        message = f"the trainer ended after step {format_step(self.context.step)}: {told}{code}"
        self.ledger.open_finding(
            "run_dead",
            Severity.WARNING if is_soft else Severity.CRITICAL,
            message,
            data={"reason": reason, "exit_code": exit_code},
        )
