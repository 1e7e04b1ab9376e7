"""Runs that go wrong, made up with their truth: what is damaged, since when, and which checkpoint is the right one to go back to.

The incidents are not made up: the curves go through the real detectors and the real grouping, with all their delays and doubts.
What the oracle knows and nobody else does: the step at which damage truly began (the loss shows it up to 8 steps later), which
losses were a spike that healed, which lineage each file belongs to, and which file is damaged without its structure showing it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainvitals.detect.engine import Engine
from trainvitals.incidents.grouping import Grouper
from trainvitals.incidents.suspect import is_about_weights
from trainvitals.records import (
    CheckpointReport,
    CheckpointState,
    Event,
    Finding,
    Incident,
    Step,
    VerificationLevel,
    split_nonfinite,
)

SECOND_NS = 10**9
START_NS = 1_767_225_600 * SECOND_NS
STEP_S = 2.0
NOISE = 0.01
MAX_SICK_POINTS = 160


@dataclass(frozen=True)
class Attempt:
    """What the product is told of one start."""

    number: int
    started_ns: int
    first_step: int | None
    last_step: int | None
    resumed_from_step: int | None = None


@dataclass
class File:
    """One checkpoint and the truth about it. ``lineage``: starts whose steps its weights have seen, the newest last."""

    report: CheckpointReport
    is_damaged: bool
    is_in_spike: bool
    lineage: tuple[int, ...]
    is_silently_broken: bool = False
    durable_at_ns: int = 0


@dataclass
class Case:
    """What the product knows when somebody asks for the way back, and the right answer (path, None = there is none)."""

    seed: int
    kind: str
    reports: list[CheckpointReport]
    incidents: list[Incident]
    findings: list[Finding]
    attempts: list[Attempt]
    last_step: int
    gap_steps: int
    true_onset: int
    right: str | None
    files: dict[str, File] = field(default_factory=dict)

    def content_looked_at(self, path: str) -> list[CheckpointReport]:
        """The reports after the content of ``path`` was compared with its hashes."""
        is_broken = self.files[path].is_silently_broken
        state = CheckpointState.CORRUPT if is_broken else CheckpointState.VERIFIED
        return [replace(one, state=state, level=VerificationLevel.CONTENT) if one.path == path else one for one in self.reports]


class Simulation:
    """One run from its first step to the question. ``case`` is None when the detectors saw no trouble with the weights."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.gap = rng.choice([1, 5, 5, 10, 10, 10, 20])
        if self.gap == 1:
            self.interval = rng.randint(100, 400)
        else:
            self.interval = self.gap * round(10 ** rng.uniform(2.4, 3.3) / self.gap)
        self.keep = rng.choice([1, 2, 3, 5, 8, None])
        self.is_async = rng.random() < 0.4
        self.now_ns = START_NS
        self.step = 0
        self.attempts: list[Attempt] = []
        self.lineage: tuple[int, ...] = ()
        self.files: dict[str, File] = {}
        self.engine, self.grouper = Engine("run", {}), Grouper("run")
        self.findings: dict[str, Finding] = {}
        self.incidents: dict[str, Incident] = {}
        self.is_damaged = False
        self.shape: Callable[[int], float] | None = None
        self.onset = self.visible = -1
        self.kind = ""
        self.spikes: list[tuple[int, int, float]] = []
        self.case: Case | None = None
        self._live()

    # the life of the run

    def _live(self) -> None:
        rng = self.rng
        self._start(0)
        self._train(rng.randint(420, 520))
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            self._something_harmless()
        if rng.random() < 0.2:  # an earlier trouble, from which somebody went back as the oracle would
            self._turn_sick()
            if not self._train_until_seen():
                return
            self._go_back(self._right())
            self._train(rng.randint(120, 400))
        self._turn_sick()
        if not self._train_until_seen():
            return
        self._train(rng.choice([0, 0, 1, rng.randint(0, 60)]))
        if rng.random() < 0.15:  # it crashed and went on with the damaged weights
            newest = max(self._whole(), key=lambda file: file.report.modified_at_ns or 0, default=None)
            if newest is not None:
                self._go_back(newest.report.path)
                self._train(rng.randint(30, 60))
        if rng.random() < 0.3:  # the pause saved, too
            self._save()
        self._ask()

    def _something_harmless(self) -> None:
        rng = self.rng
        if rng.random() < 0.6:
            begin = self.step + self.gap * rng.randint(5, 40)
            self.spikes.append((begin, begin + self.gap * rng.randint(6, 30), rng.uniform(0.3, 1.5)))
            self._train(120)
        else:
            self._train(rng.randint(10, 150))
            able = [file for file in self._whole() if file.report.has_optimizer is not False and not file.is_in_spike]
            if able:
                able.sort(key=lambda file: file.report.modified_at_ns or 0)
                self._go_back((able[-1] if rng.random() < 0.7 else rng.choice(able)).report.path)
            self._train(rng.randint(60, 250))

    def _turn_sick(self) -> None:
        rng = self.rng
        self.kind = rng.choice(["jump", "jump", "ramp", "nan", "spike then plateau"])
        self.onset = self.step + rng.randint(1, self.interval)
        self.visible = self.onset + rng.randint(0, 8)
        height, slope = rng.uniform(0.2, 3.0), 10 ** rng.uniform(-2.5, -0.7)
        shapes: dict[str, Callable[[int], float]] = {
            "jump": lambda points: height,
            "ramp": lambda points: min(height, slope * (points + 1)),
            "nan": lambda points: float("nan"),
            "spike then plateau": lambda points: height * (1 + 2 * 0.8**points),
        }
        self.shape = shapes[self.kind]

    def _train_until_seen(self) -> bool:
        self._train(max(0, self.visible - self.step) // self.gap + 1)
        for _ in range(MAX_SICK_POINTS):
            if any(one.is_open and is_about_weights(one) for one in self.incidents.values()):
                return True
            self._train(1)
        return False

    def _start(self, from_step: int) -> None:
        number = len(self.attempts) + 1
        self.now_ns += 120 * SECOND_NS
        self.attempts.append(Attempt(number, self.now_ns, None, None, from_step or None))
        self.lineage = (*self.lineage, number)
        self.step = from_step
        self._feed(Event("attempt_start", self.now_ns, attempt=number, data={"attempt": number}))
        if from_step:
            self._feed(Event("resume", self.now_ns, step=from_step, attempt=number))

    def _go_back(self, path: str | None) -> None:
        file = self.files.get(path or "")
        if file is None:
            self.lineage, self.is_damaged, self.shape = (), False, None
            self._start(0)
            return
        self.lineage = file.lineage
        if not file.is_damaged:
            self.is_damaged, self.shape = False, None
        self.spikes = [spike for spike in self.spikes if spike[0] > self.step]
        self._start(file.report.step or 0)

    def _train(self, points: int) -> None:
        for _ in range(points):
            for _ in range(self.gap):
                self.step += 1
                self.now_ns += round(STEP_S * SECOND_NS)
                if self.shape is not None and self.step >= self.onset:
                    self.is_damaged = True
                if self.step % self.interval == 0:
                    self._save()
            self._log()

    def _log(self) -> None:
        rng, step, attempt = self.rng, self.step, self.attempts[-1]
        loss = 2.0 + 8.0 * (1 + step / 50) ** -0.5 + rng.gauss(0, NOISE)
        if self.shape is not None and (step >= self.visible or (self.is_damaged and step < self.onset)):
            loss += self.shape(max(0, step - self.visible) // self.gap)
        loss += sum(height for begin, end, height in self.spikes if begin <= step <= end)
        values = {"loss": loss, "grad_norm": 0.3 * (1 + 0.1 * rng.uniform(-1, 1)), "lr": 1e-4}
        self.attempts[-1] = replace(attempt, first_step=attempt.first_step or step, last_step=step)
        self._feed(Step(step, attempt.number, self.now_ns, *split_nonfinite(values)))

    def _feed(self, record: Step | Event) -> None:
        for finding in self.engine.update(record):
            self.findings[finding.id] = finding
            incident = self.grouper.add(finding, self.now_ns)
            if incident is not None:
                self.incidents[incident.id] = incident

    # checkpoints

    def _save(self) -> None:
        rng, step = self.rng, self.step
        state, level, optimizer = CheckpointState.VERIFIED, VerificationLevel.STRUCTURE, True
        fault = rng.random()
        if fault < 0.04:
            state = CheckpointState.CORRUPT
        elif fault < 0.07:
            state = CheckpointState.INCOMPLETE
        elif fault < 0.10:
            state, level = CheckpointState.COMPLETE, VerificationLevel.PRESENCE
        elif rng.random() < 0.5:
            level = VerificationLevel.CONTENT
        if rng.random() < 0.05:
            optimizer = False
        report = CheckpointReport(
            f"/c/checkpoint-{step}", step, "hf", state, level, optimizer if rng.random() < 0.9 or not optimizer else None, 6, 100,
            modified_at_ns=self.now_ns,
        )  # fmt: skip
        in_spike = any(begin <= step <= end for begin, end, _ in self.spikes)
        persists_s = rng.uniform(20, 200) if self.is_async else 5.0
        is_silent = level is VerificationLevel.STRUCTURE and state is CheckpointState.VERIFIED and rng.random() < 0.03
        self.files[report.path] = File(
            report, self.is_damaged, in_spike, self.lineage, is_silent, self.now_ns + round(persists_s * SECOND_NS)
        )
        if self.keep is not None:
            by_time = sorted(self.files, key=lambda path: self.files[path].report.modified_at_ns or 0)
            for path in by_time[: -self.keep]:
                del self.files[path]

    def _whole(self) -> list[File]:
        return [
            file for file in self.files.values()
            if file.report.state is CheckpointState.VERIFIED and not file.is_silently_broken and file.durable_at_ns <= self.now_ns
        ]  # fmt: skip

    def _right(self) -> str | None:
        """The oracle: the newest whole and undamaged file of the history that goes on; weights without optimizer only if need be."""
        able = [
            file for file in self._whole()
            if not file.is_damaged and not file.is_in_spike and self._is_on_lineage(file)
        ]  # fmt: skip
        best = max(able, key=lambda file: (file.report.has_optimizer is not False, file.report.step or 0), default=None)
        return best.report.path if best is not None else None

    def _is_on_lineage(self, file: File) -> bool:
        """Its starts are a beginning of ours, and we went on from no earlier step of its last one."""
        if self.lineage[: len(file.lineage)] != file.lineage:
            return False
        if len(file.lineage) == len(self.lineage):
            return True
        following = self.attempts[self.lineage[len(file.lineage)] - 1]
        return (file.report.step or 0) <= (following.resumed_from_step or 0)

    def _ask(self) -> None:
        rng = self.rng
        if self.files and rng.random() < 0.2:  # the oldest one is going just now
            oldest = self.files[min(self.files, key=lambda path: self.files[path].report.modified_at_ns or 0)]
            oldest.report = replace(oldest.report, state=CheckpointState.DELETING)
        reports = []
        for file in self.files.values():
            is_done = file.durable_at_ns <= self.now_ns
            reports.append(file.report if is_done else replace(file.report, state=CheckpointState.WRITING, level=None))
        rng.shuffle(reports)
        self.case = Case(
            self.seed, self.kind, reports, list(self.incidents.values()), list(self.findings.values()), list(self.attempts),
            self.step, self.gap, self.onset, self._right(), dict(self.files),
        )  # fmt: skip
