"""Control of a trainer that knows no control client: ``watch`` reads the request, parks the trainer in its own way, writes the status.

A pause and a stop are both a park: the trainer saves, ends and gives its GPUs back. The status file has one writer: as long as a control
client of the hook writes it, this does nothing and says so. What was done is remembered in the status itself, as the client does it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainvitals import __version__
from trainvitals.clock import Clock
from trainvitals.control import files
from trainvitals.control.records import ControlRequest, ControlStatus
from trainvitals.control.request import read_request, read_status
from trainvitals.control.rules import Received, has_expired, objection
from trainvitals.control.view import SILENT_AFTER_S
from trainvitals.errors import TrainvitalsError
from trainvitals.identity import event_id
from trainvitals.records import Event, Step
from trainvitals.settings import RunSettings
from trainvitals.watch.own_way import KillSwitch, OwnWay, Trainer, TrainerSignal

LOOK_EVERY_S = 1.0
#: Between two heartbeats without news; the page calls a status silent after 15 s.
HEARTBEAT_S = 2.0
#: ``hook_version`` of a status that we wrote begins with it.
WRITER = "watch "
PARKED = ("paused", "stopped")
_ENDING = {"paused": "pausing", "stopped": "stopping"}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the run's records said of the trainer. step_s: this machine's monotonic clock. saved_step: of its last save that ended."""

    step: int | None = None
    step_s: float = 0.0
    is_ended: bool = False
    trainer: Trainer | None = None
    saved_step: int | None = None


class NoAdapter:
    """The trainer's own control client does it all."""

    trouble = ""

    def take(self, record: Step | Event) -> Step | Event:
        """Nothing to see."""
        return record

    def poll(self, now_s: float, now_ns: int) -> list[Event]:
        """Nothing to do."""
        return []

    def to_state(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""


class ControlAdapter:
    """Of one run. ``poll`` never raises; ``trouble`` says why nothing can be done, "" when all is well."""

    def __init__(self, run_dir: str, run: str, way: OwnWay, clock: Clock, host: str) -> None:
        self._dir, self._run, self._way, self._clock, self._host = run_dir, run, way, clock, host
        self._due_s = self._beat_due_s = float("-inf")
        self._seen = _Seen()
        self._status: ControlStatus | None = None
        self._received: Received | None = None
        self._has_looked = False
        self._written = b""
        self._bad_reads = 0
        self._read_problem = ""
        self._is_wished = False  # the end of the trainer, when it comes, was asked for here
        self._events: list[Event] = []
        self.trouble = ""

    def take(self, record: Step | Event) -> Step | Event:
        """Learn from a record of the run. The end of a trainer that was told to end is given back as the wished end that it is."""
        if isinstance(record, Step):
            self._seen = replace(self._seen, step=record.step, step_s=self._clock.monotonic_s(), is_ended=False)
            self._is_wished = self._is_wished and self._status is not None and self._status.state != "stopped"
        elif record.kind == "attempt_start":
            self._seen, self._is_wished = replace(self._seen, trainer=_trainer(record.data), is_ended=False), False
        elif record.kind == "phase" and record.data.get("phase") == "checkpoint":
            if record.data.get("state") == "end" and record.step is not None:
                self._seen = replace(self._seen, saved_step=record.step)
        elif record.kind == "attempt_end" or (record.kind == "phase" and record.data.get("phase") == "finished"):
            self._seen = replace(self._seen, is_ended=record.data.get("state") != "end")
            status = self._status
            if record.kind == "attempt_end" and self._is_wished:
                who = f"{status.by}: {status.reason}" if status is not None and status.by else "request"
                why = f"requested: parked by {who}"[:300]
                return replace(
                    record, text=why, data={**record.data, "reason": why, "said": str(record.data.get("reason", ""))[:300]}
                )
        return record

    def poll(self, now_s: float, now_ns: int) -> list[Event]:
        """Carry out what is new; looks at most once a second. now_s: monotonic."""
        if now_s < self._due_s:
            return []
        self._due_s = now_s + LOOK_EVERY_S
        try:
            if self._is_ours_to_write(now_ns):
                self._obey(now_s, now_ns)
                self._write(now_s, now_ns)
        except (TrainvitalsError, OSError) as error:
            self._bad_reads += 1
            self.trouble = f"the control files cannot be used: {error}"
        events, self._events = self._events, []
        return events

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        seen = self._seen
        who = seen.trainer
        return {
            "step": seen.step,
            "is_ended": seen.is_ended,
            "is_wished": self._is_wished,
            "saved_step": seen.saved_step,
            "trainer": None if who is None else [who.pid, who.host, who.started_ns, who.pid_namespace],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        who = state.get("trainer")
        self._seen = _Seen(
            state.get("step"), self._clock.monotonic_s(), bool(state.get("is_ended")), Trainer(*who) if who else None,
            state.get("saved_step"),
        )  # fmt: skip
        self._is_wished = bool(state.get("is_wished"))

    # -- whose file it is

    def _is_ours_to_write(self, now_ns: int) -> bool:
        files.make_directories(self._dir)
        there = read_status(self._dir)
        if there is not None and not there.hook_version.startswith(WRITER):
            path = files.control_dir(self._dir) / files.STATUS_FILE
            age_s = files.file_system_time_s(path.parent) - path.lstat().st_mtime
            if not there.ended and age_s <= SILENT_AFTER_S:
                self._status = self._received = None
                self._has_looked = False
                self.trouble = (
                    f"a control client of the trainer (process {there.pid} on {there.host}) writes {path}: it is obeyed, and "
                    f'control = "{self._way.name}" does nothing. Remove that setting or the client.'
                )
                return False
        if not self._has_looked:
            self._take_up(there, now_ns)
        self.trouble = ""
        return True

    def _take_up(self, before: ControlStatus | None, now_ns: int) -> None:
        """What earlier writers have done, so that nothing is done twice."""
        self._has_looked = True
        known = before if before is not None and (not before.run or before.run == self._run) else ControlStatus(since_ns=now_ns)
        is_ours = known.hook_version.startswith(WRITER)
        unsure = is_ours and known.state in _ENDING.values() and not self._way.can_take_back and known.error is not None
        self._status = replace(
            known, run=self._run, host=self._host, hook_version=f"{WRITER}{__version__} ({self._way.name})", understands=("how",),
            state=known.state if is_ours else "running", ended=False, attempt=known.attempt + (not is_ours),
            # Told before the signal is sent, and taken back afterwards: what stands there now was never taken back.
            error=f"{UNSURE} Look, then resume and pause again." if unsure else None,
        )  # fmt: skip

    # -- what is asked

    def _obey(self, now_s: float, now_ns: int) -> None:
        status = self._status or ControlStatus()
        if status.state in _ENDING.values() and self._way.is_gone(self._seen.trainer):
            self._seen = replace(self._seen, is_ended=True)
        request = read_request(self._dir)
        why_not = objection(request, self._run, status.ack_seq, status.ack_request_id)
        self._bad_reads += bool(why_not) and why_not != self._read_problem
        self._read_problem = why_not
        if not why_not and request.seq > 0 and request.seq > status.refused_seq:
            received = self._received
            if received is None or received.request != request:
                is_fresh = status.heartbeat_seq > 0 and self._written != b""
                received = Received(request, now_s, is_fresh, was_applied=request.seq <= status.applied_seq)
                self._received = received
            self._change(ack_seq=request.seq, ack_request_id=request.request_id, desired=request.desired)
            if request.seq > status.applied_seq:
                self._carry_out(received, now_s, now_ns)
        self._follow(now_ns)

    def _carry_out(self, received: Received, now_s: float, now_ns: int) -> None:
        request, status = received.request, self._status or ControlStatus()
        if status.state in _ENDING.values() and request.desired in PARKED:
            self._who(request, _ENDING[request.desired])
            return  # under way already
        if has_expired(received, now_ns, now_s):
            self._refuse(received, "it had expired before it was carried out", now_ns)
        elif request.valid_from_step is not None and (self._seen.step or 0) < request.valid_from_step:
            return
        elif request.desired == "running" and request.action == "checkpoint":
            self._refuse(
                received, "this trainer is controlled in its own way, which can only park it; it saves when it is parked", now_ns
            )
            self._change(checkpoint_done=request.checkpoint_request)
        elif request.desired == "running":
            self._release(received, now_ns)
        elif request.how == "hold":
            self._refuse(received, "this trainer is controlled in its own way, which can only park it: it saves and ends", now_ns)
        else:
            self._park(received, now_s, now_ns)

    def _park(self, received: Received, now_s: float, now_ns: int) -> None:
        request = received.request
        self._who(request, _ENDING[request.desired])
        self._change(applied_at_step=self._seen.step, error=None if self._way.can_take_back else UNSURE)
        if self._seen.is_ended and not self._way.can_take_back:
            self._change(error=None)  # nobody is there to be told
            return
        # On disk before it is done: a signal is sent once at most, wherever we are killed.
        if not self._way.can_take_back:
            self._write(now_s, now_ns)
        why_not = self._way.park(request, self._seen.trainer)
        if why_not:
            self._change(state="stopped" if self._seen.is_ended else "running")
            self._refuse(received, why_not, now_ns)
            return
        self._is_wished = True
        self._change(error=None)
        self._tell(received, _ENDING[request.desired], now_ns, f"told by {self._way.name.replace('_', ' ')} to save and end")

    def _release(self, received: Received, now_ns: int) -> None:
        status = self._status or ControlStatus()
        is_late = status.state in _ENDING.values() and not self._way.can_take_back
        why_not = self._way.release(received.request)
        if why_not:
            self._refuse(received, why_not, now_ns)
            return
        late = "the signal cannot be taken back: the trainer saves and ends; start it again then" if is_late else None
        ended = self._seen.is_ended
        self._who(None, "stopped" if ended else "running")
        self._change(applied_seq=received.request.seq, error=late, pause_started_ns=None, how="")
        self._tell(received, "running", now_ns, late or ("it may start again" if ended else ""))

    def _follow(self, now_ns: int) -> None:
        """The end of a trainer that was told to end, and the start of one that had ended."""
        status, received = self._status or ControlStatus(), self._received
        if status.state in _ENDING.values() and self._seen.is_ended and received is not None:
            self._change(state="stopped", applied_seq=received.request.seq, applied_at_step=self._seen.step, error=None)
            is_pause = received.request.desired == "paused"
            self._change(pause_started_ns=now_ns if is_pause else None, since_ns=now_ns, how="park" if is_pause else "")
            ended = "it ended as it was told" if self._is_wished else "it had ended already"
            self._tell(received, "parked" if is_pause else "stopped", now_ns, ended)
        elif status.state == "stopped" and not self._seen.is_ended and self._seen.step is not None:
            is_against = status.desired in PARKED
            told = f"the trainer was started although it is asked to be {status.desired}; it is not parked again by itself"
            self._change(state="running", since_ns=now_ns, error=told if is_against else None, how="", pause_started_ns=None)
        elif status.state == "running" and self._seen.is_ended:
            self._change(state="stopped", since_ns=now_ns)

    # -- what is told

    def _who(self, request: ControlRequest | None, state: str) -> None:
        by, source, reason = ("", "", "") if request is None else (request.by, request.source, request.reason)
        is_new = self._status is not None and self._status.state != state
        self._change(state=state, by=by, source=source, reason=reason, **({"since_ns": self._clock.time_ns()} if is_new else {}))

    def _refuse(self, received: Received, why: str, now_ns: int) -> None:
        self._change(refused_seq=received.request.seq, refusal=why, error=None)
        self._tell(received, "failed", now_ns, why)

    def _change(self, **values: Any) -> None:
        self._status = replace(self._status or ControlStatus(), **values)

    def _tell(self, received: Received, state: str, now_ns: int, text: str) -> None:
        request = received.request
        data = {
            "state": state, "seq": request.seq, "desired": request.desired, "by": request.by, "source": request.source,
            "reason": request.reason, "way": self._way.name, "latency_s": round(self._clock.monotonic_s() - received.seen_s, 3),
        }  # fmt: skip
        identifier = event_id(self._run, "control", request.seq, state)
        self._events.append(
            Event("control", now_ns, step=self._seen.step, id=identifier, source="watch", text=text[:500], data=data)
        )

    def _write(self, now_s: float, now_ns: int) -> None:
        seen, status = self._seen, self._status or ControlStatus()
        age_s = None if seen.step is None else round(max(0.0, now_s - seen.step_s), 3)
        pid = seen.trainer.pid if seen.trainer is not None and seen.trainer.host == self._host else 0
        news = replace(
            status, step=None, pid=pid, ended=seen.is_ended, bad_reads=self._bad_reads, heartbeat_seq=0, heartbeat_ns=0,
            checkpoint_step=seen.saved_step if seen.saved_step is not None else status.checkpoint_step,
        )  # fmt: skip
        told = news.to_json().encode() + self._read_problem.encode("utf-8", "replace")
        if told == self._written and now_s < self._beat_due_s:
            return
        beat = replace(news, step=seen.step, heartbeat_seq=status.heartbeat_seq + 1, heartbeat_ns=now_ns)
        problems = " ".join(text for text in (beat.error, self._read_problem) if text)
        shown = replace(beat, step_age_s=age_s, error=problems or None)
        path = files.control_dir(self._dir) / files.STATUS_FILE
        files.replace(path, shown.to_json().encode(), files.STATUS_MODE, durable=told != self._written)
        self._status, self._written, self._beat_due_s = beat, told, now_s + HEARTBEAT_S


UNSURE = "A signal was about to be sent to the trainer when this was written: whether it was is not known."


def _trainer(data: Mapping[str, Any]) -> Trainer | None:
    pid, started_ns = data.get("pid"), data.get("started_ns")
    if type(pid) is not int or type(started_ns) is not int or not 1 < pid < 2**31:
        return None
    return Trainer(pid, str(data.get("host", "")), started_ns, str(data.get("pid_namespace", "")))


def adapter_for(
    run: RunSettings, clock: Clock, read: Callable[[int], tuple[bool, int | None]], pid_namespace: str
) -> ControlAdapter | NoAdapter:
    """What ``control`` of a run's settings asks for. read, pid_namespace: as ``TrainerSignal`` takes them."""
    if run.control == "hook":
        return NoAdapter()
    host = os.uname().nodename  # as the hook's header names this machine
    way: OwnWay = (
        KillSwitch(run.kill_switch_path, run.name)
        if run.control == "kill_switch"
        else TrainerSignal(run.signal, run.signal_pid_file, host, read, pid_namespace)
    )
    return ControlAdapter(run.dir, run.name, way, clock, host)
