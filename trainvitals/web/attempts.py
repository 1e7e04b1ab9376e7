"""Starts of the trainer as the pages show them, from attempt and resume events; the running one also from its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainvitals.incidents.current_attempt import in_order
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
    point_ns: int | None = None

    @property
    def newest_ns(self) -> int | None:
        told_ns = self.ended_ns if self.point_ns is None else self.point_ns
        return max(self.started_ns, told_ns or 0) or None


def attempts_of(
    events: Sequence[Event], rows: Sequence[Row], last_of: Callable[[int], tuple[int, int] | None]
) -> tuple[AttemptView, ...]:
    """Attempts as they ran, the current one last (``current_attempt``). ``rows``: newest training rows; ``last_of`` asks the store for
    the last step, and its time in UTC ns, of an attempt that told no end."""
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
        attempt.point_ns = max(attempt.point_ns or row.time_ns, row.time_ns)
        if attempt.first_step is None:
            attempt.first_step = row.step
    for attempt in known.values():
        last = last_of(attempt.number) if attempt.last_step is None else None
        if last is not None:
            attempt.last_step, attempt.point_ns = last
    ordered = in_order(list(known.values()))
    views = [_view(attempt) for attempt in ordered]
    for place, view in enumerate(views[:-1]):
        if view.ended_ns is None:
            # One that was numbered after the current one is an old log: it ended by its own times.
            ended_ns = views[-1].started_ns if view.number < views[-1].number else view.newest_ns
            views[place] = replace(view, ended_ns=ended_ns, end_reason="followed by a new start")
    return tuple(_superseded(view, ordered[place + 1 :]) for place, view in enumerate(views))


def _view(attempt: _Attempt) -> AttemptView:
    return AttemptView(
        attempt.number, attempt.started_ns, attempt.first_step, attempt.last_step, attempt.resumed_from_step, None,
        attempt.ended_ns, attempt.end_reason, attempt.newest_ns,
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
