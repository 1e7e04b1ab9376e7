"""DeepSpeed's own lines, for trainers that print nothing else: progress, pipeline engine, throughput timer, checkpoints.

``[Rank 0] step=7, skipped=1, lr=[2.5e-05], mom=[(0.9, 0.999)]`` counts optimizer steps; ``skipped`` is cumulative, so what
is read here is the difference to the record before. ``steps: 7 loss: 9.12 iter time (s): 88.5 samples/sec: 5.785`` is the
pipeline engine's. The lines of one step are one record, held until the next step's. The line of step 0 is printed when an
engine is made: a new start of the trainer, no step. The older timer, ``0/20, SamplesPerSec=3.21``, counts micro batches, so
its rate belongs to the step held.
Where Megatron or GPT-NeoX said "done with setup ...", or Hugging Face "***** Running training *****", their own lines are to
come, at every tenth step maybe: steps are withheld until then, and given out when none came for 200 of them. At the end of a
log of Megatron's they are not, since it prints every step that counts.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, parse_number, slug
from trainvitals.records import Event, Step

_PROGRESS = re.compile(r"\bstep=(\d{1,15}), skipped=(\d{1,15}), lr=[\[(\s]{0,10}([\d.eE+-]{1,40})", re.ASCII)
_PIPELINE = re.compile(
    r"\bsteps?:\s{1,10}(\d{1,15})(?:\s{0,10}/\s{0,10}\d{1,15})? (loss: [^|=]{1,400}?) iter time \(s\): (\S{1,60}) samples/sec: (\S{1,60})",
    re.ASCII,
)
_LOSSES = re.compile(r"([A-Za-z][\w ./-]{0,60}): ([\d.eE+-]{1,40}|-?inf|nan)(?: |\Z)", re.ASCII)
_TIMER = re.compile(r"(?:\bglobal_step=(\d{1,15}), .{0,200}?Curr|\b\d{1,9}/\d{1,15}, )SamplesPerSec=([\d.eE+-]{1,40})", re.ASCII)
_CHECKPOINT = re.compile(r"\[\w{0,20}Torch\] Checkpoint (\S{1,200}) is (about to be saved|ready now)!", re.ASCII)
_LOADED = re.compile(r"\[\w{0,20}Torch\] Loaded checkpoint from (\S{1,1000}?)\.?(?:\s|\Z)", re.ASCII)
_GLOBAL_STEP = re.compile(r"global_step(\d{1,15})(?:/|\Z)", re.ASCII)
_MEGATRON_SETUP = "done with setup"
_HUGGING_FACE_SETUP = "***** Running training"
_MAX_WITHHELD = 200
_LITERALS = ("skipped=", "iter time (s):", "SamplesPerSec=", "orch] ", _MEGATRON_SETUP, _HUGGING_FACE_SETUP)


class DeepSpeed:
    """State: the step held, the steps withheld for Megatron, the skipped steps counted so far, and what was said of
    checkpoints last (all ranks say it).
    """

    name = "deepspeed"
    title = "DeepSpeed where the trainer prints nothing of its own"
    is_from_source = False
    example = (
        "[2026-01-02 03:04:05,386] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=1, lr=[2.5e-05, 2.5e-05], mom=[(0.9, 0.999), (0.9, 0.999)]\n"
        "[2026-01-02 03:04:05,387] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.5, "
        "CurrSamplesPerSec=25.75, MemAllocated=4.25GB, MaxMemAllocated=38.5GB"
    )
    literals: ClassVar[tuple[str, ...]] = ("skipped=", "iter time (s):")
    prelude: ClassVar[tuple[str, ...]] = ("skipped=0, lr=", "orch] Loaded checkpoint from", _MEGATRON_SETUP, _HUGGING_FACE_SETUP)
    is_document = False
    is_weak = True

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._step: int | None = None
        self._last_step: int | None = None
        self._time_ns: int | None = None
        self._metrics = Metrics()
        self._skipped = 0
        self._is_skipped_known = True
        self._said = ""
        self._withheld: list[Step] | None = None
        self._is_megatron = False
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        found = (_PROGRESS.search(line) if "skipped=" in line else None) or (
            _PIPELINE.search(line) if "iter time" in line else None
        )
        return found is not None and int(found[1]) > 0

    def feed(self, line: str) -> list[Record]:
        for literal in _LITERALS:
            if literal in line:
                break
        else:
            return []
        if literal in (_MEGATRON_SETUP, _HUGGING_FACE_SETUP):
            self._withheld = self._withheld or []
            self._is_megatron = self._is_megatron or literal == _MEGATRON_SETUP
            return []
        if found := _PROGRESS.search(line):
            return self._progress(line, found)
        if found := _PIPELINE.search(line):
            return self._pipeline(line, found)
        if found := _TIMER.search(line):
            self._timer(found)
            return []
        return self._checkpoint(line)

    def idle(self) -> list[Record]:
        """The step held is whole: nothing more of it came."""
        return self._release() if self._withheld is None else []

    def finish(self) -> list[Record]:
        """The last step, and those withheld; none where Megatron's own lines were to come."""
        if self._withheld is None:
            return self._release()
        if self._is_megatron:
            return []
        released, self._withheld = self._withheld, None
        return [*released, *self._release()]

    def _progress(self, line: str, found: re.Match[str]) -> list[Record]:
        step, skipped = int(found[1]), int(found[2])
        time_ns = self._times.find(line[: found.start()][-160:])
        if step == 0:
            records = self._release()
            self._skipped, self._is_skipped_known, self._last_step = skipped, True, None
            return [*records, phase("start", "begin", line.strip(), None, time_ns)]
        records = self._turn_to(step)
        if self._time_ns is None:
            self._time_ns = time_ns
        if (rate := parse_number(found[3])) is not None:
            self._metrics.put("lr", rate)
        if skipped < self._skipped:
            self._is_skipped_known = False  # an older state was loaded
        if self._is_skipped_known:
            self._metrics.put("skipped", float(skipped - self._skipped))
        self._skipped, self._is_skipped_known = skipped, True
        return records

    def _pipeline(self, line: str, found: re.Match[str]) -> list[Record]:
        step = int(found[1])
        if step == 0:
            return []
        records = self._turn_to(step)
        if self._time_ns is None:
            self._time_ns = self._times.find(line[: found.start()][-160:])
        for key, raw in _LOSSES.findall(found[2]):
            value, name = parse_number(raw), slug(key)
            if value is not None and name is not None:
                self._metrics.put(name, value)
        for name, raw in (("step_time_s", found[3]), ("samples_per_s", found[4])):
            value = parse_number(raw)
            if value is not None and 0 < value < float("inf"):
                self._metrics.put(name, value)
        return records

    def _timer(self, found: re.Match[str]) -> None:
        rate = parse_number(found[2])
        if self._step is not None and rate is not None and found[1] in (None, str(self._step)):
            self._metrics.put("samples_per_s", rate)

    def _checkpoint(self, line: str) -> list[Record]:
        if found := _CHECKPOINT.search(line):
            state, path = ("end" if found[2] == "ready now" else "begin"), found[1]
        elif found := _LOADED.search(line):
            state, path = "loaded", found[1]
        else:
            return []
        tag = _GLOBAL_STEP.search(path)
        step = int(tag[1]) if tag else None
        said = f"{state} {path if step is None or state != 'loaded' else step}"
        if said == self._said:
            return []
        self._said = said
        time_ns = self._times.find(line[: found.start()][-160:])
        if state != "loaded":
            return [phase("checkpoint", state, line.strip(), step, time_ns, path=path)]
        self._is_skipped_known = False  # the count goes on from the state that was loaded
        records = self._release()
        self._last_step = None
        return [*records, Event("resume", time_ns, step=step, text=line.strip()[:500], data={"path": path})]

    def _turn_to(self, step: int) -> list[Record]:
        """What is held of another step; from now on ``step`` is held."""
        if step == self._step:
            return []
        records = self._release()
        self._step = step
        return records

    def _release(self) -> list[Record]:
        step, metrics, time_ns = self._step, self._metrics, self._time_ns
        self._step, self._metrics, self._time_ns = None, Metrics(), None
        # A line of a step that was given out in a silence comes too late to complete it.
        if step is None or step == self._last_step or not metrics:
            return []
        self._last_step = step
        self._said = ""
        record = Step(step, 0, time_ns, metrics.values, metrics.nonfinite)
        if self._withheld is None:
            return [record]
        self._withheld.append(record)
        if len(self._withheld) < _MAX_WITHHELD:
            return []
        released, self._withheld = self._withheld, None
        return [*released]

    def to_state(self) -> dict[str, Any]:
        """The step held is part of it."""
        return {
            "step": self._step,
            "last_step": self._last_step,
            "time_ns": self._time_ns,
            "values": self._metrics.values,
            "nonfinite": self._metrics.nonfinite,
            "skipped": self._skipped,
            "is_skipped_known": self._is_skipped_known,
            "said": self._said,
            "is_megatron": self._is_megatron,
            "withheld": None if self._withheld is None else [_as_list(step) for step in self._withheld],
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``to_state`` was taken."""
        self._step, self._last_step, self._time_ns = state["step"], state["last_step"], state["time_ns"]
        self._metrics = Metrics()
        self._metrics.values.update(state["values"])
        self._metrics.nonfinite.update(state["nonfinite"])
        self._skipped, self._is_skipped_known = int(state["skipped"]), bool(state["is_skipped_known"])
        self._said, self._is_megatron = str(state["said"]), bool(state["is_megatron"])
        withheld = state["withheld"]
        self._withheld = None if withheld is None else [Step(step, 0, *rest) for step, *rest in withheld]
        self.bad_records = int(state["bad_records"])


def _as_list(step: Step) -> list[Any]:
    return [step.step, step.time_ns, dict(step.values), dict(step.nonfinite)]
