"""Megatron-LM and its forks (Megatron-DeepSpeed, GPT-NeoX): `` iteration 30/ 5000 | key: value | … |``.

Cells are split on ``|`` and read as ``key: value``, so every generation and fork is read by the same code.
A NaN loss is an absent field here: training.py appends a loss only when its average is ``>= 0.0``, and the "nan
iterations" counter rises on skipped iterations only (epfLLM/Megatron-LLM issue 33). Skipped iterations explain a
missing loss (fp16 warm-up, NVIDIA/nccl issue 743).
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Event, Step

_MARKER = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*(\d{1,15})\s*\|", re.ASCII)
_VALIDATION = re.compile(
    r"\bvalid(?:ation)? loss at (?:the end of training for )?.{0,60}?iteration\s+(\d{1,15})\b([^|]{0,80})\|", re.ASCII
)
_SAVE_BEGIN = re.compile(r"\bsaving checkpoint at iteration\s+(\d{1,15}) to (\S{1,1000})", re.ASCII)
_SAVE_END = re.compile(r"\bsuccessfully saved checkpoint (?:at|from) iteration\s+(\d{1,15}) to (\S{1,1000})", re.ASCII)
_LOADED = re.compile(r"\bsuccessfully loaded checkpoint from (\S{1,1000}) .{0,80}?at iteration\s+(\d{1,15})", re.ASCII)
#: Megatron-DeepSpeed prints each iteration three times; these two only complete Megatron's own line.
_DEEPSPEED_TIMER = re.compile(r"\bsteps: (\d{1,15}) loss: \S+ iter time \(s\): (\S+) samples/sec: (\S+)", re.ASCII)
_DEEPSPEED_STEP = re.compile(r"\[Rank \d+\] step=(\d{1,15}), skipped=", re.ASCII)

#: cell -> (metric, factor)
_CELLS = {
    "consumed samples": ("samples", 1.0),
    "consumed tokens": ("tokens", 1.0),
    "elapsed time per iteration (ms)": ("step_time_s", 1e-3),
    "elapsed time per iteration (s)": ("step_time_s", 1.0),
    "throughput per gpu (tflop/s/gpu)": ("tflops_per_gpu", 1.0),
    "tflops": ("tflops_per_gpu", 1.0),
    "learning rate": ("lr", 1.0),
    "loss scale": ("loss_scale", 1.0),
    "grad norm": ("grad_norm", 1.0),
    "number of skipped iterations": ("skipped", 1.0),
    "number of nan iterations": ("nan_iterations", 1.0),
    "samples per second": ("samples_per_s", 1.0),
    "tokens per second": ("tokens_per_s", 1.0),
    "gloabl batch size": ("global_batch_size", 1.0),
}  # fmt: skip
#: The training loss, best first; then any other ``… loss`` that is no auxiliary term.
_MAIN_LOSSES = ("lm loss", "lm-loss", "loss", "total loss")
_AUXILIARY = re.compile(r"balanc|mtp|aux|z[_ -]?loss|sop")
_MAX_CELLS = 200


class Megatron:
    """State: the loss key learnt from the log, and DeepSpeed's values for the coming Megatron line."""

    name = "megatron"
    title = "Megatron-LM of all generations and its forks"
    example = (
        " [2026-01-02 03:04:05] iteration       30/    5000 | consumed samples:         960 | elapsed time per iteration (ms): 900.5 | "
        "learning rate: 3.000E-05 | global batch size:    32 | lm loss: 4.500000E+00 | loss scale: 1.0 | grad norm: 1.750 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("iteration",)
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ("loaded checkpoint", "saved checkpoint", "saving checkpoint", "samples/sec", "skipped=")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._loss_key: str | None = None
        self._pending: dict[str, Any] = {}
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return "iteration" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        if "iteration" in line:
            found = list(_MARKER.finditer(line))
            if found:
                # Two processes may write into one line: each marker begins a record of its own.
                ends = [marker.start() for marker in found[1:]] + [len(line)]
                before = [0] + [marker.end() for marker in found[:-1]]
                records: list[Record] = []
                for marker, start, end in zip(found, before, ends, strict=True):
                    time_ns = self._times.find(line[max(start, marker.start() - 80) : marker.start()])
                    records += self._iteration(int(marker[1]), line[marker.end() : end], time_ns)
                return records
            return self._side_line(line)
        if "samples/sec" in line or "skipped=" in line:
            self._deepspeed(line)
        return []

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def _iteration(self, step: int, text: str, time_ns: int | None) -> list[Record]:
        metrics = Metrics()
        losses: dict[str, float] = {}
        cells = text.split("|")[:_MAX_CELLS]
        is_whole = cells[-1].strip() == "" or len(cells) == _MAX_CELLS
        for cell in cells if is_whole else cells[:-1]:  # a number at a torn end may miss digits
            key, separator, raw = cell.partition(":")
            key = " ".join(key.lower().split())
            if not separator:
                if key:
                    break  # another process's text follows
                continue
            value = parse_number(raw)
            if value is None:
                continue
            if key in _CELLS:
                name, factor = _CELLS[key]
                metrics.put(name, value * factor)
            elif key.endswith("loss"):
                losses.setdefault(key, value)
            elif (extra := slug(key)) is not None:
                metrics.put(extra, value)
        main = self._main_loss(losses)
        if main is not None:
            metrics.put("loss", losses.pop(main))
        for key, value in losses.items():
            if (extra := slug(key)) is not None:
                metrics.put(extra, value)
        records: list[Record] = []
        skipped = metrics.values.get("skipped")
        if main is None and (skipped == 0 or (skipped is None and is_whole)):
            metrics.nonfinite["loss"] = "nan"
        elif main is None and skipped:
            data = json_safe({name: metrics.values[name] for name in ("skipped", "loss_scale") if name in metrics.values})
            records.append(message(f"{skipped:.0f} iterations skipped: the loss scale was too high", data, step, time_ns))
        if self._pending.get("step") == step:
            time_ns = time_ns if time_ns is not None else self._pending.get("time_ns")
            if "samples_per_s" in self._pending:
                metrics.put("samples_per_s", self._pending["samples_per_s"])
        self._pending = {}
        return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite), *records]

    def _main_loss(self, losses: dict[str, float]) -> str | None:
        """The key of the training loss. Once learnt, its absence is not made up for by an auxiliary loss."""
        if self._loss_key is not None and self._loss_key in losses:
            return self._loss_key
        usual = next((key for key in _MAIN_LOSSES if key in losses), None)
        chosen = usual or next((key for key in losses if not _AUXILIARY.search(key)), None)
        if chosen is None and self._loss_key is None and len(losses) == 1:
            return next(iter(losses))  # a run that logs one loss only, whatever its name; not learnt
        if chosen is not None:
            self._loss_key = chosen
        return chosen

    def _deepspeed(self, line: str) -> None:
        timer = _DEEPSPEED_TIMER.search(line)
        found = timer or _DEEPSPEED_STEP.search(line)
        if found is None:
            return
        step = int(found[1])
        if self._pending.get("step") != step:
            self._pending = {"step": step}
        if timer is None:
            self._pending["time_ns"] = self._times.find(line[: found.start()])
        elif (rate := parse_number(timer[3])) is not None and rate > 0 and rate != float("inf"):
            self._pending["samples_per_s"] = rate

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[:80])
        if found := _VALIDATION.search(line):
            values: dict[str, float] = {}
            for cell in line[found.end() :].split("|")[:_MAX_CELLS]:
                key, _, raw = cell.partition(":")
                value = parse_number(raw)
                if value is not None:
                    values.setdefault("validation_ppl" if "ppl" in key.lower() else "validation_loss", value)
            return [message(line.strip(), json_safe(values), int(found[1]), time_ns)] if values else []
        if found := _SAVE_END.search(line):
            return [phase("checkpoint", "end", line.strip(), int(found[1]), time_ns, path=found[2])]
        if found := _SAVE_BEGIN.search(line):
            return [phase("checkpoint", "begin", line.strip(), int(found[1]), time_ns, path=found[2])]
        if found := _LOADED.search(line):
            return [Event("resume", time_ns, step=int(found[2]), text=line.strip()[:500], data={"path": found[1]})]
        return []

    def to_state(self) -> dict[str, Any]:
        return {"loss_key": self._loss_key, "pending": self._pending, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._loss_key = state["loss_key"]
        self._pending = dict(state["pending"])
        self.bad_records = int(state["bad_records"])
