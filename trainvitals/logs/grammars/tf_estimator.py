"""TensorFlow's Estimator (BERT, T5 and others of their time): ``INFO:tensorflow:loss = 2.36026, step = 101 (1.080 sec)``.

Behind absl's logger: ``I0102 03:04:05.678901 140 basic_session_run_hooks.py:262] loss = 2.36026, step = 101 (1.080 sec)``. The time
of a step comes from the line ``global_step/sec: 5.44`` before it; the seconds in parentheses are those of the whole interval.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message, phase
from trainvitals.logs.grammars.cells import LEFT_OUT, Names, metrics_of
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event, Step

_LOGGER = r"(?:INFO:tensorflow:|basic_session_run_hooks\.py:\d{1,6}\] )"
_MARKER = re.compile(_LOGGER + r"(?=loss = [^\s,]{1,40}, step = (\d{1,15})\b)", re.ASCII)
_PAIR = re.compile(r"(?<!\w)([A-Za-z]\w{0,60}) = ([^\s,]{1,40})")
_RATE = re.compile(r"\bglobal_step/sec: ([\d.e+-]{1,40})", re.ASCII)
_DIVERGED = "Model diverged with loss = NaN"
_SAVING = re.compile(r"\bSaving checkpoints for (\d{1,15}) into (\S{1,1000}?)\.?\s*\Z", re.ASCII)
_RESTORED = re.compile(r"\bRestoring parameters from (\S{1,1000}?-(\d{1,15}))\s*\Z", re.ASCII)
_VALIDATION = re.compile(r"\bSaving dict for global step (\d{1,15}): ", re.ASCII)
_NAMES: Names = {
    "loss": ("loss", 1.0),
    "learning_rate": ("lr", 1.0),
    "step": LEFT_OUT,
    "global_step": LEFT_OUT,
}


class TFEstimator(LineByLine):
    """State: the steps per second that the line before told."""

    name = "tf_estimator"
    title = "TensorFlow Estimator"
    example = "INFO:tensorflow:global_step/sec: 4.0\nINFO:tensorflow:loss = 2.36026, step = 101 (25.000 sec)"
    is_from_source = True
    literals: ClassVar[tuple[str, ...]] = ("loss = ",)
    prelude: ClassVar[tuple[str, ...]] = ("Restoring parameters from ", "global_step/sec: ")

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._rate: float | None = None

    @staticmethod
    def claims(line: str) -> bool:
        return "loss = " in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if found := _MARKER.search(line) if "loss = " in line else None:
            metrics = metrics_of(((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), _NAMES)
            if self._rate:
                metrics.put("step_time_s", 1.0 / self._rate)
            self._rate = None
            return [Step(int(found[1]), 0, self._times.find(line[: found.start()][-200:]), metrics.values, metrics.nonfinite)]
        if _DIVERGED in line:
            # Its hook ends the run before a line of that step is printed.
            return [message(line.strip(), {"loss": "nan"}, None, self._times.find(line[:80]))]
        if "global_step/sec" in line and (found := _RATE.search(line)):
            rate = parse_number(found[1])
            self._rate = rate if rate is not None and 1e-9 < rate < 1e9 else None
            return []
        return self._side_line(line) if "Saving " in line or "Restoring " in line else []

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        if found := _VALIDATION.search(line):
            metrics = metrics_of(
                ((pair[1], pair[2]) for pair in _PAIR.finditer(line, found.end())), {**_NAMES, "loss": ("validation_loss", 1.0)}
            )
            data = json_safe(metrics.values) | metrics.nonfinite
            return [message(line.strip(), data, int(found[1]), time_ns)] if data else []
        if found := _SAVING.search(line):
            return [phase("checkpoint", "begin", line.strip(), int(found[1]), time_ns, path=found[2])]
        if found := _RESTORED.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=line.strip()[:500], data={"path": found[1]})]
        return []

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "rate": self._rate}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._rate = state["rate"]
