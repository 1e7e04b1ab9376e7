"""The contents of the two control files: frozen records that check themselves and name what is wrong.

Times in the files are RFC 3339 UTC with nanoseconds, so that people can read them; in the records they are UTC ns.
Unknown keys are ignored (a newer writer may add some); an unknown ``schema`` is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.control import document
from trainvitals.control.document import to_rfc3339

SCHEMA = 1
#: Schemas that this version understands; the status file lists them so that a writer can choose.
SCHEMAS = (1,)
#: Keys of a request that a client obeys beyond those of the first version; a client that does not know them ignores them.
UNDERSTANDS = ("save",)
#: Only where the training loop can be left and started again.
UNDERSTANDS_PARKING = (*UNDERSTANDS, "how")
#: Ways to pause: stay and wait, or save, end with exit code 75 and give the nodes back.
HOW = ("hold", "park")
DESIRED = ("running", "paused", "stopped")
STATES = ("running", "pausing", "paused", "resuming", "checkpointing", "stopping", "stopped")
MAX_NAME = 200
MAX_REASON = 2000


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """What people want of a run: a level, not a queue. The one with the highest ``seq`` counts.

    checkpoint_request: counter; a value above ``ControlStatus.checkpoint_done`` means "make one now", once per value.
    expires_at_ns: not applied after this moment (None = never). valid_from_step: not applied before this step.
    source: ui, cli, webhook, breaker. action: the word that made this request, for the audit.
    save: whether a pause saves first; None = the trainer decides, which it does by saving. A client that does not know the key
    saves, too (``ControlStatus.understands``). how: of a pause, hold or park; None = the trainer decides. A client that does not know
    the key holds. audit_n, audit_hash: this request's record in the audit, 0 = it has none.
    """

    run: str = ""
    seq: int = 0
    desired: str = "running"
    checkpoint_request: int = 0
    by: str = ""
    source: str = ""
    reason: str = ""
    action: str = ""
    request_id: str = ""
    issued_at_ns: int = 0
    expires_at_ns: int | None = None
    valid_from_step: int | None = None
    save: bool | None = None
    how: str | None = None
    audit_n: int = 0
    audit_hash: str = ""

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return document.dump(
            {
                "schema": SCHEMA,
                "run_id": self.run,
                "seq": self.seq,
                "request_id": self.request_id,
                "action": self.action,
                "desired": self.desired,
                "checkpoint_request": self.checkpoint_request,
                "issued_at": to_rfc3339(self.issued_at_ns),
                "expires_at": None if self.expires_at_ns is None else to_rfc3339(self.expires_at_ns),
                "valid_from_step": self.valid_from_step,
                "save": self.save,
                "how": self.how,
                "by": self.by,
                "source": self.source,
                "reason": self.reason,
                **({"audit_n": self.audit_n, "audit_hash": self.audit_hash} if self.audit_n else {}),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "control.json") -> ControlRequest:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = document.load(text, where, SCHEMAS)
        return cls(
            run=document.text(raw, "run_id", where, MAX_NAME),
            seq=document.count(raw, "seq", where),
            desired=document.choice(raw, "desired", where, DESIRED),
            checkpoint_request=document.count(raw, "checkpoint_request", where, 0),
            by=document.text(raw, "by", where, MAX_NAME),
            source=document.text(raw, "source", where, MAX_NAME),
            reason=document.text(raw, "reason", where, MAX_REASON),
            action=document.text(raw, "action", where, MAX_NAME),
            request_id=document.text(raw, "request_id", where, MAX_NAME),
            issued_at_ns=document.time_ns(raw, "issued_at", where) or 0,
            expires_at_ns=document.time_ns(raw, "expires_at", where),
            valid_from_step=document.optional_count(raw, "valid_from_step", where),
            save=document.optional_flag(raw, "save", where),
            how=None if raw.get("how") is None else document.choice(raw, "how", where, HOW),
            audit_n=document.count(raw, "audit_n", where, 0),
            audit_hash=document.text(raw, "audit_hash", where, MAX_NAME),
        )


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """What the trainer does, written by the control client of rank 0 alone.

    attempt: starts of the control client in this directory. ack_seq: highest request received by the trainer's poll
    thread; applied_seq: highest carried out at a step boundary; refused_seq and refusal: the last one that was received
    and not carried out, and why. step, step_age_s: last step ended, and seconds since then on the trainer's monotonic
    clock at the heartbeat (a hung step shows here while the heartbeat goes on). ended: the process said good-bye.
    bad_reads: looks at control.json that gave nothing usable. how: "hold" while paused, "park" when the trainer ended for a pause
    (its state is stopped then), else "". understands: keys of a request beyond the first ones that this
    client obeys.
    """

    run: str = ""
    attempt: int = 0
    state: str = "running"
    desired: str = "running"
    ack_seq: int = 0
    ack_request_id: str = ""
    applied_seq: int = 0
    refused_seq: int = 0
    refusal: str = ""
    checkpoint_done: int = 0
    applied_at_step: int | None = None
    checkpoint_step: int | None = None
    checkpoint_verified: bool | None = None
    error: str | None = None
    heartbeat_ns: int = 0
    heartbeat_seq: int = 0
    pause_started_ns: int | None = None
    since_ns: int | None = None
    step: int | None = None
    step_age_s: float | None = None
    by: str = ""
    source: str = ""
    reason: str = ""
    pid: int = 0
    host: str = ""
    bad_reads: int = 0
    ended: bool = False
    how: str = ""
    hook_version: str = ""
    schemas: tuple[int, ...] = SCHEMAS
    understands: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One JSON object with a final newline."""
        return document.dump(
            {
                "schema": SCHEMA,
                "schemas": list(self.schemas),
                "run_id": self.run,
                "attempt": self.attempt,
                "state": self.state,
                "desired": self.desired,
                "ack_seq": self.ack_seq,
                "ack_request_id": self.ack_request_id,
                "applied_seq": self.applied_seq,
                "refused_seq": self.refused_seq,
                "refusal": self.refusal,
                "checkpoint_done": self.checkpoint_done,
                "applied_at_step": self.applied_at_step,
                "checkpoint_step": self.checkpoint_step,
                "checkpoint_verified": self.checkpoint_verified,
                "error": self.error,
                "heartbeat": to_rfc3339(self.heartbeat_ns),
                "heartbeat_seq": self.heartbeat_seq,
                "pause_started": None if self.pause_started_ns is None else to_rfc3339(self.pause_started_ns),
                "since": None if self.since_ns is None else to_rfc3339(self.since_ns),
                "step": self.step,
                "step_age_s": self.step_age_s,
                "by": self.by,
                "source": self.source,
                "reason": self.reason,
                "pid": self.pid,
                "host": self.host,
                "bad_reads": self.bad_reads,
                "ended": self.ended,
                "how": self.how,
                "hook_version": self.hook_version,
                "understands": list(self.understands),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "control_status.json") -> ControlStatus:
        """Raises ``InputError`` naming the file, the key and what it must be."""
        raw = document.load(text, where, SCHEMAS)
        ended, age = raw.get("ended", False), raw.get("step_age_s")
        if not isinstance(ended, bool):
            raise document.wrong(where, "ended", "true or false", ended)
        if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not 0 <= age < 1e12):
            raise document.wrong(where, "step_age_s", "seconds, 0 or more, or null", age)
        schemas = raw.get("schemas", [SCHEMA])
        if not isinstance(schemas, list) or not all(isinstance(item, int) for item in schemas):
            raise document.wrong(where, "schemas", "a list of whole numbers", schemas)
        understands = raw.get("understands", [])
        if not isinstance(understands, list) or not all(isinstance(item, str) for item in understands):
            raise document.wrong(where, "understands", "a list of texts", understands)
        return cls(
            run=document.text(raw, "run_id", where, MAX_NAME),
            attempt=document.count(raw, "attempt", where, 0),
            state=document.choice(raw, "state", where, STATES),
            desired=document.choice(raw, "desired", where, DESIRED, "running"),
            ack_seq=document.count(raw, "ack_seq", where),
            ack_request_id=document.text(raw, "ack_request_id", where, MAX_NAME),
            applied_seq=document.count(raw, "applied_seq", where, 0),
            refused_seq=document.count(raw, "refused_seq", where, 0),
            refusal=document.text(raw, "refusal", where, None),
            checkpoint_done=document.count(raw, "checkpoint_done", where, 0),
            applied_at_step=document.optional_count(raw, "applied_at_step", where),
            checkpoint_step=document.optional_count(raw, "checkpoint_step", where),
            checkpoint_verified=document.optional_flag(raw, "checkpoint_verified", where),
            error=document.text(raw, "error", where, None) or None,
            heartbeat_ns=document.time_ns(raw, "heartbeat", where) or 0,
            heartbeat_seq=document.count(raw, "heartbeat_seq", where, 0),
            pause_started_ns=document.time_ns(raw, "pause_started", where),
            since_ns=document.time_ns(raw, "since", where),
            step=document.optional_count(raw, "step", where),
            step_age_s=None if age is None else float(age),
            by=document.text(raw, "by", where, None),
            source=document.text(raw, "source", where, None),
            reason=document.text(raw, "reason", where, None),
            pid=document.count(raw, "pid", where, 0),
            host=document.text(raw, "host", where, None),
            bad_reads=document.count(raw, "bad_reads", where, 0),
            ended=ended,
            how=document.text(raw, "how", where, MAX_NAME),
            hook_version=document.text(raw, "hook_version", where, None),
            schemas=tuple(schemas),
            understands=tuple(understands),
        )
