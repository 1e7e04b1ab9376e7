"""NVIDIA's training telemetry as JSON lines: what the file back ends of two libraries write, one record a line.

training-telemetry (package ``training_telemetry``)      ``{"type":"event","name":"training_loop","event":{"name":"training_iterations","metrics":{…}}}``
One Logger (``nv_one_logger.training_telemetry``)         ``{"type":"event","span_id":…,"event":{"name":"training_metrics_update","attributes":{…}}}``

The step is ``current_iteration`` as written (One Logger counts from 0). One Logger's averages are over the whole training loop, so the time
of a step and its TFLOP/s are taken from how its sums grew since the record before; the averages stay extra metrics.
Written from the libraries' source and from files that they wrote here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.json_lines import json_object
from trainvitals.logs.grammars.metric_names import meaning_of
from trainvitals.logs.grammars.step_rows import Row, step_number, time_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import as_number, json_safe
from trainvitals.records import Event, Severity

_TYPES = frozenset({"start", "stop", "complete", "event", "error", "application_error", "telemetry_data_error"})
_STARTS = frozenset({"application", "main_function"})
_CHECKPOINTS = frozenset({"checkpoint_save_sync", "checkpoint_save_async"})
#: What a person gains nothing from seeing as a curve.
_NO_METRICS = frozenset({"current_iteration", "num_iterations", "interval", "train_iterations_start", "train_samples_start"})
_NAMES = {"latest_loss": "loss", "average_iteration_time": "step_time_s", "train_tokens": "tokens", "avg_tflops": "avg_tflops"}
_RUNNING_MEANS = frozenset({"avg_iteration_time_sec", "avg_tokens_per_second", "avg_tflops", "train_throughput_per_gpu"})


class TelemetryJsonl:
    """State: One Logger's sums in the record before, and the number of ranks."""

    name = "telemetry_jsonl"
    title = "NVIDIA training telemetry and One Logger, JSON lines"
    example = (
        '{"type":"event","id":"804624ea","name":"training_loop","event":{"name":"training_iterations",'
        '"timestamp":"2026-01-02T03:04:05.123456+00:00","metrics":{"current_iteration":10,"num_iterations":10,"interval":10,'
        '"average_iteration_time":0.5,"tflops":300.5,"tokens_per_second":1000.0,"loss":2.5}},"count":3,"pid":77}'
    )
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ('"pid":',)
    is_document = True
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ()

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._sums: dict[str, float] = {}
        self._world_size = 0
        self._step: int | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        """A record of a known type about a span, or an event of one, with the library's own count."""
        if not line.startswith('{"type":') or _load(line) is None:
            return False
        return bool(TelemetryJsonl(LineTimes()).feed(line))

    def feed(self, line: str) -> list[Record]:
        record = _load(line)
        if record is None:
            self.bad_records += 1
            return []
        kind = record["type"]
        event = record.get("event") or record.get("start_event") or record.get("stop_event") or record.get("error")
        if not isinstance(event, dict):
            self.bad_records += 1
            return []
        told = _told(event)
        time_ns = time_of(event.get("timestamp", told.get("timestamp_msec")), self._times)
        if kind in ("error", "application_error"):
            text = str(told.get("error_message") or event.get("error_message") or told.get("exception_message") or "error")
            return [
                Event("message", time_ns, step=self._step, severity=Severity.WARNING, text=text[:500], data={"class": "error"})
            ]
        if kind == "event":
            return self._event(str(event.get("name")), told, time_ns)
        if kind == "telemetry_data_error":
            return []
        of_span = {**_told(record), **told, **_told(record.get("stop_event"))}
        return self._span(str(record.get("name")), str(kind), of_span, time_ns)

    def _event(self, name: str, told: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        if name in ("one_logger_initialization", "update_training_telemetry_config", "span_attributes"):
            self._world_size = step_number(told.get("world_size")) or self._world_size
            return []
        if name in ("training_iterations", "training_metrics_update"):
            return self._iterations(told, time_ns, is_running_mean=name == "training_metrics_update")
        step = step_number(told.get("current_iteration"))
        if name in ("validation_metrics_update", "testing_metrics_update"):
            return self._validation(told, time_ns)
        if name == "save_checkpoint_success":
            path = told.get("checkpoint_directory")
            where = {"path": path[:4096]} if isinstance(path, str) else {}
            return [phase("checkpoint", "end", f"saved checkpoint at iteration {step}", step, time_ns, **where)]
        return []

    def _iterations(self, told: Mapping[str, Any], time_ns: int | None, *, is_running_mean: bool) -> list[Record]:
        step = step_number(told.get("current_iteration"))
        if step is None:
            self.bad_records += 1
            return []
        self._step = step
        row = Row(step, 0, time_ns)
        for name, raw in told.items():
            value = as_number(raw)
            if value is None or name in _NO_METRICS or name.endswith(("timestamp_msec", "timestamp_sec")):
                continue
            shown = _NAMES.get(name, name)
            row.put(f"running_{shown}" if is_running_mean and name in _RUNNING_MEANS else shown, value)
        if is_running_mean:
            self._growth(row, told)
        samples = [step_number(told.get(name)) for name in ("train_samples_start", "num_train_samples")]
        if samples[0] is not None and samples[1] is not None:
            row.put("consumed_samples", samples[0] + samples[1])
        row.is_step = True
        return row.records()

    def _growth(self, row: Row, told: Mapping[str, Any]) -> None:
        names = ("num_iterations", "total_iteration_time_sec", "total_flops")
        sums = {name: value for name in names if (value := as_number(told.get(name))) is not None and value - value == 0}
        before = self._sums if self._sums.get("num_iterations", 0.0) < sums.get("num_iterations", 0.0) else {}
        grown = {name: value - before.get(name, 0.0) for name, value in sums.items()}
        self._sums = sums
        iterations, time_s = grown.get("num_iterations", 0.0), grown.get("total_iteration_time_sec", 0.0)
        if iterations > 0 and time_s > 0:
            row.put("step_time_s", time_s / iterations)
            if grown.get("total_flops", 0.0) > 0 and self._world_size > 0:
                row.put("tflops_per_gpu", grown["total_flops"] / time_s / self._world_size / 1e12)

    def _span(self, name: str, kind: str, told: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        step = step_number(told.get("current_iteration"))
        begins, ends = kind in ("start", "complete"), kind in ("stop", "complete")
        if name in _STARTS and begins:
            self._sums = {}
            self._world_size = step_number(told.get("world_size")) or self._world_size
            return [phase("start", "begin", "the application starts", None, time_ns)]
        if name == "training_loop" and kind == "start":
            first = step_number(told.get("train_iterations_start"))
            return [Event("resume", time_ns, step=first, text=f"training goes on from iteration {first}")] if first else []
        if name in _CHECKPOINTS:
            path = told.get("checkpoint_directory")
            where = {"path": path[:4096]} if isinstance(path, str) else {}
            step = step if step is not None else self._step
            is_one_logger = "timestamp_msec" in told  # it says by an event whether the save succeeded
            states = [state for state, is_so in (("begin", begins), ("end", ends and not is_one_logger)) if is_so]
            return [
                phase("checkpoint", state, f"checkpoint at iteration {step}: {state}", step, time_ns, **where) for state in states
            ]
        if name == "validation_loop" and ends:
            return self._validation(told, time_ns)
        return []

    def _validation(self, told: Mapping[str, Any], time_ns: int | None) -> list[Record]:
        step = step_number(told.get("current_iteration"))
        loss = as_number(told.get("loss", told.get("latest_loss")))
        if loss is None:
            return []
        return [message("validation", json_safe({"validation_loss": loss}), step if step is not None else self._step, time_ns)]

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"sums": self._sums, "world_size": self._world_size, "step": self._step, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._sums = {str(name): float(value) for name, value in state["sums"].items()}
        self._world_size, self._step = int(state["world_size"]), state["step"]
        self.bad_records = int(state["bad_records"])


def _load(line: str) -> dict[str, Any] | None:
    record = json_object(line)
    if record is None or record.get("type") not in _TYPES or "pid" not in record or "count" not in record:
        return None
    return record


def _told(item: object) -> dict[str, Any]:
    """Metrics of the one library, attributes of the other."""
    if not isinstance(item, dict):
        return {}
    found: dict[str, Any] = {}
    for name in ("metrics", "attributes"):
        inner = item.get(name)
        if isinstance(inner, dict):
            found |= {key: value for key, value in inner.items() if meaning_of(key).kind != "none"}
    return found
