"""All detectors of one run behind one door: puts steps in order, tells resumes from late points, and keeps the state.

Live, back-fill and tests use this same class. It never asks a clock or a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from trainvitals.detect.annotations import points_of, rules_of
from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.breaker import BreakerLimits, Decision, DefaultLimits
from trainvitals.detect.breaker_rule import BreakerDetector
from trainvitals.detect.checkpoint_saves import SaveDetector
from trainvitals.detect.checkpoints import CheckpointDetector
from trainvitals.detect.config_change import ConfigChangeDetector
from trainvitals.detect.faults import FaultDetector
from trainvitals.detect.findings import Context
from trainvitals.detect.grad_norm import GradNormDetector
from trainvitals.detect.liveness import LivenessDetector
from trainvitals.detect.loss import LossDetector
from trainvitals.detect.loss_drop import LossDropDetector
from trainvitals.detect.loss_early import EarlyRiseDetector
from trainvitals.detect.loss_frozen import LossFrozenDetector
from trainvitals.detect.loss_shift import LevelShiftDetector
from trainvitals.detect.loss_trend import LossTrendDetector
from trainvitals.detect.lr import LrDetector
from trainvitals.detect.lr_schedule import Schedule
from trainvitals.detect.nonfinite import NonFiniteDetector
from trainvitals.detect.note_bounds import NoteBoundsDetector
from trainvitals.detect.pause import PauseDetector
from trainvitals.detect.ranks import RankDetector
from trainvitals.detect.rebound import ReboundDetector
from trainvitals.detect.resume_check import ResumeCheckDetector
from trainvitals.detect.stall import StallDetector
from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import SortedWindow, median
from trainvitals.detect.supervisor_rules import SupervisorDetector
from trainvitals.detect.throughput import ThroughputDetector
from trainvitals.detect.validation import ValidationDetector
from trainvitals.records import Event, Finding, Step

STATE_VERSION = 1
GOES_ON_AFTER_NS = 600 * 1_000_000_000
LATE_POINTS = 5  # more than this many backward steps in a row are a resume that nobody announced
STEPS_WHILE_PAUSED = 2  # lines that were under way when the trainer paused; more mean that it goes on
GAPS_KEPT = 9
MAX_NOTES = 20
MAX_CHANGE_CHARACTERS = 32
NOTE_SLACK_POINTS = 20  # an onset is an estimate: this little before a note it is explained by it
USUAL_POINTS = 63
USUAL_METRICS = ("lr", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s", "mfu")


class Engine(Stateful):
    """``update`` records in the order they were read, ``tick`` with the time, keep ``to_state`` beside the file offsets.

    tunables: rule -> name -> number, only what differs from ``trainvitals.detect.tunables``.
    breaker: anything with the attributes of ``trainvitals.settings.BreakerSettings``.
    lr_schedule: what a person declared; it goes before what the trainer tells.
    """

    STATE = (
        "_context", "_nonfinite", "_loss", "_shift", "_trend", "_early", "_drop", "_frozen", "_validation", "_rebound", "_grad_norm", "_note_bounds", "_throughput", "_stall",
        "_liveness", "_faults", "_supervisor", "_config_change", "_resume_check", "_lr", "_ranks", "_pause", "_saves", "_checkpoints", "_breaker", "_late", "_is_starting", "_resume_step", "_gaps", "_paused_steps", "_usual", "_notes",
    )  # fmt: skip

    def __init__(
        self,
        run: str = "",
        tunables: Tuned | None = None,
        breaker: BreakerLimits | None = None,
        lr_schedule: Schedule | None = None,
        save_interval_steps: int = 0,
    ) -> None:
        tuned: Tuned = tunables or {}
        context = self._context = Context(run)
        self._nonfinite = NonFiniteDetector(context, tuned)
        self._loss = LossDetector(context, tuned)
        self._shift = LevelShiftDetector(context, tuned, self._loss)
        self._trend = LossTrendDetector(context, tuned, self._loss)
        self._early = EarlyRiseDetector(context, tuned, self._loss)
        self._drop = LossDropDetector(context, tuned, self._loss)
        self._frozen = LossFrozenDetector(context, tuned, self._loss)
        self._validation = ValidationDetector(context, tuned, self._loss)
        self._rebound = ReboundDetector(context, tuned, self._loss)
        self._grad_norm = GradNormDetector(context, tuned, self._loss)
        self._note_bounds = NoteBoundsDetector(context, tuned, self._loss, self._grad_norm)
        self._throughput = ThroughputDetector(context, tuned)
        self._stall = StallDetector(context, tuned)
        self._liveness = LivenessDetector(context, tuned)
        self._faults = FaultDetector(context, tuned)
        self._supervisor = SupervisorDetector(context, tuned)
        self._config_change = ConfigChangeDetector(context, tuned)
        self._resume_check = ResumeCheckDetector(context, tuned, self._config_change)
        self._lr = LrDetector(context, tuned, lr_schedule)
        self._ranks = RankDetector(context, tuned)
        self._pause = PauseDetector(context, tuned)
        self._saves = SaveDetector(context, tuned, save_interval_steps)
        weights = (self._nonfinite, self._loss, self._shift, self._trend, self._early, self._drop, self._rebound, self._grad_norm)
        self._checkpoints = CheckpointDetector(context, tuned, weights, self._saves)
        self._breaker = BreakerDetector(context, tuned, self._loss, DefaultLimits() if breaker is None else breaker)
        # Order matters: the first two decide what may be believed, later ones read the loss detector; what a start could have
        # gone on from is asked before the saves forget it.
        self._detectors: tuple[FamilyDetector, ...] = (
            self._nonfinite, self._drop, self._loss, self._shift, self._trend, self._early, self._frozen, self._validation, self._rebound, self._grad_norm,
            self._note_bounds, self._throughput, self._stall, self._liveness, self._faults, self._supervisor, self._config_change, self._resume_check, self._lr,
            self._ranks, self._pause, self._checkpoints, self._saves, self._breaker,
        )  # fmt: skip
        self._late: list[dict[str, Any]] = []
        self._is_starting = False
        self._resume_step: int | None = None
        self._gaps: deque[int] = deque(maxlen=GAPS_KEPT)
        self._paused_steps = 0
        self._notes: list[dict[str, Any]] = []  # of a step: what a person's note silences from there on
        self._usual: dict[str, list[float]] = {}
        self._usual_windows: dict[str, SortedWindow] = {}

    # -- what others ask ------------------------------------------------------------------------------------------

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule that can be found, each once."""
        return tuple(dict.fromkeys(rule for detector in self._detectors for rule in detector.rules))

    @property
    def open_findings(self) -> list[Finding]:
        """What is open now, oldest detector first."""
        return [finding for detector in self._detectors for finding in detector.ledger.open.values()]

    @property
    def breaker_decision(self) -> Decision:
        """The breaker's evaluation of the newest point, with its reason."""
        return self._breaker.decision

    def breaker_hold(self) -> str:
        """What forbids the breaker to pause now, a clause; "" when nothing does."""
        return self._breaker.hold()

    def take_breaker_log(self) -> list[dict[str, Any]]:
        """What changed in the breaker's decision since the last call: ``{"step", "time_ns", "decision", "reason"}``, oldest first."""
        return self._breaker.take_log()

    def step_s(self) -> float | None:
        """Usual seconds of a step, None while that is not known."""
        return self._saves.pace.step_s()

    def stall_deadline_s(self) -> float | None:
        """Seconds after the last progress at which a stall is found; None before the first record, in a pause, at the end."""
        return self._stall.deadline_s()

    @property
    def watched(self) -> tuple[bool, int | None]:
        """Whether the run was seen alive, and when its last step came (UTC ns by the clock of ``tick``, None = as the step says)."""
        return self._stall.watched

    def go_on_watching(self, arrived_ns: int | None) -> None:
        """For a fresh engine: what it reads first was watched before, so a silence behind it is a hang, not the end of an old log."""
        self._stall.go_on_watching(arrived_ns)

    def metric_usual(self, name: str) -> float | None:
        """Median of recent accepted points of a metric (faulty points of loss, grad norm and throughput left out)."""
        if name == "loss":
            return self._loss.baseline.median()
        if name == "grad_norm":
            return self._grad_norm.usual()
        judged = self._throughput.usual(name)
        if judged is not None:
            return judged
        window = self._usual_windows.get(name)
        return window.median() if window is not None and len(window) else None

    # -- what happens ---------------------------------------------------------------------------------------------

    def update(self, record: Step | Event) -> list[Finding]:
        """Take one record; return findings that are new or changed (same ``Finding.id``)."""
        return self._take_step(record) if isinstance(record, Step) else self._take_event(record)

    def tick(self, now_ns: int) -> list[Finding]:
        """Time has passed. Call it only when everything written so far has been read, or old data looks like a stall."""
        timed = (self._stall, self._liveness, self._faults, self._supervisor, self._saves, self._checkpoints)
        return [finding for detector in timed for finding in detector.tick(now_ns)]

    def finish(self) -> list[Finding]:
        """No more records will come: what is still unreported. Nothing that is open is closed."""
        found: list[Finding] = []
        self._liveness.confirm_now()
        self._faults.confirm_now()
        for detector in self._detectors:
            found += detector.finish()
        return found

    def _take_step(self, step: Step) -> list[Finding]:
        context = self._context
        if context.points:
            if step.attempt < context.attempt:
                return self._take_late(step) if self._goes_on(step) else []
            if step.attempt > context.attempt or self._is_starting:
                return self._resume_with(step)
            if step.step == context.step:
                return []
            if step.step < context.step:
                return self._take_late(step)
        self._late.clear()
        return self._new_point(step)

    def _goes_on(self, step: Step) -> bool:
        """Whether an attempt goes on although another was numbered after it, which has been silent for long by its own times: an old log
        that is copied beside the running one looks like a new start."""
        newest_ns = self._context.time_ns
        return step.time_ns is not None and newest_ns is not None and step.time_ns - newest_ns >= GOES_ON_AFTER_NS

    def _take_late(self, step: Step) -> list[Finding]:
        """A backward step: late and ignored, unless they keep coming in rising order."""
        if self._late and step.step <= self._late[-1]["step"]:
            self._late.clear()
        self._late.append(_step_to_state(step))
        if len(self._late) <= LATE_POINTS:
            return []
        steps = [_step_from_state(item) for item in self._late]
        self._context.rewinds += 1
        found = self._resume_with(steps[0])
        for held in steps[1:]:
            found += self._new_point(held)
        return found

    def _resume_with(self, step: Step) -> list[Finding]:
        """The first point of a new attempt or after a rewind: go back to what was true before it."""
        context = self._context
        from_step = step.step - 1
        if self._resume_step is not None:
            from_step = min(from_step, self._resume_step)
        self._late.clear()
        self._is_starting, self._resume_step = False, None
        found: list[Finding] = []
        self._rebound.prepare(from_step)
        for detector in self._detectors:
            found += detector.resume(from_step)
        if step.attempt > context.attempt:
            context.rewinds = 0
        context.attempt = step.attempt
        context.attempt_points = 0
        context.is_paused = False
        return found + self._new_point(step, is_first=True)

    def _new_point(self, step: Step, *, is_first: bool = False) -> list[Finding]:
        context = self._context
        found: list[Finding] = []
        if context.points and not is_first:
            self._stall.catch_up(step.time_ns)
            found += self._stall.ledger.drain()
            self._learn_gap(step.step - context.step)
        if context.is_paused:
            self._paused_steps += 1
            if self._paused_steps > STEPS_WHILE_PAUSED:
                context.is_paused = False
        before = step.step - context.gap_steps if is_first else context.step
        context.points += 1
        context.attempt_points += 1
        context.attempt, context.step, context.time_ns = step.attempt, step.step, step.time_ns
        context.is_ended = False
        if self._notes:
            found += self._pass_notes(before, step)
        for name in USUAL_METRICS:
            value = step.values.get(name)
            if value is not None:
                if name not in self._usual_windows:
                    self._usual_windows[name] = SortedWindow(USUAL_POINTS)
                self._usual_windows[name].push(value)
        for detector in self._detectors:
            detector.on_step(step)
            if detector.ledger.has_news:
                found += detector.ledger.drain()
        return found

    def _learn_gap(self, gap: int) -> None:
        gaps = self._gaps
        gaps.append(gap)
        if gap != self._context.gap_steps:
            self._context.gap_steps = max(1, round(median(gaps)))

    def _take_event(self, event: Event) -> list[Finding]:
        context, data = self._context, event.data
        found: list[Finding] = []
        if event.kind in ("attempt_end", "phase") and context.points:
            self._stall.catch_up(event.time_ns)
            found += self._stall.ledger.drain()
        if event.kind in ("attempt_start", "resume"):
            self._on_start(event)
        elif event.kind == "attempt_end":
            context.is_ended = True
        elif event.kind == "phase" and data.get("phase") == "paused":
            self._set_paused(data.get("state") != "end")
        elif event.kind == "control" and data.get("state") in ("paused", "running"):
            self._set_paused(data["state"] == "paused")
        elif event.kind == "phase" and data.get("phase") == "finished":
            context.is_ended = True
        elif event.kind == "annotation" and not self._take_note(event.step, data):
            return found
        for detector in self._detectors:
            found += detector.update(event)
        return found

    def _on_start(self, event: Event) -> None:
        context = self._context
        number = event.attempt if event.attempt is not None else event.data.get("attempt")
        if isinstance(number, int) and not isinstance(number, bool):
            if number < context.attempt:
                return  # an old attempt read again
            if number == context.attempt and event.kind == "attempt_start" and context.attempt_points:
                return  # this attempt, said twice
            if number > context.attempt:
                context.attempt, context.attempt_points, context.rewinds = number, 0, 0
                self._is_starting = bool(context.points)
        if event.kind == "resume":
            self._is_starting = bool(context.points)
            self._resume_step = event.step
        context.is_ended = context.is_paused = False

    def _set_paused(self, is_paused: bool) -> None:
        self._context.is_paused = is_paused
        self._paused_steps = 0

    def _take_note(self, step: int | None, data: Mapping[str, Any]) -> bool:
        """Silence what a note explains, now or (False) when its step comes; a run that goes back passes that step again."""
        context, rules, points = self._context, rules_of(data, self.rules), points_of(data)
        if step is None:
            context.silence(rules, points)
            return True
        about = {
            "change": str(data.get("change"))[:MAX_CHANGE_CHARACTERS],
            "named": rules_of({"rules": data.get("rules")}, self.rules),
        }
        self._notes = [*self._notes, {"step": step, "rules": rules, "points": points, **about}][-MAX_NOTES:]
        if step > context.step:
            return False
        # What had begun before is not explained by it.
        earliest = step - NOTE_SLACK_POINTS * context.gap_steps
        unexplained = {
            detector.family
            for detector in self._detectors
            for finding in detector.ledger.open.values()
            if finding.first_step < earliest and finding.rule in rules
        }
        family_of = {rule: detector.family for detector in self._detectors for rule in detector.rules}
        since = (context.step - step) // context.gap_steps
        context.silence([rule for rule in rules if family_of[rule] not in unexplained], max(0, points - since))
        return True

    def _pass_notes(self, before: int, step: Step) -> list[Finding]:
        """Notes of steps after ``before``, up to this one, begin to count."""
        found: list[Finding] = []
        for note in self._notes:
            if before < note["step"] <= step.step:
                self._context.silence(note["rules"], note["points"])
                about = {name: note.get(name) for name in ("rules", "change", "named")}  # a note of an older state has not all
                for detector in self._detectors:
                    found += detector.update(Event("annotation", step.time_ns, step=note["step"], data=about))
        return found

    # -- state ----------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """JSON values, below 200 KB; continuing from them gives the same findings as never having stopped."""
        self._usual = {name: list(window.arrival) for name, window in self._usual_windows.items()}
        return {"version": STATE_VERSION, **super().to_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken. Raises ``ValueError`` for a state of another version: start anew then."""
        version = state.get("version")
        if version != STATE_VERSION:
            raise ValueError(
                f"The detectors' saved state has version {version}, this program writes {STATE_VERSION}: start anew."
            )
        super().restore(state)
        self._usual_windows = {name: SortedWindow(USUAL_POINTS, values) for name, values in self._usual.items()}


def _step_to_state(step: Step) -> dict[str, Any]:
    return {
        "step": step.step,
        "attempt": step.attempt,
        "time_ns": step.time_ns,
        "values": dict(step.values),
        "nonfinite": dict(step.nonfinite),
    }


def _step_from_state(state: dict[str, Any]) -> Step:
    return Step(state["step"], state["attempt"], state["time_ns"], state["values"], state["nonfinite"])
