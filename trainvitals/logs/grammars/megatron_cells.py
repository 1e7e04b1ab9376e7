"""The cells of Megatron's iteration line, ``key: value | key: value |``, as metrics of the schema.

Keys and units of all generations and forks: Megatron-LM from 2019 (``lm loss 9.1E+00``, no colon) to today, bigscience and
DeepSpeed's Megatron-DeepSpeed, GPT-NeoX (``approx flops per GPU: 45.2TFLOPS``), epfLLM, AscendSpeed and MindSpeed
(``gloabl batch size``), Argonne's (``iteration=  30/ 5000 | grad_norm=1.5``), FlagScale, Biren, AMD Primus (``value/average``, ``hip mem usage/free/total/usage_ratio``),
SwissArmyTransformer (``total loss``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from trainvitals.logs.values import parse_number, slug

MAX_CELLS = 200
#: Seconds since 1970, in forks that print no date.
CLOCK = "current time"
_MAX_NUMBER_CHARACTERS = 200
#: Durations for people ("34s", "1h 2m"), in ms-swift and others.
_FOR_PEOPLE = frozenset({"elapsed time", "remaining time", "eta", "eta time"})

#: cell -> (metric, factor to the schema's unit)
_KNOWN: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "consumed samples": ("samples", 1.0),
        "consumed tokens": ("tokens", 1.0),
        "elapsed time per iteration (ms)": ("step_time_s", 1e-3),
        "elapsed time per iteration (s)": ("step_time_s", 1.0),
        "elapsed time per iteration ms": ("step_time_s", 1e-3),
        "elapsed time per iteration": ("step_time_s", 1e-3),
        "throughput per gpu (tflop/s/gpu)": ("tflops_per_gpu", 1.0),
        "compute per gpu (tflop/s/gpu)": ("tflops_per_gpu", 1.0),
        "flop throughput (tflop/sec/gpu)": ("tflops_per_gpu", 1.0),
        "model tflops": ("tflops_per_gpu", 1.0),
        "tflops": ("tflops_per_gpu", 1.0),
        "[lm]-tflops": ("tflops_per_gpu", 1.0),
        "[lm]tflops": ("tflops_per_gpu", 1.0),
        "learning rate": ("lr", 1.0),
        "lr": ("lr", 1.0),
        "loss scale": ("loss_scale", 1.0),
        "grad norm": ("grad_norm", 1.0),
        "number of skipped iterations": ("skipped", 1.0),
        "number of nan iterations": ("nan_iterations", 1.0),
        "samples per second": ("samples_per_s", 1.0),
        "samples/sec": ("samples_per_s", 1.0),
        "samples per sec": ("samples_per_s", 1.0),
        "tokens per sec": ("tokens_per_s", 1.0),
        "tokens per second": ("tokens_per_s", 1.0),
        "throughput (tokens/s)": ("tokens_per_s", 1.0),
        "throughput (token/sec/gpu)": ("tokens_per_s_per_gpu", 1.0),
        "tokens per gpu (tokens/s/gpu)": ("tokens_per_s_per_gpu", 1.0),
        "tokens/s/gpu inst/harmonic mean": ("tokens_per_s_per_gpu", 1.0),
        "tokens per gpu per second (tgs)": ("tokens_per_s_per_gpu", 1.0),
        "tokens per gpu per second tgs": ("tokens_per_s_per_gpu", 1.0),
        "tokens per gpu per second(tgs)": ("tokens_per_s_per_gpu", 1.0),
        "tokens per gpu per second": ("tokens_per_s_per_gpu", 1.0),
        "tgs": ("tokens_per_s_per_gpu", 1.0),
        "tokens/s/gpu": ("tokens_per_s_per_gpu", 1.0),
        "tokens/sec/gpu": ("tokens_per_s_per_gpu", 1.0),
        "tokens per second per device": ("tokens_per_s_per_gpu", 1.0),
        "gloabl batch size": ("global_batch_size", 1.0),
        "mfu": ("mfu", 1.0),
        "mfu (%)": ("mfu", 1.0),
    }
)
#: The training loss, best first; then any other ``… loss`` that is no auxiliary term.
_MAIN_LOSSES = ("lm loss", "lm-loss", "lm_loss", "loss", "total loss")
_AUXILIARY = re.compile(r"balanc|mtp|aux|z[_ -]?loss|sop|indexer|distill")
_WITHOUT_COLON = re.compile(
    r"\s{0,40}([a-zA-Z][a-zA-Z _-]{0,60}[a-zA-Z])\s{1,40}([\d.eE+-]{1,40}|nan|inf|NAN|INF)\s{0,40}", re.ASCII
)
_FLOPS = re.compile(r"([\d.]{1,20})([KMGTPEZ]?)FLOPS", re.ASCII)
_FLOPS_PER_TFLOP = {"": 1e-12, "K": 1e-9, "M": 1e-6, "G": 1e-3, "T": 1.0, "P": 1e3, "E": 1e6, "Z": 1e9}
_BYTES = re.compile(r"([\d.]{1,20})(?:GB|GiB|%)", re.ASCII)
_RANK = re.compile(r"rank-\d{1,7} ", re.ASCII)

Cells = list[tuple[str, float]]


def number(raw: str) -> float | None:
    """The value of a cell; NaN and infinity too. None when it is no number."""
    if len(raw) <= _MAX_NUMBER_CHARACTERS and raw.isascii():
        try:
            return float(raw)
        except ValueError:
            return parse_number(raw)  # a number with a unit, an average behind it, a word
    return parse_number(raw)


def read_cells(cells: list[str]) -> tuple[Cells, bool, bool]:
    """(key, value) of each cell in order; whether the layout is plain: each cell a key, a colon and a bare number; whether it
    was cut where another process's text follows: Slurm and torchrun put one rank's line into the other's, mostly behind a ``|``.
    """
    read: Cells = []
    is_plain = True
    for cell in cells:
        if not cell or cell.isspace():
            continue
        key, separator, raw = cell.partition(":")
        if not separator:
            key, separator, raw = cell.partition("=")
            is_plain = False
        key = " ".join(key.lower().split())
        if key not in _KNOWN and (spaced := key.replace("_", " ")) in _KNOWN:
            key = spaced
        if not separator:
            found = _WITHOUT_COLON.fullmatch(cell)
            if found is None:
                return read, False, True
            key, raw = " ".join(found[1].lower().split()), found[2]
            if key not in _KNOWN and not key.endswith("loss"):
                return read, False, True
        elif not cell[0].isspace() and key not in _KNOWN and not key.endswith("loss"):
            return read, False, True
        if key in _FOR_PEOPLE:
            is_plain = False
            continue
        value = number(raw)
        if value is not None and (key in _KNOWN or "/" not in raw or "/" not in key):
            read.append((key, value))
        else:
            read += _odd(key, raw, value)
            is_plain = False
    return read, is_plain, False


def _odd(key: str, raw: str, value: float | None) -> Cells:
    if (flops := _FLOPS.fullmatch(raw.strip())) is not None and "flops" in key:
        count = parse_number(flops[1])
        return [] if count is None else [("tflops", count * _FLOPS_PER_TFLOP[flops[2]])]
    names, parts = key.split("/"), raw.strip().split("/")
    if 1 < len(names) == len(parts) <= 8:
        # "hip mem usage/free/total/usage_ratio: 63.94GB/224.04GB/287.98GB/22.20%" (AMD Primus)
        names[0] = _RANK.sub("", names[0])
        stem = names[0].rpartition(" ")[0]
        names[1:] = [f"{stem} {name}" for name in names[1:]]
        numbers = [parse_number(found[1]) if (found := _BYTES.fullmatch(part)) else None for part in parts]
        return [(name, size) for name, size in zip(names, numbers, strict=True) if size is not None]
    return [] if value is None else [(key, value)]


def main_loss(keys: list[str], learnt: str | None) -> tuple[str | None, str | None]:
    """The key of the training loss among ``keys``, and the key to remember for the lines to come.

    Once learnt, its absence is not made up for by an auxiliary loss.
    """
    if learnt is not None and learnt in keys:
        return learnt, learnt
    losses = [key for key in keys if key not in _KNOWN and key.endswith("loss")]
    chosen = next((key for key in _MAIN_LOSSES if key in losses), None)
    chosen = chosen or next((key for key in losses if not _AUXILIARY.search(key)), None)
    if chosen is None and learnt is None and len(losses) == 1:
        return losses[0], None  # a run that logs one loss only, whatever its name; not learnt
    return chosen, chosen or learnt


def metric_of(key: str, main: str | None) -> tuple[str | None, float]:
    """Name of the metric and factor to its unit; no name when nothing is left of the key."""
    if key == main:
        return "loss", 1.0
    if key in _KNOWN:
        return _KNOWN[key]
    name = slug(key)
    return ("x_loss" if name == "loss" else name), 1.0
