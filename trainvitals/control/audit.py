"""The audit of a run: who asked for what and what came of it, as a chain of hashes in ``control/audit.jsonl``.

Each record holds the hash of the one before, so an edit, a loss or an exchange shows (``audit_chain``); a cut end shows against the
heads that are kept elsewhere (``control/history``, the store's ``audit`` events). People's programs and the watchdog write it, one at
a time (``audit.lock``); the trainer never does. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainvitals.clock import Clock, SystemClock
from trainvitals.control import document
from trainvitals.control.audit_files import AUDIT_FILE, MAX_LINE_BYTES, AuditDirectory, locked
from trainvitals.control.audit_head import Head
from trainvitals.control.files import make_directories
from trainvitals.control.records import MAX_NAME, MAX_REASON
from trainvitals.errors import ControlError, InputError
from trainvitals.masking import mask_cut_text, mask_json

SCHEMA = 1
SCHEMAS = (1,)
MAX_KIND = 64
#: Of ``data`` as JSON; more is replaced by its size and hash.
MAX_DATA_BYTES = 32_768
#: A file that would grow beyond this is put aside and a new one begun; the oldest of more than MAX_KEPT_FILES is deleted.
MAX_FILE_BYTES = 1 << 20
MAX_KEPT_FILES = 16
TORN, ROTATED = "torn", "rotated"
_HEX = frozenset("0123456789abcdef")

__all__ = ["AuditRecord", "Head", "append", "head_of", "newest"]

RunDir = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One record. n: from 1. time_ns: UTC ns. previous: hash of the record before, "" of the first. hash: of all the rest."""

    n: int
    kind: str
    time_ns: int
    run: str = ""
    by: str = ""
    source: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    previous: str = ""
    #: What ``hash`` was found to be, so that it is not reckoned again.
    checked_hash: str = field(default="", compare=False, repr=False)

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of everything else, in hexadecimal."""
        if self.checked_hash:
            return self.checked_hash
        return hashlib.sha256(_canonical(self._document())).hexdigest()

    @property
    def head(self) -> Head:
        """What is anchored elsewhere."""
        return Head(self.n, self.hash)

    def to_line(self) -> bytes:
        """Its one line, with the newline."""
        return _canonical({**self._document(), "hash": self.hash}) + b"\n"

    def _document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "n": self.n, "time": document.to_rfc3339(self.time_ns), "kind": self.kind, "run": self.run,
            "by": self.by, "source": self.source, "data": dict(self.data), "previous": self.previous,
        }  # fmt: skip

    @classmethod
    def from_line(cls, line: bytes, where: str) -> AuditRecord:
        """Raises ``InputError`` for what is no record, or one whose hash does not fit it, or not written as a writer writes it."""
        raw = document.load(line, where, SCHEMAS)
        data = raw.get("data")
        if not isinstance(data, dict):
            raise document.wrong(where, "data", "an object", data)
        record = cls(
            n=document.count(raw, "n", where),
            kind=document.text(raw, "kind", where, MAX_KIND),
            time_ns=document.time_ns(raw, "time", where) or 0,
            run=document.text(raw, "run", where, MAX_NAME),
            by=document.text(raw, "by", where, MAX_NAME),
            source=document.text(raw, "source", where, MAX_NAME),
            data=data,
            previous=_hash_text(raw, "previous", where),
        )
        try:
            record = replace(record, checked_hash=record.hash)
            is_same = record.to_line() == line + b"\n"
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: its data cannot be written again ({error}).") from error
        if not is_same:
            raise InputError(f"{where}: record {record.n} was changed: its hash does not fit what it says.")
        return record


def append(
    run_dir: RunDir, kind: str, *, by: str, source: str, data: Mapping[str, Any], clock: Clock | None = None, run: str = ""
) -> Head:
    """Add one record and have it on disk; returns its number and hash. Secrets in texts are masked.

    Raises ``ControlError`` when the place is unsafe, the disk is full or another writer holds the lock for too long: the caller
    decides whether what is not audited is done; ``InputError`` when there is no run directory.
    """
    now_ns = (clock or SystemClock()).time_ns()
    values = _checked_data(data)
    make_directories(run_dir)
    with locked(run_dir) as directory:
        head, torn = _last(directory)
        lines = []
        if torn:
            lines.append(_torn_record(head, torn, now_ns, run))
            head = lines[-1].head
        if directory.is_new_file and directory.older:
            lines.append(_rotated_record(head, directory, now_ns, run))
            head = lines[-1].head
        elif directory.size + MAX_LINE_BYTES > MAX_FILE_BYTES and not lines:
            directory.put_aside(_first_number(directory), MAX_KEPT_FILES)
            lines.append(_rotated_record(head, directory, now_ns, run))
            head = lines[-1].head
        lines.append(
            AuditRecord(
                head.n + 1, mask_cut_text(kind, MAX_KIND), now_ns, mask_cut_text(run, MAX_NAME), mask_cut_text(by, MAX_NAME),
                mask_cut_text(source, MAX_NAME), values, head.hash,
            )
        )  # fmt: skip
        # The newline closes what a killed writer left; the record after it says how much that was.
        directory.write((b"\n" if torn else b"") + b"".join(record.to_line() for record in lines))
        return lines[-1].head


def head_of(run_dir: RunDir) -> Head:
    """The newest record as its writer left it (not checked), ``Head()`` when there is none. Raises ``ControlError``, ``OSError``."""
    directory = AuditDirectory.open_for_reading(run_dir)
    if directory is None:
        return Head()
    with directory:
        return _last(directory)[0]


def newest(run_dir: RunDir, count: int) -> list[AuditRecord]:
    """The newest records that can be read, oldest first; what is no record is left out (``audit_chain`` names it).

    Raises ``ControlError`` for an unsafe place, ``OSError``.
    """
    directory = AuditDirectory.open_for_reading(run_dir)
    found: list[AuditRecord] = []
    if directory is None:
        return found
    with directory:
        for name in reversed(directory.names):
            records = [record for line in directory.lines(name)[0] if (record := _record_or_none(line, name)) is not None]
            found = records + found
            if len(found) >= count:
                break
    return found[-count:] if count > 0 else []


def _record_or_none(line: bytes, where: str) -> AuditRecord | None:
    try:
        return AuditRecord.from_line(line, where)
    except InputError:
        return None


def _last(directory: AuditDirectory) -> tuple[Head, bytes]:
    """(head, bytes after the last newline). A last line that is no record leaves the head of the one before: the check names it."""
    torn = b""
    for name in reversed(directory.names):
        lines, rest = directory.tail(name)
        torn = rest if name == AUDIT_FILE else torn
        for line in reversed(lines):
            head = _head_of_line(line)
            if head is not None:
                return head, torn
    return Head(), torn


def _head_of_line(line: bytes) -> Head | None:
    try:
        raw = json.loads(line)
        n, digest = raw["n"], raw["hash"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_number = isinstance(n, int) and not isinstance(n, bool) and 0 < n < document.MAX_COUNTER
    return Head(n, digest) if is_number and isinstance(digest, str) and _is_hash(digest) else None


def _first_number(directory: AuditDirectory) -> int:
    head = _head_of_line(directory.first_line())
    return head.n if head is not None else 0


def _torn_record(head: Head, torn: bytes, now_ns: int, run: str) -> AuditRecord:
    data = {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
    return AuditRecord(head.n + 1, TORN, now_ns, run, "", "audit", data, head.hash)


def _rotated_record(head: Head, directory: AuditDirectory, now_ns: int, run: str) -> AuditRecord:
    data = {"file": directory.older[-1], "last": head.n, "kept_from": directory.older[0]}
    return AuditRecord(head.n + 1, ROTATED, now_ns, run, "", "audit", data, head.hash)


def _checked_data(data: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        # Through JSON once, so that what is hashed is what will be read: names are texts, tuples are lists.
        masked = mask_json(json.loads(json.dumps(dict(data), allow_nan=False)))
        text = _canonical(masked)
    except (ValueError, TypeError, RecursionError) as error:
        raise ControlError(f"What is to be audited cannot be written as JSON: {error}.") from error
    if len(text) > MAX_DATA_BYTES or not isinstance(masked, dict):
        return {"left_out_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    return masked


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _is_hash(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)


def _hash_text(raw: Mapping[str, Any], key: str, where: str) -> str:
    value = document.text(raw, key, where, MAX_REASON)
    if value and not _is_hash(value):
        raise document.wrong(where, key, "a SHA-256 in hexadecimal, or empty", value)
    return value
