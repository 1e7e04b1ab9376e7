"""What all detectors of a run share: where the run stands (``Context``), and the book of findings (``Ledger``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from trainvitals.detect.state import Stateful
from trainvitals.records import Finding, Severity

DEFAULT_SILENCE_POINTS = 500
#: How a finding ends when a person says that it was meant; its ``data.is_expected`` is true then.
EXPECTED = "; expected, says a note"


class Context(Stateful):
    """Where the run stands. The engine writes it, detectors read it.

    points: new points so far, over all attempts. loss: this point's loss if it is finite and believed, else None.
    has_had_loss: a finite one was logged at all, or should have been by now.
    """

    STATE = (
        "attempt", "step", "time_ns", "points", "attempt_points", "since_pause_points", "rewinds", "is_paused", "is_ended",
        "loss", "loss_is_bad", "has_had_loss", "silences", "gap_steps",
    )  # fmt: skip

    def __init__(self, run: str = "") -> None:
        self.run = run
        self.attempt = 1
        self.step = 0
        self.time_ns: int | None = None
        self.points = 0
        self.attempt_points = 0
        self.since_pause_points = 0
        self.rewinds = 0
        self.is_paused = False
        self.is_ended = False
        self.loss: float | None = None
        self.loss_is_bad = False
        self.has_had_loss = False
        self.silences: dict[str, int] = {}
        self.gap_steps = 1

    def silence(self, rules: Iterable[str], points: int) -> None:
        """Open nothing of these rules for ``points`` points from now."""
        for rule in rules:
            self.silences[rule] = max(self.silences.get(rule, 0), self.points + points)

    def is_silenced(self, rule: str) -> bool:
        """Whether a person's note says that this rule is to open nothing now."""
        return bool(self.silences) and self.points <= self.silences.get(rule, -1)


class Ledger(Stateful):
    """Open findings of one detector and what has changed since ``drain``; keeps ids deterministic.

    At most one finding per rule is open, which is what bounds the memory.
    """

    STATE = ("_stored",)

    def __init__(self, context: Context, family: str) -> None:
        self._context = context
        self._family = family
        self._changed: list[Finding] = []
        self.open: dict[str, Finding] = {}

    @property
    def _stored(self) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in self.open.values()]

    @_stored.setter
    def _stored(self, stored: list[dict[str, Any]]) -> None:
        self.open = {item["rule"]: Finding(**{**item, "severity": Severity(item["severity"])}) for item in stored}

    @property
    def has_news(self) -> bool:
        """Whether ``drain`` would return anything."""
        return bool(self._changed)

    def drain(self) -> list[Finding]:
        """What was opened, escalated or closed since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, []
        return changed

    def open_finding(
        self,
        rule: str,
        severity: Severity,
        message: str,
        *,
        first_step: int | None = None,
        value: float | None = None,
        expected: float | None = None,
        data: Mapping[str, Any] | None = None,
        time_ns: int | None = None,
        is_open: bool = True,
    ) -> Finding | None:
        """Open a finding at the current step, or return None when the rule is silenced or already open."""
        context = self._context
        if rule in self.open or context.is_silenced(rule):
            return None
        suffix = f"/rewind{context.rewinds}" if context.rewinds else ""
        finding = Finding(
            id=f"{context.run}/{context.attempt}/{rule}/{context.step}{suffix}",
            rule=rule,
            family=self._family,
            severity=severity,
            first_step=context.step if first_step is None else first_step,
            detected_step=context.step,
            last_step=None if is_open else context.step,
            attempt=context.attempt,
            time_ns=context.time_ns if time_ns is None else time_ns,
            value=_finite(value),
            expected=_finite(expected),
            message=message,
            is_open=is_open,
            data=_json_data(data),
        )
        if is_open:
            self.open[rule] = finding
        self._changed.append(finding)
        return finding

    def mark(self, rule: str, severity: Severity, message: str, **details: Any) -> Finding | None:
        """A finding that is over at once."""
        return self.open_finding(rule, severity, message, is_open=False, **details)

    def tell_again(self, finding: Finding) -> None:
        """A finding that was over at once and of which more is known now; same id."""
        self._changed.append(finding)

    def escalate(
        self,
        rule: str,
        severity: Severity,
        message: str,
        *,
        value: float | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise an open finding; does nothing when it is not open or already as severe."""
        before = self.open.get(rule)
        if before is None or severity.rank <= before.severity.rank:
            return
        finding = replace(
            before,
            severity=severity,
            message=message,
            value=before.value if value is None else _finite(value),
            detected_step=self._context.step if before.severity is Severity.INFO else before.detected_step,
            data={**before.data, **_json_data(data)},
        )
        self.open[rule] = finding
        self._changed.append(finding)

    def amend(self, finding: Finding) -> None:
        """Tell a finding again with more in its message or data; whether it is open does not change."""
        if finding.rule in self.open and self.open[finding.rule].id == finding.id:
            self.open[finding.rule] = finding
        self._changed.append(finding)

    def close(self, rule: str, last_step: int | None = None, ending: str = "", **data: Any) -> Finding | None:
        """Close an open finding and return it; ``ending`` is added to its message (``"; back to 2.31 at step 48,300"``)."""
        before = self.open.pop(rule, None)
        if before is None:
            return None
        end = self._context.step if last_step is None else last_step
        if ending == EXPECTED:
            data["is_expected"] = True
        closed = replace(
            before,
            is_open=False,
            last_step=max(end, before.first_step),
            message=before.message + ending,
            data={**before.data, **_json_data(data)},
        )
        self._changed.append(closed)
        return closed


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def format_step(step: int) -> str:
    """``48,210``"""
    return f"{step:,}"


def format_value(value: float) -> str:
    """A loss or a norm as people write it: three significant digits, at least two decimals below a hundred."""
    size = abs(value)
    if size >= 1e5 or (0 < size < 1e-3):
        return f"{value:.3g}"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 1 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3g}"


def format_change(usual: float, value: float) -> str:
    """``2.31 → 2.94``, with as many digits as it takes to show a difference."""
    before, after = format_value(usual), format_value(value)
    for digits in (3, 4, 5):
        if before != after:
            break
        before, after = f"{usual:.{digits}f}", f"{value:.{digits}f}"
    return f"{before} → {after}"


def format_duration(seconds: float) -> str:
    """``4 min 10 s``: the two largest units."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if whole < 60:
        return f"{whole} s"
    for size, unit, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def format_count(count: int, noun: str) -> str:
    """``1 point``, ``3 points``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _json_data(data: Mapping[str, Any] | None) -> dict[str, Any]:
    """A ratio of extreme values overflows to infinity, which JSON does not have: null."""
    return {name: _finite(value) if isinstance(value, float) else value for name, value in (data or {}).items()}
