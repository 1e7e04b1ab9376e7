"""Look at one checkpoint once and say what it is. One look cannot tell a save in progress from a dead one: the watcher can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainvitals.checkpoints import layouts, parts, writer_hashes
from trainvitals.checkpoints.files import Listing, Unreadable, Vanished, fault, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.names import final_name
from trainvitals.errors import InputError
from trainvitals.manifest import Manifest
from trainvitals.records import CheckpointReport, CheckpointState, VerificationLevel


@dataclass(frozen=True, slots=True)
class Inspection:
    """``signature``, ``state_signature``: of the listing. ``is_unreadable``: parts could not be read, so the verdict may change
    without any file changing.

    ``has_vanished``: files went away during the look, so the verdict is worth nothing.
    """

    report: CheckpointReport
    signature: str
    names: frozenset[str]
    is_unreadable: bool
    has_vanished: bool
    state_signature: str


def checked_level(level: VerificationLevel | str) -> VerificationLevel:
    """The level, or an ``InputError`` that names those there are."""
    try:
        return VerificationLevel(level)
    except ValueError as error:
        known = ", ".join(VerificationLevel)
        raise InputError(f"Unknown verification level {printable(str(level))!r}; use one of {known}.") from error


def look_at(seen: Listing, level: VerificationLevel, run: str = "") -> Inspection:
    """Judge a listing that was just taken. ``run``: whose checkpoints these are."""
    findings = Findings()
    layout, facts, from_name = None, layouts.Facts(None, None), None
    try:
        layout = layouts.layout_of(seen)
        from_name = parts.likely_step(final_name(seen.name)) if layout is None or layout.name_tells_step else None
        if layout is not None:
            facts = _look_into(seen, layout, findings, level, run)
    except (Vanished, Unreadable):
        raise
    except Exception as error:  # noqa: BLE001 (a file that was made to break a check must not hide the other checkpoints)
        findings.unreadable.append(f"cannot be judged: {fault(error)}")
    _doubt_what_is_missing(seen, findings)
    state, reached = _verdict(layout is not None, findings, level)
    reasons = findings.reasons if layout is not None or findings.reasons else (layouts.what_was_seen(seen),)
    if layout is None and _is_empty(seen):
        state = CheckpointState.INCOMPLETE
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
    return Inspection(
        report, seen.signature, seen.names, bool(findings.unreadable or seen.unreadable), findings.vanished, seen.state_signature
    )


def _look_into(seen: Listing, layout: layouts.Layout, findings: Findings, level: VerificationLevel, run: str) -> layouts.Facts:
    parts.check_names(seen, findings, layout.is_without_state)
    into_files = level is not VerificationLevel.PRESENCE
    facts = layout.look(seen, findings, into_files=into_files)
    if not into_files:
        return facts  # a manifest may be long, and presence is looked at on every change
    known = writer_hashes.read(seen, findings, facts.step, run)
    writer_hashes.compare_names(known, seen, findings)
    return _with_manifest(facts, known.manifest)


def _doubt_what_is_missing(seen: Listing, findings: Findings) -> None:
    """What lies in a directory that cannot be listed is not seen, which is no proof that it is not there."""
    if seen.unreadable:
        findings.unreadable += [f"cannot be told, because not all could be read: {text}" for text in findings.missing]
        findings.missing.clear()


def _is_empty(seen: Listing) -> bool:
    return not seen.is_file and not seen.entries and not seen.unreadable and not seen.is_cut


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


def _with_manifest(facts: layouts.Facts, said: Manifest | None) -> layouts.Facts:
    """What the files do not tell, the manifest may."""
    if said is None:
        return facts
    told: dict[str, Any] = {
        "step": said.step, "has_optimizer": said.has_optimizer, "loss": said.loss, "has_rng": said.has_rng,
        "has_scheduler": said.has_scheduler, "has_data_position": said.has_data_position, "world_size": said.world_size,
    }  # fmt: skip
    missing = {name: value for name, value in told.items() if getattr(facts, name) is None and value is not None}
    return replace(facts, **missing, parallel=facts.parallel or said.parallel)


def stored_path(path: str) -> str:
    """The path as text that every store takes: bytes that are no UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
