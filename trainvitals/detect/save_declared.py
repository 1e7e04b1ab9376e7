"""The interval between saves that a run's settings declare. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_INTERVAL_STEPS = 10_000_000


def declared_interval(data: Mapping[str, Any]) -> int | None:
    """Steps between two saves, from the data of a ``metadata`` event; None when it declares none that is certain.

    Read are Megatron-LM's ``save_interval`` (``megatron/training/arguments.py``), Hugging Face's ``save_steps`` where
    ``save_strategy`` is steps (``training_args.py``; below 1 it is a share of the run), and torchtitan's ``checkpoint.interval``.
    """
    values = data.get("values")
    if data.get("section") != "config" or not isinstance(values, Mapping):
        return None
    strategy = ""
    found: dict[str, Any] = {}
    for raw_key, value in values.items():
        parts = str(raw_key)[:200].rsplit(".", 2)
        name = parts[-1]
        if name == "save_strategy":
            strategy = str(value)[:100].lower()
        elif name in ("save_interval", "save_steps"):
            found[name] = value
        elif name == "interval" and len(parts) > 1 and parts[-2] == "checkpoint":
            found["checkpoint.interval"] = value
    if "save_steps" in found and not strategy.endswith("steps"):
        del found["save_steps"]
    steps = [whole_steps(value) for value in found.values()]
    known = [number for number in steps if number is not None]
    return known[0] if len(known) == 1 else None


def whole_steps(value: object) -> int | None:
    """A whole number of steps of at least 1, also written as text."""
    if isinstance(value, str):
        try:
            value = float(value[:20])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= MAX_INTERVAL_STEPS:
        return None
    return int(value) if value == int(value) else None
