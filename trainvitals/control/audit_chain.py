"""Checking an audit: walks the chain from its oldest record and names the first one that does not belong. Changes nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainvitals.control import audit, files
from trainvitals.control.audit import ROTATED, TORN, AuditRecord, Head
from trainvitals.control.audit_files import AUDIT_FILE, MAX_LINE_BYTES, AuditDirectory
from trainvitals.control.records import ControlRequest
from trainvitals.errors import ControlError, InputError

#: A writer puts a file aside once in thousands of records.
TRIES = 5

RunDir = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A head as it was written elsewhere. where: for the person who is told."""

    head: Head
    where: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What a check found. problem: the first fault as a sentence, "" = none. broken_n: number of the record that it names.

    first_n: of the oldest record that is kept. torn: parts left by killed writers, closed by the next one. open_bytes: of such a
    part at the very end, not closed yet; no fault.
    """

    records: int = 0
    head: Head = field(default_factory=Head)
    problem: str = ""
    broken_n: int | None = None
    first_n: int = 0
    torn: int = 0
    open_bytes: int = 0
    anchors: int = 0

    @property
    def is_intact(self) -> bool:
        return not self.problem


def verify(run_dir: RunDir, anchors: Iterable[Anchor] = ()) -> Chain:
    """Check every record and every anchor. Raises ``ControlError`` for an unsafe place, ``OSError``."""
    known = list(anchors)
    directory = AuditDirectory.open_for_reading(run_dir)
    if directory is None:
        return _with_anchors(Chain(), {}, known)
    with directory:
        for _ in range(TRIES):
            walk = _Walk({anchor.head.n for anchor in known})
            older = directory.older
            for name in directory.names:
                if not walk.problem:
                    walk.file(directory, name)
            # A writer that has just put a file aside (or was killed then) has not told yet which one is the oldest now.
            if directory.has_file or len(directory.older) != audit.MAX_KEPT_FILES:
                walk.end()
            directory.look()
            if directory.older == older:  # else a writer put a file aside meanwhile, and what was read does not belong together
                break
        else:
            if walk.problem:
                raise ControlError(
                    f"The audit in {run_dir} could not be checked: it is written faster than it is read; try again."
                )
        return _with_anchors(walk.chain(), walk.hashes, known)


def history_anchors(run_dir: RunDir) -> list[Anchor]:
    """The heads that the control file's own history holds. Unreadable entries are left out: the chain itself is checked anyway."""
    directory = files.control_dir(run_dir) / files.HISTORY_DIR
    found = []
    try:
        names = sorted(path.name for path in directory.iterdir() if path.suffix == ".json" and path.stem.isdigit())
    except OSError:
        return []
    for name in names:
        try:
            data = files.read_bytes(directory / name)
            request = None if data is None else ControlRequest.from_json(data, name)
        except (ControlError, InputError, OSError):
            continue
        if request is not None and request.audit_n:
            found.append(Anchor(Head(request.audit_n, request.audit_hash), f"control/history/{name}"))
    return found


class _Walk:
    def __init__(self, wanted: set[int]) -> None:
        self.hashes: dict[int, str] = {}
        self.problem = ""
        self.broken_n: int | None = None
        self._wanted = wanted
        self._head = Head()
        self._first_n = self._records = self._torn = self._open_bytes = 0
        self._oldest_name = self._kept_from = ""

    def file(self, directory: AuditDirectory, name: str) -> None:
        self._oldest_name = self._oldest_name or name
        if directory.is_too_long(name):
            self._break(self._head.n + 1, f"{name} is longer than any writer makes it")
            return
        lines, rest = directory.lines(name)
        for number in range(len(lines)):
            if not self.problem:
                self._line(lines, number, f"{name}, line {number + 1}")
        if rest and not self.problem:
            if name == AUDIT_FILE:
                self._open_bytes = len(rest)
            else:
                self._break(self._head.n + 1, f"{name} ends in the middle of a line")

    def end(self) -> None:
        if not self.problem and self._first_n > 1 and self._kept_from != self._oldest_name:
            missing = self._kept_from or "the files before"
            self._break(self._first_n - 1, f"the audit begins with record {self._first_n}: {missing} is gone")

    def chain(self) -> Chain:
        return Chain(
            self._records, self._head, self.problem, self.broken_n, self._first_n, self._torn, self._open_bytes
        )  # fmt: skip

    def _line(self, lines: list[bytes], number: int, where: str) -> None:
        if number + 1 < len(lines) and self._closes(lines[number + 1], lines[number], where):
            self._torn += 1
            return
        if len(lines[number]) > 2 * MAX_LINE_BYTES:
            self._break(self._head.n + 1, f"{where}: longer than any record")
            return
        try:
            record = AuditRecord.from_line(lines[number], where)
        except InputError as error:
            self._break(self._head.n + 1, f"record {self._head.n + 1} is not as it was written: {error}")
            return
        self._take(record, where)

    def _closes(self, line: bytes, torn: bytes, where: str) -> bool:
        """Whether the next line is a record that says of ``torn`` that a killed writer left it."""
        if b'"kind":"torn"' not in line:
            return False
        try:
            record = AuditRecord.from_line(line, where)
        except InputError:
            return False
        is_told = (record.data.get("bytes"), record.data.get("sha256")) == (len(torn), hashlib.sha256(torn).hexdigest())
        return record.kind == TORN and is_told and (record.n, record.previous) == (self._head.n + 1, self._head.hash)

    def _take(self, record: AuditRecord, where: str) -> None:
        expected = self._head.n + 1
        if not self._first_n and record.n > 1 and record.kind == ROTATED:
            expected = record.n  # older files were deleted on purpose: ``end`` sees to it
        elif record.n > expected:
            missing = f"record {expected} is" if record.n == expected + 1 else f"records {expected} to {record.n - 1} are"
            self._break(expected, f"{missing} missing before record {record.n} ({where})")
            return
        elif record.n < expected:
            self._break(expected, f"record {record.n} stands where record {expected} belongs ({where})")
            return
        elif record.previous != self._head.hash:
            blamed = max(1, self._head.n)
            self._break(blamed, f"record {blamed} is another than the one that record {record.n} follows ({where})")
            return
        if record.kind == ROTATED:
            self._kept_from = str(record.data.get("kept_from") or "")
        self._first_n = self._first_n or record.n
        self._records += 1
        self._head = record.head
        if record.n in self._wanted:
            self.hashes[record.n] = self._head.hash

    def _break(self, n: int, sentence: str) -> None:
        self.problem, self.broken_n = f"The audit is broken at record {n}: {sentence}.", n


def _with_anchors(chain: Chain, hashes: dict[int, str], anchors: list[Anchor]) -> Chain:
    """The same, or the first anchor that it does not hold."""
    problem, broken_n = chain.problem, chain.broken_n
    for anchor in sorted(anchors, key=lambda anchor: anchor.head.n):
        n = anchor.head.n
        if n <= 0 or (chain.first_n and n < chain.first_n) or (broken_n is not None and n >= broken_n):
            continue
        if n > chain.head.n:
            broken_n = chain.head.n + 1
            problem = f"The audit is broken at record {broken_n}: the end was cut off; {anchor.where} knows record {n}."
        elif hashes.get(n) != anchor.head.hash:
            broken_n = n
            problem = f"The audit is broken at record {n}: it is another than the one that {anchor.where} knows."
    return Chain(
        chain.records, chain.head, problem, broken_n, chain.first_n, chain.torn, chain.open_bytes, len(anchors)
    )  # fmt: skip
