"""What the writer of a checkpoint says its files are: our manifest (merged, else the ranks' parts), else Megatron's integrity.json.

Such a file is untrusted input: bounded, parsed strictly, and never a reason to open anything that the listing does not hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals import manifest
from trainvitals.checkpoints import integrity_json
from trainvitals.checkpoints.files import Listing, NotRegular, Unreadable, Vanished, opened, printable
from trainvitals.checkpoints.findings import Findings
from trainvitals.manifest import BadManifest, Manifest, ManifestFile
from trainvitals.records import ContentProof

#: About 150,000 files; longer ones are not parsed here, to bound memory.
MAX_MANIFEST_BYTES = 32 * 1024 * 1024
MAX_RANK_PARTS = 100_000


@dataclass(frozen=True, slots=True)
class Expected:
    """One file as its writer saw it; ``size`` in bytes, None = not said."""

    hash: str
    algorithm: str
    size: int | None
    proof: ContentProof


@dataclass(frozen=True, slots=True)
class WriterHashes:
    """``manifest``: the merged one, None when there is none. ``source``: the file name(s), for sentences."""

    files: Mapping[str, Expected] = field(default_factory=dict)
    manifest: Manifest | None = None
    source: str = ""


def is_list_of_hashes(name: str, known: WriterHashes) -> bool:
    """Whether this file only says what the others are, so that nothing need say what it is itself."""
    return manifest.is_own_name(name) or (name == integrity_json.NAME and name not in known.files)


def read(listing: Listing, findings: Findings, step: int | None, run: str = "") -> WriterHashes:
    """The hashes that came with a checkpoint; what is wrong with their file goes to ``findings``.

    ``step``: of the checkpoint as its other files tell it, None = only a name does. ``run``: whose checkpoints these are; another run's is noted.
    """
    own_name = os.path.basename(manifest.beside(listing.root)) if listing.is_file else manifest.NAME  # noqa: PTH119
    whole = _parsed(listing, own_name, findings) if own_name in listing.names else None
    if whole is not None:
        _compare(whole, step, run, findings, own_name)
        named = _expected(whole)
        if listing.is_file and len(named) == 1:
            named = {os.path.basename(listing.root): one for one in named.values()}  # noqa: PTH119 - it may have been renamed
        return WriterHashes(named, whole, own_name)
    if listing.is_file:
        return WriterHashes()
    parts = sorted(name for name in listing.names if manifest.RANK_NAME.match(name))
    files: dict[str, Expected] = {}
    for name in parts[:MAX_RANK_PARTS]:
        part = _parsed(listing, name, findings)
        if part is not None:
            _compare(part, step, run, findings, name)
            files |= _expected(part)
    if files:
        return WriterHashes(files, None, f"{len(parts)} files {printable(parts[0])} …")
    files = {
        name: Expected(digest, "sha256", None, ContentProof.INTEGRITY_JSON)
        for name, digest in integrity_json.read(listing, findings).items()
    }
    return WriterHashes(files, None, integrity_json.NAME if files else "")


def compare_names(hashes: WriterHashes, listing: Listing, findings: Findings) -> None:
    """What names and sizes alone show: a file of the manifest that is not there, or has another size."""
    entries = {entry.name: entry for entry in listing.entries}
    for name, expected in hashes.files.items():
        entry = entries.get(name)
        if entry is None:
            findings.missing.append(f"{printable(name)} is missing, {hashes.source} names it")
        elif expected.size is not None and not entry.problem and entry.size != expected.size:
            findings.damaged.append(
                f"{printable(name)} is {entry.size} bytes, {hashes.source} says {expected.size}"
                f"{newer(entry.modified_at_ns, hashes, listing)}"
            )


def newer(modified_at_ns: int, hashes: WriterHashes, listing: Listing) -> str:
    """What to do about a file that changed after its manifest was written; "" when it did not."""
    written_at_ns = next((entry.modified_at_ns for entry in listing.entries if entry.name == hashes.source), None)
    if written_at_ns is None or modified_at_ns <= written_at_ns:
        return ""
    return f"; it changed after {hashes.source} was written: delete that file if this step was saved again without the hook"


def _parsed(listing: Listing, name: str, findings: Findings) -> Manifest | None:
    shown = printable(name)
    try:
        with opened(listing.path(name)) as reader:
            if reader.size > MAX_MANIFEST_BYTES:
                findings.unproven.append(f"{shown} is longer than what is parsed here ({MAX_MANIFEST_BYTES} bytes)")
                return None
            raw = reader.read(0, reader.size)
    except Vanished:
        findings.vanished = True
        return None
    except (Unreadable, NotRegular) as error:
        findings.unreadable.append(f"{shown} cannot be read: {printable(str(error))}")
        return None
    # Memory is bounded by what an honest writer needs: about seven members for each file.
    if raw.count(b"{") + raw.count(b"[") > manifest.MAX_FILES + 100 or raw.count(b",") > 8 * manifest.MAX_FILES:
        findings.damaged.append(f"{shown} is not what our hook writes: it holds more lists than files")
        return None
    try:
        return manifest.parse(raw)
    except BadManifest as error:
        findings.damaged.append(f"{shown} cannot be used: {error}")
        return None


def _compare(found: Manifest, step: int | None, run: str, findings: Findings, name: str) -> None:
    if step is not None and found.step != step:
        # A trainer and its loop may count differently. Whether it is the list of these files, only their content tells.
        sentence = f"{printable(name)} is of step {found.step}, the checkpoint is of step {step}"
        (findings.notes if abs(found.step - step) == 1 else findings.unproven).append(sentence)
    if run and found.run and found.run != run:
        findings.notes.append(f"{printable(name)} was written by run {printable(found.run, 80)}")


def _expected(found: Manifest) -> dict[str, Expected]:
    def one(file: ManifestFile) -> Expected:
        return Expected(file.hash, found.algorithm, file.size, ContentProof.MANIFEST)

    return {file.path: one(file) for file in found.files}
