"""How each state of a checkpoint looks, whose checkpoint it is, and the short strip of the newest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainvitals.charts.text import plain
from trainvitals.incidents.current_attempt import in_order
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

STRIP_CELLS = 16
#: state -> (palette role, glyph): a shape for each, so that the colour never speaks alone.
LOOKS: Mapping[CheckpointState, tuple[str, str]] = {
    CheckpointState.VERIFIED: ("ok", "✓"),
    CheckpointState.COMPLETE: ("ok", "·"),
    CheckpointState.VERIFYING: ("info", "…"),
    CheckpointState.WRITING: ("faint", "↓"),
    CheckpointState.STAGED: ("faint", "↓"),
    CheckpointState.INCOMPLETE: ("warning", "!"),
    CheckpointState.CORRUPT: ("critical", "✕"),
    CheckpointState.UNKNOWN_FORMAT: ("warning", "?"),
    CheckpointState.DELETING: ("faint", "–"),
    CheckpointState.DELETED: ("faint", "–"),
}
#: A checkpoint that may be whole and still hold damaged weights: it must not look like a good one.
SUSPECT_LOOK = ("warning", "!")
WHOLE = frozenset({CheckpointState.VERIFIED, CheckpointState.COMPLETE, CheckpointState.VERIFYING})
NONE_SUSPECT: Mapping[str, int] = {}
DAMAGED = frozenset({CheckpointState.CORRUPT, CheckpointState.INCOMPLETE})
GOING = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})
_STRONG = (VerificationLevel.CONTENT, VerificationLevel.LOAD)


class Attempt(Protocol):
    """What is needed of an attempt (``AttemptView`` has it)."""

    @property
    def number(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...


def attempt_of(checkpoint: CheckpointReport, attempts: Sequence[Attempt]) -> int:
    """Number of the attempt that wrote it: the last one started before it was written, else the last that had begun by
    its step, else 0 (not known)."""
    ordered = in_order(attempts)
    if checkpoint.modified_at_ns is not None:
        before = [a.number for a in ordered if a.started_ns <= checkpoint.modified_at_ns]
        if before:
            return before[-1]
    if checkpoint.step is not None:
        before = [a.number for a in ordered if a.first_step is not None and a.first_step <= checkpoint.step]
        if before:
            return before[-1]
    return ordered[0].number if ordered else 0


def suspicion(onset: int | None) -> str:
    """Why a checkpoint that verifies may not be gone back to; empty for None."""
    return "" if onset is None else f"suspect: saved at or after the onset of an incident, step {onset:,}"


def describe(checkpoint: CheckpointReport, onset: int | None = None) -> str:
    """One line: step, state with its level, size, first reason. onset: step of the incident that makes it suspect."""
    step = f"step {checkpoint.step:,}" if checkpoint.step is not None else "step unknown"
    state = checkpoint.state.value.replace("_", " ")
    level = f" ({checkpoint.level.value})" if checkpoint.level is not None else ""
    size = f" · {checkpoint.bytes / 1e9:.3g} GB" if checkpoint.bytes >= 1e8 else f" · {checkpoint.bytes / 1e6:.3g} MB"
    optimizer = " · no optimizer state" if checkpoint.has_optimizer is False else ""
    reason = f" · {'; '.join(checkpoint.reasons[:3])}" if checkpoint.reasons else ""
    doubt = f" · {suspicion(onset)}" if onset is not None else ""
    return plain(f"{step} · {state}{level}{doubt}{size}{optimizer}{reason}", 240)


def lanes_of(history: Sequence[tuple[int, CheckpointReport]], attempts: Sequence[Attempt]) -> list[tuple[int, CheckpointReport]]:
    """(attempt that wrote it, report): what each attempt left at each path. ``history``: (attempt that ran when it was
    reported, 0 = not known; report), of a path in the order of attempts.

    A report is of the attempt that wrote the files, which may have ended before they were verified or deleted. A damaged
    checkpoint stays damaged here when it goes away.
    """
    placed: dict[tuple[str, int], CheckpointReport] = {}
    lane_of: dict[str, int] = {}
    for reported_in, report in history:
        if report.state in GOING and report.path in lane_of:
            lane = lane_of[report.path]
        elif report.modified_at_ns is not None or not reported_in:
            lane = attempt_of(report, attempts)
        else:
            lane = reported_in
        known = placed.get((report.path, lane))
        if known is None or known.state not in DAMAGED or report.state not in GOING:
            placed[report.path, lane] = report
        lane_of[report.path] = lane
    return [(lane, report) for (_, lane), report in placed.items()]


def strip(
    checkpoints: Sequence[CheckpointReport], recommended: CheckpointReport | None, suspects: Mapping[str, int] = NONE_SUSPECT
) -> list[dict[str, Any]]:
    """Cells for ``checkpoint_strip``: the newest 16 by step, oldest first; the recommended one is always among them.
    suspects: path -> onset of the incident that makes it suspect."""
    order = sorted(checkpoints, key=lambda one: (one.step if one.step is not None else -1, one.modified_at_ns or 0))
    shown = order[-STRIP_CELLS:]
    safe_path = recommended.path if recommended is not None else None
    if safe_path is not None and all(one.path != safe_path for one in shown):
        older = [one for one in order if one.path == safe_path]
        shown = [*older[:1], *shown[-(STRIP_CELLS - 1) :]] if older else shown
    return [_cell(one, suspects.get(one.path), is_recommended=one.path == safe_path) for one in shown]


def _cell(checkpoint: CheckpointReport, onset: int | None, *, is_recommended: bool) -> dict[str, Any]:
    onset = onset if checkpoint.state in WHOLE else None
    role, glyph = LOOKS[checkpoint.state] if onset is None else SUSPECT_LOOK
    return {
        "path": checkpoint.path,
        "step": checkpoint.step,
        "label": f"{checkpoint.step:,}" if checkpoint.step is not None else "?",
        "state": checkpoint.state.value,
        "level": checkpoint.level.value if checkpoint.level is not None else None,
        "tone": role,
        "glyph": glyph,
        "is_strong": onset is None and checkpoint.state is CheckpointState.VERIFIED and checkpoint.level in _STRONG,
        "is_recommended": is_recommended,
        "title": describe(checkpoint, onset),
    }
