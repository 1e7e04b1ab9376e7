"""Look at one checkpoint once and say what it is. One look cannot tell a save in progress from a dead one: the watcher can."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.checkpoints import layouts, parts
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished, listing, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel

LEVELS = (VerificationLevel.PRESENCE, VerificationLevel.STRUCTURE)


@dataclass(frozen=True, slots=True)
class Inspection:
    """``is_unreadable``: parts could not be read, so the verdict may change without any file changing.

    ``has_vanished``: files went away during the look, so the verdict is worth nothing.
    """

    report: CheckpointReport
    signature: str
    names: frozenset[str]
    is_unreadable: bool
    has_vanished: bool


def inspect(path: str, level: VerificationLevel | str = VerificationLevel.STRUCTURE) -> CheckpointReport:
    """Look at a checkpoint (a directory or a file) up to ``level``; nothing is unpickled, nothing is executed.

    Raises ``InputError`` when it is not there, cannot be listed, or the level is not one of this version.
    """
    wanted = checked_level(level)
    try:
        return look(path, wanted).report
    except Vanished as error:
        raise InputError(f"No checkpoint at {printable(path)}: there is no such file or directory.") from error
    except Unreadable as error:
        raise InputError(
            f"Cannot read the checkpoint {printable(str(error))}. Check the rights of the user that runs this."
        ) from error


def checked_level(level: VerificationLevel | str) -> VerificationLevel:
    """The level, or an ``InputError`` that names those of this version."""
    known = ", ".join(LEVELS)
    try:
        wanted = VerificationLevel(level)
    except ValueError as error:
        raise InputError(f"Unknown verification level {printable(str(level))!r}; use one of {known}.") from error
    if wanted not in LEVELS:
        raise InputError(f"Verification level {wanted.value!r} is not in this version; use one of {known}.")
    return wanted


def look(path: str, level: VerificationLevel) -> Inspection:
    """As ``inspect``, for the watcher; raises ``Vanished`` or ``Unreadable``."""
    return look_at(listing(path), level)


def look_at(seen: Listing, level: VerificationLevel) -> Inspection:
    """Judge a listing that was just taken."""
    findings = Findings()
    layout = layouts.layout_of(seen)
    facts = layouts.Facts(None, None)
    from_name = parts.step_from_name(seen.name)
    if layout is not None:
        parts.check_names(seen, findings)
        facts = layout.look(seen, findings, into_files=level is VerificationLevel.STRUCTURE)
    state, reached = _verdict(layout is not None, findings, level)
    reasons = findings.reasons if layout is not None else (layouts.what_was_seen(seen),)
    report = CheckpointReport(
        path=stored_path(seen.root),
        step=facts.step if facts.step is not None else from_name,
        format=layout.name if layout is not None else "unknown",
        state=state,
        level=reached,
        has_optimizer=facts.has_optimizer,
        files=len(seen.entries),
        bytes=seen.bytes,
        reasons=reasons,
        modified_at_ns=seen.modified_at_ns,
        loss=facts.loss,
        has_rng=facts.has_rng,
        has_scheduler=facts.has_scheduler,
        has_data_position=facts.has_data_position,
        world_size=facts.world_size,
        parallel=facts.parallel,
        largest_file_bytes=max((entry.size for entry in seen.entries), default=None),
    )
    return Inspection(report, seen.signature, seen.names, bool(findings.unreadable or seen.unreadable), findings.vanished)


def _verdict(is_known: bool, findings: Findings, level: VerificationLevel) -> tuple[CheckpointState, VerificationLevel | None]:
    if not is_known:
        return CheckpointState.UNKNOWN_FORMAT, None
    if findings.missing:
        return CheckpointState.INCOMPLETE, None
    if findings.damaged:
        return CheckpointState.CORRUPT, VerificationLevel.PRESENCE
    if findings.unreadable or findings.unproven or level is VerificationLevel.PRESENCE:
        return CheckpointState.COMPLETE, VerificationLevel.PRESENCE
    return CheckpointState.VERIFIED, VerificationLevel.STRUCTURE


def stored_path(path: str) -> str:
    """The path as text that every store takes: bytes that are no UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
