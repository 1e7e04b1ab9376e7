"""nanoGPT and its relatives: one short line per step.

nanoGPT        ``iter 120: loss 3.9000, time 500.25ms, mfu 30.00%``
build-nanogpt  ``step    12 | loss: 9.700000 | lr 1.1000e-05 | norm: 3.1000 | dt: 420.00ms | tok/sec: 1248304.76``;
               its log.txt ``12 train 9.700000``
llm.c          ``s:150 trl:5.4321 lr:0.000210 norm:0.55``, on the terminal ``step   12/19560 | loss 4.123456 (+0.12z)| …``
modded-nanogpt ``step:500/9000 train_loss:3.9000 train_time:850000ms step_avg:1700.00ms``, newer ones without the loss
nanochat       ``step 00012/21400 (0.06%) | loss: 4.1234 | lrm: 1.00 | dt: 500.12ms | tok/sec: 1,000,000 | mfu: 48.10 | …``

Lines of validation are no steps. A step line without a loss is a step with timings. Some of these logs begin with the whole
source of the trainer: only digits match.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from trainvitals.logs.grammar import Record, message, phase
from trainvitals.logs.grammars.step_cells import cell_line
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import Metrics, json_safe, parse_number, slug
from trainvitals.records import Step

_N = r"([-+]?(?:\d[\d.]{0,40}(?:[eE][-+]?\d{1,4})?|nan|inf))"
_S = r"(?<![\w.])"
_ITER = re.compile(rf"{_S}[Ii]ter (\d{{1,15}}): loss {_N}(?: \([^()]{{0,200}}\))?(?=,|\s*\Z)", re.ASCII)
_ITER_PAIR = re.compile(rf",\s{{0,3}}([A-Za-z][\w/ ]{{0,30}}?)(?::|\s?=)?\s{{1,3}}{_N}\s?(ms|s|%|)", re.ASCII)
_MODDED = re.compile(rf"{_S}step:(\d{{1,15}})/\d{{1,15}} (?=train_(?:loss|time):)", re.ASCII)
_MODDED_PAIR = re.compile(rf"\b([a-z][a-z_]{{0,40}}):{_N}(ms|s|)(?!\S)", re.ASCII)
#: (regex, metric and factor of each group behind the step)
_STEPS: tuple[tuple[re.Pattern[str], tuple[tuple[str, float], ...]], ...] = (
    (
        re.compile(rf"{_S}s:(\d{{1,15}}) trl:{_N}(?: lr:{_N})?(?: norm:{_N})?(?!\S)", re.ASCII),
        (("loss", 1.0), ("lr", 1.0), ("grad_norm", 1.0)),
    ),
    (
        re.compile(rf"{_S}step\s{{1,8}}(\d{{1,15}})(?:/\d{{1,15}})?: train loss {_N} (?:\(acc {_N}\) )?\((?:took )?{_N} ms", re.ASCII),
        (("loss", 1.0), ("accuracy", 1.0), ("step_time_s", 1e-3)),
    ),
    (re.compile(r"\A(\d{1,15}) train (\d{1,6}\.\d{6}|-?nan|inf)\Z", re.ASCII), (("loss", 1.0),)),
)  # fmt: skip
_PAIR_NAMES = {
    "time": "step_time_s",
    "dt": "step_time_s",
    "mfu": "mfu",
    "lr": "lr",
    "tps": "tokens_per_s",
    "tok/s": "tokens_per_s",
    "tok_s": "tokens_per_s",
    "grad_norm": "grad_norm",
    "grad norm": "grad_norm",
    "norm": "grad_norm",
    "train_loss": "loss",
    "step_avg": "step_avg_s",  # a running mean is not the time of a step
}
_UNITS = {"ms": 1e-3}
_TIMINGS = ("mfu", "step_time_s", "step_avg_s", "tokens_per_s")
_VALIDATIONS = (
    (re.compile(rf"{_S}step (\d{{1,15}}): train loss (?:\S{{1,40}}), val loss {_N}", re.ASCII), "validation_loss"),
    (re.compile(rf"{_S}step:(\d{{1,15}})/\d{{1,15}} val_loss:{_N}", re.ASCII), "validation_loss"),
    (re.compile(rf"{_S}step:(\d{{1,15}})/\d{{1,15}} val_bpb:{_N}", re.ASCII), "validation_bpb"),
    (re.compile(rf"{_S}s:(\d{{1,15}}) tel:{_N}", re.ASCII), "validation_loss"),
    (re.compile(rf"{_S}s:(\d{{1,15}}) eval:{_N}", re.ASCII), "validation_accuracy"),
    (re.compile(rf"{_S}[Ss]tep:? (\d{{1,15}}) \| Validation bpb: {_N}", re.ASCII), "validation_bpb"),
    (re.compile(rf"{_S}[Ss]tep:? (\d{{1,15}})(?:/\d{{1,15}})? \| Validation loss: {_N}", re.ASCII), "validation_loss"),
    (re.compile(r"\A(\d{1,15}) val (\d{1,6}\.\d{4}|nan|inf)\Z", re.ASCII), "validation_loss"),
    (re.compile(r"\A(\d{1,15}) hella (\d\.\d{4})\Z", re.ASCII), "validation_accuracy"),
)
#: A line without any of these is nobody's.
_LITERALS = ("loss", "Loss: ", " trl:", "step_avg:", " train ")
_VALIDATION_LITERALS = ("val", "Validation", " tel:", " eval:", " hella ")
#: build-nanogpt's and llm.c's own line names no step: it is that of the weights, the last one that was trained.
_VALIDATION_ALONE = re.compile(rf"\A(?:validation|val) loss:? {_N}\Z", re.ASCII)
_RESUMES = ("Resuming training from ", "Resuming optimization from ")


class NanoGPT:
    """State: the last step, and the clock of modded-nanogpt's last line, for the time of a step."""

    name = "nanogpt"
    title = "nanoGPT, build-nanogpt, llm.c, modded-nanogpt, nanochat"
    example = "iter 120: loss 3.9000, time 500.25ms, mfu 30.00%"
    is_from_source = False
    literals: ClassVar[tuple[str, ...]] = _LITERALS
    is_document = False
    is_weak = False
    prelude: ClassVar[tuple[str, ...]] = ("Resuming training from ", "val loss", "val_loss:", " tel:", "Validation bpb:")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._clock: list[float] | None = None  # step, training time so far in seconds
        self._last: int | None = None
        self.bad_records = 0

    @staticmethod
    def claims(line: str) -> bool:
        return _find(line) is not None

    def feed(self, line: str) -> list[Record]:
        found = _find(line)
        if found is not None:
            step, metrics, start, clock_s = found
            self._last = step
            if clock_s is not None:
                self._take_time(step, clock_s, metrics)
            return [Step(step, 0, self._times.find(line[:start]), metrics.values, metrics.nonfinite)]
        if any(literal in line for literal in _VALIDATION_LITERALS):
            for pattern, name in _VALIDATIONS:
                if validation := pattern.search(line):
                    value = parse_number(validation[2])
                    if value is not None:
                        time_ns = self._times.find(line[: validation.start()])
                        return [message(line.strip(), json_safe({name: value}), int(validation[1]), time_ns)]
            if alone := _VALIDATION_ALONE.match(line):
                data = json_safe({"validation_loss": value}) if (value := parse_number(alone[1])) is not None else {}
                return [message(line.strip(), data, self._last)]
        if line.startswith(_RESUMES):
            self._clock = None
            return [phase("start", "begin", line)]
        return []

    def _take_time(self, step: int, clock_s: float, metrics: Metrics) -> None:
        """The time of a step from the clock of the training, which stands still while validating."""
        if self._clock is not None and step > self._clock[0]:
            passed_s = (clock_s - self._clock[1]) / (step - self._clock[0])
            if 0 < passed_s < float("inf"):  # it is set back after the first ten steps
                metrics.put("step_time_s", round(passed_s, 9))
        self._clock = [float(step), clock_s]

    def idle(self) -> list[Record]:
        return []

    def finish(self) -> list[Record]:
        return []

    def to_state(self) -> dict[str, Any]:
        return {"clock": self._clock, "last": self._last, "bad_records": self.bad_records}

    def restore(self, state: dict[str, Any]) -> None:
        self._clock = [float(number) for number in state["clock"]] if state["clock"] is not None else None
        self._last = state["last"]
        self.bad_records = int(state["bad_records"])


def _find(line: str) -> tuple[int, Metrics, int, float | None] | None:
    """Step, metrics, where the line begins behind what a logger wrote, and the clock of the training in seconds if it is told."""
    if not any(literal in line for literal in _LITERALS):
        return None
    if found := _ITER.search(line):
        metrics = Metrics()
        _put(metrics, "loss", found[2])
        for key, raw, unit in _ITER_PAIR.findall(line[found.end() : found.end() + 1000]):
            _put(metrics, key, raw, unit or ("ms" if key.lower() == "time" else ""))
        return int(found[1]), metrics, found.start(), None
    if found := _MODDED.search(line):
        return _modded(line, found)
    for pattern, names in _STEPS:
        if found := pattern.search(line):
            metrics = Metrics()
            for raw, (name, factor) in zip(found.groups()[1:], names, strict=True):
                if raw:
                    _put(metrics, name, raw, "ms" if factor != 1.0 else "")
            return int(found[1]), metrics, found.start(), None
    cells = cell_line(line)
    return (cells.step, cells.metrics, cells.start, None) if cells is not None else None


def _modded(line: str, found: re.Match[str]) -> tuple[int, Metrics, int, float | None]:
    metrics = Metrics()
    clock_s = None
    for key, raw, unit in _MODDED_PAIR.findall(line[found.end() : found.end() + 2000]):
        value = parse_number(raw)
        if key == "train_time":
            clock_s = value * _UNITS.get(unit, 1.0) if value is not None and 0 <= value < float("inf") else None
        elif not key.endswith("_time"):
            _put(metrics, key, raw, unit)
    return int(found[1]), metrics, found.start(), clock_s


def _put(metrics: Metrics, key: str, raw: str, unit: str = "") -> None:
    value = parse_number(raw)
    key = key.strip().lower()
    name = _PAIR_NAMES.get(key) or slug(key)
    # A timing that is not known yet is printed as nan or -100 %, and is no fault of the run.
    if value is None or name is None or (name in _TIMINGS and not 0 <= value < float("inf")):
        return
    metrics.put(name, value * _UNITS.get(unit, 1.0))
