"""How one key of the settings is declared: default, help, choices. The loader and the documentation read all three."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, help: str, *, choices: tuple[str, ...] = (), is_shown: bool = True) -> Any:
    """``is_shown=False``: the value is left out of a ``repr``, because it may be a secret."""
    metadata = {"help": help, "choices": choices}
    if isinstance(default, (list, dict, tuple)):
        return field(default_factory=lambda: default, metadata=metadata, repr=is_shown)
    return field(default=default, metadata=metadata, repr=is_shown)
