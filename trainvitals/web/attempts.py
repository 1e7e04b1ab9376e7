"""Starts of the trainer as the pages show them, from attempt and resume events; the running one also from its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainvitals.records import Event
from trainvitals.web.metrics import Row
from trainvitals.web.view import AttemptView

#: A phase that began longer ago than this no longer explains missing steps.
PHASE_TRUSTED_NS = 30 * 60 * 10**9


@dataclass
class _Attempt:
    number: int
    started_ns: int = 0
    first_step: int | None = None
    last_step: int | None = None
    resumed_from_step: int | None = None
    ended_ns: int | None = None
    end_reason: str = ""


def attempts_of(
    events: Sequence[Event], rows: Sequence[Row], last_step_of: Callable[[int], int | None]
) -> tuple[AttemptView, ...]:
    """Attempts by number. ``rows``: newest training rows; ``last_step_of`` asks the store for an attempt that told no end."""
    known: dict[int, _Attempt] = {}
    for event in events:
        number = _number(event)
        if number is None:
            continue
        attempt = known.setdefault(number, _Attempt(number))
        if event.kind == "attempt_start":
            attempt.started_ns = event.time_ns or attempt.started_ns
            attempt.first_step = _step(event.data.get("first_step"), attempt.first_step)
            attempt.resumed_from_step = _step(event.data.get("resumed_from_step"), attempt.resumed_from_step)
        elif event.kind == "attempt_end":
            attempt.ended_ns = event.time_ns
            attempt.last_step = _step(event.data.get("last_step"), event.step)
            attempt.end_reason = str(event.data.get("reason") or event.text or "")
        else:
            attempt.resumed_from_step = _step(event.step, attempt.resumed_from_step)
            attempt.started_ns = attempt.started_ns or event.time_ns or 0
    for row in rows:
        attempt = known.setdefault(row.attempt, _Attempt(row.attempt, started_ns=row.time_ns, first_step=row.step))
        if attempt.ended_ns is not None and row.time_ns > attempt.ended_ns:
            attempt.ended_ns, attempt.end_reason = None, ""  # it said goodbye and went on: believe its steps
        attempt.last_step = max(attempt.last_step or row.step, row.step)
        if attempt.first_step is None:
            attempt.first_step = row.step
    numbers = sorted(known)
    newest = numbers[-1] if numbers else 0
    seen = {row.attempt for row in rows}
    for number in numbers:
        attempt = known[number]
        if attempt.last_step is None and number not in seen:
            attempt.last_step = last_step_of(number)
        if attempt.ended_ns is None and number != newest:
            attempt.ended_ns, attempt.end_reason = known[newest].started_ns, "followed by a new start"
    return tuple(_superseded(_view(known[number]), [known[later] for later in numbers if later > number]) for number in numbers)


def _view(attempt: _Attempt) -> AttemptView:
    return AttemptView(
        attempt.number, attempt.started_ns, attempt.first_step, attempt.last_step, attempt.resumed_from_step, None,
        attempt.ended_ns, attempt.end_reason,
    )  # fmt: skip


def _superseded(view: AttemptView, later: Sequence[_Attempt]) -> AttemptView:
    starts = [attempt.first_step for attempt in later if attempt.first_step is not None]
    again = min(starts, default=None)
    if again is None or view.last_step is None or again > view.last_step:
        return view
    return replace(view, superseded_from=max(again, view.first_step or again))


def _number(event: Event) -> int | None:
    if event.attempt is not None:
        return event.attempt
    value = event.data.get("attempt")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _step(value: object, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def phase_of(events: Sequence[Event], attempt: AttemptView | None, now_ns: int, last: Row | None = None) -> str:
    """The phase the running attempt is in, "" when it trains or when what it said is too old to trust. ``finished`` does not
    grow old: it holds until a step (``last``: the newest), a start or training comes after it."""
    is_open: dict[str, int] = {}
    is_finished = False
    for event in events:
        if attempt is not None and event.attempt is not None and event.attempt != attempt.number:
            continue
        name = str(event.data.get("phase", ""))
        if event.data.get("state") == "end":
            is_open.pop(name, None)
        elif name == "finished":
            # Its own time may be of another zone than that of the steps; its step says the same without a clock.
            told = event.step is not None and last is not None and event.step >= last.step
            is_finished = told or last is None or (event.time_ns or 0) >= last.time_ns
        elif name in ("train", "start"):
            is_finished = False
            is_open.clear()
            if name == "start":
                is_open[name] = event.time_ns or 0
        elif name:
            is_open[name] = event.time_ns or 0
    if is_finished:
        return "finished"
    recent = {name: began for name, began in is_open.items() if now_ns - began <= PHASE_TRUSTED_NS}
    return max(recent, key=lambda name: recent[name], default="")
