"""Trainers whose lines are read by their shape, but known by something that nobody else writes: one line of theirs is enough.

What a line means is the same as in ``by_shape``; each trainer only says how it is known, and what of its numbers has another name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message
from trainvitals.logs.grammars.by_shape import counted_on
from trainvitals.logs.grammars.cells import with_iso_dates
from trainvitals.logs.grammars.epoch_counter import EpochCounter
from trainvitals.logs.grammars.line_shapes import Pair, Reading, read_line, rounded
from trainvitals.logs.grammars.shape_metrics import metrics_of_reading
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Step


class Shaped:
    """State: where the epoch began, the last step and the distance between two."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    example: ClassVar[str] = ""
    #: What only this trainer writes in the lines of its steps, and of its validations.
    marker: ClassVar[re.Pattern[str]] = re.compile(r"\Zx")
    literals: ClassVar[tuple[str, ...]] = ()
    #: Its names that mean something else than they say; "" = left out
    names: ClassVar[Mapping[str, str]] = {}
    counts_in_epochs: ClassVar[bool] = True
    #: Logs every so many steps, and not every so many seconds.
    is_evenly_spaced: ClassVar[bool] = True
    prelude: ClassVar[tuple[str, ...]] = ()
    is_from_source = False
    is_document = False
    is_weak = False

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._counter = EpochCounter()
        self._last: int | None = None
        self._interval = 1
        self.bad_records = 0

    @classmethod
    def claims(cls, line: str) -> bool:
        reading = cls._reading(line)
        return reading is not None and not reading.is_validation

    @classmethod
    def _reading(cls, line: str) -> Reading | None:
        if not any(literal in line for literal in cls.literals) or cls.marker.search(line) is None:
            return None
        reading = read_line(line)
        return reading if reading is not None and reading.kind in ("step", "batch", "bare", "bar") else None

    def feed(self, line: str) -> list[Record]:
        reading = self._reading(line)
        if reading is None:
            return []
        time_ns = self._times.find(with_iso_dates(line[: max(reading.start, 40)][-200:]))
        if reading.is_validation:
            value = parse_number(reading.loss.raw)
            return [] if value is None else [message(line.strip(), json_safe({"validation_loss": value}), self._last, time_ns)]
        if self.names:
            pairs = [
                pair if pair is reading.loss else replace(pair, key=self.names.get(pair.key, pair.key))
                for pair in reading.pairs
                if pair is reading.loss or self.names.get(pair.key) != ""
            ]
            reading = replace(reading, pairs=tuple(pairs))
        step = self._step(reading)
        metrics, validation = metrics_of_reading(reading)
        records: list[Record] = [Step(step, 0, time_ns, metrics.values, metrics.nonfinite)]
        if validation:
            records.append(message(line.strip(), json_safe(validation), step, time_ns))
        return records

    def _step(self, reading: Reading) -> int:
        step = reading.position
        if self.counts_in_epochs:
            is_of_epoch = reading.kind in ("batch", "bar")
            step = self._counter.number(step, reading.total, reading.epoch, reading.epochs, is_of_epoch)
        if self.is_evenly_spaced:
            step, self._interval = counted_on(step, self._last, self._interval, reading.rounded_to)
        self._last = step
        return step

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"counter": self._counter.to_state(), "last": [self._last, self._interval], "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._counter.restore(state["counter"])
        self._last, self._interval = state["last"]
        self.bad_records = int(state["bad_records"])


class ESPnet(Shaped):
    name = "espnet"
    title = "ESPnet 2, FunASR"
    example = (
        "[node1] 2026-01-02 03:04:05,123 (trainer:753) INFO: 1epoch:train:4001-4050batch: iter_time=1.9e-04, forward_time=0.040, "
        "loss_ctc=174.5, loss_att=145.1, acc=0.235, loss=153.9, backward_time=0.049, grad_norm=15.4, clip=100.000, loss_scale=1.000, "
        "optim_step_time=0.015, optim0_lr0=1.0e-05, train_time=0.5"
    )
    marker = re.compile(r"(?<!\w)\d{1,6}epoch:(?:train|valid):\d{1,9}-\d{1,9}batch:", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = ("epoch:train:", "epoch:valid:")
    names: ClassVar[Mapping[str, str]] = {"optim0_lr0": "lr", "lr_0": "lr"}


class Icefall(Shaped):
    name = "icefall"
    title = "icefall (k2), lhotse recipes"
    example = (
        "2026-01-02 03:04:05,123 INFO [train.py:907] (0/8) Epoch 1, batch 1150, loss[loss=0.2266, simple_loss=0.245, pruned_loss=0.104, "
        "over 493.00 frames. ], tot_loss[loss=0.2179, simple_loss=0.271, pruned_loss=0.082, over 17782.05 frames. ], batch size: 9, lr: 3.41e-04"
    )
    marker = re.compile(
        r"\bEpoch \d{1,6}, (?:batch \d{1,9}, |global_batch_idx: \d{1,12}, |batch_idx: \d{1,9}, ){1,3}loss\[", re.ASCII
    )
    literals: ClassVar[tuple[str, ...]] = ("loss[",)
    names: ClassVar[Mapping[str, str]] = {"over": "", "loss": "tot_loss"}


class Paddle(Shaped):
    name = "paddle"
    title = "PaddleOCR, PaddleDetection, PaddleClas, PaddleSeg"
    example = (
        "[2026/01/02 03:04:05] ppocr INFO: epoch: [1/400], global_step: 50, lr: 0.001000, loss: 19.671568, loc_loss: 7.411005, "
        "avg_reader_cost: 0.00013 s, avg_batch_cost: 0.47813 s, avg_samples: 96.0, ips: 200.74779 samples/s, eta: 0:09:21"
    )
    marker = re.compile(r"\bINFO: .{0,600}\b(?:avg_)?(?:batch_cost|reader_cost): ", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = ("batch_cost: ", "reader_cost: ")
    names: ClassVar[Mapping[str, str]] = {"reader_cost": "data_time", "avg_reader_cost": "data_time", "data_cost": "data_time"}


class MindSpore(Shaped):
    name = "mindspore"
    title = "MindSpore's LossMonitor"
    example = "epoch: 1 step: 100, loss is 2.2829630374908447"
    marker = re.compile(r"\bepoch: \d{1,9},? step: \d{1,15}, loss is ", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = ("loss is ",)


class LeRobot(Shaped):
    name = "lerobot"
    title = "LeRobot"
    example = "INFO 2026-01-02 03:04:05 ot_train.py:357 step:400 smpl:13K ep:40 epch:1.01 loss:2.215 grdn:49.836 lr:1.0e-05 updt_s:0.504 data_s:0.083"
    marker = re.compile(r"\bstep:[\d.]{1,12}[KMB]? smpl:\S{1,20} ep:\S{1,20} epch:\S{1,20} loss:", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = (" smpl:",)
    counts_in_epochs = False  # ``ep`` is an episode
    names: ClassVar[Mapping[str, str]] = {"smpl": "", "epch": "", "updt_s": "update_time", "data_s": "data_time"}


class Marian(Shaped):
    name = "marian"
    title = "Marian NMT"
    example = "[2026-01-02 03:04:05] Ep. 1 : Up. 1000 : Sen. 12,345 : Cost 5.60000000 : Time 100.0s : 1234.56 words/s"
    marker = re.compile(r"\bEp\. \d{1,6} : Up\. \d{1,12} : Sen\. ", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = (" : Sen. ",)
    names: ClassVar[Mapping[str, str]] = {"Sen": "epoch_sentences", "Time": "interval_time"}
    is_from_source = True


class OpenNMT(Shaped):
    name = "opennmt"
    title = "OpenNMT-py"
    example = (
        "[2026-01-02 03:04:05,123 INFO] Step 50/100000; acc: 5.8; ppl: 8034.5; xent: 8.9; lr: 0.00001; sents: 5000; bsz: 3456; "
        "21655 tok/s; 12 sec;"
    )
    marker = re.compile(r"\bStep \d{1,12}/\s{0,12}\d{1,12}; .{0,100}\bxent: ", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = ("xent: ",)
    is_from_source = True


class MetricWriter(Shaped):
    name = "clu"
    title = "CLU's metric writer: T5X, Scenic, big_vision, Flax examples"
    example = "I0102 03:04:05.123456 1400 logging_writer.py:48] [1000] accuracy=0.5, learning_rate=0.001, loss=2.3"
    marker = re.compile(r"\blogging_writer\.py:\d{1,5}\] \[\d{1,15}\] ", re.ASCII)
    literals: ClassVar[tuple[str, ...]] = ("logging_writer.py:",)
    is_from_source = True


class Levanter(Shaped):
    """tqdm-loggable's lines: the count is rounded to three digits from 1,000 on."""

    name = "levanter"
    title = "Levanter, and others with tqdm-loggable"
    example = (
        "I 2026-01-02 03:04:05 Progress on:train 950it/18.0kit rate:2.1it/s remaining:2:04:01 elapsed:17:46 postfix:loss=3.45"
    )
    marker = re.compile(
        r"\bProgress on:train (\d{1,12}(?:\.\d{1,6})?)([kM]?)it/\S{1,20} rate:([\d.]{1,12})(it/s|s/it)\b.{0,80}\bpostfix:.{0,200}?\bloss=([^\s,]{1,40})",
        re.ASCII,
    )
    literals: ClassVar[tuple[str, ...]] = ("Progress on:train ",)
    counts_in_epochs = False
    is_evenly_spaced = False
    is_from_source = True

    @classmethod
    def _reading(cls, line: str) -> Reading | None:
        found = cls.marker.search(line) if "Progress on:train " in line else None
        if found is None or parse_number(found[5]) is None:
            return None
        unit = {"": 1, "k": 1_000, "M": 1_000_000}[found[2]]
        position, rounded_to = rounded(found[1], unit)
        if position is None:
            return None
        loss = Pair("loss", found[5])
        pairs = (loss, Pair("", found[3], found[4]))
        return Reading(cls.name, "step", position, None, None, None, "it", loss, pairs, found.start(), False, rounded_to)


SHAPED: tuple[type[Shaped], ...] = (ESPnet, Icefall, Paddle, MindSpore, LeRobot, Marian, OpenNMT, MetricWriter, Levanter)
