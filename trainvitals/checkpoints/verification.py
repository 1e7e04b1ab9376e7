"""One look at a checkpoint at any level. Above structure: content and load.

They are different checks (a file loads with a flipped bit; a file that is as it was written may hold NaN) and they build on each
other: level load is given only to a checkpoint whose content is proven too. What loads without such a proof keeps its level,
and a note says that it was loaded.
"""

from __future__ import annotations

from dataclasses import replace

from trainvitals.checkpoints import content, layouts, load, writer_hashes
from trainvitals.checkpoints.content import Work
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished, listing, printable
from trainvitals.checkpoints.findings import MAX_REASONS, Findings
from trainvitals.checkpoints.hash_record import HashRecord
from trainvitals.checkpoints.hashes import Pace
from trainvitals.checkpoints.inspection import Inspection, checked_level, look_at
from trainvitals.clock import SystemClock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, VerificationLevel

#: Hashes of the writer prove the bytes also where our structure check could not follow them.
_OF_THE_WRITER = (ContentProof.MANIFEST, ContentProof.INTEGRITY_JSON)
_GOOD = (CheckpointState.VERIFIED, CheckpointState.COMPLETE)


def inspect(
    path: str, level: VerificationLevel | str = VerificationLevel.STRUCTURE, work: Work | None = None, limits: load.Limits | None = None
) -> CheckpointReport:  # fmt: skip
    """Look at a checkpoint (a directory or a file) up to ``level``; nothing is unpickled or executed in this process.

    Raises ``InputError`` when it is not there, cannot be listed, or the level is unknown.
    """
    wanted = checked_level(level)
    clock = SystemClock()
    return verify(path, wanted, work or Work(clock, Pace(clock)), limits)[0].report


def verify(path: str, level: VerificationLevel, work: Work, limits: load.Limits | None = None) -> tuple[Inspection, HashRecord]:
    """As ``inspect``, with the hashes that are known now. Raises ``InputError`` or ``Stopped``."""
    try:
        seen = listing(path)
        inspection, record = deepen(seen, look_at(seen, level, work.run), level, work, limits)
        if level in (VerificationLevel.CONTENT, VerificationLevel.LOAD) and listing(path).signature != seen.signature:
            note = "it changed while it was looked at: look again"
            report = replace(inspection.report, reasons=(*inspection.report.reasons, note))
            inspection = replace(inspection, report=report, has_vanished=True)
    except Vanished as error:
        raise InputError(f"No checkpoint at {printable(path)}: there is no such file or directory.") from error
    except Unreadable as error:
        raise InputError(
            f"Cannot read the checkpoint {printable(str(error))}. Check the rights of the user that runs this."
        ) from error
    return inspection, record


def deepen(
    seen: Listing, looked: Inspection, level: VerificationLevel, work: Work, limits: load.Limits | None = None
) -> tuple[Inspection, HashRecord]:
    """Look at the content (and load it) when the structure is good. Returns the verdict and the hashes known now.

    Raises ``Stopped`` when ``work.pace`` is asked to stop; what was proven until then was given to ``work.keep``.
    """
    if level not in (VerificationLevel.CONTENT, VerificationLevel.LOAD) or looked.report.state not in _GOOD:
        return looked, work.record
    if looked.is_unreadable or looked.has_vanished or seen.is_cut:
        return looked, work.record
    findings = Findings()
    layout = layouts.layout_of(seen)
    told = Findings()
    known = writer_hashes.read(seen, told, looked.report.step, work.run)
    findings.notes += [*told.notes, *told.unproven]
    ranges = layout.ranges(seen) if layout is not None else {}
    result = content.check(seen, ranges, known, findings, work)
    proof = result.proof
    is_partial = result.shared_out > 0
    if is_partial:
        findings.notes.append(f"{result.files} of {result.files + result.shared_out} files looked at: the rest is another share")
    has_passed = proof is not ContentProof.NONE and not is_partial
    has_loaded = False
    if level is VerificationLevel.LOAD and not findings.damaged and not findings.missing and not findings.vanished:
        has_loaded = load.check(seen, findings, limits, work.pace.is_stopped)
    report = _judged(looked.report, findings, proof if has_passed else ContentProof.NONE, has_loaded, work)
    return replace(
        looked, report=report, is_unreadable=bool(findings.unreadable), has_vanished=looked.has_vanished or findings.vanished
    ), result.record


def _judged(before: CheckpointReport, findings: Findings, proof: ContentProof, has_loaded: bool, work: Work) -> CheckpointReport:
    was_proven = before.state is CheckpointState.VERIFIED or proof in _OF_THE_WRITER
    if before.state is CheckpointState.COMPLETE and proof in _OF_THE_WRITER:
        before = replace(before, reasons=())  # they say what could not be proven, and now it is
    reasons = (*findings.reasons, *(reason for reason in before.reasons if reason not in findings.reasons))[:MAX_REASONS]
    report = replace(before, reasons=reasons)
    if findings.missing:
        return replace(report, state=CheckpointState.INCOMPLETE, level=None)
    if findings.damaged:
        reached = VerificationLevel.CONTENT if proof is not ContentProof.NONE else before.level
        return replace(report, state=CheckpointState.CORRUPT, level=reached, proof=proof, verified_at_ns=work.clock.time_ns())
    if findings.unreadable:
        return replace(report, state=CheckpointState.COMPLETE, level=VerificationLevel.PRESENCE)
    if proof is ContentProof.NONE or not was_proven:
        return report
    return replace(
        report,
        state=CheckpointState.VERIFIED,
        level=VerificationLevel.LOAD if has_loaded else VerificationLevel.CONTENT,
        proof=proof,
        verified_at_ns=work.clock.time_ns(),
    )
