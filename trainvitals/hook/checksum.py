"""Checksums of a part of the parameters, to see whether replicas are still the same bit for bit. Needs torch.

Data-parallel ranks that started equal stay equal: a bit that flipped on one of them, or an optimizer state that was not
broadcast, shows as a difference long before it shows in a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

TENSORS = 8
ELEMENTS = 65_536
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_HALF = 0xFFFF_FFFF


def usable(parameters: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Those that can be looked at without a copy or a collective: whole, contiguous, on this rank."""
    return [
        (name, parameter)
        for name, parameter in parameters
        if parameter.numel()
        and parameter.is_contiguous()
        and not hasattr(parameter, "full_tensor")
        and not parameter.is_complex()
    ]


def replicated_parameters(given: Iterable[tuple[str, Any]] | None) -> list[tuple[str, Any]]:
    """The usable ones. Raises ``ValueError`` when none of the given ones is, and what the iterable raises."""
    parameters = [] if given is None else list(given)
    found = usable(parameters)
    if parameters and not found:
        raise ValueError("none of the replicated parameters is whole and contiguous; no checksums are made")
    return found


def start_checksums(parameters: Sequence[tuple[str, Any]], turn: int) -> tuple[list[str], dict[str, Any]]:
    """(names of the slices, two scalars for each, on its device) of the ``turn``-th part: ``TENSORS`` tensors, ``ELEMENTS`` each.

    The part moves on with each turn. Integer sums of the bits, weighted by odd numbers: no order of summation changes them
    and no single flipped bit can go unseen. The two halves of 32 bits are exact as floating-point numbers.
    """
    names: list[str] = []
    scalars: dict[str, Any] = {}
    count = len(parameters)
    for number in range(min(TENSORS, count)):
        name, parameter = parameters[(turn * TENSORS + number) % count]
        laps = (turn * TENSORS + number) // count
        flat = parameter.detach().view(-1)
        first = laps * ELEMENTS % flat.numel()
        bits = flat[first : first + ELEMENTS].view(_BITS[flat.element_size()]).to(torch.int64)
        weights = torch.arange(1, 2 * bits.numel(), 2, dtype=torch.int64, device=bits.device)
        total = (bits * weights).sum()
        names.append(f"{name}[{first}:{first + bits.numel()}]")
        scalars[f"low{number}"] = total & _HALF
        scalars[f"high{number}"] = (total >> 32) & _HALF
    return names, scalars


def checksums(numbers: dict[str, object], count: int) -> tuple[int, ...]:
    """From the halves as they came to the host."""
    return tuple((_whole(numbers[f"high{number}"]) << 32) | _whole(numbers[f"low{number}"]) for number in range(count))


def _whole(value: object) -> int:
    if not isinstance(value, (int, float)):
        raise TypeError("a checksum that is no number")
    return int(value)
