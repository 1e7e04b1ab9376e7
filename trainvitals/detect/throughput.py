"""Loss of throughput: medians of buckets against a lagged reference, never a single slow step.

Buckets grow with the run until they are ``bucket_s`` long, so that a run of short steps has a usual throughput within minutes and an
old one is not told of every hiccup.

Evaluations and checkpoints make single steps 2-60 times slower in healthy runs; a drop that mattered was 5 %.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from trainvitals.detect.base import FamilyDetector, Tuned
from trainvitals.detect.findings import Context, format_count, format_step, format_value
from trainvitals.detect.statistics import MAD_TO_SIGMA, SortedWindow, median, quartile_sigma
from trainvitals.records import Event, Severity, Step

#: Metric -> (text for people, whether smaller is faster). The first one that a run logs is used for the whole run.
METRICS = {
    "tokens_per_s": ("tokens/s", False),
    "samples_per_s": ("samples/s", False),
    "tflops_per_gpu": ("TFLOP/s per GPU", False),
    "step_time_s": ("s per step", True),
}
BETWEEN_STEPS = "between_steps"
CHOICE_POINTS = 5
KEPT_BLOCKS = 32
MIN_BLOCKS = 4
MIN_SLOW_BLOCKS = 8  # noise of few blocks is a poor estimate, and a small drop can wait
SQRT2 = 1.4142
OLD_PAST_POINTS = 2**53
NOTABLY_DEEPER = 0.02
RECOVERED_SHARE = 0.5  # of the drop that opened it


class ThroughputDetector(FamilyDetector):
    """``throughput_drop``. Works on the log of the throughput, so a share is a difference."""

    family = "throughput"
    rules = ("throughput_drop",)
    STATE = (
        "ledger", "metric", "_offered", "_offers", "_bucket", "_bucket_from_ns", "_last_step", "_last_ns", "_usual", "_lagging",
        "_recent", "_blocks", "_slow_blocks", "_fill", "_slow_fill", "_age", "_level", "_opened_at", "_deep", "_muted",
        "_past_points", "_deepest",
    )  # fmt: skip

    def __init__(self, context: Context, tuned: Tuned) -> None:
        super().__init__(context, tuned)
        numbers = self._numbers = self.numbers["throughput_drop"]
        sensitivity = numbers["sensitivity"]
        self._min_points = max(1, int(min(numbers["min_points"], numbers["window"])))
        self._drop = _log_of_drop(numbers["drop"] / sensitivity)
        self._slow_drop = _log_of_drop(numbers["slow_drop"] / sensitivity)
        self._critical_drop = _log_of_drop(numbers["critical_drop"] / sensitivity)
        self._noise_factor = numbers["noise_factor"] / sensitivity
        self._recent_points = max(3, int(numbers["recent_points"]))
        self._slow_points = max(self._recent_points, int(numbers["slow_points"]))
        # A bucket is bucket_s long, or this share of what was seen so far: a young run of short steps must not wait for a past.
        self._full_past = int(numbers["window"]) + 2 * self._slow_points
        self._past_points = 0
        self.metric: str | None = None
        self._offered: list[str] = []
        self._offers = 0
        self._bucket: list[float] = []
        self._bucket_from_ns: int | None = None
        self._last_step: int | None = None
        self._last_ns: int | None = None
        self._usual = SortedWindow(int(numbers["window"]))
        self._lagging: deque[float] = deque()
        self._recent: deque[list[float]] = deque(maxlen=self._slow_points)  # [step, log]
        self._blocks: deque[float] = deque(maxlen=KEPT_BLOCKS)
        self._slow_blocks: deque[float] = deque(maxlen=KEPT_BLOCKS)
        self._fill: list[float] = []
        self._slow_fill: list[float] = []
        self._age = 0
        self._level: float | None = None  # usual log while a drop is open
        self._opened_at = 0.0
        self._deepest = 0.0
        self._deep = 0
        self._muted = int(numbers["mute_after_resume_points"])

    def restore(self, state: dict[str, Any]) -> None:
        """A state of before buckets grew with the run has buckets of full length, and keeps them: shorter ones are noisier."""
        super().restore({"_past_points": OLD_PAST_POINTS, **state})

    def usual(self, name: str) -> float | None:
        """Median of the accepted values of metric ``name``, None when another one is judged or there are none."""
        if name != self.metric or not len(self._usual):
            return None
        return self._as_metric(self._usual.median())

    def on_step(self, step: Step) -> None:
        value = self._value(step)
        self._last_step, self._last_ns = step.step, step.time_ns
        if self._muted > 0:
            self._muted -= 1
            return
        if value is None or self.context.is_paused:
            return
        self._bucket.append(value)
        self._past_points += 1
        if step.time_ns is not None:
            if self._bucket_from_ns is None:
                self._bucket_from_ns = step.time_ns
            is_long = step.time_ns - self._bucket_from_ns >= self._numbers["bucket_s"] * 1e9
            if not is_long and len(self._bucket) * self._full_past < self._past_points:
                return
            self._bucket_from_ns = step.time_ns
        log = median(self._bucket)
        self._bucket = []
        self._judge(step.step, log)

    def on_resume(self, from_step: int) -> None:
        self._restart()

    def on_event(self, event: Event) -> None:
        if event.kind == "phase" and event.data.get("phase") == "paused":
            self._restart()
        elif event.kind == "annotation" and self.context.is_silenced("throughput_drop"):
            self._end("; expected, says a note")
            self._usual.reset()

    def _restart(self) -> None:
        self._muted = int(self._numbers["mute_after_resume_points"])
        self._bucket = []
        self._bucket_from_ns = self._last_ns = self._last_step = None

    def _value(self, step: Step) -> float | None:
        """Log of the throughput of this step, None when it has none or a nonsensical one (0 tokens in 0 s)."""
        if self.metric is None:
            self._offered = [name for name in METRICS if name in step.values or name in self._offered]
            self._offers += 1
            if self._offers >= CHOICE_POINTS:
                self.metric = self._offered[0] if self._offered else BETWEEN_STEPS
            return None
        if self.metric == BETWEEN_STEPS:
            if step.time_ns is None or self._last_ns is None or self._last_step is None or step.time_ns <= self._last_ns:
                return None
            return math.log((step.step - self._last_step) / (step.time_ns - self._last_ns) * 1e9)
        value = step.values.get(self.metric)
        if value is None or value <= 0.0:
            return None
        return -math.log(value) if METRICS[self.metric][1] else math.log(value)

    def _judge(self, step: int, log: float) -> None:
        self._recent.append([step, log])
        if self._level is None:
            self._learn(log)
            if len(self._usual) >= self._min_points:
                self._look(step)
            return
        self._age += 1
        level, numbers = self._level, self._numbers
        newest = list(self._recent)[-self._recent_points :]
        typical = median([item[1] for item in newest])
        drop = level - typical
        self._deepest = max(self._deepest, drop)
        self._deep = self._deep + 1 if drop >= self._critical_drop else 0
        if self._age >= self._recent_points // 2 and drop < RECOVERED_SHARE * self._opened_at:
            self._end(f"; back to {self._text(typical)} at step {format_step(step)}")
        elif self._deep >= numbers["critical_after_points"]:
            since = self.ledger.open.get("throughput_drop")
            message, details = self._message(level, typical, step if since is None else since.first_step)
            self.ledger.escalate("throughput_drop", Severity.CRITICAL, message, value=details["value"], data=details["data"])
        if self._level is not None and self._age >= numbers["rebase_after_points"]:
            self._usual.reset(item[1] for item in self._recent)
            self._end(f"; taken as usual after {format_count(self._age, 'bucket')}")

    def _learn(self, log: float) -> None:
        """Accepted buckets become usual only after ``slow_points`` more, so a slow drop cannot hide in its own reference.

        Twice that in a run that has a long past: a drop hardly deeper than the limit has more time to be seen.
        """
        lagging = self._lagging
        lagging.append(log)
        lag = self._slow_points * (2 if 2 * len(self._usual) >= self._usual.size else 1)
        while len(lagging) > lag:
            self._usual.push(lagging.popleft())
        for fill, size, blocks in (
            (self._fill, self._recent_points, self._blocks),
            (self._slow_fill, self._slow_points, self._slow_blocks),
        ):
            fill.append(log)
            if len(fill) >= size:
                blocks.append(median(fill))
                fill.clear()

    def _look(self, step: int) -> None:
        level = self._usual.median()
        recent = list(self._recent)
        newest = recent[-self._recent_points :]
        typical = median([item[1] for item in newest])
        limit = max(self._drop, self._noise_factor * _block_noise(self._blocks))
        if level - typical >= limit:
            self._open(level, typical, _first_below(newest, level - RECOVERED_SHARE * limit))
            return
        # A young run has few long blocks; the noise of its short ones is no smaller, so it is the safe one to use until then.
        blocks = self._slow_blocks if len(self._slow_blocks) >= MIN_SLOW_BLOCKS else self._blocks
        if len(recent) < self._slow_points or len(blocks) < MIN_SLOW_BLOCKS or level - typical < self._slow_drop:
            return
        slow_limit = max(self._slow_drop, self._noise_factor * _block_noise(blocks))
        slow_typical = median([item[1] for item in recent])
        if level - slow_typical >= slow_limit:
            self._open(level, slow_typical, _first_below(recent, level - RECOVERED_SHARE * slow_limit))

    def _open(self, level: float, typical: float, first_step: int) -> None:
        message, details = self._message(level, typical, first_step)
        opened = self.ledger.open_finding("throughput_drop", Severity.WARNING, message, first_step=first_step, **details)
        if opened is not None:
            self._level, self._age, self._opened_at, self._deep = level, 0, level - typical, 0
            self._deepest = level - typical
            self._lagging.clear()
            self._fill.clear()
            self._slow_fill.clear()

    def _end(self, ending: str) -> None:
        share = 1.0 - math.exp(-self._deepest)
        if self._deepest >= self._opened_at + NOTABLY_DEEPER:
            ending = f", {100 * share:.0f} % at the deepest{ending}"
        self.ledger.close("throughput_drop", None, ending, deepest_share=round(share, 4))
        self._level = None
        self._lagging.clear()

    def _message(self, level: float, typical: float, first_step: int) -> tuple[str, dict[str, Any]]:
        share = 1.0 - math.exp(typical - level)
        value, expected = self._as_metric(typical), self._as_metric(level)
        unit = METRICS[self.metric][0] if self.metric in METRICS else "steps/s"
        message = (
            f"throughput {100 * share:.0f} % below usual ({_number(value)} instead of {_number(expected)} {unit}) "
            f"since step {format_step(first_step)}"
        )
        data = {"share": round(share, 4), "metric": self.metric or ""}
        return message, {"value": value, "expected": expected, "data": data}

    def _as_metric(self, log: float) -> float:
        return math.exp(-log) if self.metric in METRICS and METRICS[self.metric][1] else math.exp(log)

    def _text(self, log: float) -> str:
        return _number(self._as_metric(log))


def _log_of_drop(share: float) -> float:
    return -math.log(1.0 - min(0.95, share))


def _block_noise(blocks: deque[float]) -> float:
    """Noise of block medians: jumps between neighbours, or the spread of all when the run wanders more slowly than that."""
    if len(blocks) < MIN_BLOCKS:
        return 0.0
    values = list(blocks)
    jumps = [abs(values[i] - values[i - 1]) for i in range(1, len(values))]
    return max(median(jumps) * MAD_TO_SIGMA / SQRT2, quartile_sigma(values))


def _first_below(items: list[list[float]], limit: float) -> int:
    return next((int(at) for at, log in items if log <= limit), int(items[-1][0]))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else format_value(value)
