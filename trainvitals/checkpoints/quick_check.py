"""Is a checkpoint that was verified before still as it was? For the minute before a resume: sizes, times, and samples of the bytes.

Works on hashes that were kept (``hash_record``), else on the writer's manifest: then whole files are hashed in random order until the
time is up, and what is left is said.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainvitals.checkpoints import content, files, hashes, writer_hashes
from trainvitals.checkpoints.content import STRENGTH
from trainvitals.checkpoints.files import Entry, Listing, NotRegular, Reader, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings, many
from trainvitals.checkpoints.hash_record import FileRecord, HashRecord
from trainvitals.checkpoints.hashes import Cut, Pace, Stopped
from trainvitals.checkpoints.inspection import look_at
from trainvitals.checkpoints.writer_hashes import WriterHashes
from trainvitals.clock import Clock
from trainvitals.errors import InputError
from trainvitals.records import CheckpointReport, CheckpointState, ContentProof, VerificationLevel

LIMIT_S = 60.0


@dataclass
class _Look:
    listing: Listing
    record: HashRecord
    known: WriterHashes
    findings: Findings
    pace: Pace
    proofs: list[ContentProof] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    compared: int = 0


def quick_check(
    path: str, record: HashRecord, clock: Clock, limit_s: float = LIMIT_S, generator: random.Random | None = None
) -> CheckpointReport:
    """The report after the structure and the quick look; level ``content`` when every file was verified before and none differs.

    Raises ``InputError`` when it is not there or cannot be listed.
    """
    generator = generator or random.Random()  # noqa: S311 - chooses samples
    until_s = clock.monotonic_s() + limit_s
    try:
        seen = files.listing(path)
    except Vanished as error:
        raise InputError(f"No checkpoint at {printable(path)}: there is no such file or directory.") from error
    except Unreadable as error:
        raise InputError(f"Cannot read the checkpoint {printable(str(error))}.") from error
    report = look_at(seen, VerificationLevel.STRUCTURE).report
    if report.state not in (CheckpointState.VERIFIED, CheckpointState.COMPLETE):
        return report
    findings = Findings()
    pace = Pace(clock, stop=lambda: clock.monotonic_s() >= until_s)
    look = _Look(seen, record, writer_hashes.read(seen, Findings(), report.step), findings, pace)
    entries = [entry for entry in seen.entries if content.matters(entry, look.known)]
    names = {entry.name for entry in entries}
    findings.missing += [
        f"{printable(name)} was there when it was verified" for name in sorted(record.files) if name not in names
    ]
    by_record = [entry for entry in entries if _by_record(look, entry)]
    by_manifest = [entry for entry in entries if entry.name in look.unknown and entry.name in look.known.files]
    left = _in_time(_samples(look, by_record, generator)) + _in_time(_whole_files(look, by_manifest, generator))
    return _judged(report, look, len(entries), left, clock)


def _by_record(look: _Look, entry: Entry) -> bool:
    """Compare size and time with the kept ones; whether its samples can be compared."""
    kept = look.record.files.get(entry.name)
    if kept is None or not hashes.is_available(kept.algorithm):
        look.unknown.append(entry.name)
        return False
    if kept.size != entry.size:
        look.findings.damaged.append(f"{printable(entry.name)} is {entry.size} bytes; it had {kept.size} when it was verified")
        return False
    if not kept.is_of(entry):
        look.changed.append(entry.name)
        look.unknown.append(entry.name)
        return False
    expected = look.known.files.get(entry.name)
    if expected is not None and expected.algorithm == kept.algorithm:
        if expected.hash != kept.hash:
            look.findings.damaged.append(f"{printable(entry.name)}: its content is not what {look.known.source} says")
            return False
        look.proofs.append(expected.proof)
    elif kept.proof is not ContentProof.NONE or kept.comparisons:
        look.proofs.append(kept.proof or ContentProof.FIRST_SEEN)
    else:
        look.unknown.append(entry.name)  # hashed once, never compared: its samples are compared all the same
    return bool(kept.samples)


def _samples(look: _Look, entries: list[Entry], generator: random.Random) -> list[Callable[[], None]]:
    """One sample of each file first, then the second of each, …: so that no file is left out when time is short."""
    work: list[tuple[int, float, Entry, FileRecord]] = []
    for entry in entries:
        kept = look.record.files[entry.name]
        work += [(number, generator.random(), entry, kept) for number in range(len(kept.samples))]
    work.sort(key=lambda one: one[:2])

    def compare(number: int, entry: Entry, kept: FileRecord) -> None:
        sample = kept.samples[number]

        def same(reader: Reader) -> bool:
            return hashes.digest(reader, kept.algorithm, look.pace, sample.offset, sample.length) == sample.hash

        _read(look, entry, same, "a part of it changed since it was verified")

    return [lambda number=number, entry=entry, kept=kept: compare(number, entry, kept) for number, _, entry, kept in work]  # type: ignore[misc]


def _whole_files(look: _Look, entries: list[Entry], generator: random.Random) -> list[Callable[[], None]]:
    shuffled = generator.sample(entries, len(entries))

    def compare(entry: Entry) -> None:
        expected = look.known.files[entry.name]
        if not hashes.is_available(expected.algorithm):
            return
        if _read(
            look, entry, lambda reader: hashes.digest(reader, expected.algorithm, look.pace) == expected.hash,
            f"its content is not what {look.known.source} says",
        ):  # fmt: skip
            look.proofs.append(expected.proof)
            look.unknown.remove(entry.name)

    return [lambda entry=entry: compare(entry) for entry in shuffled]  # type: ignore[misc]


def _read(look: _Look, entry: Entry, same: Callable[[Reader], bool], wrong: str) -> bool:
    shown = printable(entry.name)
    try:
        with opened(look.listing.path(entry.name)) as reader:
            is_same = same(reader)
    except (Vanished, Cut, NotRegular):
        look.findings.missing.append(f"{shown} went away or was cut short meanwhile")
        return False
    except Unreadable as error:
        look.findings.unreadable.append(f"{shown} cannot be read: {printable(str(error))}")
        return False
    look.compared += 1
    if not is_same:
        look.findings.damaged.append(f"{shown}: {wrong}")
    return is_same


def _in_time(work: list[Callable[[], None]]) -> int:
    """Do one after the other until the time is up; returns how many are left."""
    for number, one in enumerate(work):
        try:
            one()
        except Stopped:
            return len(work) - number
    return 0


def _judged(report: CheckpointReport, look: _Look, count: int, left: int, clock: Clock) -> CheckpointReport:
    findings = look.findings
    findings.notes.append(
        f"quick: sizes and times of {many(count, 'file')}, {many(look.compared, 'part')} hashed again"
        + (f", {left} left for lack of time" if left else "")
    )
    if look.changed:
        findings.notes.append(f"{printable(look.changed[0])} and {len(look.changed) - 1} more have a new modification time")
    lacking = [name for name in look.unknown if any(one.name == name and one.size for one in look.listing.entries)]
    if lacking:
        once = [name for name in lacking if name in look.record.files]
        how = "verify with --level content --record DIR"
        if once:
            how = "what holds no checksum is hashed by the first look and proven by the second: " + how + " once more"
        findings.unproven.append(f"not verified before: {many(len(lacking), 'file')}, such as {printable(lacking[0])}: {how}")
    reasons = (*findings.reasons, *report.reasons)
    if findings.missing:
        return replace(report, state=CheckpointState.INCOMPLETE, level=None, reasons=reasons)
    if findings.damaged:
        return replace(report, state=CheckpointState.CORRUPT, reasons=reasons)
    if findings.unreadable:
        return replace(report, state=CheckpointState.COMPLETE, level=VerificationLevel.PRESENCE, reasons=reasons)
    if lacking or not look.proofs:
        return replace(report, reasons=reasons)
    proof = max(look.proofs, key=STRENGTH.index)
    return replace(
        report, state=CheckpointState.VERIFIED, level=VerificationLevel.CONTENT, reasons=reasons, proof=proof,
        verified_at_ns=clock.time_ns(),
    )  # fmt: skip
