"""Saves as they happen: late, hanging, or holding up the training. From what the trainer says, and from what appears on disk.

Logs tell begin and end of a save (``phase`` events), the hook tells more (``save`` events); many trainers print only one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.checkpoint_book import MAX_STEP, CheckpointBook, path_key, whole
from trainvitals.detect.findings import Context, format_count, format_duration, format_step
from trainvitals.detect.save_blocking import Blocking
from trainvitals.detect.save_declared import declared_interval
from trainvitals.detect.save_schedule import Interval, Pace, SaveSchedule
from trainvitals.detect.save_waiting import Waiting
from trainvitals.records import Event, Severity, Step

OVERDUE, STUCK, BLOCKING = "checkpoint_overdue", "checkpoint_stuck", "checkpoint_blocking"
#: So many begins without any end: the trainer prints only begins, and they are taken for the saves.
ONLY_BEGINS = 3
SOURCES = {"told": "the trainer told of no save", "disk": "no new complete checkpoint in the watched directories"}


class SaveDetector(FamilyDetector):
    """``checkpoint_overdue``, ``checkpoint_stuck``, ``checkpoint_blocking``. ``book`` is kept by it for the rules on checkpoints."""

    family = "checkpoint"
    rules = (OVERDUE, STUCK, BLOCKING)
    STATE = (
        "ledger", "book", "pace", "told", "disk", "_waiting", "_blocking", "_begins", "_ends", "_overdue_of", "_disk_ns",
        "_tick_ns", "_was_live", "told_before", "_tells_saves",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, planned_steps: int = 0) -> None:
        """planned_steps: between two saves, as the settings of this product say; 0 = not said."""
        super().__init__(context, tuned)
        self._planned_steps = planned_steps or None
        gaps = [int(min(1e6, max(2.0, self.numbers[OVERDUE][name]))) for name in ("gaps", "sure_gaps")]
        self.book = CheckpointBook()
        self.pace = Pace()
        self.told = SaveSchedule(*gaps)
        self.disk = SaveSchedule(*gaps)
        #: The save before the one that the trainer told last.
        self.told_before: int | None = None
        self._waiting = Waiting(self.numbers[STUCK])
        self._blocking = Blocking(self.numbers[BLOCKING])
        self._begins = self._ends = 0
        self._tells_saves = False  # with save events the phases, which last as long as training waits, say less
        self._overdue_of = ""
        self._disk_ns = 0
        self._tick_ns: int | None = None
        self._was_live = False

    def usual_interval(self) -> int | None:
        """Steps between two saves; None while that is not known."""
        known = [interval.steps for schedule in (self.told, self.disk) if (interval := schedule.interval()) is not None]
        return max(known, default=None)

    # -- what happens ---------------------------------------------------------------------------------------------

    def on_step(self, step: Step) -> None:
        if self._planned_steps is not None:
            self._declare(self._planned_steps)
        gap = self.pace.push(step.step, step.time_ns)
        self._was_live = self._was_live or self._tick_ns is not None
        self._blocking.stepped(step, gap, self.pace.step_s(), self.context.attempt)
        self._look_for_overdue(step)
        if step.time_ns is not None and self._tick_ns is None:
            self._look_for_stuck(step.time_ns)

    def on_tick(self, now_ns: int) -> None:
        self._tick_ns = now_ns
        if self._was_live and not self.context.is_ended:
            self._look_for_stuck(now_ns)

    def on_event(self, event: Event) -> None:
        kind, data = event.kind, event.data
        if kind == "save":
            self._on_save(event, data)
        elif kind == "phase":
            self._on_phase(event, str(data.get("phase")), data)
        elif kind == "checkpoint":
            self._on_checkpoint(event)
        elif kind in ("attempt_start", "attempt_end"):
            self._waiting.clear()
            self._tells_saves = False
            ending = "; the trainer ended" if kind == "attempt_end" else "; the trainer was started again"
            for rule in (STUCK, OVERDUE):
                self.ledger.close(rule, None, ending)
        elif kind == "metadata":
            self._on_settings(data)
        elif kind == "annotation":
            self._on_note()

    def on_resume(self, from_step: int) -> None:
        self._waiting.clear()
        self.pace.restart()
        self._blocking.restart()
        for rule in (STUCK, OVERDUE):
            self.ledger.close(rule, None, "; the trainer was started again")
        for schedule in (self.told, self.disk):
            schedule.went_back(from_step)
        self.told_before = None if self.told_before is None else min(self.told_before, from_step)

    # -- saves ----------------------------------------------------------------------------------------------------

    def _on_save(self, event: Event, data: Mapping[str, Any]) -> None:
        state, step = str(data.get("state")), self._step_of(event)
        self._tells_saves = self._tells_saves or state in ("begun", "staged", "persisted", "failed")
        key = path_key(str(data.get("path") or step))
        if state in ("begun", "staged"):
            self._waiting.begun(key, step, event.time_ns, self._arrival(event.time_ns))
        elif state in ("persisted", "failed", "deleted"):
            self._waiting.ended(key, event.time_ns if state == "persisted" else None)
        if state in ("staged", "persisted"):
            self._blocking.told(key, step, event.time_ns, data.get("blocked_s"), self.context.attempt)
            self._look_for_blocking()
        if state == "persisted":
            self._saved(step, event.time_ns)
        elif state == "failed":
            why = str(data.get("reason") or event.text)[:200].strip()
            text = f"the save of step {format_step(step)} failed" + (f": {why}" if why else "")
            self.ledger.open_finding(
                STUCK,
                Severity.WARNING,
                text,
                first_step=step,
                data={"step": step, "state": "failed", "rank": whole(data.get("rank"))},
            )
        elif state == "deleted":
            self._close_stuck(key, "; it was deleted")

    def _on_phase(self, event: Event, phase: str, data: Mapping[str, Any]) -> None:
        if phase != "checkpoint":
            self._blocking.interrupted()  # what takes time there is not the save
            return
        if self._tells_saves:
            return
        step = self._step_of(event)
        if data.get("state") != "end":
            self._begins += 1
            self._waiting.phase_begun(step, event.time_ns, self._arrival(event.time_ns))
            self._blocking.phase_begun(step, event.time_ns)
            if self._ends == 0 and self._begins >= ONLY_BEGINS:
                self._blocking.around(step)
                self._saved(step, event.time_ns)
            return
        self._ends += 1
        self._waiting.phase_ended(event.time_ns)
        self._blocking.phase_ended(step, event.time_ns, self.context.attempt)
        self._saved(step, event.time_ns)
        self._look_for_blocking()

    def _saved(self, step: int, time_ns: int | None) -> None:
        last = self.told.last_step
        if self.told.saved(step, time_ns):
            self.told_before = last
            self._close_overdue("told", f"; step {format_step(step)} was saved")
            self._pass_stuck(step, is_seen=False)

    def _pass_stuck(self, step: int, *, is_seen: bool) -> None:
        """A save of this step is durable. is_seen: all of it is on disk; else the first rank told so of its part."""
        finding = self.ledger.open.get(STUCK)
        if finding is not None and finding.data.get("rank") and finding.data["step"] == step and not is_seen:
            return
        if finding is not None and whole(finding.data.get("step")) is not None and finding.data["step"] <= step:
            is_it = finding.data["step"] == step
            self.ledger.close(STUCK, None, "; it is saved now" if is_it else f"; step {format_step(step)} was saved after it")

    def _on_checkpoint(self, event: Event) -> None:
        taken = self.book.take(event.data, event.time_ns)
        if taken is None:
            return
        before, after = taken
        self._waiting.seen_on_disk(after, self._arrival(event.time_ns))
        if after["state"] not in ("writing", "staged"):
            self._close_stuck(after["path"], f"; now it is {after['state']}")
        born_ns, step = after["born_ns"], after["step"]
        if not after["is_good"] or (before is not None and before["born_ns"] == born_ns) or born_ns is None or step is None:
            return
        # What lay there before is history, and was perhaps tidied: only what is newer than all that was seen is a save.
        if born_ns > self._disk_ns and self.disk.saved(step, born_ns):
            # What lies on disk was saved, whether the trainer says so or not.
            for source in SOURCES:
                self._close_overdue(source, f"; step {format_step(step)} is complete")
            self._pass_stuck(step, is_seen=True)
        self._disk_ns = max(self._disk_ns, born_ns)

    # -- judging --------------------------------------------------------------------------------------------------

    def _look_for_overdue(self, step: Step) -> None:
        found = self.ledger.open.get(OVERDUE)
        if found is not None and found.severity is not Severity.INFO:
            return
        numbers = self.numbers[OVERDUE]
        for name, schedule in (("told", self.told), ("disk", self.disk)):
            if schedule.last_step is None or (name == "disk" and not schedule.in_attempt):
                continue  # another start may save elsewhere, where nobody looks
            if schedule.last_ns is None:
                schedule.last_ns = step.time_ns
            since = step.step - schedule.last_step
            interval = schedule.interval()
            if interval is None:
                continue
            # It is seen on disk when somebody looks, and after it stood still.
            lag_s = numbers["disk_lag_s"] if name == "disk" else 0.0
            since_s = None
            if step.time_ns is not None and schedule.last_ns is not None:
                since_s = max(0.0, (step.time_ns - schedule.last_ns) / 1e9)
            is_late = self._is_late(since, since_s, interval, numbers["factor"], lag_s)
            if name == "told" and self.disk.in_attempt and self.disk.last_step is not None:
                # A trainer may fall silent (another log level) and save all the same.
                is_late = is_late and step.step - self.disk.last_step >= numbers["factor"] * interval.steps
            is_sure = interval.is_sure or self._is_late(since, since_s, interval, numbers["unsure_factor"], lag_s)
            if is_late:
                self._tell_overdue(name, schedule.last_step, since, since_s, interval, is_sure=is_sure)
                return

    def _is_late(self, since: int, since_s: float | None, interval: Interval, factor: float, lag_s: float) -> bool:
        # A point is logged only now and then, and the save comes after it.
        if since < factor * interval.steps + self.context.gap_steps:
            return False
        least_s = lag_s + (0.0 if interval.seconds is None else factor * interval.seconds)
        return not least_s or (since_s is not None and since_s >= least_s)

    def _tell_overdue(
        self, name: str, last_step: int, since: int, since_s: float | None, interval: Interval, *, is_sure: bool
    ) -> None:
        took = "" if since_s is None else f" ({format_duration(since_s)})"
        message = (
            f"{SOURCES[name]} for {format_count(since, 'step')}{took} since step {format_step(last_step)}; "
            f"usual: every {format_count(interval.steps, 'step')}"
        )
        severity = Severity.WARNING if is_sure else Severity.INFO
        self._overdue_of = name
        if OVERDUE in self.ledger.open:
            self.ledger.escalate(OVERDUE, severity, message, value=float(since))
            return
        self.ledger.open_finding(
            OVERDUE, severity, message, first_step=last_step + interval.steps, value=float(since), expected=float(interval.steps),
            data={"source": name, "last_saved_step": last_step},
        )  # fmt: skip

    def _close_overdue(self, source: str, ending: str) -> None:
        if self._overdue_of == source:
            self.ledger.close(OVERDUE, None, ending)
            self._overdue_of = ""

    def _look_for_stuck(self, now_ns: int) -> None:
        if STUCK in self.ledger.open or not self._waiting.is_any:
            return
        done_step = max(self.told.last_step or 0, self.disk.last_step or 0)
        found = self._waiting.longest_beyond(now_ns, done_step)
        if found is None:
            return
        what = f"the save of step {format_step(found.step)}" if found.step is not None else f"the save {found.name}"
        usual = f"usual {format_duration(found.usual_s)}, " if found.usual_s is not None else ""
        self.ledger.open_finding(
            STUCK, Severity.WARNING,
            f"{what} began {format_duration(found.waited_s)} ago and is not done ({usual}deadline {format_duration(found.deadline_s)})",
            first_step=found.step, value=found.waited_s, expected=found.usual_s, time_ns=now_ns,
            data={"step": found.step, "key": found.key, "state": found.state},
        )  # fmt: skip

    def _close_stuck(self, key: str, ending: str) -> None:
        finding = self.ledger.open.get(STUCK)
        if finding is not None and finding.data.get("key") == key:
            self.ledger.close(STUCK, None, ending)

    def _look_for_blocking(self) -> None:
        verdict = self._blocking.judge(self.context.attempt)
        if verdict is None:
            return
        if verdict.is_fine:
            self.ledger.close(BLOCKING, None, f"; now {verdict.text}")
        elif BLOCKING not in self.ledger.open:
            severity = Severity.INFO if verdict.is_estimate else Severity.WARNING
            self.ledger.open_finding(
                BLOCKING, severity, verdict.text, first_step=verdict.first_step, value=verdict.value, expected=verdict.expected,
                data={"source": verdict.source, "saves": verdict.saves},
            )  # fmt: skip

    # -- helpers --------------------------------------------------------------------------------------------------

    def _on_settings(self, data: Mapping[str, Any]) -> None:
        steps = declared_interval(data)
        if steps is not None and self._planned_steps is None:
            self._declare(steps)

    def _declare(self, steps: int) -> None:
        if steps == self.told.declared_steps:
            return
        for schedule in (self.told, self.disk):
            if schedule.declared_steps is not None:
                schedule.forget(self.context.step)
            schedule.declared_steps = steps

    def _on_note(self) -> None:
        for rule in self.rules:
            if self.context.is_silenced(rule):
                self.ledger.close(rule, None, "; expected, says a note")
                if rule == OVERDUE:
                    self.told.forget(self.context.step)
                    self.disk.forget(self.context.step)
                elif rule == BLOCKING:
                    self._blocking.forget()

    def _step_of(self, event: Event) -> int:
        step = whole(event.step)
        return self.context.step if step is None or step > MAX_STEP else step

    def _arrival(self, time_ns: int | None) -> int | None:
        """When it was told: what is read after a tick was written after it, whatever time it names (clocks differ)."""
        if self._tick_ns is None:
            return time_ns
        return self._tick_ns if time_ns is None else max(time_ns, self._tick_ns)
