"""Ranks compared with each other: one loss that stands apart, one rank that everybody waits for, ranks that tell nothing.

The hook compares the ranks at sampled steps and records what is left of thousands of numbers (lowest, highest, which rank), so the
cost here does not depend on how many there are. A single sample says nothing, because some rank is always the worst; the same rank
again and again does. Only the time before the first all-reduce tells a slow rank: the step itself takes equally long on all of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_duration, format_step, format_value
from trainvitals.detect.statistics import median
from trainvitals.records import Event, Severity, Step

MAX_WINDOW = 50
MAX_LONG = 400
USUAL_SAMPLES = 9
MIN_USUAL_SAMPLES = 3
EQUAL_SHARE = 1e-6  # ranks whose losses are this close hold the same, reduced one
EQUAL_SAMPLES = 5
NAMED_RANKS = 8
MAX_PLACES = 10
MOST_LATE = 0.125  # of the ranks: a node of a small training
MAX_PLACE_CHARACTERS = 100

_MISMATCH, _STRAGGLER, _SILENT = "rank_loss_mismatch", "straggler", "rank_silent"


class RankDetector(FamilyDetector):
    """``rank_loss_mismatch``, ``straggler``, ``rank_silent``."""

    family = "rank"
    rules = (_MISMATCH, _STRAGGLER, _SILENT)
    STATE = (
        "ledger", "_worst", "_long", "_slowest", "_equal", "_unequal", "_bad_counts", "_good", "_missing_counts", "_silent", "_why",
        "_is_pipelined", "_first_slowest", "_late_samples", "_is_late", "_first_late", "_late_seen", "_places",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        self._worst: deque[list[float]] = deque(maxlen=self._window(_MISMATCH))  # [rank, 1 above or -1 below, share of the mean]
        often = int(min(float(MAX_LONG), max(1.0, self.numbers[_MISMATCH]["often_of_samples"])))
        self._long: deque[list[float]] = deque(maxlen=often)
        self._slowest: deque[list[float]] = deque(maxlen=self._window(_STRAGGLER))  # [rank, excess, seconds]
        self._equal = 0  # samples in a row
        self._unequal = 0
        self._bad_counts: deque[int] = deque(maxlen=USUAL_SAMPLES)
        self._good = 0
        self._missing_counts: deque[int] = deque(maxlen=USUAL_SAMPLES)
        self._silent = 0  # samples in a row with more ranks missing than usual
        self._why = ""  # of the open rank_loss_mismatch
        self._is_pipelined = False
        self._first_slowest: list[float] | None = None  # [rank, excess] of the attempt's first samples
        self._late_samples = 0  # in a row, by the smoothed lateness of many ranks
        self._is_late = False  # the open straggler was found by it
        self._first_late = 0.0  # highest share of the attempt's first samples
        self._late_seen = 0
        self._places: dict[str, str] = {}  # rank -> host/local rank/GPU, of the ten worst as told last

    def on_step(self, step: Step) -> None:
        values = step.values
        low, high = values.get("loss_rank_min"), values.get("loss_rank_max")
        slow = values.get("pre_all_reduce_rank_max_s")
        missing = values.get("ranks_missing")
        if low is None and slow is None and missing is None and "step_time_rank_max_s" not in values:
            return
        self._judge_silence(step, int(missing or 0))
        if low is not None and high is not None:
            self._judge_loss(step, low, high)
        fast, rank = values.get("pre_all_reduce_rank_min_s"), values.get("slowest_rank")
        if slow is not None and fast is not None and rank is not None and fast > 0:
            self._judge_time(step, int(rank), fast, slow)
        if "late_rank" in values and "late_share" in values:
            self._judge_lateness(step)

    def on_resume(self, from_step: int) -> None:
        """Other nodes, perhaps: nothing that was usual counts any more."""
        for rule in self.rules:
            self.ledger.close(rule, ending="; the trainer was started again")
        self._worst.clear()
        self._long.clear()
        self._slowest.clear()
        self._bad_counts.clear()
        self._missing_counts.clear()
        self._equal = self._unequal = self._good = self._silent = 0
        self._why, self._first_slowest = "", None
        self._late_samples, self._is_late, self._first_late, self._late_seen, self._places = 0, False, 0.0, 0, {}

    def on_event(self, event: Event) -> None:
        data = event.data
        if event.kind == "metadata" and data.get("section") in ("layout", "config") and isinstance(data.get("values"), Mapping):
            self._is_pipelined = self._is_pipelined or any(_is_pipeline(key, value) for key, value in data["values"].items())
        elif event.kind == "message" and isinstance(data.get("replica_mismatch"), (list, tuple)):
            self._tell_replicas(event)
        elif event.kind == "ranks" and isinstance(data.get("worst"), (list, tuple)):
            self._places = dict(filter(None, map(_place, data["worst"][:MAX_PLACES])))
        elif event.kind == "annotation":
            for rule in self.rules:
                if self.context.is_silenced(rule):
                    self.ledger.close(rule, None, "; expected, says a note")

    # -- loss -----------------------------------------------------------------------------------------------------

    def _judge_loss(self, step: Step, low: float, high: float) -> None:
        numbers, values = self.numbers[_MISMATCH], step.values
        mean = values.get("loss_rank_mean", 0.5 * (low + high))
        size = max(abs(mean), 1e-12)
        gap = (high - low) / size
        self._judge_nonfinite(step)
        is_reduced = self._equal >= EQUAL_SAMPLES
        if gap <= EQUAL_SHARE:
            self._equal, self._unequal = min(self._equal + 1, 1_000_000), 0
            self._end("equal", f"; they agree again at step {format_step(step.step)}")
        elif is_reduced:
            self._unequal += 1
            if self._unequal >= numbers["unequal_samples"] and gap > numbers["unequal_share"] / numbers["sensitivity"]:
                text = (
                    f"the loss that all ranks hold differs between them: {low:.6g} to {high:.6g} at step {format_step(step.step)}"
                )
                self._tell("equal", text, gap, {})
            return
        rank = values.get("worst_rank")
        if rank is None or gap <= EQUAL_SHARE or "loss_rank_nonfinite" in values:
            return
        is_above = high - mean >= mean - low
        self._worst.append([rank, 1 if is_above else -1, (high - mean if is_above else mean - low) / size])
        self._long.append(self._worst[-1])
        same = [item for item in self._worst if item[:2] == self._worst[-1][:2]]
        excess = median([item[2] for item in same])
        if len(same) >= numbers["same_rank_samples"] and excess >= numbers["min_excess"] / numbers["sensitivity"]:
            how = "highest" if is_above else "lowest"
            text = (
                f"rank {int(rank)} has the {how} loss of all ranks in {len(same)} of {len(self._worst)} samples, "
                f"{100 * excess:.1f} % from their mean {format_value(mean)}: its data, or its GPU computes wrongly"
            )
            self._tell("same", text, excess, {"rank": int(rank)})
        elif self._why == "same" and _MISMATCH in self.ledger.open:
            told = self.ledger.open[_MISMATCH].data.get("rank")
            if sum(1 for item in self._worst if item[0] == told) < numbers["same_rank_samples"] / 2:
                self._end("same", f"; no longer from step {format_step(step.step)} on")
        self._judge_frequency(step, mean)

    def _judge_frequency(self, step: Step, mean: float) -> None:
        """A small bias makes a rank the worst not always, but far more often than any other."""
        numbers = self.numbers[_MISMATCH]
        if len(self._long) < numbers["often_of_samples"]:
            return
        counts = Counter((item[0], item[1]) for item in self._long)
        (first, top), *others = counts.most_common(2)
        least = numbers["often_share"] * len(self._long)
        if self._why == "often" and _MISMATCH in self.ledger.open:
            told = self.ledger.open[_MISMATCH].data.get("rank")
            if sum(count for key, count in counts.items() if key[0] == told) < least / 2:
                self._end("often", f"; no longer from step {format_step(step.step)} on")
            return
        excess = median([item[2] for item in self._long if (item[0], item[1]) == first])
        is_alone = top >= numbers["often_ratio"] * (others[0][1] if others else 0)
        if top >= least and is_alone and excess >= numbers["min_excess"] / numbers["sensitivity"]:
            text = (
                f"rank {int(first[0])} has the {'highest' if first[1] > 0 else 'lowest'} loss of all ranks in {top} of {len(self._long)} "
                f"samples, far more often than any other, then {100 * excess:.1f} % from their mean {format_value(mean)}: its data, or its GPU"
            )
            self._tell("often", text, excess, {"rank": int(first[0])})

    def _judge_nonfinite(self, step: Step) -> None:
        count, counts = int(step.values.get("loss_rank_nonfinite", 0)), self._bad_counts
        usual = median(counts) if len(counts) >= MIN_USUAL_SAMPLES else None  # stages of a pipeline without a loss
        if usual is None or count <= usual:
            counts.append(count)
            self._good += 1
            if self._good >= MIN_USUAL_SAMPLES:
                self._end("nonfinite", f"; finite again from step {format_step(step.step)} on")
            return
        self._good = 0
        rank = int(step.values.get("worst_rank", -1)) if not usual else -1
        text = f"the loss of {format_count(count - int(usual), 'rank')} is not a number at step {format_step(step.step)}"
        text += f": rank {rank}" if rank >= 0 else ""
        self._tell("nonfinite", text, float(count), {"ranks": count - int(usual), **({"rank": rank} if rank >= 0 else {})})

    def _tell_replicas(self, event: Event) -> None:
        ranks = [rank for rank in event.data["replica_mismatch"] if isinstance(rank, int) and not isinstance(rank, bool)]
        shown = ", ".join(str(rank) for rank in ranks[:NAMED_RANKS]) + (" …" if len(ranks) > NAMED_RANKS else "")
        text = f"ranks that must hold the same parameters do not (rank {shown}); the reduced loss does not show it"
        data = {"ranks": ranks[:NAMED_RANKS], "parameters": str(event.data.get("parameters"))[:200]}
        first_step = self.context.step if event.step is None else event.step
        self._why = "replicas"
        if _MISMATCH in self.ledger.open:
            self.ledger.escalate(_MISMATCH, Severity.CRITICAL, text, data=data)
        else:
            self.ledger.open_finding(
                _MISMATCH, Severity.CRITICAL, text, first_step=first_step, value=float(len(ranks)), data=data
            )

    def _tell(self, why: str, text: str, value: float, data: dict[str, Any]) -> None:
        if _MISMATCH not in self.ledger.open:
            self.ledger.open_finding(_MISMATCH, Severity.WARNING, text, value=value, data={"why": why, **data})
            self._why = why

    def _end(self, why: str, ending: str) -> None:
        if self._why == why and self.ledger.close(_MISMATCH, None, ending) is not None:
            self._why = ""

    # -- time -----------------------------------------------------------------------------------------------------

    def _judge_time(self, step: Step, rank: int, fast: float, slow: float) -> None:
        numbers, samples = self.numbers[_STRAGGLER], self._slowest
        # A hiccup of three times the usual must not weigh more than a lasting third.
        samples.append([rank, min(slow / fast - 1, numbers["clip"]), slow - fast])
        same = [item for item in samples if item[0] == rank]
        # Of chance lateness (two ranks, sequences of all lengths) some is small; that of a slow GPU hardly varies.
        excess = sorted(item[1] for item in same)[len(same) // 8]
        if self._first_slowest is None and len(samples) == samples.maxlen:
            self._first_slowest = [rank, excess] if len(same) >= numbers["same_rank_samples"] else [-1, 0.0]
        reference = 0.0
        if self._is_pipelined:  # stages have different work: only what changes is a fault
            if self._first_slowest is None:
                return
            reference = self._first_slowest[1] if self._first_slowest[0] == rank else 0.0
        is_slow = excess - reference >= numbers["min_excess"] / numbers["sensitivity"]
        if len(same) >= numbers["same_rank_samples"] and is_slow and _STRAGGLER not in self.ledger.open:
            late_s = median([item[2] for item in same])
            text = (
                f"rank {rank} comes last to the all-reduce in {len(same)} of {len(samples)} samples, {format_duration(late_s)} "
                f"({100 * late_s / fast:.0f} %) after the fastest: every rank waits for it"
            )
            self._is_late = False
            self._tell_straggler(rank, late_s, late_s / fast, slow, fast, text)
        elif _STRAGGLER in self.ledger.open and not self._is_late:
            told = self.ledger.open[_STRAGGLER].data["rank"]
            theirs = [item[1] for item in samples if item[0] == told]
            is_over = 2 * len(theirs) < numbers["same_rank_samples"] or sum(theirs) / len(theirs) < numbers["min_excess"] / 2
            if is_over:
                self.ledger.close(_STRAGGLER, None, f"; no longer from step {format_step(step.step)} on")

    def _judge_lateness(self, step: Step) -> None:
        """Of many ranks some always hiccup, and the slowest of a sample says little: each rank's lateness, smoothed by the hook."""
        numbers, values = self.numbers[_STRAGGLER], step.values
        rank, share, middle_s = int(values["late_rank"]), values["late_share"], values.get("pre_all_reduce_rank_median_s", 0.0)
        late_ranks, all_ranks = values.get("late_ranks", 1.0), values.get("late_of_ranks", 0.0)
        limit = max(numbers["min_excess"] / numbers["sensitivity"], numbers["noise_factor"] * values.get("late_noise_share", 0.0))
        excess = share
        if self._is_pipelined:  # stages have different work: only what changes is a fault
            if self._late_seen < MAX_WINDOW:
                self._late_seen += 1
                self._first_late = max(self._first_late, share)
                return
            excess -= self._first_late
        # So many that are late together are a stage or a mix of data, and nobody's fault.
        is_late = excess >= limit and late_ranks <= MOST_LATE * all_ranks
        self._late_samples = self._late_samples + 1 if is_late else 0
        if _STRAGGLER not in self.ledger.open:
            if self._late_samples >= numbers["late_samples"]:
                late_s, others = share * middle_s, int(late_ranks) - 1
                text = (
                    f"rank {rank} comes to the all-reduce {format_duration(late_s)} ({100 * share:.0f} %) later than the median of all "
                    f"ranks, in {format_count(self._late_samples, 'sample')} in a row: every rank waits for it"
                )
                if others > 0:
                    text += f"; late too: {format_count(others, 'other rank')}"
                self._is_late = True
                self._tell_straggler(rank, late_s, share, middle_s + late_s, middle_s, text)
        elif self._is_late and excess < limit / 2:
            self._is_late = False
            self.ledger.close(_STRAGGLER, None, f"; no longer from step {format_step(step.step)} on")

    def _tell_straggler(self, rank: int, late_s: float, excess: float, value: float, expected: float, text: str) -> None:
        data: dict[str, Any] = {"rank": rank, "late_s": round(late_s, 6), "excess": round(excess, 4)}
        place = self._places.get(str(rank))
        if place is not None:
            text, data = f"{text} [rank {rank}: {place}]", {**data, "place": place}
        self.ledger.open_finding(_STRAGGLER, Severity.WARNING, text, value=value, expected=expected, data=data)

    # -- silence --------------------------------------------------------------------------------------------------

    def _judge_silence(self, step: Step, count: int) -> None:
        numbers, counts = self.numbers[_SILENT], self._missing_counts
        usual = median(counts) if counts else 0
        if count <= usual:
            counts.append(count)
            self._silent = 0
            self.ledger.close(_SILENT, None, f"; all told theirs at step {format_step(step.step)}")
            return
        self._silent += 1
        if self._silent < numbers["samples"] or _SILENT in self.ledger.open:
            return
        more = count - int(usual)
        if not counts:  # never told anything: they have no monitor, or cannot reach it
            counts.append(count)
            text = f"{format_count(count, 'rank')} told nothing since the start: is the monitor made on every rank?"
            self.ledger.mark(_SILENT, Severity.INFO, text, value=float(count), data={"ranks_missing": count})
            return
        text = f"{format_count(more, 'rank')} told nothing in {format_count(self._silent, 'sample')} in a row, while steps go on"
        self.ledger.open_finding(
            _SILENT, Severity.WARNING, text, value=float(count), expected=float(usual), data={"ranks_missing": count}
        )

    def _window(self, rule: str) -> int:
        return int(min(float(MAX_WINDOW), max(1.0, self.numbers[rule]["of_samples"])))


def _is_pipeline(key: object, value: object) -> bool:
    name = str(key)[:200].rsplit(".", 1)[-1].lower()
    is_size = name == "pp" or (name.startswith(("pipeline", "pp_")) and name.endswith(("size", "degree", "parallel", "stages")))
    return is_size and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1


def _place(row: object) -> tuple[str, str] | None:
    """Rank and ``host/local rank/GPU`` of a row of a ``ranks`` event, None when it says neither."""
    if not isinstance(row, Mapping) or not isinstance(row.get("rank"), int) or not row.get("host"):
        return None
    fields = (row.get(name) for name in ("host", "local_rank", "gpu_uuid"))
    return str(row["rank"])[:MAX_PLACE_CHARACTERS], "/".join(
        "" if field is None else str(field)[:MAX_PLACE_CHARACTERS] for field in fields
    )
