"""For a plain PyTorch loop, on one rank or thousands: what each step was, and how the ranks differ. Needs torch.

    monitor = TrainingMonitor("/shared/runs/llama-70b", run="llama-70b", max_grad_norm=1.0)   # on every rank
    with monitor:
        for number in range(first, last):
            with monitor.step(number) as step:
                loss = model(next(batches))
                loss.backward()
                step.before_all_reduce()          # where the ranks first wait for each other
                all_reduce_gradients(model)
                step.loss(loss)
                step.grad_norm(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
                optimizer.step()
                step.log(lr=scheduler.get_last_lr()[0])
            if number % 1000 == 0:
                with monitor.saving(path_of(number), has_optimizer=True):
                    dcp.save(state, checkpoint_id=path_of(number))

Values on a device are never waited for: a step is recorded when they have come to the host, mostly with the next step.
"""

from __future__ import annotations

import atexit
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch

from trainvitals.hook.checksum import checksums, replicated_parameters, start_checksums
from trainvitals.hook.device_values import DeviceValues
from trainvitals.hook.group_control import GroupControl
from trainvitals.hook.guard import Failures, never_raises
from trainvitals.hook.rank_board import Answer, BoardReader, RankBoard, Sample, replica_mismatches
from trainvitals.hook.rank_calls import RankCalls
from trainvitals.hook.recorder import Recorder
from trainvitals.hook.saves import Saves
from trainvitals.hook.torch_world import from_anywhere, gpu_uuid, local_rank, meeting_place, not_negative, real, whole, why_alone

CLIP_WINDOW = 100
SAMPLE_EVERY = 50
CHECKSUM_EVERY = 1000
#: So many steps may wait for the device; with more the oldest one is waited for.
MAX_WAITING_STEPS = 64
#: The record of a sampled step waits for the other ranks for so many further steps and so long at least, and no longer
#: than ``HOLD_S``; then it goes with those that told. If even that is not known after twice as long, it goes without.
HOLD_STEPS = 8
HOLD_LEAST_S = 0.2
HOLD_S = 2.0
MAX_HELD_STEPS = 1000
CLOSE_WAIT_S = 1.0
DEVICE_S = 5.0
_NAN = float("nan")
#: The same on all ranks, which make their monitors in one order.
_numbers = itertools.count()
_live: weakref.WeakSet[TrainingMonitor] = weakref.WeakSet()


class TrainingMonitor(RankCalls):
    """Rank 0 writes ``metrics.rank00000.jsonl`` in ``run_dir``. Construct it on every rank, after ``init_process_group``;
    made before it, it looks for the other ranks again at its first step, and says so when it finds none.

    rank, world_size: default from torch.distributed, else from the environment. sample_every: at these steps the ranks are
    compared. per_rank: ``"gather"`` = rank 0 records the statistics; ``"files"`` = each rank writes its own file at sampled
    steps, without any communication; ``"none"``. max_grad_norm: for ``clip_fraction``, the share of the last 100 steps whose
    grad norm was above it. replicated: ``model.named_parameters()`` whose bits are compared every ``checksum_every`` steps
    (not for sharded parameters); replica: the same number on ranks that hold the same parameters.
    ``failures``: what went wrong; nothing raises into the loop. No call of this class is a collective.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        *,
        rank: int | None = None,
        world_size: int | None = None,
        sample_every: int = SAMPLE_EVERY,
        per_rank: str = "gather",
        max_grad_norm: float | None = None,
        replicated: Iterable[tuple[str, Any]] | None = None,
        checksum_every: int = CHECKSUM_EVERY,
        replica: int = 0,
        writer: str = "auto",
    ) -> None:
        self.failures = Failures()
        self._run_dir, self._run = run_dir, run
        self._recorder: Recorder | None = None
        self._board: RankBoard | None = None
        self._reader: BoardReader | None = None
        self._waiting: deque[_Waiting] = deque()
        self._clipped: deque[bool] = deque(maxlen=CLIP_WINDOW)
        self._last_number: int | None = None
        self._device_s, self._ended_steps = DEVICE_S, 0
        self._per_rank, self._looks_again = per_rank, False
        taken = self.failures.taken
        self._rank = from_anywhere(taken("rank", whole, rank, None, None), "get_rank", "RANK", 0)
        self._world_size = from_anywhere(taken("world_size", whole, world_size, None, None), "get_world_size", "WORLD_SIZE", 1)
        if self._rank == 0 or per_rank == "files":
            self._recorder = Recorder(run_dir, run=run, rank=self._rank, world_size=self._world_size, writer=writer)
            _live.add(self)  # the last steps may still wait for the device when the process ends
        self._saves = self._recorder.saves if self._recorder is not None else Saves(run, self._rank, self._world_size)
        self._sample_every = taken("sample_every", not_negative, sample_every, SAMPLE_EVERY, self._recorder)
        self._checksum_every = taken("checksum_every", not_negative, checksum_every, CHECKSUM_EVERY, self._recorder)
        self._replica = taken("replica", int, replica, 0, self._recorder)
        self._max_grad_norm = taken("max_grad_norm", real, max_grad_norm, None, self._recorder)
        self._parameters: list[tuple[str, Any]] = taken("replicated", replicated_parameters, replicated, [], self._recorder)
        self._prefix = f"trainvitals/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_numbers)}"
        self._meet()

    @never_raises
    def _meet(self) -> None:
        if self._per_rank not in ("gather", "files", "none"):
            raise ValueError(f"per_rank must be gather, files or none, not {self._per_rank!r}; no ranks are compared")
        if self._per_rank == "gather":
            self._looks_again = not self._join()

    def _join(self) -> bool:
        """Meet the other ranks; False while torch.distributed has not begun."""
        store = meeting_place() if self._world_size > 1 else None
        if store is None:
            return False
        every = min(n for n in (self._sample_every, self._checksum_every) if n) if self._sample_every else 1
        self._board = RankBoard(store, self._rank, self._world_size, self._prefix, every)
        self._board.put_place(os.uname().nodename, local_rank(), gpu_uuid())
        if self._recorder is not None and (own := meeting_place()) is not None:
            self._reader = BoardReader(RankBoard(own, self._rank, self._world_size, self._prefix, every))
        return True

    @never_raises
    def _look_again(self) -> None:
        """At the first step: whoever was made before ``init_process_group`` finds the other ranks now, or says that it does not."""
        if not self._join() and (why := why_alone(self._world_size)):
            raise RuntimeError(why)

    @property
    def recorder(self) -> Recorder | None:
        """For ``describe()``, ``data()`` and events of your own; None on ranks that write no file."""
        return self._recorder

    def control(self, *arguments: Any, **named: Any) -> GroupControl:
        """A ``GroupControl`` of this run, from ``on_checkpoint`` on; on every rank. It tells this monitor's file what it does."""
        return GroupControl(self._run_dir, self._run, *arguments, recorder=self._recorder, **named)

    def step(self, number: int) -> StepScope:
        """The block in which step ``number`` runs; an exception that leaves it passes, and nothing is recorded."""
        if self._looks_again:
            self._looks_again = False
            self._look_again()
        return StepScope(self, number)

    @never_raises
    def finish(self, reason: str = "finished") -> None:
        """As ``Recorder.finish``; on any rank."""
        if self._recorder is not None:
            self._release(at_end=True)
            self._recorder.finish(reason)

    @never_raises
    def close(self) -> None:
        """Write what waits and give the file back."""
        self._release(at_end=True)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._recorder is not None:
            self._recorder.close_later()

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._leave(kind, error)
        self.close()

    @never_raises
    def _leave(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        if self._recorder is not None:
            self._release(at_end=True)
            self._recorder.end(kind, error)

    def is_sampled(self, number: int) -> bool:
        """A function of the number alone, so that all ranks sample the same steps."""
        return bool(self._sample_every and number % self._sample_every == 0) or self.is_checked(number)

    def is_checked(self, number: int) -> bool:
        """Whether the replicated parameters are compared after this step."""
        return bool(self._parameters and self._checksum_every and number % self._checksum_every == 0)

    @never_raises
    def end_step(self, scope: StepScope, step_time_s: float) -> None:
        """A step's block was left without an exception."""
        self._last_number = scope.number
        is_sampled = self.is_sampled(scope.number)
        tells = is_sampled and (self._recorder is not None or self._board is not None)
        if tells or (self._recorder is not None and self._rank == 0):
            values = dict(scope.values)
            names: list[str] = []
            if self._board is not None and self.is_checked(scope.number):
                names, scalars = start_checksums(self._parameters, scope.number // self._checksum_every)
                values |= {f"checksum {name}": scalar for name, scalar in scalars.items()}
            self._waiting.append(_Waiting(scope, self._ended_steps, step_time_s, is_sampled, DeviceValues(values), names))
        self._ended_steps += 1
        self._release(at_end=False)

    def _release(self, at_end: bool) -> None:
        """Record the steps whose values have come, in their order."""
        end_s = time.monotonic() + CLOSE_WAIT_S
        while self._waiting:
            first = self._waiting[0]
            if first.numbers is None:
                if not (at_end or first.is_ready() or len(self._waiting) > MAX_WAITING_STEPS):
                    return
                if not first.resolve(self._device_s):
                    self._device_s = 0.0  # waited for once, not once a step
                    error = TimeoutError(f"the device did not answer in {DEVICE_S} s")
                    self.failures.add(f"reading step {first.number}", error, self._recorder)
                if first.is_sampled and self._board is not None:
                    self._tell(first)
            if (
                self._reader is not None
                and first.is_sampled
                and not self._compare(self._reader, first, end_s if at_end else None)
            ):
                return
            self._waiting.popleft()
            if self._recorder is not None:
                self._record(self._recorder, first)

    def _tell(self, first: _Waiting) -> None:
        assert self._board is not None
        try:
            self._board.put(first.sample(self._rank, self._replica))
        except Exception as error:  # noqa: BLE001 - without the store the ranks are not compared any more; counted and told
            self._board = self._reader = None
            self.failures.add("telling rank 0", error, self._recorder)

    def _compare(self, reader: BoardReader, first: _Waiting, end_s: float | None) -> bool:
        """Whether the step needs no more waiting for other ranks. end_s: at the end, wait until then and go without."""
        if first.answer is None:
            first.answer = reader.ask(first.number)
        answer = first.answer
        age_s = time.monotonic() - first.ended_s
        later_steps = self._ended_steps - first.order - 1
        is_late = later_steps > 0 and age_s > (HOLD_LEAST_S if later_steps >= HOLD_STEPS else HOLD_S)
        is_late = is_late or later_steps > MAX_HELD_STEPS
        if end_s is not None:
            answer.is_done.wait(max(0.0, end_s - time.monotonic()))
        if is_late or end_s is not None:
            answer.gives_up.set()
        if end_s is not None:
            answer.is_done.wait(max(0.1, end_s - time.monotonic()))
        if not answer.is_done.is_set():
            return end_s is not None or (later_steps > 0 and age_s > 2 * HOLD_S) or later_steps > 2 * MAX_HELD_STEPS
        if answer.error is not None:
            self._reader = None
            self.failures.add("comparing the ranks", answer.error, self._recorder)
        if answer.samples is not None and self._recorder is not None:
            first.statistics = answer.statistics
            self._tell_ranks(self._recorder, first, answer)
        return True

    def _tell_ranks(self, recorder: Recorder, first: _Waiting, answer: Answer) -> None:
        if answer.places is not None:
            recorder.describe(None, ranks=answer.places)
        if answer.late is not None and answer.late.told:
            recorder.event("ranks", first.number, answer.late.text, **answer.late.told)
        for found in replica_mismatches(answer.samples or ()):
            part = first.checked[found.index] if found.index < len(first.checked) else str(found.index)
            text = f"parameters differ between replicas: {part}, ranks {', '.join(map(str, found.ranks[:10]))}"
            data = {"replica_mismatch": list(found.ranks), "replica": found.replica, "parameters": part}
            recorder.event("message", first.number, text, **data)

    def _record(self, recorder: Recorder, first: _Waiting) -> None:
        metrics = {name: value for name, value in (first.numbers or {}).items() if not name.startswith("checksum ")}
        metrics["step_time_s"] = first.step_time_s
        before_s = first.pre_all_reduce_s()
        if before_s == before_s:
            metrics["pre_all_reduce_s"] = before_s
        limit = self.failures.taken("max_norm", real, first.max_norm, None, recorder)
        limit = self._max_grad_norm if limit is None else limit
        norm = metrics.get("grad_norm")
        if limit is not None and isinstance(norm, (int, float)):
            self._clipped.append(not norm <= limit)  # NaN counts as clipped
            metrics["clip_fraction"] = sum(self._clipped) / len(self._clipped)
        recorder.log(first.number, {**metrics, **first.statistics})


class StepScope:
    """What a step hands over. Nothing here raises or waits for a device."""

    __slots__ = ("_begun_s", "_monitor", "before_s", "events", "max_norm", "number", "values")

    def __init__(self, monitor: TrainingMonitor, number: int) -> None:
        self._monitor = monitor
        self.number = number
        self.values: dict[str, object] = {}
        self.max_norm: float | None = None
        self.before_s = _NAN
        self.events: tuple[Any, Any] | None = None
        self._begun_s = 0.0

    def __enter__(self) -> StepScope:
        self._begun_s = time.perf_counter()
        try:
            if torch.cuda.is_initialized() and self._monitor.is_sampled(self.number):
                self.events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                self.events[0].record()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the loop; counted and told
            self._failed("step", error)
        return self

    def loss(self, value: object) -> None:
        """This rank's loss: a number, or a tensor with one element."""
        self.values["loss"] = value

    def grad_norm(self, value: object, max_norm: float | None = None) -> None:
        """The grad norm before clipping, as ``clip_grad_norm_`` returns it (of a DTensor: its ``full_tensor()``)."""
        self.values["grad_norm"] = value
        self.max_norm = max_norm

    def log(self, **metrics: object) -> None:
        """Further metrics: ``lr``, ``tokens_per_s``, ``tokens``, ``mfu`` and names of your own."""
        self.values.update(metrics)

    def before_all_reduce(self) -> None:
        """Call it right before the ranks first wait for each other. With DDP that is in ``backward()``: call it before."""
        self.before_s = time.perf_counter() - self._begun_s
        if self.events is not None:
            try:
                self.events[1].record()
            except Exception as error:  # noqa: BLE001 - nothing may raise into the loop; counted and told
                self._failed("before_all_reduce", error)

    def _failed(self, where: str, error: Exception) -> None:
        self.events = None
        self._monitor.failures.add(where, error, self._monitor.recorder)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None:
            self._monitor.end_step(self, time.perf_counter() - self._begun_s)


class _Waiting:
    """A step that ended, until its values have come and the other ranks have told theirs."""

    def __init__(
        self, scope: StepScope, order: int, step_time_s: float, is_sampled: bool, values: DeviceValues, checked: list[str]
    ) -> None:
        self.number, self.max_norm = scope.number, scope.max_norm
        self.order, self.step_time_s, self.is_sampled = order, step_time_s, is_sampled
        self.ended_s = time.monotonic()
        self.numbers: dict[str, object] | None = None
        self.statistics: dict[str, float] = {}
        self.checked = checked
        self.answer: Answer | None = None
        self._values, self._before_s, self._events = values, scope.before_s, scope.events

    def is_ready(self) -> bool:
        return self._values.is_ready()

    def resolve(self, timeout_s: float) -> bool:
        self.numbers = self._values.result(timeout_s)
        return self._values.is_ready()

    def pre_all_reduce_s(self) -> float:
        """By the device's clock where there is one: the host only queues the work."""
        if self._events is None or self._before_s != self._before_s or not self._events[1].query():
            return self._before_s
        return float(self._events[0].elapsed_time(self._events[1])) / 1e3

    def sample(self, rank: int, replica: int) -> Sample:
        numbers = self.numbers or {}
        loss, norm = (_number(numbers.get(name)) for name in ("loss", "grad_norm"))
        sums = checksums({name.removeprefix("checksum "): value for name, value in numbers.items()}, len(self.checked))
        return Sample(rank, self.number, loss, norm, self.step_time_s, self.pre_all_reduce_s(), replica, sums)


def _close_all() -> None:
    for monitor in list(_live):
        monitor.close()


atexit.register(_close_all)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else _NAN
