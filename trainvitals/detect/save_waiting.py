"""Saves that have begun and are not durable yet, and how long such a thing usually takes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainvitals.detect.state import Stateful
from trainvitals.detect.statistics import median

MAX_WAITING = 16
KEPT_DURATIONS = 16
#: Times of saves before they count.
MIN_DURATIONS = 3
LONGEST_FACTOR = 1.5


@dataclass(frozen=True, slots=True)
class Late:
    """A save that should be done by now. state: what is known of it (begun, phase, writing)."""

    key: str
    step: int | None
    name: str
    state: str
    waited_s: float
    deadline_s: float
    usual_s: float | None


class Waiting(Stateful):
    """``told_ns``: the time that the trainer names, for how long a save takes. ``since_ns``: when it was heard of, for how long
    it has been waited for; the two clocks need not agree."""

    STATE = ("_waiting", "_durations", "_disk_durations", "_ended_phases", "_lost_ends")

    def __init__(self, numbers: Mapping[str, float]) -> None:
        self._numbers = numbers
        self._waiting: dict[str, dict[str, Any]] = {}
        self._durations: deque[float] = deque(maxlen=KEPT_DURATIONS)
        self._disk_durations: deque[float] = deque(maxlen=KEPT_DURATIONS)
        self._ended_phases = 0
        self._lost_ends = 0

    @property
    def is_any(self) -> bool:
        """Whether anything is waited for."""
        return bool(self._waiting)

    def clear(self) -> None:
        """The trainer is gone or another one: what it left half done is no save that hangs."""
        self._waiting = {}

    def begun(self, key: str, step: int, told_ns: int | None, since_ns: int | None) -> None:
        """The hook told that a save began or is staged."""
        if key not in self._waiting:
            self._put(key, {"step": step, "name": "", "state": "begun", "since_ns": since_ns, "told_ns": told_ns})

    def ended(self, key: str, time_ns: int | None) -> None:
        """It is durable (``time_ns``: when) or will not come (None)."""
        self._end(key, time_ns, self._durations)

    def phase_begun(self, step: int, told_ns: int | None, since_ns: int | None) -> None:
        """A log told that a save began. One whose end was not told shows that this log cannot be trusted for that."""
        self._lost_ends += "phase" in self._waiting and self._ended_phases > 0
        self._put("phase", {"step": step, "name": "", "state": "phase", "since_ns": since_ns, "told_ns": told_ns})

    def phase_ended(self, time_ns: int | None) -> None:
        """A log told that a save ended."""
        self._ended_phases += "phase" in self._waiting
        self._end("phase", time_ns, self._durations)

    def seen_on_disk(self, entry: Mapping[str, Any], since_ns: int | None) -> None:
        """A report on a checkpoint: one that is written and changes makes progress."""
        key = entry["path"]
        if entry["state"] in ("writing", "staged"):
            known = self._waiting.get(key)
            if known is not None and known["state"] != "writing":
                return  # the trainer tells more of this one
            told_ns = known["told_ns"] if known is not None else since_ns
            item = {"step": entry["step"], "name": entry["name"], "state": "writing", "since_ns": since_ns}
            self._put(key, item | {"told_ns": told_ns})
        elif key in self._waiting and self._waiting[key]["state"] == "writing":
            self._end(key, since_ns if entry["is_good"] else None, self._disk_durations)

    def longest_beyond(self, now_ns: int, done_step: int) -> Late | None:
        """Of what is late, the one that waits for the longest. ``done_step``: newest durable one; what is older matters no more."""
        found: list[Late] = []
        for key, item in self._waiting.items():
            since_ns = item["since_ns"]
            if since_ns is None or since_ns > now_ns:
                item["since_ns"] = now_ns  # a clock that was set, or none that was known
                continue
            if item["step"] is not None and item["step"] < done_step:
                continue
            waited_s = (now_ns - since_ns) / 1e9
            deadline_s, usual_s = self._deadline_s(item["state"])
            if deadline_s is not None and waited_s >= deadline_s:
                found.append(Late(key, item["step"], item["name"], item["state"], waited_s, deadline_s, usual_s))
        return max(found, key=lambda late: late.waited_s, default=None)

    def _deadline_s(self, state: str) -> tuple[float | None, float | None]:
        times = self._disk_durations if state == "writing" else self._durations
        if state == "phase" and (self._lost_ends or self._ended_phases < MIN_DURATIONS):
            return None, None
        if len(times) < MIN_DURATIONS:
            return (None, None) if state == "phase" else (self._numbers["first_save_s"], None)
        usual_s = median(times)
        return max(self._numbers["floor_s"], self._numbers["factor"] * usual_s, LONGEST_FACTOR * max(times)), usual_s

    def _put(self, key: str, item: dict[str, Any]) -> None:
        self._waiting[key] = item
        while len(self._waiting) > MAX_WAITING:
            self._waiting.pop(next(iter(self._waiting)))

    def _end(self, key: str, time_ns: int | None, durations: deque[float]) -> None:
        item = self._waiting.pop(key, None)
        if item is not None and time_ns is not None and item["told_ns"] is not None and time_ns >= item["told_ns"]:
            durations.append((time_ns - item["told_ns"]) / 1e9)
