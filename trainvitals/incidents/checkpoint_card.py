"""How well a run saves, point by point, each with its evidence: what to keep, what to look at, what is bad. Pure.

The points are those of checkpoint strategy in large runs: interval, asynchronous, sharded, the whole state, how many are kept, whether
they are verified, and whether the disk holds the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median

from trainvitals.incidents.amounts import span
from trainvitals.incidents.failure_rate import FEWEST_FAILURES, FailureRate, best_interval_s, lost_share
from trainvitals.incidents.retention import PIN_DIRECTORY, retention_of
from trainvitals.incidents.saves import SaveTime
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

#: Interval that experience asks for, in steps.
USUAL_STEPS = (500, 2000)
#: A step below this is a mistake of a clock.
LEAST_STEP_S = 1e-6
#: Newest saves whose times are looked at.
RECENT_SAVES = 20
#: Share of the time that an interval may lose beyond the best one, and that saves may block.
LOOK_SHARE, BAD_SHARE = 0.01, 0.05
#: Blocked share of a save's whole time from which on it counts as synchronous.
SYNCHRONOUS_SHARE = 0.5
#: A checkpoint below this is quickly written by one rank.
SMALL_BYTES = 10 * 10**9
#: One file of this size is written by one rank while all others wait.
HUGE_FILE_BYTES = 100 * 10**9
KEEP_LAST = 3
#: Saves for which the disk must have room.
SAVES_AHEAD, FEWEST_AHEAD = 10, 3
GONE = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})
GOOD = frozenset({CheckpointState.VERIFIED, CheckpointState.COMPLETE, CheckpointState.VERIFYING})
NO_FAILURES = FailureRate(0, 0.0)
_DEEP = (VerificationLevel.CONTENT, VerificationLevel.LOAD)


class Judgement(StrEnum):
    """``look`` at it within days, ``bad``: a restart would cost more than it must."""

    GOOD = "good"
    LOOK = "look"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CardRow:
    """One point: value as a person says it, why: the evidence and what follows."""

    key: str
    title: str
    judgement: Judgement
    value: str
    why: str


@dataclass(frozen=True)
class Room:
    """Bytes that a watched directory's file system has left, at a moment."""

    directory: str
    free_bytes: int
    total_bytes: int
    time_ns: int


@dataclass(frozen=True)
class CardInputs:
    """reports: the newest of each checkpoint; saves: by step; step_s: usual seconds of a step; gpus: 0 = not said."""

    reports: Sequence[CheckpointReport]
    saves: Sequence[SaveTime] = ()
    failures: FailureRate = NO_FAILURES
    step_s: float | None = None
    gpus: int = 0
    interval_steps: int = 0
    rooms: Sequence[Room] = ()


def card(inputs: CardInputs) -> tuple[CardRow, ...]:
    """All points, in the order in which they matter for a restart; empty while no checkpoint is known."""
    own = [one for one in inputs.reports if PIN_DIRECTORY not in one.path]
    if not own:
        return ()
    if inputs.step_s is not None and inputs.step_s < LEAST_STEP_S:
        inputs = replace(inputs, step_s=None)
    there = [one for one in own if one.state not in GONE]
    good = [one for one in there if one.state in GOOD]
    steps = _interval_steps(own, inputs)
    blocked_s = _median([save.blocked_s for save in _recent(inputs.saves)])
    return (
        _verified(there, good),
        _optimizer(_newest_known(good, lambda one: one.has_optimizer is not None)),
        _rest_of_state(_newest_known(good, lambda one: not {one.has_rng, one.has_data_position} <= {None})),
        _kept(own, there),
        _usual_interval(steps, _blocked_share(steps, blocked_s, inputs.step_s)),
        _best_interval(steps, blocked_s, inputs),
        _asynchronous(steps, blocked_s, inputs),
        _sharded(_newest_known(good, lambda one: one.largest_file_bytes is not None), inputs.gpus),
        _disk(there, inputs.rooms, own),
    )


def _newest_known(good: Sequence[CheckpointReport], tells: Callable[[CheckpointReport], bool]) -> CheckpointReport | None:
    """The newest that was looked into or tells by itself; one that was written a moment ago says nothing against the run."""
    newest_first = sorted(good, key=lambda one: (one.modified_at_ns or 0, one.step or 0), reverse=True)
    looked_at = (one for one in newest_first if one.level is not None or tells(one))
    return next(looked_at, next(iter(newest_first), None))


def _recent(saves: Sequence[SaveTime]) -> Sequence[SaveTime]:
    done = [save for save in saves if not save.problem]
    return sorted(done, key=lambda save: (save.time_ns or 0, save.step))[-RECENT_SAVES:]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _interval_steps(own: Sequence[CheckpointReport], inputs: CardInputs) -> int | None:
    steps = sorted({one.step for one in own if one.step is not None} | {save.step for save in inputs.saves})
    gaps = [later - earlier for earlier, later in pairwise(steps)][-RECENT_SAVES:]
    return round(median(gaps)) if gaps else inputs.interval_steps or None


def _verified(there: Sequence[CheckpointReport], good: Sequence[CheckpointReport]) -> CardRow:
    verified = [one for one in good if one.state is CheckpointState.VERIFIED]
    deep = sum(one.level in _DEEP for one in verified)
    title, value = "Verified", f"{len(verified):,} of {len(there):,}"
    if not there:
        return CardRow("verified", title, Judgement.BAD, "none", "No checkpoint is left on the disk.")
    if not verified:
        return CardRow("verified", title, Judgement.BAD, value, "None is verified, so none can be called safe for a restart.")
    depth = f"the bytes of {deep:,} were compared" if deep else "only their structure was read, no bytes were compared"
    damaged = len(there) - len(good)
    spoilt = f"; {damaged:,} not whole" if damaged else ""
    if len(verified) == 1:
        return CardRow("verified", title, Judgement.LOOK, value, f"If that one goes, none is left; {depth}{spoilt}.")
    verdict = Judgement.GOOD if deep and not damaged else Judgement.LOOK
    return CardRow("verified", title, verdict, value, f"{depth[0].upper()}{depth[1:]}{spoilt}.")


def _optimizer(newest: CheckpointReport | None) -> CardRow:
    has = newest.has_optimizer if newest is not None else None
    verdict, value, why = {
        True: (Judgement.GOOD, "in it", "A restart goes on with its momentum."),
        False: (Judgement.BAD, "missing", "A restart begins with an empty optimizer: the loss rebounds."),
        None: (Judgement.UNKNOWN, "not known", "Its files do not tell whether the optimizer state is in it."),
    }[has]
    return CardRow("optimizer", "Optimizer state", verdict, value, _about(newest, why))


def _rest_of_state(newest: CheckpointReport | None) -> CardRow:
    parts = {
        "random state": newest.has_rng if newest else None,
        "data position": newest.has_data_position if newest else None,
    }
    missing = [name for name, has in parts.items() if has is False]
    unknown = [name for name, has in parts.items() if has is None]
    title = "Random state, data position"
    if missing:
        why = "A restart cannot go on with the same data in the same order: it reads some twice and skips some."
        return CardRow("state", title, Judgement.LOOK, f"no {' and no '.join(missing)}", _about(newest, why))
    if unknown:
        return CardRow(
            "state", title, Judgement.UNKNOWN, f"{' and '.join(unknown)} not known", _about(newest, "Its files do not tell.")
        )
    return CardRow("state", title, Judgement.GOOD, "in it", _about(newest, "A restart goes on with the data where it stopped."))


def _about(newest: CheckpointReport | None, why: str) -> str:
    if newest is None:
        return "No whole checkpoint to look into."
    return f"Step {newest.step:,}: {why}" if newest.step is not None else why


def _kept(own: Sequence[CheckpointReport], there: Sequence[CheckpointReport]) -> CardRow:
    keep = retention_of(own).keep_last
    title = "Kept on disk"
    if keep is None:
        if len(there) >= KEEP_LAST:
            return CardRow("kept", title, Judgement.GOOD, f"{len(there):,}", "No deletion was seen so far.")
        return CardRow("kept", title, Judgement.UNKNOWN, f"{len(there):,}", "No deletion was seen so far.")
    value = f"the newest {keep:,}" if keep != 1 else "only the newest"
    if keep >= KEEP_LAST:
        return CardRow("kept", title, Judgement.GOOD, value, f"The trainer leaves {keep:,} when it deletes.")
    verdict = Judgement.BAD if keep == 1 else Judgement.LOOK
    hint = "An incident that is noticed late has damaged them all; keep at least 3"
    return CardRow("kept", title, verdict, value, f"{hint} (keep_last, save_total_limit).")


def _blocked_share(steps: int | None, blocked_s: float | None, step_s: float | None) -> float | None:
    return blocked_s / (steps * step_s + blocked_s) if steps and step_s and blocked_s is not None else None


def _usual_interval(steps: int | None, share: float | None) -> CardRow:
    least, most = USUAL_STEPS
    title = "Interval"
    if steps is None:
        return CardRow("interval", title, Judgement.UNKNOWN, "not known", "It takes two saves to know it.")
    value = f"every {steps:,} step{'s' if steps != 1 else ''}"
    if least <= steps <= most:
        return CardRow("interval", title, Judgement.GOOD, value, f"Large runs use {least:,} to {most:,} steps.")
    if steps > most:
        why = (
            f"Large runs use {least:,} to {most:,} steps: a failure costs half an interval on average, {steps // 2:,} steps here."
        )
        return CardRow("interval", title, Judgement.LOOK, value, why)
    if share is not None and share < LOOK_SHARE:
        why = f"Large runs use {least:,} to {most:,} steps; more often costs little here: saves hold up {_percent(share)} of the time."
        return CardRow("interval", title, Judgement.GOOD, value, why)
    cost = "how much that holds up the training is not known" if share is None else f"saves hold up {_percent(share)} of the time"
    return CardRow("interval", title, Judgement.LOOK, value, f"Large runs use {least:,} to {most:,} steps; {cost}.")


def _best_interval(steps: int | None, blocked_s: float | None, inputs: CardInputs) -> CardRow:
    key, title, rate = "young_daly", "Interval for this failure rate", inputs.failures
    if rate.mtbf_s is None or rate.least_s is None or rate.most_s is None:
        number = f"{rate.failures:,} failure{'s' if rate.failures != 1 else ''} in {span(rate.observed_s)} of training"
        return CardRow(
            key,
            title,
            Judgement.UNKNOWN,
            "too few failures",
            f"{number}; Young/Daly needs at least {FEWEST_FAILURES} to say anything.",
        )
    seen = f"{rate.failures:,} failures in {span(rate.observed_s)}: one every {span(rate.mtbf_s)} (95 %: {span(rate.least_s)} to {span(rate.most_s)})"
    if blocked_s is None:
        return CardRow(key, title, Judgement.UNKNOWN, "save time not known", f"{seen}. Nothing tells how long a save blocks.")
    if not steps or not inputs.step_s:
        return CardRow(key, title, Judgement.UNKNOWN, "interval not known", f"{seen}.")
    cost_s = max(blocked_s, 1e-3)
    interval_s = max(steps * inputs.step_s, cost_s)
    best_s, low_s, high_s = (best_interval_s(cost_s, one) for one in (rate.mtbf_s, rate.least_s, rate.most_s))
    in_steps = [max(1, round(one / inputs.step_s)) for one in (best_s, low_s, high_s)]
    # Judged by the most favourable rate that the evidence allows: no advice out of chance.
    fitting_s = min(max(interval_s**2 / (2 * cost_s), rate.least_s), rate.most_s)
    lost = lost_share(interval_s, cost_s, fitting_s)
    excess = lost - lost_share(best_interval_s(cost_s, fitting_s), cost_s, fitting_s)
    verdict = Judgement.GOOD if excess < LOOK_SHARE else Judgement.LOOK if excess < BAD_SHARE else Judgement.BAD
    usual = lost_share(interval_s, cost_s, rate.mtbf_s)
    best = lost_share(best_s, cost_s, rate.mtbf_s)
    return CardRow(
        key, title, verdict, f"best: {_round(in_steps[0])} steps",
        f"{seen}, a save blocks {span(blocked_s)}. Best by Young/Daly: {_round(in_steps[1])} to {_round(in_steps[2])} steps. "
        f"Now {_percent(usual)} of the time is lost to saves and repeated steps, at best {_percent(best)}.",
    )  # fmt: skip


def _asynchronous(steps: int | None, blocked_s: float | None, inputs: CardInputs) -> CardRow:
    key, title = "async", "Saves in the background"
    if blocked_s is None:
        return CardRow(key, title, Judgement.UNKNOWN, "not known", "Neither the hook nor the log tells how long saves take.")
    share = _blocked_share(steps, blocked_s, inputs.step_s)
    cost = f"saves hold up {_percent(share)} of the time" if share is not None else "how much of the time that is, is not known"
    recent = [save for save in _recent(inputs.saves) if save.blocked_s is not None and save.persisted_s]
    whole_s = _median([save.persisted_s for save in recent])
    verdict = (
        Judgement.UNKNOWN if share is None
        else Judgement.GOOD if share < LOOK_SHARE
        else Judgement.LOOK if share < BAD_SHARE
        else Judgement.BAD
    )  # fmt: skip
    if whole_s is None:
        return CardRow(key, title, verdict, f"blocked {span(blocked_s)}", f"From the log, which does not tell the rest; {cost}.")
    is_background = median((save.blocked_s or 0) / (save.persisted_s or 1) for save in recent) < SYNCHRONOUS_SHARE
    value = f"{span(blocked_s)} of {span(whole_s)}"
    if is_background:
        return CardRow(key, title, verdict, value, f"The training waits for {value} of a save; {cost}.")
    hint = "an asynchronous save would not" if verdict is not Judgement.GOOD else "too little to matter"
    return CardRow(
        key, title, verdict, value, f"Synchronous: the training waits for the whole save. {cost[0].upper()}{cost[1:]}; {hint}."
    )


def _sharded(newest: CheckpointReport | None, gpus: int) -> CardRow:
    key, title = "sharded", "Sharded"
    if newest is None or newest.largest_file_bytes is None or not newest.bytes:
        return CardRow(key, title, Judgement.UNKNOWN, "not known", "No whole checkpoint whose files were looked at.")
    share = newest.largest_file_bytes / newest.bytes
    ranks = newest.world_size
    is_one = ranks == 1 or (ranks is None and gpus == 1)
    who = f", {ranks:,} rank{'s' if ranks != 1 else ''}" if ranks else f", {gpus:,} GPU{'s' if gpus != 1 else ''}" if gpus else ""
    value = f"{newest.files:,} file{'s' if newest.files != 1 else ''}, largest {_percent(share)}"
    said = f"{_bytes(newest.bytes)} in all, the largest file {_bytes(newest.largest_file_bytes)}{who}"
    if share <= 0.5:
        return CardRow(key, title, Judgement.GOOD, value, f"{said}.")
    if newest.bytes < SMALL_BYTES or is_one:
        return CardRow(key, title, Judgement.GOOD, value, f"{said}: one writer is quick enough.")
    verdict = Judgement.BAD if newest.largest_file_bytes >= HUGE_FILE_BYTES else Judgement.LOOK
    return CardRow(key, title, verdict, value, f"{said}: one rank writes most of it while the others wait.")


def _disk(there: Sequence[CheckpointReport], rooms: Sequence[Room], own: Sequence[CheckpointReport]) -> CardRow:
    key, title = "disk", "Room for the next saves"
    sizes = [one.bytes for one in there if one.state in GOOD and one.bytes][-RECENT_SAVES:]
    if not rooms or not sizes:
        return CardRow(key, title, Judgement.UNKNOWN, "not known", "The watchdog has not told how much of the disk is left.")
    least = min(rooms, key=lambda room: room.free_bytes)
    each = median(sizes)
    saves = int(least.free_bytes // each)
    value = f"{saves:,} save{'s' if saves != 1 else ''}" if saves < 1000 else "1,000 saves and more"
    said = f"{_bytes(least.free_bytes)} of {_bytes(least.total_bytes)} free, {_bytes(each)} a save"
    keep = retention_of(own).keep_last
    if keep is not None:
        # Each save deletes one, usually after it is written: the disk must hold one more than are kept.
        verdict = Judgement.GOOD if saves >= FEWEST_AHEAD else Judgement.LOOK if saves >= 1 else Judgement.BAD
        return CardRow(key, title, verdict, value, f"{said}; the trainer deletes old ones (it keeps {keep:,}).")
    verdict = Judgement.GOOD if saves >= SAVES_AHEAD else Judgement.LOOK if saves >= FEWEST_AHEAD else Judgement.BAD
    return CardRow(key, title, verdict, value, f"{said}; no deletion was seen, so it only fills.")


def _round(steps: int) -> str:
    digits = len(str(steps)) - 2
    return f"{round(steps, -digits) if digits > 0 else steps:,}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.1f} %" if percent >= 0.05 else "under 0.1 %"


def _bytes(amount: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.5 else f"{amount:.3g} {unit}"
        amount /= 1000
    return ""
