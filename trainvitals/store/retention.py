"""What is deleted when: by us, in every store alike, because no two servers agree on how they would do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainvitals.clock import Clock
from trainvitals.errors import StoreError, StoreUnavailable
from trainvitals.schema import NODE_ROLLUP, TRAIN_ROLLUPS

DAY_NS = 86_400 * 10**9
HOUR_NS = 3_600 * 10**9


class Days(Protocol):
    """The settings ``[retention]``: days, 0 = for ever."""

    @property
    def hardware_days(self) -> int: ...
    @property
    def node_10m_days(self) -> int: ...
    @property
    def train_days(self) -> int: ...
    @property
    def train_rollup_days(self) -> int: ...
    @property
    def event_days(self) -> int: ...


class Deletes(Protocol):
    """What is asked of a store."""

    def delete_before(self, measurement: str, time_ns: int) -> int: ...


@dataclass(frozen=True)
class Deleted:
    """Rows that went, by measurement, and why others could not be deleted (sentences)."""

    rows: Mapping[str, int]
    faults: tuple[str, ...] = ()


def days_of(days: Days) -> dict[str, int]:
    """Measurement -> days that its rows are kept; what is kept for ever is absent."""
    kept = {
        "gpu": days.hardware_days,
        "node": days.hardware_days,
        "heartbeat": days.hardware_days,
        "control": days.hardware_days,
        NODE_ROLLUP: days.node_10m_days,
        "train": days.train_days,
        "event": days.event_days,
        **dict.fromkeys(TRAIN_ROLLUPS, days.train_rollup_days),
    }
    return {name: number for name, number in kept.items() if number > 0}


def cutoffs(days: Days, now_ns: int, summarised_ns: Mapping[str, int | None]) -> dict[str, int]:
    """Measurement -> time (UTC ns) before which its rows go.

    summarised_ns: measurement -> end of what is rolled up of it (None = nothing yet): rows that are not summarised stay.
    """
    ends: dict[str, int] = {}
    for name, number in days_of(days).items():
        end_ns = now_ns - number * DAY_NS
        if name in summarised_ns:
            done_ns = summarised_ns[name]
            if done_ns is None:
                continue
            end_ns = min(end_ns, done_ns)
        if name == "train":
            # Whole hours: a window of which a part is gone would be summarised wrongly if it were computed again.
            end_ns = end_ns // HOUR_NS * HOUR_NS
        if end_ns > 0:
            ends[name] = end_ns
    return ends


class Retention:
    """Deletes what is too old. Idempotent: several processes may do it, and do it again.

    summarised: measurement -> end of its roll-ups in ns, or None; asked at each call.
    """

    def __init__(
        self, store: Deletes, days: Days, clock: Clock, summarised: Callable[[], Mapping[str, int | None]] = dict
    ) -> None:
        self._store, self._days, self._clock, self._summarised = store, days, clock, summarised

    def step(self) -> Deleted:
        """Delete once. Raises ``StoreUnavailable`` (try later); a store that cannot delete at all is told as a fault."""
        rows: dict[str, int] = {}
        faults = []
        for name, end_ns in cutoffs(self._days, self._clock.time_ns(), self._summarised()).items():
            try:
                rows[name] = self._store.delete_before(name, end_ns)
            except StoreUnavailable:
                raise
            except StoreError as error:
                faults.append(f"old rows of {name} were not deleted: {error}")
        return Deleted(rows, tuple(faults))
