"""Is a copy (node-local disk to shared file system) what was copied? Only the shared copy counts when a node is lost."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.checkpoints import content, files, hashes, writer_hashes
from trainvitals.checkpoints.files import Entry, Listing, NotRegular, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.hashes import Cut, Pace
from trainvitals.errors import InputError


@dataclass(frozen=True, slots=True)
class Comparison:
    """``reasons``: each difference as a sentence. ``is_equal`` only when every file was compared. ``by``: with what."""

    is_equal: bool
    files: int
    bytes: int
    by: str
    reasons: tuple[str, ...]


def compare(local: str, shared: str, pace: Pace) -> Comparison:
    """Compare two copies file by file. A manifest of the local one saves reading it. Raises ``InputError`` or ``Stopped``."""
    first, second = _listed(local), _listed(shared)
    findings = Findings()
    known = writer_hashes.read(first, findings, None)
    here = {entry.name: entry for entry in first.entries if content.matters(entry, known)}
    there = {entry.name: entry for entry in second.entries if content.matters(entry, known)}
    findings.missing += [f"{printable(name)} is not in the copy" for name in here if name not in there]
    findings.notes += [f"{printable(name)} is only in the copy" for name in there if name not in here]
    by_manifest = 0
    for name in sorted(here.keys() & there.keys()):
        expected = known.files.get(name)
        if here[name].problem or there[name].problem:
            findings.missing.append(f"{printable(name)} is no regular file")
        elif here[name].size != there[name].size:
            findings.damaged.append(
                f"{printable(name)} is {there[name].size} bytes in the copy, {here[name].size} in the original"
            )
        elif expected is not None and hashes.is_available(expected.algorithm):
            by_manifest += 1
            found = _hash(second, there[name], expected.algorithm, pace, findings)
            if found and found != expected.hash:
                findings.damaged.append(f"{printable(name)}: the copy is not what {known.source} of the original says")
        else:
            algorithm = hashes.own_algorithm()
            one, other = (_hash(which, here[name], algorithm, pace, findings) for which in (first, second))
            if one and other and one != other:
                findings.damaged.append(f"{printable(name)}: the copy differs from the original")
    wrong = findings.missing or findings.damaged or findings.unreadable or first.is_cut or second.is_cut
    by = "manifest" if by_manifest == len(here) else "both copies read" if not by_manifest else "manifest, and both copies read"
    return Comparison(not wrong and bool(here), len(here), sum(entry.size for entry in here.values()), by, findings.reasons)


def _listed(path: str) -> Listing:
    try:
        return files.listing(path)
    except Vanished as error:
        raise InputError(f"There is no checkpoint at {printable(path)}.") from error
    except Unreadable as error:
        raise InputError(f"Cannot read {printable(str(error))}.") from error


def _hash(listing: Listing, entry: Entry, algorithm: str, pace: Pace, findings: Findings) -> str:
    try:
        with opened(listing.path(entry.name)) as reader:
            return hashes.digest(reader, algorithm, pace)
    except (Vanished, Cut, NotRegular):
        findings.missing.append(f"{printable(entry.name)} changed while it was read")
    except Unreadable as error:
        findings.unreadable.append(f"{printable(entry.name)} cannot be read: {printable(str(error))}")
    return ""
