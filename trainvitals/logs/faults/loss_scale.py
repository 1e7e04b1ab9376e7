"""Overflow lines of loss scalers: each halving is worth a note, a few are normal, a run of them down to the floor is not.

Five or more in a row, each starting where the last one ended, are a warning; a line that only reduces the hysteresis is none.
Texts: DeepSpeed (deepspeed/runtime/fp16/loss_scaler.py), apex (apex/amp/scaler.py), fairseq (fp16_optimizer). Which ends runs:
EleutherAI/gpt-neox issue 482, ymcui/Chinese-LLaMA-Alpaca issue 534.
"""

from __future__ import annotations

import re
from typing import Any

from trainvitals.logs.grammar import message
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event

#: So many halvings in a row are a warning.
MANY_HALVINGS = 5
#: So many steps without an overflow end a row.
CALM_STEPS = 2
_OVERFLOW = re.compile(r"OVERFLOW!.{0,80}?Attempted loss scale: ([\d.e+]{1,40}), reducing to ([\d.e+]{1,40})", re.ASCII)
_APEX = re.compile(
    r"Gradient overflow\.\s{1,4}Skipping step, loss scaler \d{1,4} reducing loss scale to ([\d.e+-]{1,40})", re.ASCII
)
_FAIRSEQ = re.compile(r"overflow detected.{0,60}?setting loss scale to: ([\d.e+-]{1,40})", re.ASCII)


class LossScale:
    """State: the row of halvings in progress."""

    LITERALS = ("OVERFLOW!", "reducing loss scale", "etting loss scale to")

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._halvings = 0
        self._scale: float | None = None
        self._calm_steps = 0
        self._first: list[Any] = ["", None]
        self._messages = 0

    @property
    def halvings(self) -> int:
        """How many stand in a row now."""
        return self._halvings

    def feed(self, line: str) -> list[Event]:
        """A message for each overflow that no other rank has told yet (fairseq's own are its grammar's to tell)."""
        found = _OVERFLOW.search(line)
        attempted = parse_number(found[1]) if found else self._scale
        if found is None:
            found = _APEX.search(line)
        told = found or _FAIRSEQ.search(line)
        reduced = parse_number(told[told.lastindex or 1]) if told else None
        if told is None or reduced is None:
            return []
        time_ns = self._times.find(line[: told.start()])
        if not self._count(attempted, reduced, line, time_ns) or found is None:
            return []
        self._messages += 1
        scales = {"loss_scale_next": reduced} if attempted is None else {"loss_scale": attempted, "loss_scale_next": reduced}
        data = {"overflow": True, **json_safe(scales)}
        event = message(line.strip(), data, None, time_ns)
        return [Event(event.kind, event.time_ns, id=f"overflow/{self._messages}", text=event.text, data=data)]

    def _count(self, attempted: float | None, reduced: float, line: str, time_ns: int | None) -> bool:
        if self._halvings and self._scale is not None and self._calm_steps == 0 and reduced == self._scale:
            return False  # another rank says the same
        if attempted is not None and reduced >= attempted:
            return True  # at its floor, or held by the hysteresis: no halving
        goes_on = self._halvings and attempted == self._scale and self._scale is not None and reduced < self._scale
        if not goes_on:
            self._halvings = 0
            self._first = [line.strip()[:500], time_ns]
        self._halvings += 1
        self._scale, self._calm_steps = reduced, 0
        return True

    def step_seen(self) -> bool:
        """A step; True when it ends a row that was long enough to tell."""
        if not self._halvings:
            return False
        self._calm_steps += 1
        if self._calm_steps < CALM_STEPS:
            return False
        if self._halvings >= MANY_HALVINGS:
            return True
        self._halvings = 0
        return False

    def take(self) -> tuple[int, str, int | None]:
        """(halvings, first line, its time) of the row, which ends with this; (0, "", None) when it is too short to tell."""
        halvings, (text, time_ns) = self._halvings, self._first
        self._halvings = 0
        return (halvings, text, time_ns) if halvings >= MANY_HALVINGS else (0, "", None)

    def to_state(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "halvings": self._halvings, "scale": self._scale, "calm_steps": self._calm_steps, "first": self._first,
            "messages": self._messages,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``to_state`` was taken."""
        self._halvings, self._scale = int(state["halvings"]), state["scale"]
        self._calm_steps, self._first = int(state["calm_steps"]), list(state["first"])
        self._messages = int(state["messages"])
