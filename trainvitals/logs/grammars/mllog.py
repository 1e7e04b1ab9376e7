"""MLPerf training logs: ``:::MLLOG {"time_ms": …, "key": "tracked_stats", "value": {…}, "metadata": {"step": …}}``.

A training step is what carries a training loss: ``tracked_stats`` with ``reduced_train_loss`` or ``train_loss``, or a line of
key ``train_loss``. Statistics without a loss (throughput, warm-up, validation times) are no steps.

``metadata.step`` holds steps in most logs and samples in some (mlcommons/training_results_v5.1, Cisco: 64, 128, …). It holds
samples when it is a multiple of ``global_batch_size`` and the log says so by one of: ``samples_count`` is the same number; it
is beyond ``max_steps``; the time since ``run_start`` fits that number of samples better than that number of steps; it is
exactly one batch. Decided at the first step of a run, then kept. Where there is only ``samples_count``, the step is
``samples_count / global_batch_size``; where neither is there, the epoch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.config_dump import config_events
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import Metrics, as_number, json_safe, slug
from trainvitals.records import Step

_MARKER = ":::MLLOG"
_DECODER = json.JSONDecoder()
_LOSSES = ("reduced_train_loss", "train_loss", "loss", "lm_loss", "train/loss", "train_loss_step")
_NAMES = {
    "train_step_time": "step_time_s",
    "train_step_timing": "step_time_s",
    "throughput": "samples_per_s",
    "lr": "lr",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
}
_VALIDATIONS = ("eval_accuracy", "eval_loss", "eval_error", "eval_samples_accuracy")
#: Benchmarks whose ``eval_accuracy`` is a loss (log perplexity), by how their names begin.
_LOSS_BENCHMARKS = ("llama", "gpt", "moe", "mixtral", "deepseek", "flux")
_STEPS = ("step", "iteration_num", "iteration", "curr_global_step")
#: Of benchmarks that log a loss once an epoch.
_EPOCHS = ("epoch_num", "epoch")
_MAX_CONFIG_KEYS = 1000
_MAX_STEP = 10**15


class MLLog:
    """State: where in a run the log is, the run's hyper-parameters, and whether ``step`` holds samples."""

    name = "mllog"
    title = "MLPerf training (:::MLLOG)"
    example = (
        ':::MLLOG {"namespace": "", "time_ms": 1767323045123, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
        '"value": {"train_step_time": 0.7, "reduced_train_loss": 3.6}, "metadata": {"step": 31.0, "samples_count": 512.0}}'
    )
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = (_MARKER,)
    prelude: ClassVar[tuple[str, ...]] = (_MARKER,)
    is_document = False
    #: What a trainer prints itself beside these lines is read instead.
    is_weak = True

    def __init__(self, times: LineTimes) -> None:
        self._state = ""  # "", init, run
        self._config: dict[str, Any] = {}
        self._is_evaluating = False
        self._started_ns: int | None = None
        self._is_in_samples: bool | None = None
        self._is_count_in_steps = False
        self._last_step: int | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        entry = _entry(line) if _MARKER in line else None
        if entry is None:
            return False
        key = entry["key"]
        return key in ("init_start", "run_start", "run_stop", *_VALIDATIONS) or _loss_stats(entry) is not None

    def feed(self, line: str) -> list[Record]:
        if _MARKER not in line:
            return []
        entry = _entry(line)
        if entry is None:
            self.bad_records += 1
            return []
        key = entry["key"]
        time_ms = as_number(entry.get("time_ms"))
        time_ns = checked_time_ns(int(time_ms) * 1_000_000) if time_ms is not None and 0 < time_ms < _MAX_STEP else None
        stats = _loss_stats(entry)
        if stats is not None:
            return self._training(stats, entry["metadata"], time_ns)
        if key in _VALIDATIONS:
            return self._validation(key, entry, time_ns)
        if key == "init_start":
            return self._begin(time_ns)
        if key == "run_start":
            return self._run_begins(time_ns)
        if key == "run_stop":
            return self._run_ends(entry, time_ns)
        if key in ("eval_start", "eval_stop"):
            is_start = key == "eval_start"
            if is_start == self._is_evaluating:
                return []
            self._is_evaluating = is_start
            step = self._step_of(entry["metadata"], time_ns, None)
            return [phase("eval", "begin" if is_start else "end", key, step, time_ns)]
        if key == "tracked_stats":
            return self._statistics(entry, time_ns)
        value = entry.get("value")
        if self._state != "run" and entry.get("event_type") == "POINT_IN_TIME" and len(self._config) < _MAX_CONFIG_KEYS:
            self._config.setdefault(key[:100], _bounded(value))
        return []

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def _begin(self, time_ns: int | None) -> list[Record]:
        if self._state == "init":
            return []  # every rank says it
        kept = {} if self._state == "run" else self._config
        self._state, self._config = "init", kept
        self._is_evaluating, self._started_ns = False, None
        self._is_in_samples, self._is_count_in_steps, self._last_step = None, False, None
        return [phase("start", "begin", "init_start", None, time_ns)]

    def _run_begins(self, time_ns: int | None) -> list[Record]:
        if self._state == "run":
            return []
        records: list[Record] = self._begin(time_ns) if self._state != "init" else []
        self._state, self._started_ns = "run", time_ns
        records += config_events(self._config, "hyper-parameters", time_ns)
        return [*records, phase("train", "begin", "run_start", None, time_ns)]

    def _run_ends(self, entry: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        if self._state != "run":
            return []
        status = str(entry["metadata"].get("status", ""))[:100]
        step = self._step_of(entry["metadata"], time_ns, None)
        self._state, self._config = "", {}
        return [phase("finished", "begin", f"run_stop {status}".strip(), step, time_ns, status=status)]

    def _training(self, stats: Mapping[str, Any], metadata: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        metrics = Metrics()
        loss_key = next(key for key in _LOSSES if key in stats)
        for key, raw in ((loss_key, stats[loss_key]), *stats.items(), ("lr", metadata.get("lr"))):
            value = as_number(raw)
            name = "loss" if key == loss_key else _NAMES.get(key) or slug(str(key))
            if value is not None and name is not None:
                metrics.put(name, value)
        step = self._step_of(metadata, time_ns, metrics.values.get("step_time_s"))
        if step is None:
            self.bad_records += 1
            return []
        count = as_number(metadata.get("samples_count"))
        if count is not None:
            metrics.put("samples", count)
        elif self._is_in_samples and self._batch():
            metrics.put("samples", float(step * self._batch()))
        self._last_step = step
        return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]

    def _statistics(self, entry: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        value = entry.get("value")
        if not isinstance(value, dict):
            return []
        numbers = {str(key)[:100]: number for key, raw in value.items() if (number := as_number(raw)) is not None}
        if not numbers or any(key.startswith("validation") for key in numbers):
            return []
        return [message("tracked_stats", json_safe(numbers), self._last_step, time_ns)]

    def _validation(self, key: str, entry: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        raw = entry.get("value")
        if isinstance(raw, dict):
            values = {f"validation_{name}"[:100]: number for name, item in raw.items() if (number := as_number(item)) is not None}
        else:
            number = as_number(raw)
            values = {} if number is None else {self._validation_name(key, number): number}
        if not values:
            return []
        return [message(key, json_safe(values), self._step_of(entry["metadata"], time_ns, None), time_ns)]

    def _validation_name(self, key: str, value: float) -> str:
        benchmark = str(self._config.get("submission_benchmark", "")).lower()
        is_loss = benchmark.startswith(_LOSS_BENCHMARKS) if benchmark else value > 1
        if key == "eval_loss" or (key == "eval_accuracy" and is_loss):
            return "validation_loss"
        return "validation_error" if key == "eval_error" else "validation_accuracy"

    def _batch(self) -> int:
        batch = as_number(self._config.get("global_batch_size"))
        return int(batch) if batch is not None and 1 < batch < _MAX_STEP else 0

    def _step_of(self, metadata: Mapping[str, Any], time_ns: int | None, step_time_s: float | None) -> int | None:
        step, count = _first_whole(metadata, _STEPS), _whole(metadata.get("samples_count"))
        batch = self._batch()
        if step is not None:
            if self._is_in_samples is None and step > 0 and step_time_s is not None:
                self._is_in_samples = self._holds_samples(step, count, time_ns, step_time_s)
            is_in_samples = self._is_in_samples
            if is_in_samples is None:
                is_in_samples = self._holds_samples(step, count, time_ns, None)
            return step // batch if is_in_samples and batch else step
        if count is None:
            return _first_whole(metadata, _EPOCHS)
        self._is_count_in_steps = self._is_count_in_steps or not batch or count % batch != 0
        return count if self._is_count_in_steps else count // batch

    def _holds_samples(self, step: int, count: int | None, time_ns: int | None, step_time_s: float | None) -> bool:
        batch = self._batch()
        if not batch or step % batch:
            return False
        if count is not None:
            return step == count
        most = _whole(self._config.get("max_steps"))
        if most is not None and step > most:
            return True
        if step_time_s is not None and 0 < step_time_s < math.inf and time_ns is not None and self._started_ns is not None:
            elapsed_s = (time_ns - self._started_ns) / 1e9
            done = step - (_whole(self._config.get("init_checkpoint_step")) or 0)
            if elapsed_s > 0 and done > 0:
                as_steps, as_samples = done * step_time_s, step / batch * step_time_s
                return abs(math.log(elapsed_s / as_samples)) < abs(math.log(elapsed_s / as_steps))
        return step == batch

    def to_state(self) -> dict[str, Any]:
        return {
            "state": self._state,
            "config": self._config,
            "is_evaluating": self._is_evaluating,
            "started_ns": self._started_ns,
            "is_in_samples": self._is_in_samples,
            "is_count_in_steps": self._is_count_in_steps,
            "last_step": self._last_step,
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._state = str(state["state"])
        self._config = dict(state["config"])
        self._is_evaluating = bool(state["is_evaluating"])
        self._started_ns = state["started_ns"]
        self._is_in_samples = state["is_in_samples"]
        self._is_count_in_steps = bool(state["is_count_in_steps"])
        self._last_step = state["last_step"]
        self.bad_records = int(state["bad_records"])


def _entry(line: str) -> dict[str, Any] | None:
    """The object behind the marker, with a text ``key`` and a ``metadata`` mapping; None when it is torn or no such object."""
    start = line.find("{", line.find(_MARKER))
    if start < 0:
        return None
    try:
        entry, _ = _DECODER.raw_decode(line, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return None
    if not isinstance(entry.get("metadata"), dict):
        entry["metadata"] = {}
    return entry


def _loss_stats(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The statistics of a training step, if the entry holds a training loss."""
    value = entry.get("value")
    if entry["key"] == "tracked_stats" and isinstance(value, dict):
        return value if any(as_number(value.get(key)) is not None for key in _LOSSES) else None
    if entry["key"] in _LOSSES and as_number(value) is not None:
        return {entry["key"]: value}
    return None


def _bounded(value: object) -> str | float | bool | None:
    """A hyper-parameter as it is kept until the run begins: JSON, and short."""
    if value is None or isinstance(value, bool):
        return value
    number = as_number(value) if not isinstance(value, str) else None
    if number is not None and math.isfinite(number):
        return int(number) if number == int(number) and isinstance(value, int) else number
    return (value if isinstance(value, str) else json.dumps(value))[:500]


def _first_whole(metadata: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((number for key in keys if (number := _whole(metadata.get(key))) is not None), None)


def _whole(value: object) -> int | None:
    number = as_number(value)
    return int(number) if number is not None and 0 <= number < _MAX_STEP and number == int(number) else None
