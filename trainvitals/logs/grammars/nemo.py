"""NeMo 1 and 2, and what is built on them (NeMo Aligner, BioNeMo, NeuronX): progress bar or progress line.

NeMo 1 ``Epoch 0:   2%|2         | 1235/60000 [2:00:00<95:00:00, 1.7it/s, v_num=ab, reduced_train_loss=2.810, global_step=1234.0, …]``
NeMo 2 ``Training epoch 0, iteration 40/500 | lr: 2e-05 | global_step: 40 | reduced_train_loss: 1.9 | train_step_timing in s: 0.05``

The step is ``global_step``, which counts from 0. The bar prints it with three digits where that is shorter (2e+3 for 1999, all
from 100,000 on): then the bar's position tells it, less the distance between both that exact lines showed, if the two agree
within the rounding; the position alone counts batches. The smoothed ``loss=`` is never read beside ``reduced_train_loss``: it
stays NaN after one NaN (aws-neuron/neuronx-nemo-megatron issue 28). The bar is drawn again before its metrics change, so of
several drawings with one step the last counts where the step comes from the position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.lightning_bar import Bar, bars, fit_stopped, plain_metrics, resume_event, validation_values
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number
from trainvitals.records import Step

_LINE = re.compile(r"\bTraining epoch (\d{1,9}), iteration (\d{1,15})(?:/(\d{1,15}))? \| (.{1,8000})", re.ASCII)
_SAVE_BEGIN = re.compile(r"\bScheduled async checkpoint save for (\S{1,1000})")
_SAVE_END = re.compile(r"\bAsync checkpoint save for step (\d{1,15}) \((.{1,1000}?)\) finalized successfully", re.ASCII)
_SAVED = re.compile(r"\bSuccessfully saved checkpoint from iteration\s{1,12}(\d{1,15}) to (\S{1,1000})", re.ASCII | re.IGNORECASE)
_STEP_IN_PATH = re.compile(r"\bstep=(\d{1,15})", re.ASCII)
_LOSSES = ("reduced_train_loss", "train_loss", "loss")
_NAMES = {
    "lr": "lr",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "gradient_norm": "grad_norm",
    "train_step_timing in s": "step_time_s",
    "train_step_timing": "step_time_s",
    "consumed_samples": "samples",
    "consumed_tokens": "tokens",
    "tokens_per_sec_per_gpu": "tokens_per_s_per_gpu",
    "tokens_per_sec": "tokens_per_s",
    "samples/sec": "samples_per_s",
    "tflops_per_gpu": "tflops_per_gpu",
    "tflops_per_sec_per_gpu": "tflops_per_gpu",
    "throughput": "samples_per_s",
    "loss_scale": "loss_scale",
}
_UNUSED = frozenset({"global_step", "step"})


class NeMo:
    """State: distance of bar and step, a drawing that waits, the last step, validation and checkpoint lines told."""

    name = "nemo"
    title = "NeMo 1 and 2, progress bar and progress line"
    example = (
        "Training epoch 0, iteration 40/500 | lr: 2e-05 | global_batch_size: 8 | global_step: 40 | reduced_train_loss: 1.9 | "
        "train_step_timing in s: 0.05 | consumed_samples: 328"
    )
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = ("reduced_train_loss", "global_step")
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ("the checkpoint path at", "all states from the checkpoint")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._distance: int | None = None  # bar's position less the step
        self._epoch = -1
        self._position = 0
        self._waiting: list[Any] | None = None  # [step, time_ns, values, nonfinite]
        self._last: int | None = None
        self._told = ["", "", ""]  # validation loss, path resumed from, path being saved
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        if "Training epoch " in line and (found := _LINE.search(line)) is not None:
            return _loss_key(_cells(found[4])) is not None
        return any(bar.position > 0 and _is_ours(bar) for bar in bars(line))

    def feed(self, line: str) -> list[Record]:
        if "Training epoch " in line and (found := _LINE.search(line)) is not None:
            return self._line(line, found)
        records: list[Record] = []
        for bar in bars(line):
            if bar.position > 0 and _is_ours(bar):
                records += self._bar(bar, self._times.find(line[max(0, bar.start - 80) : bar.start]))
        # A logger may go on behind a bar, on the same line.
        if "Trainer.fit" in line:
            records += self._release()
            records += fit_stopped(line, self._last, self._times.find(line[-1000:]))
        return records + self._side_line(line) if "heckpoint" in line else records

    def idle(self) -> list[Record]:
        return self._release()

    def finish(self) -> list[Record]:
        return self._release()

    def _line(self, line: str, found: re.Match[str]) -> list[Record]:
        pairs = _cells(found[4])
        key = _loss_key(pairs)
        if key is None:
            return []
        iteration = int(found[2])
        step, is_exact = _global_step(pairs)
        if step is None or (not is_exact and abs(step - iteration) <= _tolerance(step)):
            step = iteration
        time_ns = self._times.find(line[: found.start()])
        return [*self._release(), *self._validated(pairs, step, time_ns), self._step(step, pairs, key, time_ns)]

    def _bar(self, bar: Bar, time_ns: int | None) -> list[Record]:
        key = _loss_key(bar.pairs)
        rounded, is_exact = _global_step(bar.pairs)
        if key is None or rounded is None:
            return []
        if bar.epoch != self._epoch or bar.position < self._position:
            # A new epoch's bar starts at 0 while the step goes on.
            if self._distance is not None and bar.epoch == self._epoch + 1:
                self._distance -= self._position
            self._epoch = bar.epoch
        self._position = bar.position
        if is_exact:
            if rounded == self._last and self._waiting is None:  # drawn before its metrics changed, or again
                return self._validated(bar.pairs, rounded, time_ns)
            self._distance = bar.position - rounded
            records = [*self._release(), *self._validated(bar.pairs, rounded, time_ns)]
            return [*records, self._step(rounded, bar.pairs, key, time_ns)]
        step = self._unrounded(bar, rounded)
        records = self._release() if self._waiting is not None and self._waiting[0] != step else []
        records += self._validated(bar.pairs, step, time_ns)
        if step != self._last:
            metrics = _metrics(bar.pairs, key)
            self._waiting = [step, time_ns, metrics.values, metrics.nonfinite]
        return records

    def _unrounded(self, bar: Bar, rounded: int) -> int:
        """The step by the bar's position, if one of its readings agrees with the rounded step."""
        from_start = bar.epoch * bar.total + bar.position - 1
        readings = (bar.position - self._distance,) if self._distance is not None else (bar.position, from_start)
        return next((step for step in readings if abs(step - rounded) <= _tolerance(rounded) + 1), rounded)

    def _step(self, step: int, pairs: Mapping[str, str], key: str, time_ns: int | None) -> Step:
        metrics = _metrics(pairs, key)
        self._last, self._told[1] = step, ""
        return Step(step, 0, time_ns, metrics.values, metrics.nonfinite)

    def _release(self) -> list[Record]:
        if self._waiting is None:
            return []
        step, time_ns, values, nonfinite = self._waiting
        self._waiting, self._last, self._told[1] = None, step, ""
        return [Step(step, 0, time_ns, values, nonfinite)]

    def _validated(self, pairs: Mapping[str, str], step: int, time_ns: int | None) -> list[Record]:
        shown = validation_values(pairs).get("validation_loss", "")
        if not shown or shown == self._told[0]:
            return []
        self._told[0] = shown
        value = parse_number(shown)
        data = json_safe({"validation_loss": value}) if value is not None else {}
        return [message(f"val_loss={shown}", data, step, time_ns)]

    def _side_line(self, line: str) -> list[Record]:
        time_ns = self._times.find(line[-1000:])
        if (resumed := resume_event(line, time_ns)) is not None:
            if resumed.data["path"] == self._told[1]:
                return []  # every rank says it
            records = self._release()
            self._told[1], self._last, self._distance, self._epoch = str(resumed.data["path"]), None, None, -1
            return [*records, resumed]
        if found := _SAVE_BEGIN.search(line):
            path = found[1].rstrip(".,")
            if path == self._told[2]:
                return []
            self._told[2] = path
            step = _STEP_IN_PATH.search(path)
            return [phase("checkpoint", "begin", found[0], int(step[1]) if step else self._last, time_ns, path=path)]
        if found := _SAVE_END.search(line) or _SAVED.search(line):
            path = found[2].rstrip(".,")
            if self._told[2] == f"saved {path}":
                return []  # said twice, and by every rank
            self._told[2] = f"saved {path}"
            # The line counts one more than the name of the checkpoint.
            step = _STEP_IN_PATH.search(path)
            return [phase("checkpoint", "end", found[0], int(step[1] if step else found[1]), time_ns, path=path)]
        return []

    def to_state(self) -> dict[str, Any]:
        return {
            "place": [self._distance, self._epoch, self._position, self._last],
            "waiting": self._waiting,
            "told": self._told,
            "bad_records": self.bad_records,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._distance, self._epoch, self._position, self._last = state["place"]
        self._waiting = list(state["waiting"]) if state["waiting"] is not None else None
        self._told = [str(text) for text in state["told"]]
        self.bad_records = int(state["bad_records"])


def _is_ours(bar: Bar) -> bool:
    return "global_step" in bar.pairs and _loss_key(bar.pairs) is not None


def _loss_key(pairs: Mapping[str, str]) -> str | None:
    return next((key for key in _LOSSES if key in pairs and parse_number(pairs[key]) is not None), None)


def _cells(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for cell in text.split(" | ")[:200]:
        key, separator, value = cell.partition(": ")
        if not separator:
            break
        pairs.setdefault(key.strip()[:100], value.split()[0][:100] if value.split() else "")
    return pairs


def _global_step(pairs: Mapping[str, str]) -> tuple[int | None, bool]:
    """The step, and whether it is printed in full (``1234.0``) or rounded to three or four digits (``1.23e+5``)."""
    text = pairs.get("global_step", "")
    value = parse_number(text)
    if value is None or not 0 <= value < 10**15:
        return None, False
    return int(value), "e" not in text.lower()


def _tolerance(step: int) -> int:
    """Half a unit of the third digit."""
    return int(10 ** max(0, len(str(step)) - 3) + 1) // 2


def _metrics(pairs: Mapping[str, str], key: str) -> Metrics:
    return plain_metrics({name: raw for name, raw in pairs.items() if name not in _UNUSED}, key, _NAMES)
