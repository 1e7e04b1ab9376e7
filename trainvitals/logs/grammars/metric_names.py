"""What the column of a table, the key of a JSON line or the tag of an event file means: one table for all of them.

A name is cut into words at every mark that is neither letter nor digit; words that only say where it came from are left out.
``train/loss``, ``Loss/train``, ``lm loss``, ``train_loss_step``, ``run-7 - train/loss`` and ``loss/train/total`` are one loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from trainvitals.logs.values import slug

Kind = Literal["train", "validation", "step", "time", "attempt", "none"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """``rank``: of several names of one metric in a step the lowest wins (``loss`` before ``loss_mean``).

    ``factor`` turns the value into the schema's unit. ``is_of_a_step``: such a value alone makes a training step; a learning
    rate, a counter or a number without a name in the schema does not.
    """

    kind: Kind
    metric: str = ""
    rank: int = 0
    factor: float = 1.0
    is_of_a_step: bool = False


#: The step, best first: a counter of the trainer's before the counter of a logger's calls (Weights & Biases' ``_step``).
STEP_NAMES = (
    "trainer/global_step", "train/global_step", "global_step", "globalstep", "num_updates", "current_steps", "current_step",
    "global_steps", "optimizer_step", "opt_step", "update_step", "step", "steps", "train_step", "training_step",
    "iteration", "iterations", "iter", "iter_num", "it", "update", "updates", "batch_idx", "_step",
)  # fmt: skip
_TIME_NAMES = frozenset(
    {
        "timestamp",
        "_timestamp",
        "ts",
        "wall_time",
        "wall time",
        "walltime",
        "datetime",
        "date",
        "created_at",
        "log_time",
        "time",
        "timestamp_utc",
        "utc",
        "@timestamp",
        "time_utc",
        "timestamp_ms",
        "time_ms",
        "time_ns",
        "timestamp_s",
        "unix_time",
    }
)
_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout", "heldout", "valloss"})
#: What is valid, not what was validated.
_COUNTED = frozenset(
    {"samples", "tokens", "count", "num", "mask", "examples", "groups", "rows", "steps", "sequences", "frames", "fraction"}
)
_VALIDATION_ALONE = frozenset({"val", "validation", "eval", "evaluation"})
_TRAIN = frozenset({"train", "training", "trainer", "tr"})
#: Words in front that say which part of the program wrote the value.
_SPACES = frozenset(
    {"metrics", "metric", "scalars", "stats", "charts", "chart", "log", "logs", "main", "optim", "optimizer", "perf",
     "performance", "llm", "model", "progress", "run", "losses", "efficiency", "time", "timers", "speed", "system", "data",
     "values", "fields", "payload", "record", "info", "history"}
)  # fmt: skip

_LOSS = (
    "loss", "lm loss", "total loss", "loss total", "reduced loss", "reduced train loss", "ce loss", "cross entropy loss",
    "crossentropyloss", "crossentropy loss", "cross entropy", "loss ce", "nll loss", "loss lm", "language model loss", "avg loss",
    "average loss", "mean loss", "loss avg", "loss mean", "loss metrics global avg loss", "global avg loss", "global loss",
    "per token loss", "token loss", "elbo loss", "batch loss", "loss batch", "minibatch loss", "running loss", "smoothed loss",
    "main loss",
    "loss 0", "losses", "loss loss", "step loss", "iter loss", "mlm loss", "epoch loss",
)  # fmt: skip
_GRAD_NORM = (
    "grad norm", "gradient norm", "global grad norm", "gradnorm", "gnorm", "total grad norm", "grad norm total",
    "grad 2 0 norm total", "l2 norm grad global", "global gradient norm", "gradient norm global", "grads norm",
    "grad global norm", "grad norm global", "grad l2 norm", "actor grad norm", "total norm", "norm", "grad",
    "grdn",
)  # fmt: skip
_LR = (
    "lr", "learning rate", "current learning rate", "current lr", "learning rate current", "lr group 0", "lr group0", "lr 0",
    "learning rate group0",
    "learning rate group 0", "lr pg1", "lr pg 1", "lr base", "base lr", "actor lr", "group 0 lr", "opt lr",
)  # fmt: skip
_TOKENS_PER_S = (
    "tokens per s", "tokens per sec", "tokens per second", "tokens sec", "tokens s", "tok s", "tok sec", "tok per sec", "tok per s",
    "throughput tokens per sec", "throughput tokens per second", "throughput total tokens per second", "throughput tps", "tps",
    "wps", "throughput tokens s", "tokens second", "throughput", "tokens per gpu per second", "tokens per second per gpu",
    "tokens per sec per gpu", "tokens s gpu", "tgs", "throughput device tokens per sec", "throughput device tps",
    "throughput device tps actual avg", "per device tokens per sec", "tokens per second per device",
)  # fmt: skip
_SAMPLES_PER_S = (
    "samples per s", "samples per sec", "samples per second", "samples sec", "samples s", "throughput samples per sec",
    "throughput batches per sec samples", "examples per second", "throughput examples per second", "sequences per second",
    "samples per second per gpu", "throughput device samples per sec",
)  # fmt: skip
_TFLOPS = (
    "tflops per gpu", "tflops", "tflops gpu", "tflop s gpu", "tflops s gpu", "tflops per device", "per device tflops per sec",
    "tflops device", "throughput tflops", "throughput per gpu tflop s gpu", "model tflops", "tflops per sec per gpu",
)  # fmt: skip
_STEP_TIME = (
    "step time s", "step time", "iteration time", "iter time", "time per step", "time per iteration", "sec per step",
    "seconds per step", "s per step",
    "step time seconds", "step time sec", "iter time s", "iteration time s", "step timing in s", "train step timing in s",
    "train step time", "batch time", "elapsed time per iteration", "iteration time seconds", "metrics end to end s",
    "end to end s", "duration step", "throughput duration", "seconds", "step duration s", "step duration",
)  # fmt: skip
_STEP_TIME_MS = (
    "step time ms", "iter time ms", "iteration time ms", "elapsed time per iteration ms", "time per step ms", "dt ms", "step ms",
    "time ms per step",
)  # fmt: skip
_OTHERS: dict[str, tuple[str, ...]] = {
    "mfu": ("mfu", "throughput mfu", "throughput device mfu", "mfu percent"),
    "loss_scale": ("loss scale", "loss scaling", "grad scale", "loss scaler"),
    "samples": ("consumed samples", "samples consumed", "consumed train samples", "num samples seen", "samples seen"),
    "tokens": ("consumed tokens", "tokens", "num tokens", "total tokens", "tokens seen", "num input tokens seen", "throughput total tokens",
               "n tokens seen", "tokens consumed", "num tokens seen", "total tokens seen"),
    "skipped": ("skipped", "skipped iterations", "num skipped", "skipped steps", "number of skipped iterations"),
    "loss_rank_max": ("loss metrics global max loss", "global max loss"),
}  # fmt: skip
_KNOWN: dict[str, tuple[str, int, float]] = {}
for _metric, _names, _factor in (
    ("loss", _LOSS, 1.0), ("grad_norm", _GRAD_NORM, 1.0), ("lr", _LR, 1.0), ("tokens_per_s", _TOKENS_PER_S, 1.0),
    ("samples_per_s", _SAMPLES_PER_S, 1.0), ("tflops_per_gpu", _TFLOPS, 1.0), ("step_time_s", _STEP_TIME, 1.0),
    ("step_time_s", _STEP_TIME_MS, 1e-3), *((metric, names, 1.0) for metric, names in _OTHERS.items()),
):  # fmt: skip
    for _rank, _name in enumerate(_names):
        _KNOWN.setdefault(_name, (_metric, _rank, _factor))
#: A value of one of these is of a training step; the others are also logged between steps, or at the start.
_OF_A_STEP = frozenset({"loss", "grad_norm", "tokens_per_s", "samples_per_s", "tflops_per_gpu", "step_time_s", "mfu"})
_NONE = Meaning("none")
#: Rank of names that say twice that they are of the training: Hugging Face's summary of a whole training has them.
SUMMARY_RANK = 1000
SUMMARY_MARKS = frozenset({"train_runtime", "train/train_runtime"})
_MAX_NAME = 300


@lru_cache(maxsize=4096)
def meaning_of(name: str) -> Meaning:
    """The meaning of a name as it stands in a file; of kind ``none`` when it is no metric (an index, another axis)."""
    text = name.strip().strip("'\"")[:_MAX_NAME]
    lower = text.lower()
    if lower in STEP_NAMES:
        return Meaning("step", rank=STEP_NAMES.index(lower))
    if lower in _TIME_NAMES:
        return Meaning("time", lower)
    if lower == "attempt":
        return Meaning("attempt")
    if (
        lower in ("", "value", "index", "_wandb")
        or lower.startswith(("unnamed:", "_wandb."))
        or lower.endswith(("__min", "__max"))
    ):
        return _NONE
    # Weights & Biases exports "run name - metric"; the name of the run may hold any word.
    head, dash, tail = text.rpartition(" - ")
    if dash and head and tail:
        return meaning_of(tail)
    words = _WORD.findall(_CAMEL.sub(" ", text).lower())
    # Megatron-LM writes each tag twice, the second time over the consumed samples: that axis is no step.
    if "vs" in words:
        return _NONE
    if _VALIDATION.intersection(words):
        core = _core([word for word in words if word not in _VALIDATION and word != "epoch"])
        is_loss = core in _LOSS_NAMES or "valloss" in words
        # ``train/valid_tokens``, ``valid_samples`` and ``mean_test_ratio`` are of the training.
        if not is_loss and "valid" in words and not _COUNTED.isdisjoint(words):
            return _train(text, words)
        if not is_loss and (
            words[0] in _TRAIN or not {words[0], words[-1], *_VALIDATION_ALONE.intersection(words)} & _VALIDATION
        ):
            return _train(text, words)
        return Meaning("validation", "validation_loss" if is_loss else (slug(text) or "x_validation"))
    return _train(text, words)


_LOSS_NAMES = frozenset(_LOSS)


def _train(text: str, words: list[str]) -> Meaning:
    # ``train/train_loss`` is a loss like any other, but in the summary at the end of a Hugging Face training: see ``Row``.
    base = SUMMARY_RANK if sum(word in _TRAIN for word in words) > 1 else 0
    found = _KNOWN.get(_core(words))
    if found is not None:
        metric, rank, factor = found
        return Meaning("train", metric, base + rank, factor, metric in _OF_A_STEP)
    # Lightning's LearningRateMonitor: ``lr-AdamW``, ``lr-AdamW/pg1``, ``lr-AdamW-1``
    if words[:1] == ["lr"] and len(words) <= 4 and not any(word[-1:] in "23456789" for word in words[1:]):
        return Meaning("train", "lr", len(_LR) + len(words))
    extra = slug(text)
    if extra is None:
        return _NONE
    is_loss = not {"loss", "losses"}.isdisjoint(words) and "epoch" not in words
    return Meaning("train", extra, base, is_of_a_step=is_loss)


def _core(words: list[str]) -> str:
    whole = " ".join(word for word in words if word not in _TRAIN)
    if whole in _KNOWN:
        return whole
    kept = whole.split()
    # Lightning, of the first of several data loaders: ``val_loss/dataloader_idx_0``
    if kept[-1:] == ["0"] and "dataloader" in kept[-3:]:
        kept = kept[: kept.index("dataloader", len(kept) - 3 if len(kept) > 3 else 0)]
        if " ".join(kept) in _KNOWN:
            return " ".join(kept)
    while len(kept) > 1 and (kept[0] in _SPACES or (kept[0] == "learning" and kept[1] != "rate")):
        kept = kept[1:]
        if " ".join(kept) in _KNOWN:
            return " ".join(kept)
    # Lightning: ``train_loss_step`` beside ``train_loss_epoch``
    if len(kept) > 1 and kept[-1] == "step" and " ".join(kept[:-1]) in _KNOWN:
        return " ".join(kept[:-1])
    return " ".join(kept)
