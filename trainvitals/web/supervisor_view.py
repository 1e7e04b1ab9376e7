"""What a run's supervisor does, out of its events: a restart in its phases, why it holds, what a recovery still lacks. Pure.

The events are read from the store, so the page knows the same wherever it runs (docs/supervisor.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainvitals.records import Event

DAY_NS = 86_400 * 10**9
#: Phases of a start in their order, for a supervisor that does not name them itself.
PHASES = ("start", "load", "first_step", "caught_up")
#: Ends that somebody wished; the others count against the restarts of a day.
WISHED = frozenset({"finished", "stopped", "parked", "rollback", "shutdown"})
MAX_PHASES = 12
MAX_LACKING = 12
MAX_TEXT = 600


@dataclass(frozen=True)
class Phase:
    """One phase of a start. seconds: it took, None = it is not over. usual_s: of earlier starts, None = there were none."""

    name: str
    seconds: float | None = None
    usual_s: float | None = None


@dataclass(frozen=True)
class SupervisorView:
    """state: "" (no supervisor ever spoke), running, going_back, ended, waiting, stopped, held or done. text: what it said of that. attempt,
    started_ns, resume_step: of the newest start; phase_began_ns: when the phase that goes on began, None = none goes on.

    lacking: what a recovery still needs, as told at lacking_ns; recovered_ns: when the run was as before. deaths: ends in 24 h that nobody wished, against
    ``budget`` restarts. limit_ns: when the job's time limit ends it, None = not known.
    """

    state: str = ""
    text: str = ""
    since_ns: int | None = None
    attempt: int = 0
    started_ns: int | None = None
    resume_step: int | None = None
    phases: tuple[Phase, ...] = ()
    phase_began_ns: int | None = None
    lacking: tuple[str, ...] = ()
    lacking_ns: int | None = None
    recovered_ns: int | None = None
    recovered_text: str = ""
    deaths: int = 0
    budget: int = 0
    limit_ns: int | None = None

    @property
    def going_on(self) -> Phase | None:
        """The phase that is under way."""
        if self.state != "running" or self.phase_began_ns is None:
            return None
        return next((phase for phase in self.phases if phase.seconds is None), None)

    def left_s(self, now_ns: int) -> float | None:
        """Seconds until the start has caught up, by the usual times; None when one that is needed is not known, or nothing goes on."""
        now = self.going_on
        if now is None or self.phase_began_ns is None:
            return None
        left = 0.0
        for phase in self.phases[self.phases.index(now) :]:
            if phase.usual_s is None and phase.name == "load":
                continue  # a trainer that never tells it
            if phase.usual_s is None:
                return None
            spent_s = (now_ns - self.phase_began_ns) / 1e9 if phase is now else 0.0
            left += max(0.0, phase.usual_s - max(0.0, spent_s))
        return left


def supervisor_view(events: Sequence[Event], budget: int, now_ns: int) -> SupervisorView:
    """Of the events of kind ``supervisor``, in any order. budget: restarts in 24 h."""
    told = sorted((event for event in events if event.kind == "supervisor"), key=lambda event: event.time_ns or 0)
    if not told:
        return SupervisorView()
    start = _newest(told, "started")
    of_start = [event for event in told if start is not None and _time(event) >= _time(start)]
    view = replace(
        _state(told), deaths=_deaths(told, now_ns), budget=budget, limit_ns=_limit_ns(of_start, now_ns)
    )  # fmt: skip
    if start is None:
        return view
    attempt = _whole(start.data.get("attempt")) or 0
    mine = [event for event in of_start if _whole(event.data.get("attempt")) == attempt]
    recovered, lacks = _newest(mine, "recovered"), _newest(mine, "recovering")
    is_over = _newest(mine, "ended") is not None
    phases, began_ns = _phases(start, mine, has_peak=_has_peak(told, start))
    missing = lacks.data.get("lacking") if lacks is not None and recovered is None and not is_over else None
    return replace(
        view, attempt=attempt, started_ns=start.time_ns, resume_step=start.step, phases=phases,
        phase_began_ns=None if is_over or recovered is not None else began_ns,
        lacking=tuple(str(one)[:MAX_TEXT] for one in missing[:MAX_LACKING]) if isinstance(missing, list) else (),
        lacking_ns=lacks.time_ns if lacks is not None else None,
        recovered_ns=recovered.time_ns if recovered is not None else None,
        recovered_text=recovered.text[:MAX_TEXT] if recovered is not None else "",
    )  # fmt: skip


def _state(told: Sequence[Event]) -> SupervisorView:
    """What it does now: the newest of the events that say so."""
    words = {
        "started": "running", "adopted": "running", "ended": "ended", "waiting": "waiting", "stopped": "stopped", "held": "held",
        "gave_up": "held", "released": "waiting", "done": "done", "storage_hangs": "waiting",
    }  # fmt: skip
    found = SupervisorView()
    for event in told:
        state = words.get(str(event.data.get("state")))
        if "rollback" in (event.data.get("kind"), event.data.get("why")):
            state = "going_back"
        # Within the same millisecond an end may be stored after what followed it.
        is_late_end = state == "ended" and found.since_ns is not None and _time(event) - found.since_ns < 2_000_000
        if state is None or (is_late_end and found.state in ("waiting", "held", "stopped", "done")):
            continue
        reason = event.data.get("reason")
        text = str(reason) if state == "held" and isinstance(reason, str) and reason else event.text
        found = SupervisorView(state, text[:MAX_TEXT], event.time_ns)
    return found


def _phases(start: Event, mine: Sequence[Event], *, has_peak: bool) -> tuple[tuple[Phase, ...], int | None]:
    """Phases of the newest start, and when the one that goes on began. Without steps of an earlier start there is nothing to catch up."""
    usual = start.data.get("usual_s")
    usual = usual if isinstance(usual, Mapping) else {}
    names = [str(name)[:40] for name in usual][:MAX_PHASES] or list(PHASES)
    over = {str(event.data.get("phase")): event for event in mine if event.data.get("state") == "phase"}
    names += [name for name in over if name not in names][:MAX_PHASES]
    if not has_peak:
        names = [name for name in names if name != "caught_up"]
    last = max((names.index(name) for name in over if name in names), default=-1)
    phases = []
    for place, name in enumerate(names):
        told = over.get(name)
        if told is None and place < last:
            continue  # it was never told: a trainer without a load of its own
        phases.append(Phase(name, _seconds(told.data.get("seconds")) if told is not None else None, _seconds(usual.get(name))))
    began_ns = max((_time(event) for event in over.values()), default=_time(start))
    return tuple(phases), began_ns if last + 1 < len(names) else None


def _has_peak(told: Sequence[Event], start: Event) -> bool:
    return any(event.data.get("state") == "ended" and event.step is not None and _time(event) <= _time(start) for event in told)


def _deaths(told: Sequence[Event], now_ns: int) -> int:
    """As the supervisor counts them: within 24 h, and since a person last let it go on."""
    released = max((_time(event) for event in told if event.data.get("state") == "released"), default=0)
    from_ns = max(now_ns - DAY_NS, released)
    return sum(
        event.data.get("state") == "ended" and str(event.data.get("kind")) not in WISHED and _time(event) > from_ns
        for event in told
    )


def _limit_ns(of_start: Sequence[Event], now_ns: int) -> int | None:
    event = _newest(of_start, "time_limit_near")
    ends_at_ns = _whole(event.data.get("ends_at_ns")) if event is not None else None
    is_over = _newest(of_start, "ended") is not None
    return ends_at_ns if ends_at_ns is not None and ends_at_ns > now_ns and not is_over else None


def _newest(told: Sequence[Event], state: str) -> Event | None:
    return next((event for event in reversed(told) if event.data.get("state") == state), None)


def _time(event: Event) -> int:
    return event.time_ns or 0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e9 else None
