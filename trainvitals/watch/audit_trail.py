"""What the watchdog adds to the audit of its run: the trainer's answers, its own answers, what the breaker decided, what it keeps
from deletion; and the audit's head, as an event of the store, so that an end that was cut off is found.

What was told already is read from the audit itself, so a kill at any moment tells nothing twice and forgets nothing that still stands.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

from trainvitals.clock import Clock
from trainvitals.control.audit import AuditRecord, append, newest
from trainvitals.control.audit_files import AUDIT_FILE
from trainvitals.control.files import control_dir
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import read_request, read_status
from trainvitals.control.requests import Answer
from trainvitals.errors import ControlError, InputError
from trainvitals.identity import event_id
from trainvitals.records import Event

LOOK_EVERY_S = 1.0
#: After a disk or a lock that took nothing: waiting for them must not hold up the watch.
TRY_AGAIN_S = 10.0
#: Records looked through for what was told before.
REMEMBERED = 2_000
#: Records that wait for a disk that takes nothing; beyond it the oldest are given up, and counted.
MAX_WAITING = 500


class AuditTrail:
    """Of one run directory. lost: records given up because the disk took nothing for too long."""

    def __init__(self, run_dir: str, run: str, clock: Clock) -> None:
        self._dir, self._run, self._clock = run_dir, run, clock
        self._due_s = float("-inf")
        self._told: dict[str, None] | None = None
        self._again_s = float("-inf")
        self._queued: dict[str, None] = {}
        self._waiting: deque[tuple[str, str, str, dict[str, Any]]] = deque()
        self._seen: tuple[int, ...] = ()
        self.lost = 0
        #: Why nothing can be written, "" when all is well.
        self.trouble = ""

    def poll(self, now_s: float) -> list[Event]:
        """Tell what the trainer answered; returns the event of a new head. Looks at most once a second. now_s: monotonic."""
        if now_s < self._due_s or not self._dir or not control_dir(self._dir).is_dir():
            return []
        self._due_s = now_s + LOOK_EVERY_S
        with contextlib.suppress(ControlError, InputError, OSError):  # whoever reads them for the detectors tells it
            self._take_answers(read_status(self._dir))
        self._write()
        try:
            return self._head_events()
        except (ControlError, InputError, OSError) as error:
            self.trouble = f"the audit cannot be read: {error}"
            return []

    def answered(self, answer: Answer) -> None:
        """The watchdog carried out or refused a person's request."""
        request = answer.request
        identifier = request.id if request is not None else answer.name
        data = {"request": identifier, "outcome": answer.outcome, "answer": answer.sentence}
        if request is not None:
            data |= {"kind": request.kind, "asked_by": request.by}
        kind = "breaker_mode" if request is not None and request.kind == "breaker" else "answer"
        self._tell(f"answer {identifier}", kind, request.by if request is not None else "", data)

    def decided(self, event: Event) -> None:
        """The breaker decided."""
        self._tell(f"breaker {event.id}", "breaker", "breaker", {**_of(event), "step": event.step})

    def kept(self, event: Event) -> None:
        """A checkpoint is kept from deletion, or is not any more."""
        self._tell(f"pin {event.id}", "pin", "watch", {**_of(event), "step": event.step})

    def _take_answers(self, status: ControlStatus | None) -> None:
        if status is None:
            return
        who = f"trainer {status.pid} on {status.host}"
        more: dict[str, Any] = {"attempt": status.attempt, "state": status.state, "step": status.applied_at_step}
        if status.ack_seq:
            self._tell(
                f"acknowledged {status.ack_seq} {status.ack_request_id}", "acknowledged", who, self._asked(status.ack_seq) | more
            )
        if status.applied_seq and status.applied_seq != status.refused_seq and status.state in ("running", "paused", "stopped"):
            data = self._asked(status.applied_seq) | more | {"checkpoint_step": status.checkpoint_step, "error": status.error}
            self._tell(f"applied {status.applied_seq}", "applied", who, data)
        if status.refused_seq:
            data = self._asked(status.refused_seq) | more | {"refusal": status.refusal}
            self._tell(f"refused {status.refused_seq}", "refused", who, data)

    def _asked(self, seq: int) -> dict[str, Any]:
        try:
            request = read_request(self._dir)
        except (ControlError, InputError, OSError):
            request = ControlRequest()
        if request.seq != seq:
            return {"seq": seq}
        waited_s = max(0.0, (self._clock.time_ns() - request.issued_at_ns) / 1e9)
        return {"seq": seq, "action": request.action, "request_n": request.audit_n, "after_s": round(waited_s, 3)}

    def _tell(self, key: str, kind: str, by: str, data: dict[str, Any]) -> None:
        if not self._dir or key in self._queued:
            return
        self._queued[key] = None
        while len(self._queued) > REMEMBERED:
            self._queued.pop(next(iter(self._queued)))
        self._waiting.append((key, kind, by, data))
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._write()

    def _write(self) -> None:
        if self._waiting and self._clock.monotonic_s() < self._again_s:
            return
        while self._waiting:
            key, kind, by, data = self._waiting[0]
            try:
                if key not in self._known():
                    append(self._dir, kind, run=self._run, by=by, source="watch", data={"key": key, **data}, clock=self._clock)
                    self._known()[key] = None
            except (ControlError, InputError, OSError) as error:
                gone = f" {self.lost:,} records were given up." if self.lost else ""
                self._again_s = self._clock.monotonic_s() + TRY_AGAIN_S
                self.trouble = f"what happened is not in the audit yet ({len(self._waiting):,} wait): {error}{gone}"
                return
            self._waiting.popleft()
        self.trouble = f"{self.lost:,} records are missing in the audit: the disk took nothing for too long" if self.lost else ""

    def _known(self) -> dict[str, None]:
        if self._told is None:
            self._told = {key: None for record in newest(self._dir, REMEMBERED) if (key := _key(record))}
        while len(self._told) > 2 * REMEMBERED:
            self._told.pop(next(iter(self._told)))
        return self._told

    def _head_events(self) -> list[Event]:
        try:
            found = (control_dir(self._dir) / AUDIT_FILE).lstat()
        except FileNotFoundError:
            return []
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if seen == self._seen:
            return []
        records = newest(self._dir, 1)
        self._seen = seen
        if not records:
            return []
        head = records[-1].head
        text = f"the audit of this run ends with record {head.n}"
        # At the record's own time: the same head told again after a restart is the same row.
        identifier = event_id(self._run, "audit", head.n, head.hash)
        return [
            Event("audit", records[-1].time_ns, id=identifier, source="watch", text=text, data={"n": head.n, "hash": head.hash})
        ]  # fmt: skip


def _of(event: Event) -> dict[str, Any]:
    return {"text": event.text, **{key: value for key, value in event.data.items() if key not in ("text", "key")}}


def _key(record: AuditRecord) -> str:
    key = record.data.get("key")
    return key if record.source == "watch" and isinstance(key, str) else ""
