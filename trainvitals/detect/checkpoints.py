"""Checkpoints that cannot be trusted, that are too few, and starts that do not go on where they could.

Fed by ``checkpoint`` events (what ``watch`` found on disk), ``pointer`` events (what a restart would load) and the starts of the
trainer. What is on disk is told in any order, so it is judged when a look has been read to its end: at the next tick or step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.detect import checkpoint_resume as resume
from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.checkpoint_book import Entry, age_key, path_key, printable, whole
from trainvitals.detect.checkpoint_saves import SaveDetector
from trainvitals.detect.findings import Context, format_count, format_duration, format_step
from trainvitals.detect.subject_ledger import SubjectLedger
from trainvitals.records import CheckpointState, Event, Severity, Step

CORRUPT, NO_OPTIMIZER, TOO_FEW, BEHIND = (
    "checkpoint_corrupt", "checkpoint_no_optimizer", "checkpoint_too_few_verified", "resume_behind",
)  # fmt: skip
#: Open findings of damaged checkpoints; more are counted in one.
#: How the story of a damaged checkpoint ends, by its new state.
SETTLED = {
    CheckpointState.WRITING.value: "; it is written again",
    CheckpointState.STAGED.value: "; it is written again",
    CheckpointState.VERIFYING.value: "; it is whole now, and looked into",
    CheckpointState.DELETING.value: "; it was deleted",
    CheckpointState.DELETED.value: "; it was deleted",
}
MAX_CORRUPT = 10
MORE = "more"
#: A save that was cut short long ago, with so many whole ones after it, is litter.
NEWER_ENOUGH = 2
MAX_DIRECTORIES = 16
STARTED = "started"
RESUMED = "resumed"
RUN = "run"


class CheckpointDetector(FamilyDetector):
    """``checkpoint_corrupt``, ``checkpoint_no_optimizer``, ``checkpoint_too_few_verified``, ``resume_behind``."""

    family = "checkpoint"
    rules = (CORRUPT, NO_OPTIMIZER, TOO_FEW, BEHIND)
    STATE = (
        "ledger", "_choices", "_now_ns", "_is_dirty", "_highest_step", "_start_ns", "_told_step", "_few_since_ns", "_sick_from",
        "_had_optimizer", "_passes", "_was_live",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned, weights: Sequence[FamilyDetector], saves: SaveDetector) -> None:
        """weights: families whose findings are a reason to go back."""
        super().__init__(context, tuned)
        self.ledger: SubjectLedger = SubjectLedger(context, self.family)
        self._weights = tuple(weights)
        self._saves = saves
        self._choices: dict[str, dict[str, Any]] = {}
        self._now_ns: int | None = None
        self._is_dirty = False
        self._highest_step = 0  # before this start of the trainer
        self._start_ns: int | None = None
        self._told_step: int | None = None  # from which it said that it goes on
        self._few_since_ns: int | None = None
        self._sick_from: int | None = None  # onset of what is wrong with the weights now
        self._had_optimizer = False
        self._was_live = False  # before that, what is on disk is newer than what is read
        self._passes: int | None = None  # the step at which a start that was behind has made it up

    # -- what happens ---------------------------------------------------------------------------------------------

    def on_step(self, step: Step) -> None:
        self._highest_step = max(self._highest_step, step.step)
        onsets = [
            finding.first_step
            for family in self._weights
            for finding in family.ledger.open.values()
            if finding.severity is not Severity.INFO
        ]
        self._sick_from = min(onsets, default=None)
        if step.time_ns is not None and (self._now_ns is None or step.time_ns > self._now_ns):
            self._now_ns = step.time_ns
        if self._passes is not None and step.step >= self._passes:
            self._settle_start(f"; it has passed step {format_step(self._passes)} again")
        if self._is_dirty:
            self._judge()

    def on_tick(self, now_ns: int) -> None:
        self._now_ns, self._was_live = now_ns, True
        if self._is_dirty or self._choices or self._saves.book.entries:
            self._judge()

    def finish(self) -> list[Any]:
        if self._is_dirty:
            self._judge()
        return super().finish()

    def on_event(self, event: Event) -> None:
        if event.kind == "checkpoint":
            self._note_time(event)
            self._is_dirty = True
        elif event.kind == "pointer":
            self._note_time(event)
            self._take_choice(event.data)
        elif event.kind == "attempt_start":
            self._start_ns = event.time_ns
            self._told_step = whole(event.data.get("resumed_from_step"))
            self._settle_start("; the trainer was started again")
            bare = self.ledger.of(NO_OPTIMIZER, RESUMED)
            if bare is not None:
                self.ledger.settle(bare, "; the trainer was started again")
        elif event.kind == "resume":
            self._told_step = whole(event.step)
        elif event.kind == "message":
            self._take_resume_check(event.data.get("resume_check"))
        elif event.kind == "annotation":
            for finding in list(self.ledger.open.values()):
                if self.context.is_silenced(finding.rule):
                    self.ledger.settle(finding, "; expected, says a note")

    def on_resume(self, from_step: int) -> None:
        self._settle_start("; the trainer was started again")
        began = resume.Start(
            from_step=from_step, is_told=self._told_step is not None,
            at_ns=self._start_ns if self._start_ns is not None else self.context.time_ns,
            highest_step=self._highest_step, slack_steps=self.context.gap_steps,
        )  # fmt: skip
        self._start_ns = self._told_step = None
        book, missed = self._saves.book, None
        if self._was_live or not book.completed:
            missed = resume.missed(began, book, self._saves.told.last_step, self._saves.told_before)
        self._highest_step = max(from_step, 0)
        if missed is not None:
            self._tell_behind(began, missed)

    # -- where a start goes on ------------------------------------------------------------------------------------

    def _tell_behind(self, start: resume.Start, missed: resume.Missed) -> None:
        redone = missed.step - start.from_step
        step_s = self._saves.pace.step_s()
        cost = "" if step_s is None else f" ({format_duration(redone * step_s)})"
        where = "from scratch" if start.is_from_scratch else f"from step {format_step(start.from_step)}"
        # Weights are damaged before it shows: the last one before an onset is passed over on purpose. Nobody means step 0 by that.
        sick_from = self._sick_from
        went_back = (
            sick_from is not None and start.from_step < sick_from and (not start.is_from_scratch or sick_from <= missed.step)
        )
        is_costly = step_s is not None and redone * step_s >= self.numbers[BEHIND]["critical_redo_s"]
        severity = Severity.INFO if went_back else Severity.CRITICAL if is_costly else Severity.WARNING
        message = (
            f"the trainer started {where} although {missed.what} of step {format_step(missed.step)} was there: "
            f"{format_count(redone, 'step')} are run again{cost}"
        )
        if went_back and sick_from is not None:
            message += f"; that goes back before the incident of step {format_step(sick_from)}"
        told = self.ledger.tell(
            BEHIND, f"{STARTED}/{missed.step}", severity, message, first_step=max(0, start.from_step), value=float(start.from_step),
            expected=float(missed.step), time_ns=start.at_ns, detected_step=start.from_step + 1,
            data={"kind": STARTED, "path": missed.path, "is_verified": missed.is_verified, "steps": redone},
        )  # fmt: skip
        self._passes = missed.step if told is not None else None

    def _settle_start(self, ending: str) -> None:
        self._passes = None
        for finding in self.ledger.of_rule(BEHIND):
            if finding.data.get("kind") == STARTED:
                self.ledger.settle(finding, ending)

    def _take_resume_check(self, check: object) -> None:
        """The hook compared this start with the manifest of what it goes on from."""
        if not isinstance(check, dict) or check.get("has_optimizer") is not False:
            return
        path = printable(str(check.get("path") or ""), 240)
        name = path.rstrip("/").rsplit("/", 1)[-1]
        # The first start of a run that begins with somebody's weights is a new stage, and meant.
        severity = Severity.WARNING if self.context.attempt > 1 else Severity.INFO
        message = f"attempt {self.context.attempt} goes on from {name}, which holds no optimizer state"
        self.ledger.tell(NO_OPTIMIZER, RESUMED, severity, message, time_ns=self._now_ns, data={"path": path})

    def _take_choice(self, data: Mapping[str, Any]) -> None:
        directory, path = data.get("directory"), data.get("path")
        if not isinstance(directory, str) or not directory or not (path is None or isinstance(path, str)):
            return
        key = path_key(directory)
        problem = printable(str(data.get("problem") or ""), 300)
        before = self._choices.pop(key, None)
        picked = None if path is None else path_key(path)
        choice: dict[str, Any] = {
            "directory": key, "path": picked, "step": whole(data.get("step")), "how": printable(str(data.get("how") or ""), 100),
            "problem": problem, "is_wrong_ns": None,
        }  # fmt: skip
        if before is not None and before["path"] == picked:
            choice["is_wrong_ns"] = before["is_wrong_ns"]
        self._choices[key] = choice
        while len(self._choices) > MAX_DIRECTORIES:
            self._choices.pop(next(iter(self._choices)))
        self._is_dirty = True

    # -- judging what is on disk ----------------------------------------------------------------------------------

    def _judge(self) -> None:
        self._is_dirty = False
        self._judge_damage()
        self._judge_optimizer()
        self._judge_count()
        for choice in self._choices.values():
            self._judge_choice(choice)

    def _judge_damage(self) -> None:
        book, ledger = self._saves.book, self.ledger
        bad = {entry["path"]: entry for entry in book.bad()}
        for finding in ledger.of_rule(CORRUPT):
            path = str(finding.data.get("subject"))
            if path != MORE and path not in bad:
                entry = book.entries.get(path)
                now = entry["state"] if entry is not None else CheckpointState.DELETED.value
                reasons = finding.data.get("reasons") or [""]
                was = f"checkpoint {path.rstrip('/').rpartition('/')[2]} was {finding.data.get('state')}"
                ledger.settle(finding, SETTLED.get(now, f"; now it is {now}"), f"{was}: {reasons[0]}" if reasons[0] else was)
        is_open = {str(finding.data.get("subject")) for finding in ledger.of_rule(CORRUPT)}
        left = 0
        for path, entry in bad.items():
            if path not in is_open and len(is_open - {MORE}) >= MAX_CORRUPT:
                left += 1
                continue
            is_open.add(path)
            self._tell_damage(entry)
        more = ledger.of(CORRUPT, MORE)
        if left:
            ledger.tell(
                CORRUPT, MORE, Severity.WARNING, f"{left} more checkpoints are incomplete or corrupt", time_ns=self._now_ns
            )
        elif more is not None:
            ledger.settle(more, "; no more than the others now")

    def _tell_damage(self, entry: Entry) -> None:
        numbers = self.numbers[CORRUPT]
        waited_s = self._seconds_since(entry["changed_ns"])
        good = self._saves.book.good()
        newest = good[0] if good else None
        is_picked = any(choice["path"] == entry["path"] for choice in self._choices.values())
        interval = self._saves.usual_interval()
        behind = None if newest is None or newest["step"] is None else self.context.step - newest["step"]
        is_far = behind is not None and interval is not None and behind >= numbers["critical_intervals"] * interval
        is_last = newest is None and self._saves.book.completed > 0
        newer = sum(1 for one in good if age_key(one) > (entry["modified_ns"] or 0, entry["step"] or 0))
        is_leftover = entry["state"] == CheckpointState.INCOMPLETE and newer >= NEWER_ENOUGH and not is_picked
        is_critical = is_far or is_last or (is_picked and waited_s >= numbers["critical_after_s"])
        message = f"checkpoint {entry['name']} is {entry['state']}" + (f": {entry['reason']}" if entry["reason"] else "")
        if is_picked:
            message += "; a restart would load it"
        trusted = next(iter(self._saves.book.trusted()), None)
        if newest is None:
            message += "; no complete checkpoint is left"
        elif trusted is None:
            message += "; all others were saved after damaged numbers, and nothing has loaded them"
        elif trusted["step"] is not None and self._saves.book.damaged() and not trusted.get("is_loaded"):
            message += (
                f"; the newest before damaged numbers is step {format_step(trusted['step'])}, and nothing has loaded it yet"
            )
        elif trusted["step"] is not None:
            message += f"; newest {'verified' if trusted['is_verified'] else 'complete'}: step {format_step(trusted['step'])}"
        severity = Severity.CRITICAL if is_critical else Severity.INFO if is_leftover else Severity.WARNING
        self.ledger.tell(
            CORRUPT, entry["path"], severity, message, first_step=entry["step"] or 0,
            expected=None if trusted is None or trusted["step"] is None else float(trusted["step"]), time_ns=self._now_ns,
            data={"path": entry["path"], "state": entry["state"], "reasons": [entry["reason"]] if entry["reason"] else []},
        )  # fmt: skip

    def _judge_optimizer(self) -> None:
        numbers = self.numbers[NO_OPTIMIZER]
        good = [entry for entry in self._saves.book.good() if entry["step"] is not None]
        full = max((entry for entry in good if entry["has_optimizer"]), key=age_key, default=None)
        self._had_optimizer = self._had_optimizer or full is not None
        bare = good[0] if good and good[0]["has_optimizer"] is False else None
        open_finding = self.ledger.of(NO_OPTIMIZER, RUN)
        if bare is None:
            if open_finding is not None and good:
                self.ledger.settle(open_finding, f"; step {format_step(good[0]['step'])} has it")
            return
        since = self.context.step - bare["step"]
        went_on = since >= numbers["points"] * self.context.gap_steps
        is_picked = any(choice["path"] == bare["path"] for choice in self._choices.values())
        interval = self._saves.usual_interval()
        bare_too = [
            entry for entry in good if entry["has_optimizer"] is False and (full is None or age_key(entry) > age_key(full))
        ]
        # Weights alone are saved in between by many a run; that the whole state is no longer saved is the fault.
        gap = bare["step"] - full["step"] if full is not None else None
        is_lost = self._had_optimizer and (
            len(bare_too) >= numbers["saves"] and (gap is None or interval is None or gap >= numbers["intervals"] * interval)
        )
        is_grave = went_on and (is_picked or is_lost)
        message = f"checkpoint {bare['name']} holds no optimizer state"
        if is_picked:
            message += "; a restart would load it and begin with an empty optimizer"
        if full is not None:
            message += f"; the last one that holds it is step {format_step(full['step'])}"
        self.ledger.tell(
            NO_OPTIMIZER, RUN, Severity.WARNING if is_grave else Severity.INFO, message, first_step=bare["step"],
            expected=None if full is None else float(full["step"]), time_ns=self._now_ns,
            data={"path": bare["path"], "had_optimizer": self._had_optimizer},
        )  # fmt: skip

    def _judge_count(self) -> None:
        numbers = self.numbers[TOO_FEW]
        book = self._saves.book
        good = book.good()
        verified = [entry for entry in good if entry["is_verified"]]
        open_finding = self.ledger.of(TOO_FEW, RUN)
        if len(verified) >= numbers["verified"] or book.completed < numbers["after_saves"]:
            self._few_since_ns = None
            if open_finding is not None:
                self.ledger.settle(open_finding, f"; now {len(verified)} are")
            return
        if self._few_since_ns is None or (self._now_ns is not None and self._few_since_ns > self._now_ns):
            self._few_since_ns = self._now_ns
        if self.context.is_ended or self._seconds_since(self._few_since_ns) < numbers["after_s"]:
            return
        unproven = len(good) - len(verified)
        message = f"{format_count(len(verified), 'verified checkpoint')} on disk after {book.completed} saves"
        if unproven:
            message += f" ({unproven} complete, but not verified)"
        newest = max(verified, key=age_key, default=None)
        age_s = None if newest is None else self._seconds_since(newest["born_ns"])
        # Complete ones that no check can prove are a matter of their format; too few files are a matter of what is kept.
        severity = Severity.WARNING if len(good) < numbers["verified"] else Severity.INFO
        self.ledger.tell(
            TOO_FEW, RUN, severity, message, value=float(len(verified)), expected=numbers["verified"], time_ns=self._now_ns,
            data={"verified": len(verified), "complete": len(good), "saves": book.completed, "verified_age_s": age_s},
        )  # fmt: skip

    def _judge_choice(self, choice: dict[str, Any]) -> None:
        verdict = resume.would_miss(choice, self._saves.book)
        subject = str(choice["directory"])
        finding = self.ledger.of(BEHIND, subject)
        if verdict is None:
            return  # it is being written or looked at: as before
        if not verdict:
            choice["is_wrong_ns"] = None
            if finding is not None:
                self.ledger.settle(finding, "; it would load the right one now")
            return
        if choice["is_wrong_ns"] is None or (self._now_ns is not None and choice["is_wrong_ns"] > self._now_ns):
            choice["is_wrong_ns"] = self._now_ns
        if self._seconds_since(choice["is_wrong_ns"]) < self.numbers[BEHIND]["pointer_after_s"]:
            return
        newest = next(self._saves.book.in_directory(subject), None)
        step = choice["step"]
        self.ledger.tell(
            BEHIND, subject, Severity.WARNING, verdict, first_step=self.context.step, value=None if step is None else float(step),
            expected=None if newest is None or newest["step"] is None else float(newest["step"]), time_ns=self._now_ns,
            data={"kind": "would_load", "path": choice["path"], "how": choice["how"]},
        )  # fmt: skip

    def _note_time(self, event: Event) -> None:
        if event.time_ns is not None and (self._now_ns is None or event.time_ns > self._now_ns):
            self._now_ns = event.time_ns

    def _seconds_since(self, time_ns: int | None) -> float:
        if time_ns is None or self._now_ns is None:
            return 0.0
        return max(0.0, (self._now_ns - time_ns) / 1e9)
