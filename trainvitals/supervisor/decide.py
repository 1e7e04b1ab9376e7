"""What follows an end: start, wait, hold, give up, or done; from the history alone. Pure: time and chance are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainvitals.settings_sections import SupervisorSettings
from trainvitals.supervisor.exits import POLICIES
from trainvitals.supervisor.history import History, Start

DAY_NS = 86_400 * 10**9
#: Back-offs are longer or shorter by up to this share, so that the runs of a cluster do not start again in step.
JITTER = 0.2
_WISHED = frozenset({"finished", "stopped", "parked", "rollback", "shutdown"})


@dataclass(frozen=True, slots=True)
class Begin:
    """Start now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Start at ``until_ns`` (UTC)."""

    until_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Start nothing until a person resumes the run. rule: the name of the finding, "" = none."""

    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End with an error: it can never work like this."""

    reason: str
    code: int = 1


@dataclass(frozen=True, slots=True)
class Done:
    """End; ``code``: the supervisor's exit code."""

    code: int
    reason: str


Decision = Begin | Wait | Hold | GiveUp | Done


def decide(history: History, settings: SupervisorSettings, now_ns: int, chance: float = 0.5) -> Decision:
    """``chance``: 0 to 1, of the jitter. Only for a history whose last start is over, and that is ``not_ahead_of`` now."""
    last = history.last
    if last is None:
        return Begin("the first start")
    policy = POLICIES.get(last.kind, POLICIES["unknown"])
    if last.number <= history.released:
        return Begin("somebody resumed the run" if last.kind == "stopped" else "a person let it go on")
    if last.kind == "finished":
        return Done(0, "the training is finished")
    if last.kind == "parked":
        return Done(75, "the trainer is parked: it saved and released its nodes")
    if last.kind == "shutdown":
        # Whoever ended the supervisor starts it again; then the run goes on.
        return Begin("the supervisor was started again")
    if last.kind in ("stopped", "rollback"):
        return Begin("somebody resumed the run" if last.kind == "stopped" else "going back as asked")
    since = _since_a_person(history)
    if policy.action == "give_up":
        if not any(one.first_step is not None for one in history.starts):
            return GiveUp(
                f"the trainer cannot start: {last.sentence}. Nothing is tried again: {policy.why}. When it is mended, start run again"
            )
        return Hold(f"the trainer cannot start: {last.sentence}. {_sentence(policy.why)}", "restart_failed")
    if policy.action == "hold":
        return Hold(f"{last.sentence}. {_sentence(policy.why)}", "resume_behind" if last.kind == "resumed_behind" else "")
    return _in_place(since, settings) or _budget(history, since, settings, now_ns) or _back_off(since, settings, now_ns, chance)


def _since_a_person(history: History) -> list[Start]:
    """Deaths in a row that nobody wished, since a person last let it go on."""
    found: list[Start] = []
    for one in reversed(history.starts):
        if one.kind in _WISHED or one.number <= history.released:
            break
        found.insert(0, one)
    return found


def _in_place(since: Sequence[Start], settings: SupervisorSettings) -> Hold | None:
    """Deaths that got nowhere: before the first step, or with the same newest safe checkpoint."""
    last = since[-1]
    limit = max(1, settings.deaths_in_place)
    stillborn = _length(since, lambda one: one.first_step is None)
    if stillborn >= limit:
        return Hold(f"{stillborn} starts in a row died before their first step, the last one: {last.sentence}", "restart_failed")
    own = POLICIES.get(last.kind, POLICIES["unknown"]).deaths
    same = _length(since, lambda one: one.safe_step == last.safe_step)
    same_kind = _length(since, lambda one: one.safe_step == last.safe_step and one.kind == last.kind)
    where = "before any checkpoint" if last.safe_step is None else f"after checkpoint {last.safe_step:,}"
    if own and same_kind >= min(own, limit):
        return Hold(
            f"{same_kind} times in a row the same end ({last.kind.replace('_', ' ')}) {where}: {last.sentence}", "restart_loop"
        )
    if same >= limit:
        return Hold(f"{same} starts in a row died {where} without a newer one: {last.sentence}", "restart_loop")
    return None


def _length(since: Sequence[Start], holds: Callable[[Start], bool]) -> int:
    count = 0
    for one in reversed(since):
        if not holds(one):
            break
        count += 1
    return count


def _budget(history: History, since: Sequence[Start], settings: SupervisorSettings, now_ns: int) -> Hold | None:
    from_ns = now_ns - DAY_NS
    new = (one for one in history.starts if one.number > history.released and one.kind not in _WISHED)
    deaths = [one for one in new if (one.ended_ns or 0) > from_ns]
    if len(deaths) > settings.restarts_per_day:
        return Hold(
            f"{len(deaths) - 1} restarts in 24 h, which is all that restarts_per_day allows; the last end: {since[-1].sentence}",
            "restart_loop",
        )
    return None


def _back_off(since: Sequence[Start], settings: SupervisorSettings, now_ns: int, chance: float) -> Wait | Begin:
    last = since[-1]
    in_place = _length(since, lambda one: one.safe_step == last.safe_step)
    wait_s = min(settings.back_off_max_s, settings.back_off_s * 2.0 ** min(in_place - 1, 40))
    until_ns = min(last.ended_ns or now_ns, now_ns) + round(wait_s * (1 + JITTER * (2 * chance - 1)) * 1e9)
    if until_ns <= now_ns:
        return Begin(f"starting again after: {last.sentence}")
    return Wait(until_ns, f"starting again in {(until_ns - now_ns) / 1e9:.0f} s after: {last.sentence}")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
