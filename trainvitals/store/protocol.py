"""What every store can do, whatever is behind it. One contract suite (tests/contract) runs on all of them.

Frames: column ``time_ns`` (int64, UTC) first, then the tags (str), then the asked fields. Float fields are float64 with
NaN for "not there"; int fields are pandas Int64; str fields are object with None. Rows ascend by time unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from trainvitals.records import Event, Point


@dataclass(frozen=True)
class StoreHealth:
    """What a person must know of a store: which it is, whether it answers, what waits and what was lost."""

    flavour: str
    version: str
    is_reachable: bool
    spool_depth: int = 0
    spool_age_s: float = 0.0
    dropped: int = 0
    dead_letters: int = 0
    text: str = ""


class Writer(Protocol):
    """What takes points.

    Raises ``StoreUnavailable`` (keep the data, try again), ``StoreRejected`` (one of these points will never be taken;
    others may be stored, writing them again changes nothing) or ``StoreError`` (never will).
    """

    def write(self, points: Sequence[Point]) -> None:
        """Write points; the same (measurement, tags, time) again merges field by field, so replays are harmless."""
        ...


class Sink(Writer, Protocol):
    """What collectors and ``watch`` write to: the embedded store, or a spool in front of a server. It keeps state with points."""

    def commit(self, points: Sequence[Point], state: Mapping[str, bytes | None]) -> None:
        """Write points and keep ``state`` (None = forget the key) in one transaction: both or neither."""
        ...

    def load_state(self, prefix: str) -> dict[str, bytes]:
        """All kept state whose key starts with ``prefix``."""
        ...


class Store(Writer, Protocol):
    """Takes points and reads them. A server keeps no state for a program far away, so this is no ``Sink``; SQLite is both.

    ``where`` is tag -> value or sequence of values; ``start_ns`` inclusive, ``end_ns`` exclusive, both always given.
    """

    def raw(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str | Sequence[str]],
        start_ns: int,
        end_ns: int,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> pd.DataFrame:
        """Rows as they are, at most ``limit``."""
        ...

    def buckets(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str | Sequence[str]],
        start_ns: int,
        end_ns: int,
        count: int,
        by: str = "time_ns",
    ) -> pd.DataFrame:
        """At most about ``count`` rows per series for drawing: column ``bucket`` (start, in units of ``by``: "time_ns" or
        "step"), the tags, ``time_ns`` and ``step`` (first of the bucket), ``n``, ``nonfinite`` (sum; train only), and per
        field ``f_min``, ``f_max``, ``f_mean``, ``f_last``. With ``by="step"`` start and end are still times.
        A one-step spike is always in ``f_max`` of its bucket."""
        ...

    def latest(
        self, measurement: str, fields: Sequence[str], where: Mapping[str, str | Sequence[str]], within_ns: int, now_ns: int
    ) -> pd.DataFrame:
        """The newest row of each series not older than ``within_ns`` before ``now_ns``; fields of one row, never mixed."""
        ...

    def events(
        self,
        run: str | None,
        kinds: Sequence[str],
        start_ns: int,
        end_ns: int,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Event]:
        """Stored events of a run (None: of all)."""
        ...

    def tag_values(self, measurement: str, tag: str, within_ns: int, now_ns: int) -> list[str]:
        """Values of a tag seen in the data of the last ``within_ns``."""
        ...

    def stored_fields(self, measurement: str) -> list[str]:
        """Names of the fields that rows of a measurement may have: the declared ones and the extra metrics stored so far."""
        ...

    def extra_metrics(self, run: str) -> list[str]:
        """Names of the metrics beside ``TRAIN_METRICS`` that a run (or, where that is not kept, any run) has stored, sorted."""
        ...

    def time_of_step(self, run: str, attempt: int, step: int) -> int | None:
        """The stored timestamp of a training point, None when it is not stored."""
        ...

    def delete_before(self, measurement: str, time_ns: int) -> int:
        """Delete older rows in slices; returns how many went."""
        ...

    def health(self) -> StoreHealth:
        """Never raises."""
        ...

    def close(self) -> None: ...
