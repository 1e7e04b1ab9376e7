"""Every number of a rule that a person may change, with unit, default and meaning. Settings and documentation read this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Tunable:
    """One number: its default, its unit and what it does, in a sentence."""

    default: float
    unit: str
    help: str


#: rule -> name -> number. ``[detect.RULE] name = value`` in the settings.
TUNABLES: Mapping[str, Mapping[str, Tunable]] = MappingProxyType({})
