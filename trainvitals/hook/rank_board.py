"""How the ranks of a training tell rank 0 their loss and times: by the small key-value store they met at, never by a collective.

A rank that does not take part (it is slow, dead, or skips a step) is missing from the statistics and keeps nobody waiting.
torch.distributed's own store is there in each multi-process training, whatever its backend; no kernel is started on a device.
"""

from __future__ import annotations

import json
import math
import queue
import statistics
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainvitals.hook.rank_lateness import Lateness, RankLateness

#: A sample is overwritten by the one this many samples later, so that the store's memory is bounded.
SLOTS = 16
MAX_PLACE_TEXT = 200
#: How often rank 0 looks whether all ranks have told. With thousands of them a look takes tens of milliseconds.
LOOK_EVERY_S = 0.02
JOIN_S = 1.0


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is needed."""

    def set(self, key: str, value: str, /) -> None: ...
    def check(self, keys: list[str], /) -> bool: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...


@dataclass(frozen=True)
class Sample:
    """What one rank tells of one step; NaN where it does not know. Times in seconds.

    replica: which part of the model the rank holds; ranks with the same number hold the same parameters.
    """

    rank: int
    step: int
    loss: float
    grad_norm: float
    step_time_s: float
    pre_all_reduce_s: float
    replica: int = 0
    checksums: tuple[int, ...] = ()

    def text(self) -> str:
        """For the store."""
        numbers = (self.step, self.loss, self.grad_norm, self.step_time_s, self.pre_all_reduce_s, self.replica, *self.checksums)
        return " ".join(repr(number) for number in numbers)

    @staticmethod
    def of(rank: int, text: str) -> Sample:
        """Raises ValueError for what no rank wrote."""
        words = text.split(" ")
        if len(words) < 6:
            raise ValueError(f"no sample of rank {rank}")
        loss, norm, step_time_s, before_s = (float(word) for word in words[1:5])
        return Sample(
            rank, int(words[0]), loss, norm, step_time_s, before_s, int(words[5]), tuple(int(word) for word in words[6:])
        )


class RankBoard:
    """Raises what the store raises: the caller stops using it then. ``prefix``: the same on all ranks."""

    def __init__(self, store: Store, rank: int, world_size: int, prefix: str, sample_every: int) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        self._prefix, self._sample_every = prefix, max(1, sample_every)

    def put_place(self, host: str, local_rank: int | None, gpu_uuid: str | None) -> None:
        """Where this rank runs."""
        place = {"host": host[:MAX_PLACE_TEXT], "local_rank": local_rank, "gpu_uuid": gpu_uuid and gpu_uuid[:MAX_PLACE_TEXT]}
        self._store.set(f"{self._prefix}/place/{self._rank}", json.dumps(place))

    def places(self) -> list[dict[str, object]] | None:
        """``rank``, ``host``, ``local_rank`` and ``gpu_uuid`` of all ranks; None while one has not told its own."""
        keys = [f"{self._prefix}/place/{rank}" for rank in range(self._world_size)]
        if not self._store.check(keys):
            return None
        return [{"rank": rank, **json.loads(text)} for rank, text in enumerate(self._store.multi_get(keys))]

    def places_of(self, ranks: Sequence[int]) -> dict[int, dict[str, object]]:
        """``host``, ``local_rank`` and ``gpu_uuid`` of those of a few ranks that have told theirs."""
        found: dict[int, dict[str, object]] = {}
        for rank in ranks:
            key = f"{self._prefix}/place/{rank}"
            if self._store.check([key]):
                found[rank] = json.loads(self._store.multi_get([key])[0])
        return found

    def statistics(self, samples: Sequence[Sample]) -> dict[str, float]:
        """``rank_statistics`` of all ranks of this training."""
        return rank_statistics(samples, self._world_size)

    def put(self, sample: Sample) -> None:
        """Tell; does not wait for anybody."""
        self._store.set(self._key(sample.rank, sample.step), sample.text())

    def everyone(self, step: int) -> list[Sample] | None:
        """The samples of all ranks, None while one is missing."""
        ranks = range(self._world_size)
        if not self._store.check([self._key(rank, step) for rank in ranks]):
            return None
        samples = self._read(ranks, step)
        return samples if len(samples) == self._world_size else None

    def present(self, step: int) -> list[Sample]:
        """The samples that are there."""
        found: list[Sample] = []
        waiting: list[Sequence[int]] = [range(self._world_size)]
        while waiting:  # halves of halves: cheap when a few of many are missing
            ranks = waiting.pop()
            if self._store.check([self._key(rank, step) for rank in ranks]):
                found += self._read(ranks, step)
            elif len(ranks) > 1:
                middle = len(ranks) // 2
                waiting += [ranks[middle:], ranks[:middle]]
        return found

    def _key(self, rank: int, step: int) -> str:
        return f"{self._prefix}/sample/{step // self._sample_every % SLOTS}/{rank}"

    def _read(self, ranks: Sequence[int], step: int) -> list[Sample]:
        texts = self._store.multi_get([self._key(rank, step) for rank in ranks])
        samples = [Sample.of(rank, bytes(text).decode()) for rank, text in zip(ranks, texts, strict=True)]
        return [sample for sample in samples if sample.step == step]


@dataclass
class Answer:
    """What a ``BoardReader`` found out about a step. ``is_done`` comes last; without ``samples`` it failed with ``error``."""

    step: int
    samples: list[Sample] | None = None
    statistics: dict[str, float] = field(default_factory=dict)
    late: Lateness | None = None
    places: list[dict[str, object]] | None = None
    error: Exception | None = None
    is_done: threading.Event = field(default_factory=threading.Event)
    gives_up: threading.Event = field(default_factory=threading.Event)


class BoardReader:
    """Reads a board in a thread of its own: thousands of ranks, or a store that does not answer, cost the trainer no time.

    The board needs a connection that nobody else uses. After an error nothing is read any more.
    """

    def __init__(self, board: RankBoard) -> None:
        self._board = board
        self._questions: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="trainvitals-ranks", daemon=True)
        self._is_closing = False
        self._thread.start()

    def ask(self, step: int) -> Answer:
        """Look until all ranks have told, or until the asker sets ``gives_up``: then what is there is the answer."""
        answer = Answer(step)
        self._questions.put(answer)
        return answer

    def close(self) -> None:
        """End the thread, waiting at most a second."""
        self._is_closing = True
        self._questions.put(None)
        self._thread.join(JOIN_S)

    def _work(self) -> None:
        error: Exception | None = None
        has_places = False
        lateness = RankLateness()
        while (answer := self._questions.get()) is not None:
            try:
                if error is None:
                    samples = self._board.everyone(answer.step)
                    while samples is None and not (answer.gives_up.wait(LOOK_EVERY_S) or self._is_closing):
                        samples = self._board.everyone(answer.step)
                    told = samples if samples is not None else self._board.present(answer.step)
                    answer.late = lateness.take(_times_s(told), self._board.places_of)
                    answer.statistics = {**self._board.statistics(told), **answer.late.statistics}
                    answer.samples = told
                    if not has_places:
                        answer.places = self._board.places()
                        has_places = answer.places is not None
            except Exception as failure:  # noqa: BLE001 - the asker counts and tells it
                error = failure
            answer.error = error
            answer.is_done.set()


def _times_s(samples: Sequence[Sample]) -> dict[int, float]:
    return {sample.rank: sample.pre_all_reduce_s for sample in samples if math.isfinite(sample.pre_all_reduce_s)}


def rank_statistics(samples: Sequence[Sample], world_size: int) -> dict[str, float]:
    """Metrics of the step over the ranks; none for a single one.

    ``worst_rank``: a rank whose loss is not finite, else of three or more the one farthest from the median. ``slowest_rank``: the one that
    came last to the first all-reduce, where ranks say when they did: the step time itself is shared, because all wait there.
    """
    found: dict[str, float] = {}
    if len(samples) < world_size:
        found["ranks_missing"] = world_size - len(samples)
    if len(samples) < 2:
        return found
    losses = {sample.rank: sample.loss for sample in samples if math.isfinite(sample.loss)}
    if losses:
        values = list(losses.values())
        found |= {"loss_rank_min": min(values), "loss_rank_max": max(values), "loss_rank_mean": statistics.fmean(values)}
        mean = found["loss_rank_mean"]
        found["loss_rank_std"] = math.hypot(*(value - mean for value in values)) / math.sqrt(len(values))
    bad = [sample.rank for sample in samples if not math.isfinite(sample.loss)]
    if bad and losses:
        found["loss_rank_nonfinite"] = len(bad)
        found["worst_rank"] = bad[0]
    elif len(losses) > 2 and found["loss_rank_max"] > found["loss_rank_min"]:
        middle = statistics.median(losses.values())
        found["worst_rank"] = max(losses, key=lambda rank: abs(losses[rank] - middle))
    for name, times in (
        ("step_time", {sample.rank: sample.step_time_s for sample in samples if math.isfinite(sample.step_time_s)}),
        ("pre_all_reduce", _times_s(samples)),
    ):
        if len(times) > 1:
            found[f"{name}_rank_min_s"], found[f"{name}_rank_max_s"] = min(times.values()), max(times.values())
            found["slowest_rank"] = max(times, key=lambda rank: times[rank])
    return found


@dataclass(frozen=True)
class ReplicaMismatch:
    """Ranks whose parameters are not bit for bit those of most ranks that should hold the same. index: of the checked slice."""

    replica: int
    ranks: tuple[int, ...]
    index: int


def replica_mismatches(samples: Sequence[Sample]) -> list[ReplicaMismatch]:
    """Empty when all replicas agree. Without a majority (two ranks) the ranks that differ from the lowest one are named."""
    replicas: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.checksums:
            replicas.setdefault(sample.replica, []).append(sample)
    found: list[ReplicaMismatch] = []
    for replica, members in sorted(replicas.items()):
        for index in range(min(len(member.checksums) for member in members)):
            counts: Mapping[int, int] = Counter(member.checksums[index] for member in members)
            if len(counts) > 1:
                most = max(counts, key=lambda value: counts[value])  # of equals the one of the lowest rank
                ranks = tuple(member.rank for member in members if member.checksums[index] != most)
                found.append(ReplicaMismatch(replica, ranks, index))
    return found
