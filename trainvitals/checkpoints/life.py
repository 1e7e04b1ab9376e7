"""The life of one checkpoint between two scans, as pure decisions: writing → complete → verified, or what went wrong.

A bad verdict needs patience: a save or a deletion in progress looks exactly like damage. The rules (checkpoint research, A1, A4):
nothing is called incomplete or corrupt before it stood still; names that disappear mean a deletion, never damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainvitals.checkpoints.inspection import Inspection
from trainvitals.checkpoints.schedule import Job
from trainvitals.checkpoints.verifier import Outcome
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

#: Seconds of one look at a structure; of an ordinary checkpoint it takes milliseconds.
SLOW_LOOK_S = 1.0
#: Looks that would fit into the rest after the first slow one, and the longest rest.
REST_OF_A_LOOK = 10.0
MAX_REST_S = 600.0
BAD = (CheckpointState.INCOMPLETE, CheckpointState.CORRUPT)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a checkpoint must stand still before something bad is said of it.

    settle_s: any checkpoint. unfinished_s: the one changed last, which a trainer may be writing with long pauses between files.
    deleting_s: one that lost files, before the deletion is called stopped and the rest is judged.
    """

    settle_s: float = 10.0
    unfinished_s: float = 30.0
    deleting_s: float = 600.0


@dataclass(slots=True)
class Known:
    """What the watcher remembers of one checkpoint.

    signature: of the files at the last scan, state_signature without the hook's lists of hashes; seen ``scans`` times in a row,
    first at ``since_s`` (monotonic). names: of the fullest state it had. judged: the signature that the report's verdict is about. pending: a bad verdict that waits.
    rest_until_s: monotonic, no look at the structure before; slow_looks: so many in a row took long.
    looked: the signature whose content was looked at, at ``looked_at_ns``; loaded: the one whose load was tried; round_ns: when a
    look that has not ended began.
    """

    path: str
    report: CheckpointReport
    signature: str = ""
    names: frozenset[str] = frozenset()
    since_s: float = 0.0
    scans: int = 0
    judged: str = ""
    was_complete: bool = False
    was_verified: bool = False
    is_unreadable: bool = False
    absent_scans: int = 0
    looked: str = ""
    looked_at_ns: int = 0
    could_not_read: bool = False
    round_ns: int = 0
    loaded: str = ""
    state_signature: str = ""
    pending: Inspection | None = field(default=None, repr=False)
    rest_until_s: float = 0.0
    slow_looks: int = 0


def first_sight(path: str, seen: Inspection, is_newest: bool, now_s: float) -> Known:
    """A checkpoint nobody knew. ``seen`` was taken at level presence."""
    report = seen.report
    is_complete = report.state is CheckpointState.COMPLETE
    if not is_complete and (report.state in BAD or report.files == 0):
        if is_newest:
            report = replace(report, state=CheckpointState.WRITING)
        else:
            report = replace(
                report, state=CheckpointState.DELETING, reasons=(*report.reasons, "older than the newest and parts are missing")
            )
    return Known(
        path, report, seen.signature, seen.names, now_s, 1,
        was_complete=is_complete, is_unreadable=seen.is_unreadable, state_signature=seen.state_signature,
    )  # fmt: skip


def changed(known: Known, seen: Inspection, is_newest: bool, now_s: float) -> None:
    """Something changed since the last scan. ``seen`` was taken at level presence."""
    before, after = known.report, seen.report
    lost = known.names - seen.names
    is_complete = after.state is CheckpointState.COMPLETE
    grew = after.bytes > before.bytes or (after.files > before.files and not lost)
    state: CheckpointState
    only_hashes_came = not lost and seen.state_signature == known.state_signature
    if only_hashes_came and before.state in (CheckpointState.COMPLETE, CheckpointState.VERIFIED):
        # What is true of the files stays true until the lists are read: a restart may need this checkpoint now.
        state, after = before.state, before
    # A deletion never adds a byte: names that go while others grow are a save that tidies up.
    elif lost and not grew and (known.was_complete or not is_newest):
        state = CheckpointState.DELETING
        after = replace(
            after,
            step=before.step if after.step is None else after.step,
            reasons=(f"{len(lost)} of {len(known.names)} files are gone", *_damage(before)),
        )
    elif after.state is CheckpointState.UNKNOWN_FORMAT and after.files:
        state = CheckpointState.UNKNOWN_FORMAT
    elif grew or not known.was_complete:
        state = CheckpointState.COMPLETE if is_complete and not grew else CheckpointState.WRITING
    else:
        state = CheckpointState.VERIFYING
        after = replace(after, reasons=("changed after it was complete", *after.reasons))
    if state is not CheckpointState.DELETING:
        known.names = seen.names
    known.report = replace(after, state=state)
    known.signature, known.state_signature = seen.signature, seen.state_signature
    known.since_s, known.scans = now_s, 1
    known.judged, known.pending, known.round_ns = "", None, 0
    known.was_complete = known.was_complete or is_complete
    known.is_unreadable = seen.is_unreadable


def took(known: Known, look_s: float, now_s: float) -> None:
    """A look at the structure took this long. After a slow one the next waits, longer each time: a checkpoint that changes for ever
    must not keep the thread busy that looks at all of them. The first look of each waits for nothing."""
    if look_s <= SLOW_LOOK_S:
        known.slow_looks = 0
        return
    known.rest_until_s = now_s + min(MAX_REST_S, look_s * REST_OF_A_LOOK * 2.0 ** min(known.slow_looks, 10))
    known.slow_looks += 1


def wants_judgement(known: Known, now_s: float, patience: Patience) -> bool:
    """Whether the structure should be looked at now; the signature was the same in this scan and the one before."""
    if known.scans < 2 or (known.pending is None and now_s < known.rest_until_s):
        return False
    if known.report.state is CheckpointState.DELETING:
        return now_s - known.since_s >= (patience.deleting_s if known.was_complete else patience.settle_s)
    return known.judged != known.signature or known.is_unreadable


def judged(known: Known, seen: Inspection, is_newest: bool, now_s: float, patience: Patience) -> None:
    """Take the verdict of a structure look at a checkpoint that stood still, or keep it waiting when it is bad."""
    report = seen.report
    known.is_unreadable = seen.is_unreadable
    if report.state in BAD:
        waited_s = now_s - known.since_s
        if waited_s < (patience.unfinished_s if is_newest else patience.settle_s):
            known.pending = seen
            if known.report.state is CheckpointState.COMPLETE:
                known.report = replace(known.report, state=CheckpointState.VERIFYING)
            return
        if known.was_verified:
            report = replace(report, reasons=(*report.reasons, "it was verified before it changed"))
    elif report.files == 0:
        report = replace(report, state=CheckpointState.INCOMPLETE)
    known.report = report
    known.judged, known.pending = known.signature, None
    known.names = seen.names
    if report.state not in BAD:
        known.was_complete = True
    known.was_verified = known.was_verified or report.state is CheckpointState.VERIFIED


LOOKING = "its content is being looked at"


def looking(known: Known, job: Job) -> None:
    """A look at the content has begun. The level that was reached stays: nothing bad is known."""
    known.round_ns = job.since_ns
    if not any(reason.startswith(LOOKING) for reason in known.report.reasons):
        known.report = replace(known.report, reasons=(*known.report.reasons, LOOKING))


def progressed(known: Known, percent: int) -> None:
    """How far the look at the content is, in words, so that a look of hours does not seem to hang."""
    reasons = tuple(reason for reason in known.report.reasons if not reason.startswith(LOOKING))
    known.report = replace(known.report, reasons=(*reasons, f"{LOOKING}: {percent} % of its bytes"))


def looked(known: Known, outcome: Outcome, is_newest: bool, now_s: float, patience: Patience) -> None:
    """A look at the content has ended; its verdict counts when it is about the files as they are now."""
    reasons = tuple(reason for reason in known.report.reasons if not reason.startswith(LOOKING))
    known.report = replace(known.report, reasons=reasons)
    seen = outcome.inspection
    if known.signature != outcome.job.signature or known.judged != outcome.job.signature:
        known.round_ns = 0
        return
    if outcome.job.level is VerificationLevel.LOAD and (outcome.error or seen is not None):
        known.loaded = known.signature
    if outcome.error:
        # It may fail in the same way again after reading everything: not in every scan.
        known.looked, known.looked_at_ns, known.could_not_read = known.signature, outcome.ended_at_ns, True
        return
    if seen is None:
        return  # interrupted: goes on where it was
    if seen.report.state in BAD and now_s - known.since_s < (patience.unfinished_s if is_newest else patience.settle_s):
        return  # a save in the same place may be about to write the list of hashes anew
    known.looked, known.looked_at_ns, known.round_ns = known.signature, outcome.ended_at_ns, 0
    known.could_not_read = seen.is_unreadable
    report = seen.report
    if report.state in BAD and known.was_verified:
        report = replace(report, reasons=(*report.reasons, f"it was verified (level {known.report.level or 'none'}) before"))
    known.report = report
    known.was_verified = known.was_verified or report.state is CheckpointState.VERIFIED


def absent(known: Known) -> None:
    """It is not there: being deleted at first, deleted when the next scan does not see it either."""
    known.absent_scans += 1
    state = CheckpointState.DELETING if known.absent_scans == 1 else CheckpointState.DELETED
    known.report = replace(known.report, state=state, level=None, reasons=("its files are gone", *_damage(known.report)))
    known.signature, known.state_signature, known.judged, known.pending, known.scans = "", "", "", None, 0
    known.looked, known.round_ns = "", 0


BEFORE = "before that: "


def _damage(report: CheckpointReport) -> tuple[str, ...]:
    """What was found in it while it was there: damaged numbers speak against what the same process saved later."""
    if report.state is CheckpointState.CORRUPT:
        return tuple(BEFORE + reason for reason in report.reasons)
    return tuple(reason for reason in report.reasons if reason.startswith(BEFORE))
