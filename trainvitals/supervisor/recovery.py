"""How a restart goes: its phases with their usual times, and when the run may be called recovered. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainvitals.supervisor.history import Start

PHASES = ("queue", "start", "load", "first_step", "caught_up")
#: Roads on which a start waits in a queue first.
QUEUED = ("resubmit", "requeue")
#: Starts whose times make the usual ones: the newest.
USUAL_OF = 10
RATE_SHARE = 0.98
#: The loss may be above its old level by this share of it, or by the old curve's own spread.
LOSS_SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Phase:
    """seconds: it took, or has taken so far; usual_s: median of earlier starts, None = there were none. is_over: it ended."""

    name: str
    seconds: float
    usual_s: float | None
    is_over: bool


def durations_s(start: Start) -> Mapping[str, float]:
    """Seconds of the phases that ended. A trainer that tells no load has its time in ``first_step``."""
    marks = (start.started_ns, start.running_ns, start.opened_ns, start.loaded_ns, start.first_step_ns, start.caught_up_ns)
    found: dict[str, float] = {}
    before = marks[0]
    for name, at in zip(PHASES, marks[1:], strict=True):
        if at is not None and before is not None:
            found[name] = max(0.0, (at - before) / 1e9)
            before = at
    return found


def phases(starts: Sequence[Start], now_ns: int) -> tuple[Phase, ...]:
    """Of the last start; those before it tell the usual times."""
    if not starts:
        return ()
    *earlier, last = starts
    usual = usual_s(earlier, last.road or QUEUED[0])
    done = durations_s(last)
    found = [Phase(name, done[name], usual[name], True) for name in PHASES if name in done]
    after = max((PHASES.index(name) + 1 for name in done), default=0 if last.road in QUEUED else 1)
    if after < len(PHASES) and last.ended_ns is None:
        spent_s = max(0.0, (now_ns - last.started_ns) / 1e9 - sum(done.values()))
        found.append(Phase(PHASES[after], spent_s, usual[PHASES[after]], False))
    return tuple(found)


def remaining_s(starts: Sequence[Start], now_ns: int) -> float | None:
    """Seconds until the last start has caught up, by the usual times; None when a phase has none yet, 0 when it has."""
    seen = phases(starts, now_ns)
    if not seen:
        return None
    running = next((phase for phase in seen if not phase.is_over), None)
    if running is None:
        return 0.0
    left = 0.0
    for name in PHASES[PHASES.index(running.name) :]:
        usual_s = _usual(starts[:-1], name)
        if usual_s is None and name == "load":
            continue  # a trainer that never tells it
        if usual_s is None:
            return None
        left += max(0.0, usual_s - running.seconds) if name == running.name else usual_s
    return left


def usual_s(starts: Sequence[Start], road: str = "") -> dict[str, float | None]:
    """Usual seconds of each phase, in their order; None = no start has told it yet."""
    return {name: _usual(starts, name) for name in PHASES if name != "queue" or road in QUEUED}


def _usual(starts: Sequence[Start], name: str) -> float | None:
    times = [done[name] for start in starts if name in (done := durations_s(start))]
    return median(times[-USUAL_OF:]) if times else None


@dataclass(frozen=True)
class Look:
    """What is known when somebody asks whether the run is as it was before it died. None = not known.

    peak_step: highest step before. last_step: now. old_curve, new_curve: (step, loss). old_rate, new_rate: throughput.
    verified_step: newest verified checkpoint that this start saved. open_incident: title of a critical one that is open, "" = none.
    """

    peak_step: int | None
    last_step: int | None
    steps_beyond: int
    old_curve: Sequence[tuple[int, float]] = ()
    new_curve: Sequence[tuple[int, float]] = ()
    old_rate: float | None = None
    new_rate: float | None = None
    verified_step: int | None = None
    resumed_step: int | None = None
    open_incident: str = ""


def lacking(look: Look) -> tuple[str, ...]:
    """What is still missing, as short sentences; nothing = it has recovered."""
    missing: list[str] = []
    peak = look.peak_step if look.peak_step is not None else -1
    beyond = (look.last_step if look.last_step is not None else -1) - peak
    if beyond < look.steps_beyond:
        missing.append(f"{max(0, look.steps_beyond - beyond):,} steps until {look.steps_beyond:,} beyond step {peak:,}")
    new = [loss for step, loss in look.new_curve if step > peak]
    old = [loss for _, loss in look.old_curve]
    if beyond >= look.steps_beyond and old and not new:
        missing.append("no finite loss beyond the old steps")
    elif old and new and median(new) > _limit(old):
        missing.append(f"the loss {median(new):.4g} is above its old level {median(old):.4g}")
    if look.old_rate is not None and beyond >= look.steps_beyond:
        if look.new_rate is None:
            missing.append("the throughput is not known yet")
        elif look.new_rate < RATE_SHARE * look.old_rate:
            missing.append(f"the throughput is {look.new_rate / look.old_rate:.0%} of what it was")
    if look.verified_step is None or look.verified_step <= (look.resumed_step if look.resumed_step is not None else -1):
        missing.append("no checkpoint of this start is verified yet")
    if look.open_incident:
        missing.append(f"a critical incident is open: {look.open_incident}")
    return tuple(missing)


def is_level(curve: Sequence[tuple[int, float]], before: Sequence[tuple[int, float]]) -> bool:
    """Whether the losses of ``curve`` are not above those of ``before``; neither is empty."""
    return median(loss for _, loss in curve) <= _limit([loss for _, loss in before])


def _limit(losses: Sequence[float]) -> float:
    ordered, middle = sorted(losses), median(losses)
    return max(ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))], middle + LOSS_SLACK * abs(middle))
