"""Which checkpoint's content is looked at next. Pure: what somebody waits for and the newest at once, older ones by and by, verified
ones again after days."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

DAY_NS = 86_400 * 1_000_000_000
RETRY_NS = 3_600 * 1_000_000_000
_ELIGIBLE = (CheckpointState.VERIFIED, CheckpointState.COMPLETE)


@dataclass(frozen=True, slots=True)
class Policy:
    """contents: which are read. mb_per_s: for all that can wait, 0 = no limit. loads: whether the newest and the wanted are loaded in a child. recheck_days: 0 = never again."""

    contents: Literal["all", "newest", "off"] = "all"
    mb_per_s: float = 200.0
    loads: Literal["newest", "off"] = "newest"
    recheck_days: float = 7.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that stands still and whose structure was judged.

    looked: signature of the files when their content was last looked at, at ``looked_at_ns``; ``could_not_read``: parts of it
    then. round_ns: when a look that has not ended began, 0 = none; what was hashed since then need not be hashed again.
    loaded: signature of the files when a look at level load was last tried.
    """

    path: str
    signature: str
    report: CheckpointReport
    looked: str = ""
    looked_at_ns: int = 0
    could_not_read: bool = False
    round_ns: int = 0
    loaded: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One look at the content of one checkpoint. is_urgent: at full speed, and others are interrupted for it."""

    path: str
    signature: str
    level: VerificationLevel
    is_urgent: bool
    since_ns: int


def next_job(candidates: Sequence[Candidate], now_ns: int, policy: Policy, wanted: Collection[str] = ()) -> Job | None:
    """``candidates``: newest first, all that are known. wanted: paths (as reported) of those that come before all others, because
    somebody may restart from them now. None: nothing is due."""
    few = [one for number, one in enumerate(candidates) if not number or one.report.path in wanted]
    read = {"all": candidates, "newest": few, "off": ()}[policy.contents]
    eligible = [one for one in read if one.report.state in _ELIGIBLE and one.report.files]
    newest = candidates[0] if candidates else None
    never = [one for one in eligible if one.looked != one.signature or _is_to_be_loaded(one, policy, wanted)]
    again = [one for one in eligible if one.looked == one.signature and _is_due(one, now_ns, policy)]
    # A look that was interrupted goes on before another of its kind begins.
    never.sort(key=lambda one: (one.report.path not in wanted, one is not newest, one.round_ns == 0))
    again.sort(key=lambda one: (one.round_ns == 0, one.looked_at_ns))
    for one in (*never, *again):
        is_urgent = one is newest or one.report.path in wanted
        # What a load has proven is not forgotten for a look at the bytes alone.
        is_deep = policy.loads == "newest" and (is_urgent or one.report.level is VerificationLevel.LOAD)
        level = VerificationLevel.LOAD if is_deep else VerificationLevel.CONTENT
        return Job(one.path, one.signature, level, is_urgent, one.round_ns or now_ns)
    return None


def _is_to_be_loaded(one: Candidate, policy: Policy, wanted: Collection[str]) -> bool:
    """Bytes that are as they were written say nothing of the numbers in them: what is wanted is loaded, too, once."""
    is_tried = one.loaded == one.signature or one.report.level is VerificationLevel.LOAD
    return policy.loads == "newest" and one.report.path in wanted and not is_tried


def _is_due(one: Candidate, now_ns: int, policy: Policy) -> bool:
    age_ns = now_ns - one.looked_at_ns
    if one.could_not_read:
        return age_ns >= RETRY_NS
    if one.round_ns:
        return True
    return policy.recheck_days > 0 and age_ns >= policy.recheck_days * DAY_NS
