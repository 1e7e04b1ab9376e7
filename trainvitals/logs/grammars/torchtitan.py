"""torchtitan and its forks: ``step:  9  loss:  6.12345  grad_norm:  2.2500  memory: 40.50GiB(51.20%)  tps: 9,123  …``.

Pairs stand two blanks apart (pytorch/torchtitan, torchtitan/components/metrics.py, and train.py before it), each in its own
colour. ``tps`` (``wps`` in 2024) is tokens per second of one device, and stays so: eight ranks that print are not eight times
as fast (pytorch/torchtitan issue 2389). A pipeline rank that computes no loss prints -1: no loss, so such a line waits
whether another rank's line of that step brings the loss.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.config_dump import config_events, read_mapping
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Event, Step

_MARKER = re.compile(
    r"(?<![\w.])step:\s{0,12}(\d[\d,]{0,18})(?:/\d{1,15})?(?: = [\d.]{1,12}%)?\s{1,4}(?=[^|]{0,60}?\bloss:)", re.ASCII
)
_PAIR = re.compile(
    r"([A-Za-z][\w/()%-]{0,39}(?: [A-Za-z]\w{0,19}){0,2}):\s{0,12}"
    r"([-+]?(?:\d[\d,]{0,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)|N/A)(GiB\(([\d.]{1,12})%\)|GiB|ms|s|%|)(?![\d.])",
    re.ASCII,
)
_STARTS = re.compile(r"\bTraining starts at step (\d{1,15})", re.ASCII)
_LOADING = re.compile(r"\bLoading the checkpoint (?:from (\S{1,1000}?)|at step (\d{1,15}))\.?(?:\s|\Z)", re.ASCII)
_LOADED = re.compile(r"\bFinished loading the checkpoint in ([\d.]{1,20}) seconds", re.ASCII)
_SAVED = re.compile(r"\bFinished saving the checkpoint.{0,80}?in ([\d.]{1,20}) seconds", re.ASCII)
_CONFIG = re.compile(r"\bRunning with (?:args|configs?): (?=\{)")
_JOB = re.compile(r"(?:\[titan\]|\broot\b).{0,80}?\bINFO - Starting job: ", re.ASCII)
#: What each process says before it trains; several ranks may say "Training starts" while others train already.
_PREPARATIONS = ("device mesh", "Loading the checkpoint")

_NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "gnorm": "grad_norm",
    "tps": "tokens_per_s",
    "wps": "tokens_per_s",
    "tgs": "tokens_per_s",
    "tflops": "tflops_per_gpu",
    "est_tflops": "tflops_per_gpu",
    "mfu": "mfu",
    "est_mfu": "mfu",
    "lr": "lr",
    "token": "tokens",
    "tokens": "tokens",
    "memory": "memory_gib",
    "mmemory": "memory_gib",  # so printed by the releases of February 2025
    "data t": "data_loading_s",
}
_NO_LOSS = -1.0
#: A line without its loss waits for the other ranks until so many further steps were seen.
_WAIT_STEPS = 4
_MAX_CONFIG_LINES = 3000
_MAX_CONFIG_CHARACTERS = 256 * 1024


class TorchTitan:
    """State: lines that wait for their loss, the last step, a checkpoint in progress, a configuration being read."""

    name = "torchtitan"
    title = "torchtitan and its forks"
    example = (
        "[rank0]:[titan] 2026-01-02 03:04:05,508 - root - INFO - step:  9  loss:  6.12345  grad_norm:  2.2500  "
        "memory: 40.50GiB(51.20%)  tps: 9,123  tflops: 280.10  mfu: 28.30%"
    )
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("loss:", "Starting job: ")
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = (
        "Training starts at step",
        "the checkpoint",
        "validate step:",
        "Running with args: {",
        "Running with config",
    )

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._waiting: dict[int, list[Any]] = {}  # step -> [steps seen since, time_ns, values, nonfinite]
        self._last = 0
        self._stage = ""  # "", told (its start is known), training, finished
        self._started_at: int | None = None
        self._loading: list[str] = []  # path of the checkpoint that was loaded, and the seconds it took
        self._is_saving = False
        self._saved_at: int | None = None
        self._config: list[str] | None = None
        self._config_time_ns: int | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        if "loss:" in line and _find(line) is not None:
            return "validate step:" not in line
        return "Starting job: " in line and _JOB.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if self._config is not None and (records := self._read_config(line)) is not None:
            return records
        if "loss:" in line and (found := _find(line)) is not None:
            time_ns = self._times.find(line[: found.start()])
            if line[: found.start()].rstrip().endswith(("validate", "val")):
                return self._validation(line, found, time_ns)
            return self._step(line, found, time_ns)
        if "checkpoint" in line or "Training starts" in line or "Starting job" in line or "device mesh" in line:
            return self._side_line(line)
        if "INFO - Training completed" in line and self._stage == "training":
            self._stage = "finished"
            return [*self._release(0), phase("finished", "begin", line.strip(), self._last or None, self._times.find(line[:200]))]
        if (found := _CONFIG.search(line)) is not None:
            self._config, self._config_time_ns = [], self._times.find(line[: found.start()])
            return self._read_config(line[found.end() :]) or []
        return []

    def idle(self) -> list[Record]:
        return self._release(0)

    def finish(self) -> list[Record]:
        return self._release(0)

    def _step(self, line: str, found: re.Match[str], time_ns: int | None) -> list[Record]:
        metrics = _metrics(line[found.end() :])
        step = int(found[1].replace(",", ""))
        has_loss = metrics.values.get("loss") != _NO_LOSS
        self._stage = "training"
        if not has_loss:
            del metrics.values["loss"]
            if step not in self._waiting and step != self._last:
                self._waiting[step] = [0, time_ns, metrics.values, metrics.nonfinite]
            return self._release(_WAIT_STEPS)
        self._waiting.pop(step, None)
        if step != self._last:
            for waiting in self._waiting.values():
                waiting[0] += 1
        self._last = step
        return [*self._release(_WAIT_STEPS), Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]

    def _release(self, wait_steps: int) -> list[Record]:
        """Lines whose loss no rank brought, in the order of their steps."""
        too_many = sorted(self._waiting)[: max(0, len(self._waiting) - wait_steps)]
        due = {step for step, waiting in self._waiting.items() if waiting[0] >= wait_steps}.union(too_many)
        records: list[Record] = []
        for step in sorted(due):
            _, time_ns, values, nonfinite = self._waiting.pop(step)
            self._last = max(step, self._last)
            records.append(Step(step, 0, time_ns, values, nonfinite))
        return records

    def _validation(self, line: str, found: re.Match[str], time_ns: int | None) -> list[Record]:
        metrics = _metrics(line[found.end() :])
        values: dict[str, float] = {}
        loss = metrics.nonfinite.get("loss") or metrics.values.get("loss")
        if loss is None or loss == _NO_LOSS:
            return []
        values["validation_loss"] = float(loss)
        return [message(line.strip(), json_safe(values), int(found[1].replace(",", "")), time_ns)]

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:200])
        if _JOB.search(line):
            if self._stage == "told":
                return []  # every rank says it
            records = self._release(0)
            self._stage, self._loading = "told", []
            return [*records, phase("start", "begin", line.strip(), None, time_ns)]
        if any(literal in line for literal in _PREPARATIONS):
            self._stage = "" if self._stage == "training" else self._stage
            if loading := _LOADING.search(line):
                self._loading = [loading[1] or f"step-{loading[2]}"]
            return []
        if starts := _STARTS.search(line):
            return self._start(int(starts[1]), line, time_ns)
        if loaded := _LOADED.search(line):
            self._loading = [*self._loading[:1], loaded[1]] if self._loading else []
            return []
        if "Saving the checkpoint" in line:
            if self._is_saving or self._saved_at == self._last:
                return []  # every rank says it
            self._is_saving = True
            return [phase("checkpoint", "begin", line.strip(), self._last or None, time_ns)]
        # Older releases say only that they finished.
        if (saved := _SAVED.search(line)) and (self._is_saving or self._saved_at != self._last):
            self._is_saving, self._saved_at = False, self._last
            seconds = parse_number(saved[1])
            data = {"seconds": seconds} if seconds is not None else {}
            return [phase("checkpoint", "end", line.strip(), self._last or None, time_ns, **data)]
        return []

    def _start(self, step: int, line: str, time_ns: int | None) -> list[Record]:
        stage, self._stage = self._stage, "training"
        if stage == "training" and step == self._started_at:
            return []
        records = self._release(0)
        self._started_at, self._is_saving, self._saved_at = step, False, None
        loading, self._loading = self._loading, []
        if step <= 1:
            return records if stage == "told" else [*records, phase("start", "begin", line.strip(), None, time_ns)]
        data: dict[str, Any] = {"path": loading[0]} if loading else {}
        if len(loading) > 1 and (seconds := parse_number(loading[1])) is not None:
            data["seconds"] = seconds
        self._last = step - 1
        return [*records, Event("resume", time_ns, step=step - 1, text=line.strip()[:500], data=data)]

    def _read_config(self, line: str) -> list[Record] | None:
        """Records of a configuration that ends here; None when the line is none of its lines."""
        lines = self._config if self._config is not None else []
        lines.append(line)
        # The dump is one logger call: its first line holds everything, or its last line is a bare brace.
        is_whole = line.rstrip() == "}" or len(lines) == 1
        if is_whole and (values := read_mapping("\n".join(lines).lstrip())) is not None:
            self._config = None
            return list(config_events(values, "Running with args", self._config_time_ns))
        too_long = len(lines) >= _MAX_CONFIG_LINES or sum(map(len, lines)) > _MAX_CONFIG_CHARACTERS
        if too_long or (line.rstrip() == "}" and len(lines) > 1) or " - INFO - " in line:
            self._config = None
            self.bad_records += 1
            return None
        return []

    def to_state(self) -> dict[str, Any]:
        return {
            "waiting": [[step, *waiting] for step, waiting in self._waiting.items()],
            "last": self._last,
            "start": [self._stage, self._started_at],
            "loading": self._loading,
            "saving": [self._is_saving, self._saved_at],
            "config": self._config,
            "config_time_ns": self._config_time_ns,
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._waiting = {int(step): list(waiting) for step, *waiting in state["waiting"]}
        self._last = int(state["last"])
        self._stage, self._started_at = state["start"]
        self._loading = list(state["loading"])
        self._is_saving, self._saved_at = state["saving"]
        self._config = list(state["config"]) if state["config"] is not None else None
        self._config_time_ns = state["config_time_ns"]
        self.bad_records = int(state["bad_records"])


def _find(line: str) -> re.Match[str] | None:
    """``step:`` followed by ``loss:`` and, so that no other trainer's line is meant, memory or a rate."""
    found = _MARKER.search(line) if "step:" in line and "loss:" in line else None
    if found is None or "context: val" in line[: found.start()]:
        return None
    rest = line[found.end() : found.end() + 500]
    is_ours = "GiB" in rest or "  tps:" in rest or "  wps:" in rest
    return found if is_ours else None


def _metrics(text: str) -> Metrics:
    metrics = Metrics()
    for key, raw, unit, percent in _PAIR.findall(text[:4000]):
        value = parse_number(raw)
        if value is None:
            continue
        name = _NAMES.get(key.lower()) or slug(f"{key}_s" if unit in ("ms", "s") else key)
        # Forks print -1 for a rate that they cannot tell.
        if name is None or (name in ("mfu", "tflops_per_gpu") and value < 0):
            continue
        metrics.put(name, value * 1e-3 if unit == "ms" else value)
        if percent and name == "memory_gib" and (share := parse_number(percent)) is not None:
            metrics.put("memory_percent", share)
    return metrics
