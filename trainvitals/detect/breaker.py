"""The circuit breaker's decision, pure: (state, what was seen, limits) -> (state, decision).

Why not "pause after N anomalous steps": of 22 real runs whose spikes all healed by themselves, N = 10 pauses 19. A pause is
right when the loss is not a number, or when an incident neither comes back nor heals. N in a row is told (``alert``) and can be made
to pause. Evidence: docs/detection.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

DAY_NS = 86_400_000_000_000
MAX_TIME_NS = 10**20  # whoever tells a time beyond it (year 5138) tells none
MIN_EXCESS = 0.01  # of the level; a run that has made little progress must not trip on its own noise
NO_PROGRESS_EXCESS = 0.10  # of the level; counts as lost progress in a run whose loss never fell below its first
ANY_SHARE_FACTOR = 2  # twice as many points trip whatever their share of the peak


class BreakerLimits(Protocol):
    """What ``trainvitals.settings.BreakerSettings`` holds."""

    @property
    def nonfinite_in_a_row(self) -> int: ...
    @property
    def points(self) -> int: ...
    @property
    def lost_progress(self) -> float: ...
    @property
    def share_of_peak(self) -> float: ...
    @property
    def quiet_start_points(self) -> int: ...
    @property
    def cool_down_points(self) -> int: ...
    @property
    def pauses_per_day(self) -> int: ...
    @property
    def anomalous_in_a_row(self) -> int: ...
    @property
    def anomalous_action(self) -> str: ...


@dataclass(frozen=True)
class DefaultLimits:
    """The defaults of ``[breaker]``, for use without settings; a test keeps the two equal."""

    nonfinite_in_a_row: int = 3
    points: int = 100
    lost_progress: float = 0.02
    share_of_peak: float = 0.30
    quiet_start_points: int = 200
    cool_down_points: int = 500
    pauses_per_day: int = 2
    anomalous_in_a_row: int = 10
    anomalous_action: str = "alert"


@dataclass(frozen=True)
class IncidentSeen:
    """The open loss incident at this point; ``value`` and ``peak`` are medians of five points."""

    level: float
    value: float
    peak: float
    lost_progress: float | None  # share of (initial - level), None when the run has made no progress yet
    first_step: int


@dataclass(frozen=True)
class Seen:
    """One new point. ``loss`` is "missing" when the point simply has none: it neither counts nor resets.

    is_anomalous: not a number, or far above the usual level; counted for the rule of N anomalous points in a row.
    """

    loss: Literal["finite", "nonfinite", "missing"]
    time_ns: int | None = None
    incident: IncidentSeen | None = None
    is_lr_rising: bool = False
    is_anomalous: bool = False


@dataclass(frozen=True)
class BreakerState:
    """All that the decision remembers. ``pauses_ns``: times of trips, None where the source had no time."""

    nonfinite_in_a_row: int = 0
    counted: int = 0
    at_any_share: int = 0
    since_start: int = 0
    cool_down: int = 0
    is_latched: bool = False
    pauses_ns: tuple[int | None, ...] = ()
    anomalous: int = 0

    def to_state(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.__dict__, "pauses_ns": list(self.pauses_ns)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> BreakerState:
        """The inverse of ``to_state``."""
        return cls(**{**state, "pauses_ns": tuple(state["pauses_ns"])})


@dataclass(frozen=True)
class Decision:
    """``pause``: trip now. ``hold``: it would, but something forbids it. ``alert``: N anomalous points in a row, told once.
    ``count``: on the way. ``none``: nothing to see. is_repeated: a hold because this incident has tripped already.
    obstacle: what holds it, in a word: another one is another decision."""

    decision: Literal["none", "count", "alert", "hold", "pause"]
    reason: str = ""
    is_repeated: bool = False
    obstacle: str = field(default="", compare=False)


@dataclass(frozen=True)
class Obstacle:
    """What forbids a pause now. kind: ``cool_down``, ``start``, ``warm_up`` or ``day``. words: a clause, also of what is left."""

    kind: str
    words: str


def started(state: BreakerState) -> BreakerState:
    """A start or resume: a quiet time begins and nothing is counted any more."""
    return replace(state, nonfinite_in_a_row=0, counted=0, at_any_share=0, since_start=0, is_latched=False, anomalous=0)


def handled_by_person(state: BreakerState, limits: BreakerLimits) -> BreakerState:
    """A person paused or resumed: they are looking; stay out of their way for a while."""
    return replace(
        state, cool_down=limits.cool_down_points, nonfinite_in_a_row=0, counted=0, at_any_share=0, is_latched=False, anomalous=0
    )


def decide(state: BreakerState, seen: Seen, limits: BreakerLimits) -> tuple[BreakerState, Decision]:
    """Take one point; the reason of every decision but ``none`` is a sentence."""
    state = _count(state, seen, limits)
    cause, is_nonfinite = _cause(state, seen, limits)
    if cause is None:
        in_a_row = max(1, limits.anomalous_in_a_row)
        is_news = state.anomalous == in_a_row and not state.is_latched
        if seen.is_anomalous and is_news and limits.anomalous_action == "alert":
            return state, Decision("alert", f"{in_a_row} anomalous points in a row; most such spikes heal by themselves")
        return state, _progress(state, limits)
    if state.is_latched:
        return state, Decision("hold", f"{cause}; already tripped for this incident", is_repeated=True)
    forbidden = obstacle(state, limits, seen.time_ns, is_lr_rising=seen.is_lr_rising, is_nonfinite=is_nonfinite)
    if forbidden is not None:
        return state, Decision("hold", f"{cause}, but {forbidden.words}", obstacle=forbidden.kind)
    kept = tuple(at for at in state.pauses_ns if _is_today(at, seen.time_ns))
    return replace(state, is_latched=True, pauses_ns=(*kept, seen.time_ns)), Decision("pause", cause)


def _count(state: BreakerState, seen: Seen, limits: BreakerLimits) -> BreakerState:
    nonfinite, counted, at_any_share, is_latched = state.nonfinite_in_a_row, state.counted, state.at_any_share, state.is_latched
    anomalous = state.anomalous
    if seen.loss != "missing":
        anomalous = anomalous + 1 if seen.is_anomalous else 0
    incident = seen.incident
    if seen.loss == "nonfinite":
        nonfinite += 1
    elif seen.loss == "finite":
        nonfinite = 0
        if incident is None and not seen.is_anomalous:
            is_latched = False
        if incident is None or not _is_lost(incident, limits):
            counted = at_any_share = 0
        else:
            is_near_peak = incident.value - incident.level >= limits.share_of_peak * (incident.peak - incident.level)
            counted = counted + 1 if is_near_peak else 0
            at_any_share += 1
    cool_down = state.cool_down - 1 if state.cool_down > 0 else 0
    return BreakerState(
        nonfinite, counted, at_any_share, state.since_start + 1, cool_down, is_latched, state.pauses_ns, anomalous
    )


def _is_lost(incident: IncidentSeen, limits: BreakerLimits) -> bool:
    excess, size = incident.value - incident.level, abs(incident.level)
    if incident.lost_progress is None:
        return excess >= NO_PROGRESS_EXCESS * size
    return incident.lost_progress >= limits.lost_progress and excess >= MIN_EXCESS * size


def _cause(state: BreakerState, seen: Seen, limits: BreakerLimits) -> tuple[str | None, bool]:
    if state.nonfinite_in_a_row >= max(1, limits.nonfinite_in_a_row):
        return f"loss is not a number for {state.nonfinite_in_a_row} points in a row (limit {limits.nonfinite_in_a_row})", True
    in_a_row = max(1, limits.anomalous_in_a_row)
    if limits.anomalous_action == "pause" and seen.is_anomalous and state.anomalous >= in_a_row:
        return f"{state.anomalous} anomalous points in a row (limit {in_a_row})", False
    incident = seen.incident
    if incident is None or seen.loss != "finite":
        return None, False
    since = f"since step {incident.first_step:,}: {incident.value:.4g} instead of {incident.level:.4g}"
    if state.counted >= limits.points:
        share = round(100 * limits.share_of_peak)
        return (
            f"loss has not come back {since}, for {state.counted} points above {share} % of its peak (limit {limits.points})",
            False,
        )
    if state.at_any_share >= ANY_SHARE_FACTOR * limits.points:
        limit = ANY_SHARE_FACTOR * limits.points
        return f"loss has not come back {since}, for {state.at_any_share} points (limit {limit})", False
    return None, False


def obstacle(
    state: BreakerState, limits: BreakerLimits, now_ns: int | None, *, is_lr_rising: bool, is_nonfinite: bool = False
) -> Obstacle | None:
    """What forbids a pause now, whether or not there is a cause for one; of several the one that lasts longest comes first."""
    today = [at for at in state.pauses_ns if _is_today(at, now_ns)]
    if len(today) >= limits.pauses_per_day:
        return Obstacle("day", _used_up(today, limits.pauses_per_day))
    if state.cool_down > 0:
        return Obstacle("cool_down", f"a person paused or resumed; disarmed for {state.cool_down} more points")
    if not is_nonfinite and state.since_start <= limits.quiet_start_points:
        quiet = limits.quiet_start_points
        return Obstacle("start", f"only {state.since_start} of {quiet} quiet points have passed since the start or resume")
    if not is_nonfinite and is_lr_rising:
        return Obstacle("warm_up", "the learning rate is still being warmed up")
    return None


def _used_up(today: list[int | None], limit: int) -> str:
    """The limit of a day, and when there is a pause again: as soon as the oldest of those that fill it is a day old."""
    if limit <= 0:
        return "automatic pauses are switched off ([breaker] pauses_per_day = 0)"
    used = f"{len(today)} of {limit} automatic pauses of the last 24 h are used: it only alerts now"
    times = sorted(at for at in today if at is not None)
    over = len(today) - limit  # more than one must grow old where the limit was lowered
    if len(times) < len(today) or not -MAX_TIME_NS < times[over] < MAX_TIME_NS:
        return used
    return f"{used}; next one at {datetime.fromtimestamp((times[over] + DAY_NS) // 10**9, UTC):%H:%M} UTC"


def _is_today(at_ns: int | None, now_ns: int | None) -> bool:
    return at_ns is None or now_ns is None or now_ns - at_ns < DAY_NS


def _progress(state: BreakerState, limits: BreakerLimits) -> Decision:
    if state.nonfinite_in_a_row:
        return Decision("count", f"{state.nonfinite_in_a_row} of {limits.nonfinite_in_a_row} non-finite points in a row")
    if state.at_any_share:
        return Decision(
            "count", f"{state.counted} of the {limits.points} points after which it acts, if the loss does not come back"
        )
    return Decision("none")
