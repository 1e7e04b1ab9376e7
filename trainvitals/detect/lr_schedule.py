"""A learning rate schedule as a run declares it in its settings, and the learning rate it asks for at a step. Pure.

Read are the names that trainers use: Megatron-LM (``megatron/core/optimizer_param_scheduler.py``), nanoGPT (``train.py``), torchtitan
(``components/lr_scheduler.py``), Hugging Face (``optimization.py``), and the plain ones of ``Recorder.describe``. What is not wholly
declared (a schedule in epochs, a batch that grows while the schedule counts samples) is no schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

#: Last parts of the keys that are looked at; everything else in a run's settings is not kept.
KEYS = frozenset(
    {
        "lr", "learning_rate", "max_lr", "min_lr", "min_lr_factor", "warmup_steps", "warmup_iters", "warmup_ratio", "lr_warmup_steps",
        "lr_warmup_iters", "lr_warmup_fraction", "lr_warmup_init", "lr_warmup_samples", "decay_steps", "lr_decay_steps", "lr_decay_iters",
        "lr_decay_samples", "lr_decay_style", "lr_scheduler_type", "lr_schedule", "decay_type", "decay_ratio", "decay_lr", "lr_wsd_decay_iters",
        "lr_wsd_decay_style", "wsd_decay_steps", "wsd_decay_style", "max_steps", "max_iters", "train_iters", "steps", "train_samples",
        "rampup_batch_size", "warmup",
    }
)  # fmt: skip
_STYLES = {
    "constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine", "wsd": "wsd",
    "inverse-square-root": "inverse_sqrt",
}  # fmt: skip
_TAILS = ("linear", "cosine", "exponential", "minus_sqrt")
#: A step that is counted from 0 or 1, a learning rate that is logged before or after its step.
OFF_BY_STEPS = 2


@dataclass(frozen=True)
class Schedule:
    """``style``: constant, linear, cosine, inverse_sqrt, or wsd (constant, then ``tail`` over the last ``tail_steps``). Steps are optimizer steps."""

    peak: float
    floor: float
    warmup_steps: float
    decay_steps: float
    style: str
    start: float = 0.0
    tail_steps: float = 0.0
    tail: str = "linear"

    def lr_at(self, step: float) -> float:
        """The learning rate after ``step`` steps."""
        if self.warmup_steps > 0 and step < self.warmup_steps:
            return self.start + (self.peak - self.start) * max(0.0, step) / self.warmup_steps
        if self.style == "constant":
            return self.peak
        if self.style == "inverse_sqrt":
            return max(self.floor, self.peak * math.sqrt(max(1.0, self.warmup_steps) / max(1.0, step)))
        if step >= self.decay_steps:
            return self.floor
        begin = self.decay_steps - self.tail_steps if self.style == "wsd" else self.warmup_steps
        if step <= begin:
            return self.peak
        share = (step - begin) / (self.decay_steps - begin)
        return self.floor + (self.peak - self.floor) * _left(self.tail if self.style == "wsd" else self.style, share)

    def bounds(self, step: int) -> tuple[float, float]:
        """Lowest and highest learning rate within two steps of ``step``."""
        near = (self.lr_at(step - OFF_BY_STEPS), self.lr_at(step), self.lr_at(step + OFF_BY_STEPS))
        return min(near), max(near)

    def describe(self) -> str:
        """``cosine, 3e-4 to 3e-5, warm-up 2,000 of 500,000 steps``"""
        warmup = f"warm-up {self.warmup_steps:,.0f}"
        if self.style == "constant":
            return f"constant, {self.peak:.3g}, {warmup} steps"
        end = "" if self.style == "inverse_sqrt" else f" of {self.decay_steps:,.0f}"
        return f"{self.style.replace('_', ' ')}, {self.peak:.3g} to {self.floor:.3g}, {warmup}{end} steps"


class Declaration(Protocol):
    """The attributes of ``trainvitals.settings.LrScheduleSettings``; its steps are checked there."""

    @property
    def kind(self) -> str: ...
    @property
    def peak(self) -> float: ...
    @property
    def min_lr(self) -> float: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def decay_steps(self) -> int: ...


def from_settings(meant: Declaration, total_steps: int) -> Schedule | None:
    """What a person declared, None without a kind. ``total_steps``: of the run, where the schedule names none of its own."""
    if not meant.kind:
        return None
    end = float(meant.total_steps or total_steps)
    return Schedule(meant.peak, meant.min_lr, float(meant.warmup_steps), end, meant.kind, tail_steps=float(meant.decay_steps))


def _left(style: str, share: float) -> float:
    if style == "cosine":
        return 0.5 * (1 + math.cos(math.pi * share))
    if style == "exponential":
        return float(2 * 0.5**share - 1)
    if style == "minus_sqrt":
        return 1 - math.sqrt(share)
    return 1 - share


def declared(settings: Mapping[str, object]) -> Schedule | None:
    """The schedule of a run's settings (last part of the key -> value), or None when they do not wholly tell one."""
    number = _Numbers(settings)
    ramp = settings.get("rampup_batch_size")
    peak = number.first("lr", "learning_rate", "max_lr")
    if peak is None or not 0 < peak < math.inf or ramp not in (None, "None", "", "null", "[]"):
        return None
    style = _style(settings)
    if style is None:
        return None
    is_titan = "decay_type" in settings or "decay_ratio" in settings
    total = number.first("lr_decay_iters", "lr_decay_steps", "decay_steps", "train_iters", "max_iters", "max_steps", "steps")
    if style not in ("constant", "inverse_sqrt") and (total is None or total <= 0):
        return None
    if number.first("lr_warmup_samples", "lr_decay_samples"):
        return None  # counted in samples
    end = total or 0.0
    warmup = number.first("lr_warmup_steps", "lr_warmup_iters", "warmup_steps", "warmup_iters") or 0.0
    ratio = number.first("lr_warmup_fraction", "warmup_ratio", "warmup")
    if ratio is not None and not 0 <= ratio <= 1:
        return None
    if 0 < warmup < 1:
        warmup, ratio = 0.0, warmup
    if not warmup and ratio:
        if not end:
            return None
        warmup = math.ceil(ratio * end)
    factor = number.first("min_lr_factor")
    floor = (factor * peak if factor is not None else number.first("min_lr")) or 0.0
    tail_steps = number.first("lr_wsd_decay_iters", "wsd_decay_steps") or 0.0
    tail = str(settings.get("lr_wsd_decay_style") or settings.get("wsd_decay_style") or "linear").lower()
    if is_titan:
        decay_ratio = number.first("decay_ratio")
        tail_steps = max(0.0, end - warmup) if decay_ratio is None else float(round(end * decay_ratio))
        tail, style = {"linear": "linear", "cosine": "cosine"}.get(str(settings.get("decay_type", "linear")).lower(), ""), "wsd"
    if style == "wsd" and (tail not in _TAILS or not 0 < tail_steps <= end - warmup):
        return None
    if floor > peak or warmup < 0 or (style not in ("constant", "inverse_sqrt") and end <= warmup):
        return None
    return Schedule(peak, floor, warmup, end, style, number.first("lr_warmup_init") or 0.0, tail_steps, tail)


def _style(settings: Mapping[str, object]) -> str | None:
    if "decay_lr" in settings:  # nanoGPT knows only one
        return "cosine" if str(settings["decay_lr"]) == "True" else "constant"
    if "decay_type" in settings:
        return "wsd"
    for key in ("lr_decay_style", "lr_scheduler_type", "lr_schedule"):
        if key in settings:
            name = str(settings[key]).rsplit(".", 1)[-1].lower()
            return _STYLES.get(name)
    return None


class _Numbers:
    """Numbers of settings that hold text, too."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings

    def first(self, *keys: str) -> float | None:
        """Of the first key that has one."""
        for key in keys:
            raw = self._settings.get(key)
            if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
                continue
            try:
                value = float(raw)
            except ValueError:
                continue
            if math.isfinite(value):
                return value
        return None
