"""The newest record of a run's audit, as it is written down elsewhere: in requests, in the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """n: number of the record, from 1 (0 = there is none). hash: its SHA-256 in hexadecimal."""

    n: int = 0
    hash: str = ""
