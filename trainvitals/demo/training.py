"""The demo's training loop: what a real one does, on one slow core, at a steady pace.

It logs through the hook, obeys the control file, saves checkpoints and breaks on schedule (``trainvitals.demo.faults``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainvitals.clock import Clock, SystemClock
from trainvitals.demo import checkpoint, faults
from trainvitals.demo.model import Array, ModelConfig, initial_parameters, loss_and_gradients
from trainvitals.demo.optimizer import AdamW, OptimizerConfig, learning_rate
from trainvitals.demo.saver import Saver
from trainvitals.demo.text import DEFAULT_BYTES, VOCABULARY_SIZE, Sampler, standard_library
from trainvitals.hook import ControlClient, Recorder

#: Non-finite losses in a row after which the trainer gives up, as trainers with a guard of their own do.
GIVE_UP_AFTER = 5
DATA_EVERY_STEPS = 50
PRINT_EVERY_STEPS = 10
#: Waiting in the control client longer than this was a pause.
PAUSE_S = 0.5


@dataclass(frozen=True)
class TrainingOptions:
    """Everything that makes two trainings the same. ``step_time_s``: pace; a step that computes faster waits, 0 = no waiting."""

    run_dir: Path
    checkpoints: Path
    steps: int = 9_000
    seed: int = 1
    batch: int = 1_024
    hidden: int = 160
    text_bytes: int = DEFAULT_BYTES
    step_time_s: float = 0.08
    checkpoint_every: int = 300
    schedule: Sequence[faults.Fault] = ()


@dataclass(frozen=True)
class StepResult:
    """One step as it is logged; ``first`` and ``last`` are the sample numbers of its batch."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    first: int
    last: int
    shards: tuple[int, ...]


class Training:
    """State of one training in memory. ``advance`` takes one step; ``run`` is the loop around it."""

    def __init__(self, options: TrainingOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.model = ModelConfig(vocabulary=VOCABULARY_SIZE, hidden=options.hidden)
        self.step = 0
        self._clock = clock or SystemClock()
        self._text = standard_library(options.text_bytes)
        self._sampler = Sampler(self._text, self.model.context, options.seed)
        self._generator = np.random.default_rng(options.seed)
        self.parameters = initial_parameters(self.model, self._generator)
        self._optimizer = AdamW(
            self.parameters, OptimizerConfig(warmup_steps=min(100, max(1, options.steps // 10)), total_steps=options.steps)
        )
        self._samples = 0
        self._log_history: list[dict[str, float]] = []
        self._saved_step = -1
        self._saver = Saver(options.checkpoints, self.model)
        self._books = faults.open_books(options.run_dir, self._clock.time_ns())
        self._begun_here: dict[str, float] = {}
        self._lr_factor = 1.0

    def resume(self, path: Path) -> None:
        """Continue exactly where the checkpoint was taken. Raises ``InputError``."""
        state = checkpoint.load(path, self.model, self.parameters, self._optimizer, self._generator)
        self.step, self._samples = state.step, state.samples
        self._log_history = [dict(entry) for entry in state.log_history]
        self._saved_step = state.step

    def planned_lr(self) -> float:
        """Learning rate that the schedule gives the next step."""
        return learning_rate(self._optimizer.config, self.step + 1)

    def save(self, step: int | None = None) -> Path:
        """Write a checkpoint of the present step, once; ``step`` is what the caller believes it to be and is not needed."""
        path = checkpoint.directory_of(self.options.checkpoints, self.step)
        if self._saved_step == self.step:
            self._saver.wait()
            return path
        self._saver.write(self.parameters, self._optimizer, self._generator, self._state())
        self._saved_step = self.step
        return path

    def _state(self) -> checkpoint.TrainerState:
        return checkpoint.TrainerState(
            step=self.step, samples=self._samples, max_steps=self.options.steps, batch_size=self.options.batch,
            save_steps=self.options.checkpoint_every, log_history=tuple(self._log_history[-200:]),
        )  # fmt: skip

    def advance(self) -> StepResult:
        """One optimizer step, with whatever fault is active."""
        active = self._active_faults()
        first, last = self._samples, self._samples + self.options.batch - 1
        contexts, targets, positions = self._sampler.batch(first, self.options.batch, self._generator)
        if "corrupt_data" in active:
            contexts, targets = self._random_characters(contexts, targets)
        loss, gradients = loss_and_gradients(self.parameters, contexts, targets)
        growth = active.get("grow_learning_rate")
        if growth is not None:
            self._lr_factor = min(growth.limit, self._lr_factor + growth.factor)
        lr = self.planned_lr() * self._lr_factor
        grad_norm = self._optimizer.update(self.parameters, gradients, lr)
        self.step += 1
        self._samples = last + 1
        shards = tuple(sorted({self._text.shard(int(position)) for position in (positions.min(), positions.max())}))
        return StepResult(self.step, loss, grad_norm, lr, first, last, shards)

    def run(self, recorder: Recorder, control: ControlClient, say: Callable[[str], None] | None = None) -> str:
        """Train until the last step or until the control file says stop; returns "finished" or "stopped".

        Raises ``FloatingPointError`` after ``GIVE_UP_AFTER`` non-finite losses in a row.
        """
        say = say or _say
        self._saver.recorder = recorder
        nonfinite = 0
        ended_s = self._clock.monotonic_s()
        while self.step < self.options.steps:
            self._begin_faults()
            result = self.advance()
            self._wait_for_pace(ended_s)
            started_s, ended_s = ended_s, self._clock.monotonic_s()
            step_time_s = ended_s - started_s
            recorder.log(
                result.step, loss=result.loss, grad_norm=result.grad_norm, lr=result.lr,
                tokens_per_s=self.options.batch / max(step_time_s, 1e-9), step_time_s=step_time_s,
            )  # fmt: skip
            self._report(result, step_time_s, recorder, say)
            nonfinite = 0 if math.isfinite(result.loss) else nonfinite + 1
            if nonfinite >= GIVE_UP_AFTER:
                raise FloatingPointError(f"loss is {result.loss} for {nonfinite} steps in a row, at step {result.step}")
            # Weights that are no numbers are not worth keeping: the restart would begin with them, again and again.
            if self.step % self.options.checkpoint_every == 0 and not nonfinite:
                self._periodic_save()
                ended_s = self._clock.monotonic_s()
            answer, waited_s = self._obey(control)
            if answer == "stop":
                return "stopped"
            ended_s += waited_s
        self.save()
        return "finished"

    def _report(self, result: StepResult, step_time_s: float, recorder: Recorder, say: Callable[[str], None]) -> None:
        if result.step % PRINT_EVERY_STEPS == 0:
            say(f"iter {result.step}: loss {result.loss:.4f}, time {step_time_s * 1e3:.2f}ms")
            self._log_history.append(
                {"loss": result.loss, "grad_norm": result.grad_norm, "learning_rate": result.lr, "step": result.step}
            )
        if result.step % DATA_EVERY_STEPS == 0:
            recorder.data(
                result.step,
                source="python-stdlib",
                shards=list(result.shards),
                sample_first=result.first,
                sample_last=result.last,
            )

    def _periodic_save(self) -> None:
        self._saver.write_behind(self.parameters, self._optimizer, self._generator, self._state())
        self._saved_step = self.step
        if any(fault.kind == "truncate_checkpoint" for fault in self._due()):
            self._saver.wait(hashed_s=5.0)  # a good one goes bad: its manifest says what it was
            weights = checkpoint.directory_of(self.options.checkpoints, self.step) / "model.safetensors"
            with weights.open("r+b") as file:
                file.truncate(weights.stat().st_size // 2)
            self._begin("truncate_checkpoint")

    def _obey(self, control: ControlClient) -> tuple[str, float]:
        """The client's answer, and how long it held the step."""
        asked_s = self._clock.monotonic_s()
        answer = control.at_step(self.step)
        waited_s = self._clock.monotonic_s() - asked_s
        if waited_s > PAUSE_S:
            self._books.paused_s += waited_s
            faults.write_books(self.options.run_dir, self._books)
        return answer, waited_s

    def _wait_for_pace(self, started_s: float) -> None:
        """Sleep until the step has taken its time. A late step is not made up for: faster steps after it would look like news."""
        slow = self._active_faults().get("slow_down")
        due_s = started_s + self.options.step_time_s * (slow.factor if slow else 1.0)
        now_s = self._clock.monotonic_s()
        if due_s > now_s:
            self._clock.sleep(due_s - now_s)

    def _random_characters(self, contexts: Array, targets: Array) -> tuple[Array, Array]:
        generator = np.random.default_rng((self.options.seed, self.step))
        return (
            generator.integers(0, VOCABULARY_SIZE, contexts.shape, dtype=np.uint8),
            generator.integers(0, VOCABULARY_SIZE, targets.shape, dtype=np.uint8),
        )

    def _elapsed_s(self) -> float:
        return self._books.elapsed_s(self._clock.time_ns())

    def _due(self) -> list[faults.Fault]:
        return faults.due(self.options.schedule, self._elapsed_s(), self._books.times())

    def _active_faults(self) -> dict[str, faults.Fault]:
        return faults.active(self.options.schedule, self._elapsed_s(), self._begun_here)

    def _begin_faults(self) -> None:
        for fault in self._due():
            if fault.kind == "truncate_checkpoint":
                continue  # begins with the next checkpoint
            if fault.kind == "poison_weights":
                self.parameters["hidden.1.weight"][0, 0] = np.nan
            self._begin(fault.kind)

    def _begin(self, kind: str) -> None:
        elapsed_s = self._elapsed_s()
        for fault in self._due():
            if fault.kind == kind:
                self._books.begun[fault.name] = {"elapsed_s": elapsed_s, "step": self.step}
                self._begun_here[fault.name] = elapsed_s
        faults.write_books(self.options.run_dir, self._books)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
