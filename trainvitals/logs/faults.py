"""Texts by which a log says that the run is dying, one row a class; and loss-scale overflows, which mostly are no fault.

One event per class and burst: ranks repeat each other, and the launcher repeats them all. A burst ends with the next step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainvitals.logs.grammar import message
from trainvitals.logs.times import LineTimes
from trainvitals.logs.values import json_safe, parse_number
from trainvitals.records import Event, Severity

#: (a literal that is searched first because it is fast, regex or None, class)
_TABLE: tuple[tuple[str, re.Pattern[str] | None, str], ...] = (
    ("CANCELLED AT", re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT"), "time_limit"),
    ("CANCELLED AT", re.compile(r"CANCELLED AT \S+ DUE TO NODE FAILURE"), "node_failure"),
    ("CANCELLED AT", re.compile(r"slurmstepd: error: \*\*\* .{0,200}?CANCELLED AT \S+"), "cancelled"),
    ("Node failure on", re.compile(r"srun: error: Node failure on \S+"), "node_failure"),
    ("No space left on device", None, "disk_full"),
    ("out of memory", re.compile(r"CUDA (?:error: )?out of memory|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY"), "out_of_memory"),
    ("OutOfMemoryError", re.compile(r"torch(?:\.cuda)?\.OutOfMemoryError"), "out_of_memory"),
    ("atchdog", re.compile(r"Watchdog caught collective operation timeout|watchdog got stuck for \d+ seconds"), "nccl_timeout"),
    ("already at minimum", re.compile(r"Current loss scale already at minimum"), "numerics"),
    ("iterations in a row", re.compile(r"Skipped \d+ iterations in a row"), "numerics"),
    ("ECC error", re.compile(r"uncorrectable ECC error", re.IGNORECASE), "gpu_error"),
    ("ChildFailedError", re.compile(r"ChildFailedError(?::|\Z)"), "process_failed"),
)
LITERALS = (*dict.fromkeys(row[0] for row in _TABLE), "OVERFLOW!")
#: What a launcher says when a process has died of any of the others.
_CONSEQUENCES = frozenset({"process_failed", "cancelled"})
_OVERFLOW = re.compile(r"OVERFLOW!.{0,80}?Attempted loss scale: ([\d.e+]{1,40}), reducing to ([\d.e+]{1,40})", re.ASCII)


class Faults:
    """State: the classes already told in this burst."""

    #: Every line that ``feed`` may make anything of holds one of these, letter by letter.
    LITERALS = LITERALS
    #: Whether something is held, so that every further line must be fed, and not only those with a literal.
    is_waiting = False

    def __init__(self, times: LineTimes) -> None:
        self._times = times
        self._told: list[str] = []

    def feed(self, line: str, prefix: str = "") -> list[Event]:
        """The events of one line; most lines cost a few substring searches. ``prefix``: what the launcher wrote before it."""
        for literal in LITERALS:
            if literal in line:
                return self._look(line)
        return []

    def step_seen(self) -> list[Event]:
        """Training goes on: the burst is over."""
        if self._told:
            self._told = []
        return []

    def idle(self) -> list[Event]:
        """Nothing more came for some seconds: what waits is told."""
        return []

    def finish(self) -> list[Event]:
        """The log ends: what waits is told."""
        return []

    def _look(self, line: str) -> list[Event]:
        if found := _OVERFLOW.search(line):
            scale, reduced = parse_number(found[1]), parse_number(found[2])
            if scale is None or reduced is None:
                return []
            data = {"overflow": True, **json_safe({"loss_scale": scale, "loss_scale_next": reduced})}
            return [message(line.strip(), data, None, self._times.find(line[: found.start()]))]
        for literal, pattern, kind in _TABLE:
            if literal in line and (pattern is None or pattern.search(line)):
                if kind in self._told or (kind in _CONSEQUENCES and self._told):
                    return []
                self._told.append(kind)
                time_ns = self._times.find(line[:1000])
                return [
                    Event("fault", time_ns, severity=Severity.CRITICAL, text=line.strip()[:500], data={"class": kind}),
                ]
        return []

    def to_state(self) -> dict[str, Any]:
        return {"told": self._told}

    def restore(self, state: dict[str, Sequence[str]]) -> None:
        self._told = list(state["told"])
