"""Megatron-LM and its forks (Megatron-DeepSpeed, GPT-NeoX): `` iteration 30/ 5000 | key: value | … |``.

A NaN loss is an absent field here: training.py appends a loss only when its average is ``> 0.0``, and the "nan
iterations" counter rises on skipped iterations only (epfLLM/Megatron-LLM issue 33). Skipped iterations explain a
missing loss (fp16 warm-up, NVIDIA/nccl issue 743); GPT-NeoX prints it as 0.0 then.
A grad norm that repeats the last one to the last digit on a line with skipped iterations is stale: the optimizer did not
compute a new one, so it is left out. A constant 0.000 (DeepSpeed, BLOOM 13B) is not.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, ClassVar

from trainvitals.logs.grammar import LineByLine, Record, message
from trainvitals.logs.grammars.megatron_cells import CLOCK, MAX_CELLS, main_loss, metric_of, read_cells
from trainvitals.logs.grammars.megatron_side_lines import SIDE_LITERALS, SideLines
from trainvitals.logs.times import LineTimes, checked_time_ns
from trainvitals.logs.values import Metrics, json_safe, parse_number
from trainvitals.records import Step

# NeMo 2 writes "Training epoch 0, iteration 40/500 | lr: …": not Megatron's.
_MARKER = re.compile(
    r"(?<!, )\biteration[=\s]\s{0,40}(\d{1,15})(?: ?\[ {0,9}\d{1,15} ?\])?\s{0,40}/\s{0,40}(\d{1,15})\s{0,40}\|", re.ASCII
)
_COUNTER = re.compile(r"iteration\s{1,40}(\d{1,15})\s{0,40}/\s{0,40}\d{1,15}\s{0,40}\|", re.ASCII)
#: GPT-NeoX prints this cell before the marker.
_RATE_BEFORE = re.compile(r"\bsamples/sec: ([\d.]{1,20}) \|\s{0,40}\Z", re.ASCII)
#: AMD Primus: ``[20260102 03:04:05][rank-7/8][INFO ]``
_COMPACT_DATE = re.compile(r"\[(\d{4})(\d\d)(\d\d) (\d\d:\d\d:\d\d)\]", re.ASCII)
#: Megatron-DeepSpeed prints each iteration three times; these two only complete Megatron's own line.
_DEEPSPEED_TIMER = re.compile(r"\bsteps: (\d{1,15}) loss: \S{1,60} iter time \(s\): (\S{1,60}) samples/sec: (\S{1,60})", re.ASCII)
_DEEPSPEED_STEP = re.compile(r"\[Rank \d{1,7}\] step=(\d{1,15}), skipped=", re.ASCII)
_TIME_CHARACTERS = 160
_MAX_LAYOUTS = 3
_MAX_VALUE_CHARACTERS = 200


class _Layout:
    """How the lines of one trainer are cut: read once with care, after that by comparing the keys."""

    __slots__ = ("factors", "keys", "max_characters", "names", "skipped_at")

    def __init__(self, pieces: list[str], names: tuple[str, ...], factors: tuple[float, ...]) -> None:
        self.keys = pieces[0::2]
        self.names = names
        self.factors = [(index, factor) for index, factor in enumerate(factors) if factor != 1.0]
        self.skipped_at = names.index("skipped") if "skipped" in names else None
        self.max_characters = sum(map(len, self.keys)) + _MAX_VALUE_CHARACTERS

    def read(self, text: str, pieces: list[str]) -> dict[str, float] | None:
        """The values; None when anything at all is not as it was."""
        if pieces[0::2] != self.keys or len(pieces) % 2 or len(text) > self.max_characters:
            return None
        try:
            numbers = list(map(float, pieces[1::2]))
        except ValueError:
            return None
        # A sum is finite only if all are.
        if not isfinite(sum(numbers)) or (self.skipped_at is not None and numbers[self.skipped_at]):
            return None
        for index, factor in self.factors:
            numbers[index] *= factor
        return dict(zip(self.names, numbers))  # noqa: B905


def _nanoseconds(seconds: float) -> int:
    """To the microsecond: a double holds no more of a time in our days. 0 for what is no time."""
    return int(seconds * 1e6) * 1000 if 1e9 < seconds < 1e10 else 0


class Megatron(LineByLine):
    """State: the loss key learnt from the log, the last grad norm, DeepSpeed's values for the coming Megatron line."""

    name = "megatron"
    title = "Megatron-LM of all generations and its forks, Megatron-DeepSpeed, GPT-NeoX"
    example = (
        " [2026-01-02 03:04:05] iteration       30/    5000 | consumed samples:         960 | elapsed time per iteration (ms): 900.5 | "
        "learning rate: 3.000E-05 | global batch size:    32 | lm loss: 4.500000E+00 | loss scale: 1.0 | grad norm: 1.750 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    literals: ClassVar[tuple[str, ...]] = ("iteration",)
    prelude: ClassVar[tuple[str, ...]] = (
        "successfully loaded", "saved checkpoint", "saving checkpoint", "could not find the metadata file", "] datetime:",
        "validation loss at", "samples/sec", "skipped=",
    )  # fmt: skip

    def __init__(self, times: LineTimes) -> None:
        super().__init__()
        self._times = times
        self._side_lines = SideLines(times)
        self._loss_key: str | None = None
        self._grad_norm: float | None = None
        self._step: int | None = None
        self._pending: dict[str, Any] = {}
        self._layouts: list[_Layout] = []

    @staticmethod
    def claims(line: str) -> bool:
        return "iteration" in line and _MARKER.search(line) is not None

    def feed(self, line: str) -> list[Record]:
        at = line.find("iteration")
        if at >= 0:
            if self._layouts and not self._pending and (known := self._read_known(line, at)) is not None:
                return [known]
            found = list(_MARKER.finditer(line, max(0, at - 2)))
            if found:
                return self._read_all(line, found)
        elif "samples/sec" in line or "skipped=" in line:
            self._deepspeed(line)
            return []
        for literal in SIDE_LITERALS:
            if literal in line:
                return self._side_lines.feed(line, self._step)
        return []

    def _read_known(self, line: str, at: int) -> Step | None:
        """The step of a line whose layout was learnt; None when anything is not as it was."""
        counter = _COUNTER.match(line, at)
        if counter is None or line[-1] != "|":
            return None
        time_ns = None
        if at:
            head = line[:at]
            if head != " ":
                if at > _TIME_CHARACTERS or head[-1] != " " or head.endswith(", ") or "|" in head:
                    return None
                time_ns = self._times.find(head)
                if time_ns is None:
                    return None
        text = line[counter.end() : -1]
        if not text.isascii():
            return None
        pieces = text.replace("|", ":|").split(":")
        layout = self._layouts[0]
        values = layout.read(text, pieces)
        if values is None:
            for layout in self._layouts[1:]:
                values = layout.read(text, pieces)
                if values is not None:
                    self._layouts.remove(layout)
                    self._layouts.insert(0, layout)
                    break
            else:
                return None
        self._step = step = int(counter[1])
        self._grad_norm = values.get("grad_norm")
        return Step(step, 0, time_ns, values, {})

    def _read_all(self, line: str, markers: list[re.Match[str]]) -> list[Record]:
        # Two processes may write into one line: each marker begins a record of its own.
        ends = [marker.start() for marker in markers[1:]] + [len(line)]
        begins = [0] + [marker.end() for marker in markers[:-1]]
        records: list[Record] = []
        for marker, begin, end in zip(markers, begins, ends, strict=True):
            records += self._iteration(int(marker[1]), line[marker.end() : end], line[begin : marker.start()])
        return records

    def _iteration(self, step: int, text: str, before: str) -> list[Record]:
        head = before[-_TIME_CHARACTERS:]
        time_ns = self._times.find(head)
        if time_ns is None and (compact := _COMPACT_DATE.search(head)) is not None:
            time_ns = self._times.find(f"{compact[1]}-{compact[2]}-{compact[3]} {compact[4]}")
        cells = text.split("|")[:MAX_CELLS]
        is_whole = cells[-1].strip() == "" or len(cells) == MAX_CELLS
        # A number at a torn end may miss digits.
        read, is_plain, is_cut = read_cells(cells if is_whole else cells[:-1])
        is_whole = is_whole and not is_cut
        main, learnt = main_loss([key for key, _ in read], self._loss_key)
        if learnt != self._loss_key:
            self._loss_key, self._layouts = learnt, []
        metrics = Metrics()
        names: list[str] = []
        factors: list[float] = []
        for key, value in read:
            if key == CLOCK:
                time_ns = time_ns if time_ns is not None else checked_time_ns(_nanoseconds(value))
                continue
            name, factor = metric_of(key, main)
            if name is not None:
                metrics.put(name, value * factor)
                names.append(name)
                factors.append(factor)
        if is_plain and is_whole and main is not None and len(set(names)) == len(read) and not metrics.nonfinite:
            self._learn(text, tuple(names), tuple(factors))
        skipped = metrics.values.get("skipped")
        self._leave_out_what_is_stale(step, metrics, skipped)
        records: list[Record] = []
        # A line that tells nothing of skipped iterations may be of a log without any loss (a benchmark, an inner pipeline stage).
        is_nan = skipped == 0 or (skipped is None and is_whole and self._loss_key is not None)
        if "loss" not in metrics and is_nan:
            metrics.nonfinite["loss"] = "nan"
        elif "loss" not in metrics and skipped and step != self._step:
            data = json_safe({name: metrics.values[name] for name in ("skipped", "loss_scale") if name in metrics.values})
            records.append(message(f"{skipped:.0f} iterations skipped: the loss scale was too high", data, step, time_ns))
        if (rate := _RATE_BEFORE.search(head)) is not None and (samples_per_s := parse_number(rate[1])) is not None:
            metrics.put("samples_per_s", samples_per_s)
        if self._pending.get("step") == step:
            time_ns = time_ns if time_ns is not None else self._pending.get("time_ns")
            if "samples_per_s" in self._pending:
                metrics.put("samples_per_s", self._pending["samples_per_s"])
        self._pending = {}
        self._step = step
        return [Step(step, 0, time_ns, metrics.values, metrics.nonfinite), *records]

    def _leave_out_what_is_stale(self, step: int, metrics: Metrics, skipped: float | None) -> None:
        grad_norm = metrics.values.get("grad_norm")
        if skipped:
            if metrics.values.get("loss") == 0.0:
                del metrics.values["loss"]
            if grad_norm and grad_norm == self._grad_norm and step != self._step:
                del metrics.values["grad_norm"]
        self._grad_norm = grad_norm

    def _learn(self, text: str, names: tuple[str, ...], factors: tuple[float, ...]) -> None:
        text = text.rstrip()
        pieces = text[:-1].replace("|", ":|").split(":")
        if text.endswith("|") and text.isascii() and len(pieces) == 2 * len(names):
            layout = _Layout(pieces, names, factors)
            if all(layout.keys != known.keys for known in self._layouts):
                self._layouts = [layout, *self._layouts[: _MAX_LAYOUTS - 1]]

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

    def to_state(self) -> dict[str, Any]:
        # Layouts are learnt again from the next line: both ways read the same.
        return {
            **super().to_state(),
            "loss_key": self._loss_key,
            "grad_norm": self._grad_norm,
            "step": self._step,
            "pending": self._pending,
            "side_lines": self._side_lines.to_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._loss_key = state["loss_key"]
        self._grad_norm = state["grad_norm"]
        self._step = state["step"]
        self._pending = dict(state["pending"])
        self._side_lines.restore(state["side_lines"])
        self._layouts = []
