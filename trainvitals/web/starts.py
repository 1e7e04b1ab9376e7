"""Where each start of the trainer went on from, and whether the training went on as before: loss, settings, script."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from trainvitals.incidents.current_attempt import in_order
from trainvitals.records import CheckpointReport, Finding
from trainvitals.store.protocol import Store
from trainvitals.web.changes import arrow, changes_at
from trainvitals.web.view import AttemptView, Start

DAY_NS = 86_400 * 10**9
#: Points before and after the start that are compared.
POINTS = 10
#: So long after its end a start's points may still be on their way.
LATE_NS = 600 * 10**9
#: Newest starts that are told.
MAX_STARTS = 20
SHOWN_CHANGES = 3
WORDS: Mapping[str, str] = {"config_is_equal": "settings", "script_is_equal": "script", "git_is_equal": "commit"}


@dataclass
class StartReader:
    """One for each poller: losses around a start are read until there are enough of them."""

    _before: dict[tuple[str, int, int], float | None] = field(default_factory=dict)
    _after: dict[tuple[str, int], float | None] = field(default_factory=dict)

    def of(
        self, store: Store, run: str, attempts: Sequence[AttemptView], findings: Sequence[Finding],
        history: Sequence[tuple[int, CheckpointReport]], checks: Mapping[int, Mapping[str, Any]], told: Sequence[int], now_ns: int,
    ) -> tuple[Start, ...]:  # fmt: skip
        """Starts that went on from something, oldest first. told: attempts that told what they are made of. Raises what the store
        raises."""
        made = []
        ordered = in_order(attempts)
        for index, attempt in enumerate(ordered):
            step = _from_step(attempt, index)
            if step is None or index < len(ordered) - MAX_STARTS:
                continue
            check = checks.get(attempt.number, {})
            report = _report_at(history, str(check.get("path") or ""), step, attempt)
            path = str(check.get("path") or "") or (report.path if report is not None else "")
            before = self._loss_before(store, run, ordered[:index], step, now_ns)
            told_loss = _number(check.get("loss_before"))
            made.append(
                Start(
                    attempt=attempt.number,
                    from_step=step,
                    first_step=attempt.first_step,
                    path=path,
                    started_ns=attempt.started_ns,
                    loss_before=next(
                        (one for one in (before, told_loss, report.loss if report else None) if one is not None), None
                    ),
                    loss_after=self._loss_after(store, run, attempt, now_ns),
                    settings=_settings(attempt.number, findings, check, told),
                    problem=_problem(check),
                )
            )
        return tuple(made)

    def _loss_before(self, store: Store, run: str, earlier: Sequence[AttemptView], step: int, now_ns: int) -> float | None:
        holder = next((one for one in reversed(earlier) if one.first_step is not None and one.first_step <= step), None)
        if holder is None:
            return None
        key = (run, holder.number, step)
        found = self._before.get(key)
        if key not in self._before:
            time_ns = store.time_of_step(run, holder.number, step)
            losses: list[float] = []
            if time_ns is not None:
                where = {"run": run, "attempt": str(holder.number)}
                frame = store.raw("train", ["step", "loss"], where, 0, time_ns + 1, limit=POINTS, newest_first=True)
                losses = _losses(frame)
            found = statistics.median(losses) if losses else None
            if len(losses) == POINTS or _is_over(holder, now_ns):
                self._before[key] = found
        return found

    def _loss_after(self, store: Store, run: str, attempt: AttemptView, now_ns: int) -> float | None:
        key = (run, attempt.number)
        if key in self._after:
            return self._after[key]
        where = {"run": run, "attempt": str(attempt.number)}
        losses = _losses(store.raw("train", ["step", "loss"], where, 0, now_ns + DAY_NS, limit=POINTS))
        found = statistics.median(losses) if losses else None
        if len(losses) == POINTS or _is_over(attempt, now_ns):
            self._after[key] = found
        return found


def _is_over(attempt: AttemptView, now_ns: int) -> bool:
    """Whether nothing more of it is to come, not even out of a spool."""
    return attempt.ended_ns is not None and now_ns - attempt.ended_ns > LATE_NS


def _from_step(attempt: AttemptView, index: int) -> int | None:
    """A later start that did not say where it goes on from went on from the step before its first one."""
    if attempt.resumed_from_step is not None:
        return attempt.resumed_from_step
    return max(0, attempt.first_step - 1) if index and attempt.first_step is not None else None


def _report_at(
    history: Sequence[tuple[int, CheckpointReport]], path: str, step: int, attempt: AttemptView
) -> CheckpointReport | None:
    """The checkpoint of that path, else the newest of that step that was there when the attempt started."""
    known = [report for _, report in history if (report.path == path if path else report.step == step)]
    before = [one for one in known if one.modified_at_ns is None or one.modified_at_ns <= attempt.started_ns]
    return before[-1] if before else known[0] if known else None


def _settings(attempt: int, findings: Sequence[Finding], check: Mapping[str, Any], told: Sequence[int]) -> str:
    changes = changes_at(findings, attempt)
    if changes is not None and changes.count:
        shown = [f"{one.name} {arrow(one)}" for one in changes.keys[:SHOWN_CHANGES]]
        more = f" and {changes.count - len(shown):,} more" if changes.count > len(shown) else ""
        return f"changed: {', '.join(shown)}{more}"
    answers = {word: check.get(name) for name, word in WORDS.items() if isinstance(check.get(name), bool)}
    changed = [word for word, is_equal in answers.items() if not is_equal]
    if changed:
        return f"changed since it was saved: {', '.join(changed)}"
    if answers:
        return f"as when it was saved: {', '.join(answers)}"
    return "as at the start before" if attempt in told and any(number < attempt for number in told) else "not known"


def _problem(check: Mapping[str, Any]) -> str:
    parts = []
    if check.get("step_is_equal") is False:
        parts.append(f"its manifest is of step {check.get('step')}")
    if check.get("files_missing") or check.get("files_of_other_size"):
        parts.append("files of it were missing or had another size")
    if check.get("has_optimizer") is False:
        parts.append("it has no optimizer state")
    return "; ".join(parts)


def _losses(frame: pd.DataFrame) -> list[float]:
    return [float(value) for value in frame["loss"].dropna()] if "loss" in frame.columns else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
