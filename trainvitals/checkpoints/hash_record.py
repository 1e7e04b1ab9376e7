"""Hashes that were taken here, kept: what a file was when it was first seen, and what was proven of it since.

One record for each checkpoint, a JSON file. `watch` keeps them under its run directory; nodes that share the work write them too,
and they are merged. A record is untrusted input: parsed strictly, bounded, and an entry counts only for a file of exactly that
size and modification time. What it says good of a file is taken; what it says bad is looked at again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.checkpoints.files import Entry
from trainvitals.manifest import ALGORITHMS, is_inside
from trainvitals.records import ContentProof

SCHEMA = 1
MAX_FILES = 100_000
MAX_BYTES = 32 * 1024 * 1024
MAX_SAMPLES = 8
_HEX = re.compile(r"[0-9a-f]{8,64}\Z", re.ASCII)
_COUNT = 2**63


class BadRecord(ValueError):
    """The text is no record. The message says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Hash of a part of a file, for a look before a resume that has no time for all of it. Offset and length in bytes."""

    offset: int
    length: int
    hash: str


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file. hash: of all of it, by ``algorithm``. first_seen_ns, read_ns: when it was hashed for the first and the last time.

    comparisons: how often all of it was read again and found equal. proof: what a reading was compared with, besides that.
    """

    size: int
    modified_at_ns: int
    algorithm: str
    hash: str
    first_seen_ns: int
    read_ns: int
    comparisons: int = 0
    proof: ContentProof = ContentProof.NONE
    samples: tuple[Sample, ...] = ()

    def is_of(self, entry: Entry) -> bool:
        """Whether the file is, as far as its listing shows, still the one that was hashed."""
        return self.size == entry.size and self.modified_at_ns == entry.modified_at_ns


@dataclass(frozen=True, slots=True)
class HashRecord:
    """All files of one checkpoint by name. ``path``: where it was, "" in one that was shared out."""

    path: str = ""
    files: Mapping[str, FileRecord] = field(default_factory=dict)


def dump(record: HashRecord) -> str:
    """The text of the file."""
    files = [
        {
            "name": name,
            "size": one.size,
            "mtime_ns": one.modified_at_ns,
            "algorithm": one.algorithm,
            "hash": one.hash,
            "first_seen_ns": one.first_seen_ns,
            "read_ns": one.read_ns,
            "comparisons": one.comparisons,
            "proof": one.proof.value,
            "samples": [[sample.offset, sample.length, sample.hash] for sample in one.samples],
        }
        for name, one in sorted(record.files.items())
    ]
    return json.dumps({"schema": SCHEMA, "path": record.path, "files": files}, separators=(",", ":"))


def parse(text: str | bytes) -> HashRecord:
    """The record in a text of at most ``MAX_BYTES``; raises ``BadRecord``. A file that makes no sense is left out."""
    if len(text) > MAX_BYTES:
        raise BadRecord(f"longer than {MAX_BYTES} bytes")
    comma = b"," if isinstance(text, bytes) else ","
    if text.count(comma) > 40 * MAX_FILES:  # type: ignore[arg-type]  # bounds memory: an honest record has about 30 a file
        raise BadRecord("it holds more values than files need")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"no JSON ({type(error).__name__})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadRecord(f"no record of schema {SCHEMA}")
    listed = document.get("files")
    if not isinstance(listed, list) or len(listed) > MAX_FILES:
        raise BadRecord("its list of files is missing or too long")
    path = document.get("path")
    files: dict[str, FileRecord] = {}
    for given in listed:
        if isinstance(given, dict) and isinstance(given.get("name"), str) and is_inside(given["name"]):
            one = _file(given)
            if one is not None:
                files[given["name"]] = one
    return HashRecord(path if isinstance(path, str) else "", files)


def with_shares(
    own: HashRecord, shares: Iterable[HashRecord], entries: Iterable[Entry], now_ns: int, not_before_ns: int = 0
) -> HashRecord:  # fmt: skip
    """``own`` with what other nodes hashed: their files count as read now, when they are the files as they are now.

    Where a share says another hash than we know of an untouched file, the share is not believed: the file is read here.
    Readings before ``not_before_ns`` do not count.
    """
    present = {entry.name: entry for entry in entries}
    files = dict(own.files)
    for record in shares:
        for name, one in record.files.items():
            entry = present.get(name)
            if entry is None or not one.is_of(entry) or one.read_ns < not_before_ns:
                continue
            known = own.files.get(name)
            is_known = known is not None and known.size == entry.size
            if known is None or not is_known:
                files[name] = replace(one, read_ns=now_ns, first_seen_ns=one.read_ns, comparisons=0)
            elif (known.algorithm, known.hash) == (one.algorithm, one.hash):
                files[name] = replace(
                    known, modified_at_ns=entry.modified_at_ns, read_ns=now_ns, comparisons=known.comparisons + 1,
                    proof=known.proof or one.proof,
                )  # fmt: skip
    return HashRecord(own.path, files)


def _file(given: Mapping[str, Any]) -> FileRecord | None:
    numbers = [given.get(name) for name in ("size", "mtime_ns", "first_seen_ns", "read_ns", "comparisons")]
    algorithm, digest = given.get("algorithm"), given.get("hash")
    if not all(type(number) is int and 0 <= number < _COUNT for number in numbers):
        return None
    if not isinstance(algorithm, str) or not isinstance(digest, str) or not _HEX.match(digest):
        return None
    if ALGORITHMS.get(algorithm) != len(digest) or given.get("proof") not in tuple(ContentProof):
        return None
    size, modified_at_ns, first_seen_ns, read_ns, comparisons = (int(number or 0) for number in numbers)
    samples = given.get("samples")
    found = [_sample(sample, size) for sample in samples[:MAX_SAMPLES]] if isinstance(samples, list) else []
    return FileRecord(
        size, modified_at_ns, algorithm, digest, first_seen_ns, read_ns, comparisons, ContentProof(given["proof"]),
        tuple(sample for sample in found if sample is not None),
    )  # fmt: skip


def _sample(given: object, size: int) -> Sample | None:
    if not isinstance(given, list) or len(given) != 3:
        return None
    offset, length, digest = given
    if type(offset) is not int or type(length) is not int or not 0 <= offset < offset + length <= size:
        return None
    return Sample(offset, length, digest) if isinstance(digest, str) and _HEX.match(digest) else None
