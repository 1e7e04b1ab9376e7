"""Words of trainers nobody has described: what counts steps, what is a loss, what only looks like one of the two."""

from __future__ import annotations

import re
from functools import lru_cache

from trainvitals.logs.grammars.metric_names import meaning_of
from trainvitals.logs.values import slug
from trainvitals.schema import TRAIN_METRICS


def word_set(words: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(words.split())


#: What counts optimizer steps or batches, best first; ``kind`` is "step" for the first group, "batch" for the second.
STEPS = (
    "global step", "gstep", "num updates", "update", "updates", "optimizer step", "step", "steps", "iteration", "iterations",
    "iter", "iters", "itr", "it", "up",
)  # fmt: skip
BATCHES = ("batch", "batches", "batch idx", "batch id", "batch index", "batch no", "minibatch", "mini batch", "mb")
EPOCHS = ("epoch", "epochs", "ep")
_STEP_RANK = {word: rank for rank, word in enumerate(STEPS)}
_COUNTERS = {
    **dict.fromkeys(STEPS, "step"),
    **dict.fromkeys(BATCHES, "batch"),
    **dict.fromkeys(EPOCHS, "epoch"),
}
#: In front of a counter they make it the number of something else.
_NO_COUNTER = word_set(
    """max maximum min warmup warm save saving saved log logging per every each accumulation accum
    accumulated decay sec time ms remaining last best start starting resume resuming resumed until next patience size worker micro
    checkpoint ckpt from for in total end stop to"""
)
_LOSS_WORDS = word_set("loss losses cost xent nll crossentropy celoss objf closs trainloss lossg lossd")
_COST_WORDS = word_set("cost train training avg average mean total current loss")
#: Beside a loss's name they make it something else.
_NO_LOSS = word_set(
    """scale scaler scaling weight weights coef coeff coefficient factor lambda best min minimum lowest previous last prev target
    packet fn function type name threshold patience improvement delta ratio per total_time std var variance grad count
    stop profit pnl signal"""
)
VALIDATION = word_set("val valid validation validating eval evaluating evaluation evaluate test testing dev heldout holdout")
#: A line that speaks of these tells no training step, though it may name its step and its loss.
OTHER_SUBJECTS = word_set(
    """saved saving save checkpoint ckpt best loaded loading resumed resuming resume restored restoring improved early summary
    results packet assert expected example quantizing quantising calibrating"""
)
LEVELS = word_set("info debug warning error train training root main logger log stdout stderr")
_IGNORED = word_set(
    """eta rank local_rank cuda gpu gpus npu device devices pid node worker seed remaining elapsed thread world_size day days hour hours
    left line port version"""
)
_WORD = re.compile(r"[a-z][a-z0-9]*|#")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_RATES: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("tok/s", "toks/s", "tok/sec", "tokens/s", "tokens/sec", "tokens/second", "t/s", "words/s", "words/sec", "wps", "tps"),
                    ("tokens_per_s", 1.0)),
    **dict.fromkeys(("samples/s", "samples/sec", "sample/s", "samples/second", "img/s", "imgs/s", "images/s", "images/sec", "examples/s",
                     "examples/sec", "ex/s", "seq/s", "sequences/s", "sps"), ("samples_per_s", 1.0)),
    **dict.fromkeys(("ms/batch", "ms/step", "ms/iter", "ms/it", "ms/iteration", "ms/update"), ("step_time_s", 1e-3)),
    **dict.fromkeys(("s/batch", "s/step", "s/iter", "s/it", "sec/batch", "sec/step", "sec/iter", "sec/it", "s/iteration", "secs/step",
                     "seconds/step"), ("step_time_s", 1.0)),
    **dict.fromkeys(("it/s", "its/s", "iter/s", "iters/s", "it/sec", "iter/sec", "iters/sec", "step/s", "steps/s", "step/sec", "steps/sec",
                     "batch/s", "batches/s", "batches/sec", "updates/s", "steps/second"), ("step_time_s", 0.0)),
    **dict.fromkeys(("tflops", "tflop/s", "tflops/gpu", "tflop/s/gpu", "tflops/s"), ("tflops_per_gpu", 1.0)),
}  # fmt: skip
#: Units, as they stand behind a number; other words behind one belong to the next name.
UNITS = frozenset({*_RATES, "ms", "s", "sec", "secs", "seconds", "us", "\u00b5s", "\u03bcs", "ns", "min", "mins", "h", "%", "x", "k", "m", "g", "b", "gb", "mb", "gib", "mib",
                   "batches", "steps", "samples", "tokens", "iters"})  # fmt: skip
_SECONDS = {
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ns": 1e-9,
}
#: What has one of these behind it is a time or a share, whatever it is called.
_NO_LOSS_UNITS = frozenset({*_SECONDS, "min", "mins", "h", "%"})
#: Of a critic: errors in units of the squared return, which must grow in a run that learns.
_OF_A_VALUE = word_set("value critic vf qf td q")
_LARGE = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9}
#: A duration of one step by these names.
_STEP_TIMES = frozenset({"dt", "iter dt", "step dt", "time per step", "time per iter", "batch time", "iter time", "step time", "iteration time",
                         "time per iteration", "time per batch", "batch cost", "avg batch cost", "it time", "train time"})  # fmt: skip
_SPEEDS = frozenset({"speed", "throughput", "ips", "rate", ""})


@lru_cache(maxsize=1024)
def words_of(text: str) -> tuple[str, ...]:
    """Lower-case words of a name; ``trainLoss`` and ``train_loss`` are two words."""
    return tuple(_WORD.findall(_CAMEL.sub(" ", text).lower()))


@lru_cache(maxsize=4096)
def counter_of(key: str) -> tuple[str, str] | None:
    """(kind, name) of a key that counts: kind is step, batch or epoch. None for any other key."""
    last = key.split()[-1] if key.split() else ""
    if "/" in last or "--" in key:
        return None
    words = words_of(key)
    for length in (2, 1):
        name = " ".join(words[-length:])
        kind = _COUNTERS.get(name) if len(words) >= length else None
        if kind is None:
            continue
        before = words[:-length]
        if len(before) > 6 or not _NO_COUNTER.isdisjoint(before) or (name == "up" and before):
            return None
        if not VALIDATION.isdisjoint(before) and name not in ("step", "iter", "iteration"):
            return None
        return kind, name
    return None


def step_rank(name: str) -> int:
    """Of two counters in a line the one with the lower rank is the step."""
    return _STEP_RANK.get(name, len(_STEP_RANK))


@lru_cache(maxsize=4096)
def loss_rank(key: str) -> int | None:
    """Of the losses in a line the one with the lowest rank is the training loss; None for what is no loss, or one of a validation."""
    words = words_of(key)
    if (
        not words
        or len(words) > 5
        or not _NO_LOSS.isdisjoint(words)
        or not VALIDATION.isdisjoint(words)
        or "/" in key.split()[-1][:1]
    ):
        return None
    text = " ".join(words)
    if "cost" in words and not {*words} <= _COST_WORDS:
        return None  # ``reader_cost`` and ``batch_cost`` are times
    if _LOSS_WORDS.isdisjoint(words) and "cross entropy" not in text and not text.endswith("loss"):
        return None
    meaning = meaning_of(key)
    if {"mean", "avg", "average", "ema", "running", "smooth", "smoothed"} & set(words):
        return 400 + len(words)
    if meaning.kind == "train" and meaning.metric == "loss":
        return meaning.rank
    if {"total", "sum", "all", "overall", "full"} & set(words):
        return 200
    return 300


def is_unit_of_loss(unit: str) -> bool:
    """Whether a loss may have that unit behind it: no loss is measured in milliseconds or percent."""
    return unit.lower() not in _NO_LOSS_UNITS


def is_of_a_value(key: str) -> bool:
    """Whether the loss is one of a value function."""
    return not _OF_A_VALUE.isdisjoint(words_of(key))


def is_of_a_part(key: str) -> bool:
    """Whether the name of the loss says of which part it is: neither plain ``loss`` nor a total of all."""
    rank = loss_rank(key)
    return rank is None or rank == 300


@lru_cache(maxsize=4096)
def metric_of(key: str, unit: str) -> tuple[str, str, float] | None:
    """(train or validation, metric, factor) of a number by its name and unit; factor 0.0 = one by it. None: no metric."""
    scale, _, low = unit.lower().rpartition(" ")
    unit = scale if scale else unit
    name = " ".join(words_of(key)) if "/" not in key else key.lower().strip()
    if name in _IGNORED or any(word in _IGNORED for word in name.split()[-1:]):
        return None
    rate = _RATES.get(name) or (_RATES.get(low) if name in _SPEEDS or "/" in low else None)
    if rate is not None:
        return "train", rate[0], rate[1] * (_LARGE.get(unit, 1.0) if name in _RATES or scale else 1.0)
    if not name:
        return None
    if name in VALIDATION:
        return "validation", "validation_loss", 1.0
    if name in _STEP_TIMES or (name == "time" and low == "ms"):
        return "train", "step_time_s", _SECONDS.get(low, 1.0)
    meaning = meaning_of(key)
    if meaning.kind == "validation":
        return "validation", meaning.metric, 1.0
    factor = 1.0 if "mem" in name else _LARGE.get(unit, 1.0)
    if meaning.kind == "train" and meaning.metric in ("tokens_per_s", "samples_per_s") and name in _SPEEDS:
        return "train", name, factor
    if meaning.kind == "train":
        if meaning.metric == "step_time_s":
            return "train", "step_time_s", _SECONDS.get(low, meaning.factor)
        if low in _SECONDS and meaning.metric not in TRAIN_METRICS:
            factor = _SECONDS[low]
        return "train", meaning.metric, meaning.factor * factor
    extra = slug(f"{key}_s" if low in _SECONDS else key)
    return ("train", extra, _SECONDS.get(low, factor)) if extra is not None and meaning.kind == "time" else None


def is_of_schema(key: str, unit: str) -> bool:
    """Whether the number is a metric that the schema names."""
    named = metric_of(key, unit) if key else None
    return named is not None and named[0] == "train" and named[1] in TRAIN_METRICS
