"""The safe checkpoint of one run: which one it is, that it stays, and what a pause may do to it. Detection waits for none of it.

While an incident about the weights, or any critical one, is open, the recommended checkpoint is pinned; where that cannot be, the
finding ``checkpoint_safe_expiring`` says in how many steps the trainer deletes it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median_low
from typing import Any

from trainvitals.checkpoints import hash_store
from trainvitals.checkpoints.files import printable
from trainvitals.checkpoints.pinning import is_rewritten_in_place, original_path, pin_path
from trainvitals.identity import event_id
from trainvitals.incidents.damaged_values import is_damaged_in_the_run, is_damaged_since
from trainvitals.incidents.grouping import finding_from_mapping, incident_from_mapping
from trainvitals.incidents.retention import PauseSave, expiry, has_no_verdict_yet, pause_save
from trainvitals.incidents.rollback import Rollback, RollbackInputs, recommend
from trainvitals.incidents.suspect import is_about_weights
from trainvitals.records import CheckpointReport, CheckpointState, Event, Finding, Incident, Severity, Step, VerificationLevel
from trainvitals.settings import RunSettings, WatchSettings
from trainvitals.watch.before_note import BeforeNote
from trainvitals.watch.checkpoint_events import checkpoint_event, verification_event
from trainvitals.watch.pin_memory import PinMemory
from trainvitals.watch.pin_plan import plan
from trainvitals.watch.pin_reading import PinReading
from trainvitals.watch.pin_work import Done, Job, PinWork

RULE = "checkpoint_safe_expiring"
#: Looked at again after so long even when nothing happened: time alone ends a pin, and a pin can be damaged from outside.
LOOK_AGAIN_NS = 60 * 10**9
HISTORY_NS = 86_400 * 10**9
MAX_INCIDENTS, MAX_FINDINGS, MAX_ATTEMPTS = 30, 300, 200
_GONE = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})


@dataclass
class _Attempt:
    number: int
    started_ns: int
    first_step: int | None = None
    last_step: int | None = None
    resumed_from_step: int | None = None
    newest_ns: int | None = None


class SafeCheckpoint:
    """Fed with what ``watch`` reads and finds; ``poll`` says what came of it. Never raises for what a disk does."""

    def __init__(self, run: RunSettings, watch: WatchSettings, work: PinWork | None = None) -> None:
        self._run, self._watch = run, watch
        self._work = work or PinWork()
        hashes = os.path.join(run.dir, hash_store.DIRECTORY)  # noqa: PTH118
        self._reading = PinReading(
            hashes, run.name, watch.checkpoint_mb_per_s, watch.checkpoint_recheck_days, in_thread=self._work.in_thread
        )
        self._known: tuple[CheckpointReport, ...] = ()
        self._pins: dict[str, CheckpointReport] = {}
        self._shown: set[str] = set()
        self._attempts: dict[int, _Attempt] = {}
        self._incidents: dict[str, Incident] = {}
        self._findings: dict[str, Finding] = {}
        self._gaps: deque[int] = deque(maxlen=21)
        self._last_step: int | None = None
        self._last_step_ns: int | None = None
        self._why_not: dict[str, str] = {}
        self._expiring: Finding | None = None
        self._rollback = Rollback(None, "")
        self._memory = PinMemory()
        self._before_note = BeforeNote()
        self._pin_directories: set[str] = set()
        self._looked_in: set[str] = set()
        self._is_due = False
        self._done_ns = 0
        self._events: list[Event] = []

    # what is fed in

    def take(self, record: Step | Event) -> None:
        """A step, or an event about a start of the trainer."""
        if isinstance(record, Step):
            attempt = self._attempt(record.attempt, record.time_ns)
            if attempt.last_step is not None and record.step > attempt.last_step:
                self._gaps.append(record.step - attempt.last_step)
            attempt.first_step = record.step if attempt.first_step is None else attempt.first_step
            attempt.last_step = max(record.step, attempt.last_step or 0)
            attempt.newest_ns = max(record.time_ns or 0, attempt.newest_ns or 0) or None
            self._last_step = record.step
            self._last_step_ns = record.time_ns if record.time_ns is not None else self._last_step_ns
        elif record.kind == "attempt_start" and record.attempt is not None:
            attempt = self._attempt(record.attempt, record.time_ns)
            resumed = record.data.get("resumed_from_step")
            attempt.resumed_from_step = resumed if _is_whole(resumed) else attempt.resumed_from_step
        elif record.kind == "annotation":
            self._before_note.take(record, self._last_step, median_low(self._gaps) if self._gaps else 1)
            self._is_due = True
        elif record.kind == "resume" and record.attempt is not None and record.step is not None:
            self._attempt(record.attempt, record.time_ns).resumed_from_step = record.step

    def found(self, finding: Finding, incident: Incident | None) -> None:
        """A new or changed finding, and the incident that it changed."""
        if incident is not None and _is_grave(incident):
            self._incidents.pop(incident.id, None)
            self._incidents[incident.id] = incident
            self._is_due = True
        if any(finding.id in known.finding_ids for known in self._incidents.values()):
            self._findings.pop(finding.id, None)
            self._findings[finding.id] = finding
            self._is_due = True
        for identifier in [one.id for one in self._incidents.values() if not one.is_open][
            : max(0, len(self._incidents) - MAX_INCIDENTS)
        ]:
            del self._incidents[identifier]
        while len(self._findings) > MAX_FINDINGS:
            del self._findings[next(iter(self._findings))]

    def scanned(self, known: Sequence[CheckpointReport]) -> None:
        """All checkpoints that a look at the directories knows of, also those that are deleted."""
        self._known = tuple(known)
        self._is_due = True

    # what comes out

    def poll(self, now_ns: int, attempt: int) -> list[Finding]:
        """Take what was done, decide what is to be done, and say what changed of the finding; never waits."""
        if not self._run.checkpoints:
            return []
        self._look_first()
        for done in self._work.poll():
            self._events += self._take_done(done, now_ns)
            self._is_due = True
        self._read_pins(attempt, now_ns)
        is_late = abs(now_ns - self._done_ns) >= LOOK_AGAIN_NS  # also after a clock was set back
        if not (self._is_due or is_late) or not self._work.is_idle:
            return []
        self._is_due, self._done_ns = False, now_ns
        self._events += self._show(attempt, now_ns)
        self._rollback = recommend(self._inputs())
        self._plan(now_ns, is_late=is_late)
        return self._judge(attempt, now_ns)

    def take_events(self) -> list[Event]:
        """What was kept, let go or could not be, since the last call."""
        events, self._events = self._events, []
        return events

    def pause_save(self) -> PauseSave:
        """Whether a pause should save now."""
        safe = self._rollback.checkpoint
        return pause_save(
            self._run.save_on_pause, is_trouble_open=any(one.is_open and is_about_weights(one) for one in self._incidents.values()),
            safe=safe, is_pinned=safe is not None and pin_path(safe.path) in self._pins, reports=self._known,
        )  # fmt: skip

    def wanted(self) -> tuple[str, ...]:
        """Paths to be loaded before all others: what somebody may restart from soon, or what stands beside damaged numbers. One that
        a load finds damaged is recommended no more, and the next older one is wanted."""
        safe = self._rollback.checkpoint
        if safe is None or safe.path in self._pins or safe.level is VerificationLevel.LOAD:
            return ()
        is_open = any(one.is_open for one in self._incidents.values())
        return (safe.path,) if is_open or self._rollback.needs_load else ()

    @property
    def rollback(self) -> Rollback:
        """What is recommended, as of the last look."""
        return self._rollback

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "attempts": [asdict(one) for one in self._attempts.values()],
            "incidents": [asdict(one) for one in self._incidents.values()],
            "findings": [asdict(one) for one in self._findings.values()],
            "gaps": list(self._gaps),
            "last_step": [self._last_step, self._last_step_ns],
            "shown": sorted(self._shown),
            **self._memory.to_state(self._pins),
            "before_note": self._before_note.to_state(),
            "directories": sorted(self._pin_directories),
            "expiring": None if self._expiring is None else asdict(self._expiring),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``to_state`` was taken, or at nothing when it is empty; which pins there are is read from the disk."""
        state = state or SafeCheckpoint(self._run, self._watch, self._work).to_state()
        self._attempts = {one["number"]: _Attempt(**one) for one in state["attempts"]}
        self._incidents = {one["id"]: incident_from_mapping(one) for one in state["incidents"]}
        self._findings = {one["id"]: finding_from_mapping(one) for one in state["findings"]}
        self._gaps = deque(state["gaps"], maxlen=21)
        self._last_step, self._last_step_ns = state["last_step"]
        self._memory.restore(state)
        self._before_note.restore(state)
        self._shown = set(state["shown"])
        self._pin_directories = set(state["directories"])
        self._expiring = finding_from_mapping(state["expiring"]) if state["expiring"] else None

    # parts

    def _attempt(self, number: int, time_ns: int | None) -> _Attempt:
        if number not in self._attempts:
            self._attempts[number] = _Attempt(number, time_ns or 0)
            while len(self._attempts) > MAX_ATTEMPTS:
                del self._attempts[min(self._attempts)]
        return self._attempts[number]

    def _look_first(self) -> None:
        """What an earlier start of the watchdog pinned is found on the disk, once in each directory."""
        places = {os.path.abspath(path) for path in self._run.checkpoints} | self._pin_directories  # noqa: PTH100
        new = sorted(places - self._looked_in)
        self._looked_in |= set(new)
        if new:
            self._work.add([Job("look", directory, owner=self._run.name) for directory in new])

    def _inputs(self) -> RollbackInputs:
        shown = [self._pins[path] for path in self._shown if path in self._pins]
        there = [one for one in self._known if one.state is not CheckpointState.DELETED or is_damaged_in_the_run(one)]
        own = [one for one in there if pin_path(one.path) not in self._shown]
        return RollbackInputs(
            [*own, *shown], list(self._incidents.values()), list(self._findings.values()), list(self._attempts.values()),
            self._last_step, median_low(self._gaps) if self._gaps else 1,
            pinned={*self._pins, *map(original_path, self._pins)},
        )  # fmt: skip

    def _read_pins(self, attempt: int, now_ns: int) -> None:
        """Take what the looks at the content of pins found, and have the next one begin."""
        if self._watch.checkpoint_content == "off":
            return
        alone = {path: self._pins[path] for path in sorted(self._shown) if path in self._pins}
        is_urgent = any(one.is_open for one in self._incidents.values())
        safe, loads = self._rollback.checkpoint, self._watch.checkpoint_load != "off"
        to_load = [safe.path] if loads and safe is not None and self._rollback.needs_load else []
        for read in self._reading.poll(alone, now_ns, is_urgent=is_urgent, to_load=to_load):
            if read.path not in alone:
                continue
            if read.report is None:
                why = f"the content of what was kept could not be looked at: {read.problem}"
                self._events.append(self._event(original_path(read.path), "failed", why, now_ns, pinned=read.path))
                continue
            self._pins[read.path] = read.report
            self._events.append(checkpoint_event(read.report, attempt or None, now_ns))
            if read.report.verified_at_ns is not None:
                self._events.append(verification_event(read.report, read.report.verified_at_ns, attempt or None))
            self._is_due = True

    def _show(self, attempt: int, now_ns: int) -> list[Event]:
        """A pin whose original is gone is a checkpoint of its own, until it is let go."""
        there = {one.path for one in self._known if one.state not in _GONE}
        events = []
        for path, report in self._pins.items():
            if path not in self._shown and original_path(path) not in there and self._known:
                self._shown.add(path)
                events.append(checkpoint_event(report, attempt or None, now_ns))
        return events

    def _plan(self, now_ns: int, *, is_late: bool) -> None:
        if not self._watch.pin_safe_checkpoint and not self._pins:
            return
        grave = list(self._incidents.values())
        closed_ns = [one.closed_at_ns for one in grave if one.closed_at_ns is not None]
        safe = self._rollback.checkpoint
        is_trouble_open = any(one.is_open for one in grave) or is_damaged_since(self._known, safe)
        noted = None if is_trouble_open else self._before_note.checkpoint(self._inputs())
        decided = plan(
            noted or safe,
            is_trouble_open=is_trouble_open or noted is not None,
            quiet_s=(now_ns - max(closed_ns)) / 1e9 if closed_ns else None,
            keep_s=self._watch.pin_keep_hours * 3600,
            pins=self._pins,
            originals={one.path for one in self._known if one.state not in _GONE},
            not_own=self._memory.not_own(now_ns, self._watch.pin_keep_hours * 3600),
        )
        jobs = [Job("release", path, why=why, owner=self._run.name) for path, why in decided.release.items()]
        # A run that was given up long ago is left as it is.
        is_alive = self._last_step_ns is None or now_ns - self._last_step_ns <= HISTORY_NS
        if decided.pin is not None and self._watch.pin_safe_checkpoint and is_alive:
            jobs.append(Job("pin", decided.pin.path, decided.pin, "", self._watch.pin_copy_max_bytes, self._run.name))
        if is_late:
            jobs += [Job("check", path, report) for path, report in self._pins.items() if path not in decided.release]
            jobs += [Job("look", directory, owner=self._run.name) for directory in sorted(self._memory.lost)]
        if jobs:
            self._work.add(jobs)

    def _take_done(self, done: Done, now_ns: int) -> list[Event]:
        job = done.job
        name = printable(job.path.rstrip("/").rsplit("/", 1)[-1], 100)
        if job.kind == "look":
            self._pins |= self._memory.looked(done, now_ns)
            return [] if not done.problem else [self._event(job.path, "failed", f"cannot look for pins: {done.problem}", now_ns)]
        if job.kind == "pin":
            if done.problem:
                is_news = self._why_not.get(job.path) != done.problem
                self._why_not = {job.path: done.problem}
                text = f"{name} could not be kept from deletion: {done.problem}"
                return [self._event(job.path, "failed", text, now_ns, job.report)] if is_news else []
            ((made, report),) = done.made
            self._why_not.pop(job.path, None)
            is_kept_before = made.path in self._pins
            self._pins[made.path] = report
            self._memory.made(made.path)
            if is_kept_before:
                return []
            self._pin_directories.add(os.path.dirname(made.original))  # noqa: PTH120
            cost = "costs no disk until the trainer deletes its own" if made.how == "links" else f"{made.bytes:,} bytes more"
            text = f"{name} is kept from deletion as {printable(made.path)} ({made.how}: {cost})"
            return [self._event(made.original, "kept", text, now_ns, report, how=made.how, pinned=made.path)]
        if done.problem:
            state = "broken" if job.kind == "check" else "failed"
            is_news = self._why_not.get(job.path) != done.problem
            self._why_not[job.path] = done.problem
            if job.kind == "check" and self._memory.is_of_others(job.path):
                return self._forget(job.path, now_ns)  # the other run let go of it
            missed = self._pins.get(job.path) if done.is_absent else None
            gone = self._forget(job.path, now_ns) if job.kind == "check" else []
            if missed is not None:
                self._memory.missed(job.path, missed)
            text = f"what was kept of {name} is no good any more: {done.problem}" if job.kind == "check" else done.problem
            return [*([self._event(original_path(job.path), state, text, now_ns, pinned=job.path)] if is_news else []), *gone]
        for made, report in done.made:
            self._pins[made.path] = report
            self._reading.look_again(made.path)
            text = f"what was kept of {name} was written again since it was verified; its content is to be looked at anew"
            changed = [checkpoint_event(report, None, now_ns)] if made.path in self._shown else []
            return [self._event(made.original, "changed", text, now_ns, report, pinned=made.path), *changed]
        if job.kind == "release":
            text = f"{name} is no longer kept from deletion: {job.why}"
            if done.others:
                text = f"this run needs {name} no longer ({job.why}); it stays for {', '.join(done.others[:3])}"
            event = self._event(original_path(job.path), "let_go", text, now_ns, self._pins.get(job.path), pinned=job.path)
            return [event, *self._forget(job.path, now_ns)]
        return []

    def _forget(self, path: str, now_ns: int) -> list[Event]:
        report = self._pins.pop(path, None)
        self._memory.forget(path)
        if report is None or path not in self._shown:
            return []
        self._shown.discard(path)
        gone = replace(report, state=CheckpointState.DELETED, level=None, reasons=("it is no longer kept",))
        return [checkpoint_event(gone, None, now_ns)]

    def _event(
        self, path: str, state: str, text: str, now_ns: int, report: CheckpointReport | None = None, **data: str
    ) -> Event:  # fmt: skip
        severity = Severity.WARNING if state in ("failed", "broken") else Severity.INFO
        return Event(
            "pin", now_ns, step=report.step if report is not None else None, id=event_id(self._run.name, "pin", path, state, now_ns),
            severity=severity, source="watch", text=text, data={"path": path, "state": state, "reason": text, **data},
        )  # fmt: skip

    def _judge(self, attempt: int, now_ns: int) -> list[Finding]:
        """``checkpoint_safe_expiring``: opened, changed, or closed."""
        safe = self._rollback.checkpoint
        is_open = any(one.is_open for one in self._incidents.values())
        is_kept = safe is not None and pin_path(safe.path) in self._pins
        # The first attempt to pin it may still be under way: nothing is said before its answer.
        is_tried = safe is not None and (safe.path in self._why_not or not self._watch.pin_safe_checkpoint)
        told = self._expiry(safe) if safe is not None and is_open and is_tried and not is_kept else None
        if told is None:
            ended = self._expiring
            if ended is None:
                return []
            is_being_tried = not is_tried and not is_kept and not self._work.is_idle
            if is_open and (is_being_tried if safe else has_no_verdict_yet(ended.data["path"], self._known)):
                return []
            self._expiring = None
            last = max(self._last_step or 0, ended.first_step)
            ending = "; it is kept now" if is_kept else "; that is over"
            return [replace(ended, is_open=False, last_step=last, message=ended.message + ending)]
        assert safe is not None
        text, is_next = told
        why = self._why_not.get(safe.path, "pin_safe_checkpoint is off")
        step = safe.step or 0
        finding = Finding(
            id=self._expiring.id if self._expiring else f"{self._run.name}/{RULE}/{event_id(safe.path, now_ns)}",
            rule=RULE, family="checkpoint", severity=Severity.CRITICAL if is_next else Severity.WARNING, first_step=step,
            detected_step=self._expiring.detected_step if self._expiring else max(step, self._last_step or 0), last_step=None,
            attempt=self._expiring.attempt if self._expiring else attempt or 1,
            time_ns=self._expiring.time_ns if self._expiring else now_ns, value=None, expected=None,
            message=f"the safe checkpoint (step {step:,}) {text}; it is not kept, because {why}. Copy it, or pause without a save",
            is_open=True, data={"path": safe.path, "why": why},
        )  # fmt: skip
        if self._expiring is not None and self._expiring.severity is Severity.CRITICAL:
            finding = replace(finding, severity=Severity.CRITICAL)
        is_news = finding != self._expiring
        self._expiring = finding
        return [finding] if is_news else []

    def _expiry(self, safe: CheckpointReport) -> tuple[str, bool] | None:
        return expiry(safe, self._known, self._last_step, is_rewritten=is_rewritten_in_place(safe.path))


def _is_grave(incident: Incident) -> bool:
    """Whether it is a reason to keep a way back. What is wrong with checkpoints themselves is none: it would keep itself open."""
    return is_about_weights(incident) or (incident.severity is Severity.CRITICAL and incident.family != "checkpoint")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
