"""Where something stands on the x axis when it is known by step, by time or by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

NANOSECONDS_PER_MS = 1e6


class _Attempt(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def numbers(frame: pd.DataFrame, column: str, missing: float = np.nan) -> npt.NDArray[np.float64]:
    """A column as float64; absent column or value = ``missing``."""
    if column not in frame.columns:
        return np.full(len(frame), missing)
    return frame[column].to_numpy(dtype=np.float64, na_value=missing)


def attempt_numbers(frame: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Attempt of each row. It is a text tag in the store; a tag that is no number counts as attempt 0."""
    if frame.empty or "attempt" not in frame.columns:
        return np.zeros(len(frame), dtype=np.int64)
    return pd.to_numeric(frame["attempt"], errors="coerce").fillna(0).to_numpy(dtype=np.int64)


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Steps and their UTC milliseconds as far as the shown rows tell; key 0 holds all attempts together."""

    known: Mapping[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]

    @classmethod
    def of(cls, frame: pd.DataFrame, attempts: Sequence[_Attempt] = ()) -> StepTimes:
        """From the columns attempt, step and time_ns, and from where attempts began."""
        pairs: dict[int, list[tuple[float, float]]] = {}
        columns = (attempt_numbers(frame), numbers(frame, "step"), numbers(frame, "time_ns") / NANOSECONDS_PER_MS)
        for number, step, time in zip(*columns, strict=True):
            if np.isfinite(step) and np.isfinite(time):
                pairs.setdefault(int(number), []).append((float(step), float(time)))
        for attempt in attempts:
            if attempt.first_step is not None:
                began = (float(attempt.first_step), attempt.started_ns / NANOSECONDS_PER_MS)
                pairs.setdefault(attempt.number, []).append(began)
        known = {}
        for number, found in [*pairs.items(), (0, [pair for many in pairs.values() for pair in many])]:
            table = np.array(sorted(found), dtype=np.float64).reshape(-1, 2)
            known[number] = (table[:, 0], table[:, 1])
        return cls(known)

    def x(self, axis: Literal["step", "time"], step: int | None, time_ns: int | None, attempt: int | None = None) -> float | None:
        """Position on the axis: what is known exactly, else between the neighbours, else None."""
        if axis == "step" and step is not None:
            return float(step)
        if axis == "time" and time_ns is not None:
            return time_ns / NANOSECONDS_PER_MS
        steps, times = self.known.get(attempt or 0) or self.known.get(0) or (np.empty(0), np.empty(0))
        if not len(steps):
            return None
        if axis == "time" and step is not None:
            return float(np.interp(step, steps, times))
        if axis == "step" and time_ns is not None:
            order = np.argsort(times, kind="stable")
            return float(round(float(np.interp(time_ns / NANOSECONDS_PER_MS, times[order], steps[order]))))
        return None
