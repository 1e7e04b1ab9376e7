"""Control of a run of many ranks: rank 0 reads ``control.json``, all ranks act at the end of the same step. Needs torch.

    control = GroupControl(run_dir, run="llama-70b", on_checkpoint=save, drain=finish_async_saves)  # on every rank
    if sentence := control.at_start():
        print(sentence, file=sys.stderr)
        sys.exit(control.exit_code)
    for step in range(start, steps):
        ...  # forward, backward, optimizer step
        if control.at_step(step) != "continue":
            break
    control.close()
    sys.exit(control.exit_code)

Ranks that looked at the file themselves would act at different steps and wait for each other for ever; a rank 0 that held alone would
let the others die at the time limit of their next collective.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from trainvitals.control.client import ControlClient
from trainvitals.control.group import (
    MAX_TEXT_BYTES,
    PARK_CODE,
    VOTE_NUMBERS,
    WORD_NUMBERS,
    Alone,
    Leader,
    Pace,
    PeersLost,
    Word,
    counted,
    exit_code_of,
    follow,
    from_bytes,
    next_interval,
    to_bytes,
    vote,
)
from trainvitals.control.rules import whole_step
from trainvitals.control.telling import EventSink
from trainvitals.hook.group_agreement import Store, agree
from trainvitals.hook.guard import Failures, Guarded, never_raises
from trainvitals.hook.torch_world import from_anywhere, meeting_place, real

TIMEOUT_S = 1800.0
HOLD_TIMEOUT_S = 60.0
MAX_HOLD_S = 1800.0
MEET_EVERY_S = 1.0
#: For the connections between ranks that are all there: longer, and the trainer's own collectives would end the job first.
CONNECT_S = 120.0
#: Four ranks' words may be late in a row before anybody takes rank 0 for dead.
PERIODS_IN_A_TIMEOUT = 4

_made = itertools.count()

__all__ = ["PARK_CODE", "GroupControl", "PeersLost"]


class GroupControl(Guarded):
    """Construct it on every rank with the same arguments; its first call makes two gloo groups, so ``init_process_group`` comes before.

    on_checkpoint(step), on every rank, may do collectives; it returns when the checkpoint is on disk. A rank on which it raises or
    returns False makes the save fail on all: the request is refused, training goes on. drain(): finishes asynchronous saves; called
    on every rank before a save and before a pause. while_held(): called on every rank about once a second while paused.
    is_ready(step), rank 0: whether ``on_checkpoint`` would find a checkpoint now, for a trainer that saves by itself (``wants_save``).
    timeout_s: how much later than another a rank may come to a meeting, or out of a save. hold_timeout_s: while paused, how long the
    others wait for a word of rank 0. max_hold_s, None = no limit: a longer pause parks where it may (``can_park``), else ends.
    meet_every_s: of training between two meetings, each of which costs one small broadcast.
    ``failures``: what went wrong. Raises into the loop only ``PeersLost``, when a rank is gone while all act together.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        run: str = "",
        on_checkpoint: Callable[[int], object] | None = None,
        drain: Callable[[], object] | None = None,
        *,
        recorder: EventSink | None = None,
        timeout_s: float = TIMEOUT_S,
        hold_timeout_s: float = HOLD_TIMEOUT_S,
        max_hold_s: float | None = MAX_HOLD_S,
        can_park: bool = True,
        pause_without_checkpoint: bool = False,
        poll_s: float = 1.0,
        meet_every_s: float = MEET_EVERY_S,
        while_held: Callable[[], object] | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> None:
        self.failures = Failures()
        self._recorder = recorder
        self._hands = Alone(on_checkpoint, drain, while_held, is_ready)
        taken = self.failures.taken
        self._timeout_s = taken("timeout_s", _seconds, timeout_s, TIMEOUT_S, recorder)
        self._hold_timeout_s = taken("hold_timeout_s", _seconds, hold_timeout_s, HOLD_TIMEOUT_S, recorder)
        self._meet_every_s = taken("meet_every_s", _seconds, meet_every_s, MEET_EVERY_S, recorder)
        self._client_arguments: dict[str, Any] = {
            "run_dir": run_dir, "run": run, "recorder": recorder, "can_park": can_park,
            "pause_without_checkpoint": pause_without_checkpoint, "poll_s": poll_s,
            "max_hold_s": None if max_hold_s is None else taken("max_hold_s", _seconds, max_hold_s, MAX_HOLD_S, recorder),
        }  # fmt: skip
        self._client: ControlClient | None = None
        self._channel: GlooChannel | None = None
        self._leader: Leader | None = None
        self._pace = Pace()
        self._answer = "continue"
        self._why_off = ""
        self._has_met = False
        self._met_at_s: float | None = None
        self._last_step = 0

    @property
    def exit_code(self) -> int:
        """For ``sys.exit`` on every rank: 75 when the run was parked or stays parked, else 0; under torchrun always 0."""
        return exit_code_of(self._answer, os.environ)

    @property
    def errors(self) -> int:
        """Exceptions of the trainer's own functions on this rank."""
        return self._hands.errors

    @property
    def holds(self) -> int:
        """Grows while held, on every rank: a clock of the step's time is to be stopped."""
        return self._hands.holds

    def at_start(self) -> str | None:
        """None, or the same sentence on every rank: the run was stopped or parked; print it, do not train, ``sys.exit(exit_code)``.

        All ranks call it, or none does. Raises nothing: without the others the training begins.
        """
        self._meet()
        if self._why_off:
            return None
        sentence = self._client.at_start() if self._client is not None else None
        if self._channel is not None:
            answer = self._client.answer if self._client is not None else ""
            try:
                told = self._channel.share(f"{answer} {sentence}" if sentence else "")
            except PeersLost as error:
                self._lose(error)
                return None
            answer, _, sentence = told.partition(" ")
        elif sentence and self._client is not None:
            answer = self._client.answer
        if not sentence:
            return None
        self._answer = answer
        return sentence

    def wants_save(self, step: int) -> bool:
        """On every rank, before ``at_step`` of the same step, for a trainer that saves by itself: whether it should save now.

        If so, let it save on all ranks and call ``at_step`` after that. ``on_checkpoint`` then only tells whether the save was made.
        """
        self._meet()
        client, channel = self._client, self._channel
        if self._why_off or (channel is not None and not self._pace.is_due):
            return False
        if channel is None:
            return client.wants_save(step) if client is not None else False
        step = self._whole(step)
        try:
            if client is not None and self._leader is not None:
                wanted = client.wants_save(step)
                self._leader.begin(step)
                self._leader.flag(wanted)
                return wanted
            return bool(follow(channel, self._hands, step).value)
        except PeersLost as error:
            self._lose(error)
            return False

    def at_step(self, step: int) -> str:
        """On every rank after each optimizer step: "continue", or "stop" or "park" when the loop must end; holds while paused.

        Raises ``PeersLost`` when a rank is gone while all act together: the job cannot go on then.
        """
        self._meet()
        client, channel = self._client, self._channel
        if channel is None or self._why_off:
            if client is not None and self._why_off:
                client.give_up(self._why_off)  # whatever is asked for now
            elif client is not None:
                self._answer = client.at_step(step)
            return self._answer
        if not self._pace.is_due:
            self._pace.passed()
            if client is not None:
                client.step_ended(step)
            return self._answer
        step = self._whole(step)
        try:
            if client is not None and self._leader is not None:
                self._lead(client, self._leader, step)
            else:
                word = follow(channel, self._hands, step)
                if word.step != step:
                    self._differs(step, word.step)
                self._answer = word.answer
                self._pace.met(word.interval)
        except PeersLost as error:
            self._lose(error)
            if not error.is_early:
                raise
        return self._answer

    def close(self) -> None:
        """Say good-bye in the status file; on any rank, waits a few seconds at most. No collective."""
        if self._client is not None:
            self._client.close()

    def _whole(self, step: object) -> int:
        """Only at a meeting: the number of a step may lie on a GPU, and asking for it waits."""
        self._last_step = self.failures.taken("step", whole_step, step, self._last_step + 1, self._recorder)
        return self._last_step

    def _lead(self, client: ControlClient, leader: Leader, step: int) -> None:
        interval = 1  # before the first meeting no step was timed
        if self._met_at_s is not None:
            interval = next_interval(self._pace.interval, time.monotonic() - self._met_at_s, self._meet_every_s)
        leader.begin(step)
        self._answer = client.at_step(step)
        leader.end(self._answer, interval)
        self._pace.met(interval)
        self._met_at_s = time.monotonic()

    def _meet(self) -> None:
        """Once, at the first call: by then the process group is there if there ever is one."""
        if self._has_met:
            return
        self._has_met = True
        try:
            self._join()
        except Exception as error:  # noqa: BLE001 - nothing may raise into the trainer; counted and told
            self._turn_off(f"control is off: the ranks could not meet ({type(error).__name__}: {error})"[:500], error)

    def _join(self) -> None:
        rank = from_anywhere(None, "get_rank", "RANK", 0)
        world_size = from_anywhere(None, "get_world_size", "WORLD_SIZE", 1)
        if world_size > 1:
            if not (dist.is_available() and dist.is_initialized()):
                raise RuntimeError(
                    f"torch.distributed has not begun, but there are {world_size} ranks; call init_process_group before the first call"
                )
            self._channel = GlooChannel(rank, world_size, self._timeout_s, self._hold_timeout_s)
        problem = self._make_client() if rank == 0 else ""
        if self._channel is not None:
            problem = self._channel.share(problem)  # else the others would wait for the words of a rank 0 that says none
        if problem:
            raise RuntimeError(problem)

    def _make_client(self) -> str:
        """On rank 0; "" or why there is none."""
        crew: Alone | Leader = self._hands
        if self._channel is not None:
            crew = self._leader = Leader(self._channel, self._hands, min(1.0, self._hold_timeout_s / PERIODS_IN_A_TIMEOUT))
        try:
            self._client = ControlClient(**self._client_arguments, crew=crew)
        except Exception as error:  # noqa: BLE001 - whatever an argument does, the training begins; told to all ranks
            return f"rank 0 cannot look at the control file: {type(error).__name__}: {error}"[:500]
        return ""

    def _lose(self, error: PeersLost) -> None:
        self._turn_off(f"control is off, because the ranks lost each other: {error}"[:500], error)

    @never_raises
    def _turn_off(self, sentence: str, error: Exception) -> None:
        self._why_off = sentence
        self.failures.add("control of all ranks", error, self._recorder)
        if self._client is not None:
            self._client.give_up(sentence)

    def _differs(self, step: int, of_rank_0: int) -> None:
        error = RuntimeError(f"this rank calls at_step({step}) where rank 0 calls at_step({of_rank_0})")
        self.failures.add("control of all ranks", error, self._recorder)


class GlooChannel:
    """Two groups on the CPU, apart from the trainer's own: their time limits are ours, and nothing of ours waits in the trainer's.

    Two, because gloo knows one time limit a group, and what is under way when a process ends keeps it from ending for so long.
    """

    def __init__(self, rank: int, ranks: int, timeout_s: float, hold_timeout_s: float) -> None:
        """Raises the same sentence on all ranks, as soon as one of them cannot do it: none is left waiting for another."""
        self._rank = rank
        self._limits_s = (timeout_s, hold_timeout_s)
        store: Any = meeting_place()
        name = f"trainvitals/control/{next(_made)}"
        _all_can(store, f"{name}/device", rank, ranks, _devices, timeout_s)  # a rank may come to its first call much later
        self._patient, self._quick = (
            _all_can(store, f"{name}/{number}", rank, ranks, partial(_connected, limit_s), 2 * CONNECT_S)
            for number, limit_s in enumerate(self._limits_s)
        )

    def say(self, word: Word, *, is_patient: bool) -> None:
        self._broadcast(torch.tensor(word.to_numbers(), dtype=torch.int64), 0, is_patient)

    def hear(self, *, is_patient: bool) -> Word:
        numbers = self._broadcast(torch.zeros(WORD_NUMBERS, dtype=torch.int64), 0, is_patient)
        return Word.from_numbers(numbers.tolist())

    def weigh(self, step: int, problem: str) -> str:
        votes = torch.tensor(vote(self._rank, step, problem), dtype=torch.int64)
        assert votes.numel() == VOTE_NUMBERS
        self._tried(lambda: dist.all_reduce(votes, dist.ReduceOp.MIN, group=self._patient), True)
        failed, apart = counted(votes.tolist())
        if failed is None:
            return apart
        return f"rank {failed}: {self._text(problem, failed)}"

    def share(self, text: str) -> str:
        return self._text(text, 0)

    def _text(self, text: str, source: int) -> str:
        data = torch.frombuffer(bytearray(to_bytes(text)), dtype=torch.uint8)
        assert data.numel() == MAX_TEXT_BYTES
        return from_bytes(bytes(self._broadcast(data, source, True).tolist()))

    def _broadcast(self, numbers: torch.Tensor, source: int, is_patient: bool) -> torch.Tensor:
        group = self._patient if is_patient else self._quick
        self._tried(lambda: dist.broadcast(numbers, source, group=group), is_patient)
        return numbers

    def _tried(self, collective: Callable[[], object], is_patient: bool) -> None:
        try:
            collective()
        except Exception as error:
            limit_s = self._limits_s[0 if is_patient else 1]
            raise PeersLost(
                f"rank {self._rank} cannot reach the other ranks (one of them is gone, or silent for {limit_s:g} s): {error}"[
                    :500
                ]
            ) from error


def _all_can(store: Store, name: str, rank: int, ranks: int, act: Callable[[], Any], wait_s: float) -> Any:
    made, problem = None, ""
    try:
        made = act()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks are to know
        problem = f"{type(error).__name__}: {error}".partition("\n")[0] or "failed"
    if why_not := agree(store, name, rank, ranks, problem, wait_s):
        raise RuntimeError(why_not)
    return made


def _devices() -> None:
    """What gloo needs on this host: a trainer that uses NCCL alone may never have tried."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    for name in names:
        dist.ProcessGroupGloo.create_device(interface=name)
    if not names:
        dist.ProcessGroupGloo.create_default_device()


def _connected(limit_s: float) -> Any:
    """A group whose ranks are connected within ``CONNECT_S`` or not at all, and may then keep each other waiting for ``limit_s``."""
    can_change = hasattr(dist.ProcessGroupGloo, "_set_default_timeout")  # PyTorch 2.3 and later
    first_s = min(limit_s, CONNECT_S) if can_change else limit_s
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=first_s))
    if first_s != limit_s:
        group._get_backend(torch.device("cpu"))._set_default_timeout(timedelta(seconds=limit_s))
    return group


def _seconds(value: object) -> float:
    seconds = real(value)
    if seconds is None or not 0 < seconds < 1e9:
        raise ValueError(f"must be a number of seconds above 0, not {value!r}")
    return seconds
