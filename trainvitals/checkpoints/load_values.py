"""Judges values of tensors by samples: NaN, infinity, all zero, and the denormal garbage of memory that was never written.

Decoded through integer views, so that numpy needs no bf16 or fp8 and raises no warning. Runs in the load child only.
Real cases: NaN three steps after loading a replica (NVIDIA/Megatron-LM issue 5281), weights of 1e-42 (NVIDIA/Megatron-LM issue 1570).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: dtype -> (view, exponent mask, mantissa mask). E4M3FN has no infinity: only all ones is NaN.
_LAYOUTS: dict[str, tuple[str, int, int]] = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000, 0x000F_FFFF_FFFF_FFFF),
    "F32": ("<u4", 0x7F80_0000, 0x007F_FFFF),
    "F16": ("<u2", 0x7C00, 0x03FF),
    "BF16": ("<u2", 0x7F80, 0x007F),
    "F8_E5M2": ("u1", 0x7C, 0x03),
    "F8_E4M3": ("u1", 0x7F, 0x00),
}
ITEM_BYTES = {name: int(view[-1]) for name, (view, _, _) in _LAYOUTS.items()}
#: Subnormal numbers are usual in these.
_COARSE = ("F16", "F8_E5M2", "F8_E4M3")
#: Below this a tensor is a counter, a score or a scale, where NaN and infinity may be meant (Lightning's best_score).
MIN_ITEMS = 16
MIN_WEIGHT_ITEMS = 1_024
ZERO_SHARE = 0.9
GARBAGE_SHARE = 0.5
#: A tensor that the files do not name may be anything.
NAMELESS = "(a tensor)"
_OPTIMIZER = re.compile(r"(?:^|[./])(?:optim\w*|exp_avg\w*|momentum_buffer|max_exp_avg_sq|state)(?:[./]|\Z)")
_ZERO_IS_USUAL = re.compile(
    r"bias|norm|ln_|lora_B|lora_b|mask|buffer|cache|running_mean|rotary|inv_freq|position_ids", re.IGNORECASE
)
_INFINITY_IS_USUAL = re.compile(r"mask|causal|alibi|bias\Z", re.IGNORECASE)
_NO_WEIGHTS = re.compile(r"(?:^|[./])(?:callbacks|loops|rng\w*|random\w*|metrics?|dataloader\w*|cuda_rng\w*)(?:[./]|\Z)")


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: ``offset`` and ``bytes`` in ``file``; ``items`` of ``dtype`` (as safetensors names it)."""

    name: str
    file: str
    dtype: str
    items: int
    offset: int
    dimensions: int

    @property
    def bytes(self) -> int:
        return self.items * ITEM_BYTES.get(self.dtype, 1)

    @property
    def is_judged(self) -> bool:
        """Whether NaN in it is damage."""
        return self.dtype in _LAYOUTS and self.items >= MIN_ITEMS and not _NO_WEIGHTS.search(self.name)

    @property
    def is_weight(self) -> bool:
        """Whether it should hold ordinary numbers: a matrix of the model."""
        return (
            self.is_judged
            and not self.name.startswith(NAMELESS)
            and self.items >= MIN_WEIGHT_ITEMS
            and self.dimensions != 1
            and not _OPTIMIZER.search(self.name)
            and not _ZERO_IS_USUAL.search(self.name)
        )


@dataclass(frozen=True, slots=True)
class Values:
    """Counts in the sampled items of one tensor."""

    items: int
    nan: int
    infinite: int
    zero: int
    denormal: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Sentences; damaged = weights that nobody can train on."""

    damaged: tuple[str, ...]
    notes: tuple[str, ...]


def count(raw: Sequence[bytes], dtype: str) -> Values:
    """Count kinds of values in blocks of one tensor; ``dtype`` is one of ``ITEM_BYTES``."""
    view, exponent, mantissa = _LAYOUTS[dtype]
    items = nan = infinite = zero = denormal = 0
    for block in raw:
        bits: Any = np.frombuffer(block, dtype=view, count=len(block) // int(view[-1]))
        high, low = bits & bits.dtype.type(exponent), bits & bits.dtype.type(mantissa)
        full = high == exponent
        items += bits.size
        if dtype == "F8_E4M3":
            nan += int(full.sum())
            zero += int((high == 0).sum())
            continue
        nan += int((full & (low != 0)).sum())
        infinite += int((full & (low == 0)).sum())
        small = high == 0
        zero += int((small & (low == 0)).sum())
        denormal += int((small & (low != 0)).sum())
    return Values(items, nan, infinite, zero, denormal)


def judge(sampled: Sequence[tuple[Tensor, Values]]) -> Verdict:
    """What the samples of all tensors of a checkpoint mean."""
    damaged: list[str] = []
    notes: list[str] = []
    zeros: list[Tensor] = []
    weights = 0
    for tensor, values in sampled:
        where = f"{tensor.name} in {tensor.file}"
        if values.nan and tensor.is_judged:
            damaged.append(f"tensor {where} holds NaN ({values.nan} of {values.items} sampled values)")
        elif values.infinite and tensor.is_judged:
            sentence = f"tensor {where} holds infinity ({values.infinite} of {values.items} sampled values)"
            # A vector of nothing else is a bound or an observer that saw nothing yet; weights that overflow do not all do so.
            is_usual = _INFINITY_IS_USUAL.search(tensor.name) or (tensor.dimensions < 2 and values.infinite == values.items)
            (notes if is_usual else damaged).append(sentence)
        if not tensor.is_weight:
            continue
        weights += 1
        numbers = values.items - values.zero
        if not numbers:
            zeros.append(tensor)
        elif tensor.dtype not in _COARSE and values.denormal >= GARBAGE_SHARE * numbers and numbers >= MIN_ITEMS:
            damaged.append(f"tensor {where} holds denormal numbers (below 1e-38) only: memory that nobody wrote")
    if zeros:
        sentence = f"{len(zeros)} of {weights} sampled weight tensors are all zero, such as {zeros[0].name} in {zeros[0].file}"
        (damaged if len(zeros) >= ZERO_SHARE * weights else notes).append(sentence)
    return Verdict(tuple(damaged), tuple(notes))
