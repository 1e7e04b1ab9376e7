"""Level content: every byte of every file that matters is compared with something its writer (or an earlier look) left.

For each file the strongest there is: hash of a manifest, hash of Megatron's integrity.json, CRC32 of each member of a torch zip (an
entry of a DCP shard is one), hash taken when the file was first seen. The proof of a checkpoint is the weakest of its files.
Checksums that torch was told not to write are all 0: then none was recorded, which is no damage.
A bad result is read a second time before it is believed: what a network file system delivers once may be wrong once.
"""

from __future__ import annotations

import datetime
import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainvitals.checkpoints import hashes, writer_hashes, zip_directory
from trainvitals.checkpoints.file_pass import FilePass, Segment
from trainvitals.checkpoints.files import (
    TEMPORARY_NAME,
    Entry,
    Listing,
    NotRegular,
    Reader,
    Unreadable,
    Vanished,
    Window,
    opened,
    printable,
)
from trainvitals.checkpoints.findings import Findings
from trainvitals.checkpoints.hash_record import FileRecord, HashRecord
from trainvitals.checkpoints.hashes import Cut, Pace, Stopped
from trainvitals.checkpoints.layouts.base import Range
from trainvitals.checkpoints.writer_hashes import Expected, WriterHashes
from trainvitals.clock import Clock
from trainvitals.records import ContentProof

#: From the strongest to the weakest.
STRENGTH = (ContentProof.MANIFEST, ContentProof.INTEGRITY_JSON, ContentProof.CHECKSUM, ContentProof.FIRST_SEEN, ContentProof.NONE)
#: A manifest need not name a README; a file with such an ending that it does not name must be proven in another way.
_STATE_ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".distcp", ".safetensors", ".pkl", ".npz")
_KEEP_EVERY_S = 30.0
_MAX_SAMPLES_OF_ALL = 8_192


@dataclass
class Work:
    """What a look at the content has and may do.

    record: hashes known so far. keeps_hashes: whether each file is hashed also where its own checksums prove it. read_since_ns:
    readings of the record since then count as this look's. keep: given the record now and then, for a look that is
    interrupted. share: (k, n) = only the k-th of n parts, k from 1. run: whose checkpoints these are.
    """

    clock: Clock
    pace: Pace
    record: HashRecord = field(default_factory=HashRecord)
    keeps_hashes: bool = False
    read_since_ns: int = 0
    keep: Callable[[HashRecord], None] = lambda record: None
    share: tuple[int, int] = (1, 1)
    run: str = ""
    generator: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True)
class Content:
    """proof: NONE = some file is not proven (the findings say which). shared_out: files that other shares look at."""

    proof: ContentProof
    record: HashRecord
    files: int
    shared_out: int = 0


def check(
    listing: Listing, ranges: Mapping[str, tuple[Range, ...]], known: WriterHashes, findings: Findings, work: Work
) -> Content:
    """Look at a checkpoint whose structure is fine. ``ranges``: files that are rows of zips. Raises ``Stopped``.

    What is found goes to ``findings``; a file that changes meanwhile sets ``vanished`` there.
    """
    entries = [entry for entry in listing.entries if matters(entry, known)]
    mine = share_of(entries, work.share)
    look = _Look(listing, ranges, known, findings, work, max(1, _MAX_SAMPLES_OF_ALL // max(1, len(mine))))
    proofs: list[ContentProof] = []
    kept_s = work.clock.monotonic_s()
    try:
        for entry in mine:
            proof = look.at(entry)
            if proof is not None:
                proofs.append(proof)
            if work.clock.monotonic_s() - kept_s >= _KEEP_EVERY_S:
                work.keep(look.record)
                kept_s = work.clock.monotonic_s()
    except Stopped:
        work.keep(look.record)
        raise
    look.tell()
    work.keep(look.record)
    weakest = max(proofs, key=STRENGTH.index, default=ContentProof.NONE)
    return Content(weakest, look.record, len(mine), len(entries) - len(mine))


def matters(entry: Entry, known: WriterHashes) -> bool:
    """Whether a file belongs to the content: not one of a save in progress, not a list of hashes, not one of ours."""
    return not (
        entry.problem
        or TEMPORARY_NAME.search(entry.name)
        or writer_hashes.is_list_of_hashes(entry.name, known)
        or any(part.startswith(".trainvitals") for part in entry.name.split("/"))
    )


def share_of(entries: list[Entry], share: tuple[int, int]) -> list[Entry]:
    """The k-th of n parts of about equal size: the same on every node, because only names and sizes decide."""
    number, count = share
    loads = [(0, part) for part in range(1, min(count, len(entries)) + 1)]
    mine: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: (-entry.size, entry.name)):
        load, lightest = loads[0]
        heapq.heapreplace(loads, (load + entry.size + 1, lightest))
        if lightest == number:
            mine.append(entry)
    return sorted(mine, key=lambda entry: entry.name)


class _Look:
    """One look at the files, one after the other."""

    def __init__(
        self, listing: Listing, ranges: Mapping[str, tuple[Range, ...]], known: WriterHashes, findings: Findings, work: Work, samples: int
    ) -> None:  # fmt: skip
        self._listing, self._ranges, self._known, self._findings, self._work = listing, ranges, known, findings, work
        self._samples = min(8, samples)
        self._files = dict(work.record.files)
        self._unproven: dict[str, list[str]] = {}

    @property
    def record(self) -> HashRecord:
        """What is known now."""
        return HashRecord(self._work.record.path or self._listing.root, dict(self._files))

    def at(self, entry: Entry) -> ContentProof | None:
        """The proof of one file; None when the file does not count."""
        expected = self._known.files.get(entry.name)
        if expected is None and self._is_beside(entry):
            self._unproven.setdefault("note", []).append(entry.name)
            return None
        if entry.size == 0:
            return ContentProof.MANIFEST  # no bytes, nothing to prove; its size is checked by name
        if expected is not None and not hashes.is_available(expected.algorithm):
            self._unproven.setdefault(expected.algorithm, []).append(entry.name)
            expected = None
        try:
            with opened(self._listing.path(entry.name)) as reader:
                if reader.size != entry.size:
                    raise Cut
                return self._proven(entry, reader, expected)
        except (Vanished, Cut):
            self._findings.vanished = True
        except NotRegular:
            self._findings.missing.append(f"{printable(entry.name)} is not a regular file; not opened")
        except Unreadable as error:
            self._findings.unreadable.append(f"{printable(entry.name)} cannot be read: {printable(str(error))}")
        return ContentProof.NONE

    def tell(self) -> None:
        """Sentences about the files that nothing proves, one for each reason."""
        for why, names in self._unproven.items():
            shown = _shown(names)
            if why == "note":
                self._findings.notes.append(f"{shown} not in {self._known.source} and not compared")
            elif why == "first seen":
                self._findings.notes.append(f"{shown} hashed now for the first time: compared from the next look on")
            elif why == "nothing":
                self._findings.unproven.append(
                    f"{shown} without any checksum, and there is no manifest: the hook writes one (or give --record to keep hashes)"
                )
            else:
                self._findings.notes.append(
                    f"{shown} hashed by the writer with {why}, which is not installed here: install trainvitals[fast]"
                )

    def _is_beside(self, entry: Entry) -> bool:
        whole = self._known.manifest
        is_state = entry.name.endswith(_STATE_ENDINGS) or entry.name in self._ranges
        return whole is not None and whole.is_whole and bool(whole.files) and not is_state

    def _proven(self, entry: Entry, reader: Reader, expected: Expected | None) -> ContentProof:
        work = self._work
        before = work.record.files.get(entry.name)
        if before is not None and before.size != entry.size:
            before = None
        is_read = before is not None and before.is_of(entry) and before.read_ns >= work.read_since_ns > 0
        if before is not None and is_read:
            if expected is not None and (before.algorithm, before.hash) == (expected.algorithm, expected.hash):
                return expected.proof
            if expected is None and before.proof is not ContentProof.NONE:
                return before.proof
            if expected is None and not self._segments(entry, reader):
                return self._first_seen(entry, before)
        segments = self._segments(entry, reader) if expected is None else []
        if expected is not None:
            algorithm = expected.algorithm
        elif before is not None and hashes.is_available(before.algorithm):
            algorithm = before.algorithm  # goes on, so that the two readings can be compared
        else:
            algorithm = hashes.own_algorithm() if work.keeps_hashes else ""
        if not algorithm and not segments:
            # Nothing to compare with and nowhere to keep a hash: reading it would prove nothing.
            self._unproven.setdefault("nothing", []).append(entry.name)
            return ContentProof.NONE
        return self._read(entry, reader, expected, segments, before, algorithm)

    def _read(
        self, entry: Entry, reader: Reader, expected: Expected | None, segments: list[Segment], before: FileRecord | None, algorithm: str
    ) -> ContentProof:  # fmt: skip
        result = FilePass(algorithm, segments, self._samples, self._work.generator).run(reader, self._work.pace)
        wrong = self._wrong(entry, expected, result.bad_segments, result.hash, before)
        if wrong:
            again = FilePass(algorithm, segments, self._samples, self._work.generator).run(reader, self._work.pace)
            wrong = self._wrong(entry, expected, again.bad_segments, again.hash, before)
            if wrong:
                self._findings.damaged.append(f"{printable(entry.name)}: {wrong}")
                return ContentProof.NONE
            self._findings.notes.append(
                f"{printable(entry.name)} was read wrong once and right the second time: look at the storage"
            )
            result = again
        now_ns = self._work.clock.time_ns()
        proof = expected.proof if expected is not None else ContentProof.CHECKSUM if segments else ContentProof.NONE
        if not algorithm:
            return proof
        is_same = before is not None and (before.algorithm, before.hash) == (algorithm, result.hash)
        record = FileRecord(
            entry.size, entry.modified_at_ns, algorithm, result.hash,
            first_seen_ns=before.first_seen_ns if before is not None and is_same else now_ns,
            read_ns=now_ns,
            comparisons=before.comparisons + 1 if before is not None and is_same else 0,
            proof=ContentProof.CHECKSUM if proof is ContentProof.CHECKSUM else ContentProof.NONE,
            samples=tuple(result.samples),
        )  # fmt: skip
        self._files[entry.name] = record
        return proof if proof is not ContentProof.NONE else self._first_seen(entry, record)

    def _first_seen(self, entry: Entry, record: FileRecord) -> ContentProof:
        if record.comparisons:
            return ContentProof.FIRST_SEEN
        self._unproven.setdefault("first seen", []).append(entry.name)
        return ContentProof.NONE

    def _wrong(self, entry: Entry, expected: Expected | None, bad: list[Segment], digest: str, before: FileRecord | None) -> str:
        if expected is not None:
            if digest == expected.hash:
                return ""
            return (
                f"its content is not what {self._known.source} says ({expected.algorithm} {digest[:12]}…, expected {expected.hash[:12]}…)"
                f"{writer_hashes.newer(entry.modified_at_ns, self._known, self._listing)}"
            )
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            return f"zip member {printable(bad[0].name, 80)}{more} does not match its checksum"
        is_untouched = before is not None and before.is_of(entry) and before.algorithm and digest
        if before is not None and is_untouched and digest != before.hash:
            return f"changed since it was first seen ({_day(before.first_seen_ns)}), although size and modification time did not"
        return ""

    def _segments(self, entry: Entry, reader: Reader) -> list[Segment]:
        """Its zip members with their checksums; empty when it is no zip, or has bytes that no checksum covers."""
        ranges = self._ranges.get(entry.name)
        if ranges is None:
            return _of_a_zip(reader, 0, reader.size) or [] if reader.read(0, 4) == b"PK\x03\x04" else []
        segments: list[Segment] = []
        position = 0
        for one in sorted(ranges, key=lambda one: one.offset):
            if one.offset != position:
                return []
            found = _of_a_zip(reader, one.offset, one.length)
            if found is None:
                return []
            segments += found
            position += one.length
        return segments if position == reader.size else []


def _of_a_zip(reader: Reader, offset: int, length: int) -> list[Segment] | None:
    try:
        members = zip_directory.members(Window(reader, offset, length))
    except (zip_directory.BadZip, zip_directory.ZipTooLarge):
        return None  # the structure level says what is wrong with it; no checksum can be taken from it
    found = [
        Segment(offset + member.offset, member.bytes, member.crc32, member.name)
        for member in members.values()
        if member.method == zip_directory.STORED and member.bytes
    ]
    # A member alone without one was filled in later (torch.serialization.skip_data).
    if len(found) < sum(1 for member in members.values() if member.bytes) or not all(segment.crc32 for segment in found):
        return None
    return found


def _shown(names: list[str]) -> str:
    first = ", ".join(printable(name, 60) for name in names[:3])
    return f"{first} and {len(names) - 3} more are" if len(names) > 3 else f"{first} {'is' if len(names) == 1 else 'are'}"


def _day(time_ns: int) -> str:
    return f"{datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC):%Y-%m-%d %H:%M} UTC"
