"""What each start of the trainer was made of, one file an attempt: ``metadata/attempt-00003.json`` in the run directory.

For people and pages; the events go to the store as they are. A file is written anew as a whole when something was added, before
the turn is committed: what is read again after a kill falls into the same file. Sections that come before the first step of an
attempt, which has no number yet, wait in ``metadata/next.json``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainvitals.records import Event

METADATA_DIR = "metadata"
NEXT_FILE = "next.json"
SCHEMA = 1
MAX_FILES = 1_000
MAX_SECTIONS = 32
MAX_PARTS = 256
#: Files that wait for a disk that takes nothing.
MAX_WAITING = 8
#: A run of tens of thousands of ranks tells where each of them is.
MAX_FILE_BYTES = 8 << 20
_DIRECTORY_MODE = 0o2770
_FILE_MODE = 0o640
_FILE_NAME = re.compile(r"attempt-\d{5,19}\.json", re.ASCII)


@dataclass
class _Document:
    """``parts``: section -> number of parts, and the parts that are there. ``start``: data of ``attempt_start``."""

    start: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, tuple[int, dict[int, dict[str, Any]]]] = field(default_factory=dict)
    is_changed: bool = False

    def put(self, section: str, part: int, count: int, values: Mapping[str, Any]) -> bool:
        """False when there is no room. A first part begins its section anew, unless it is the same one read again."""
        known = self.parts.get(section)
        if known is None and len(self.parts) >= MAX_SECTIONS:
            return False
        if known is not None and known[0] == count and known[1].get(part) == values:
            return True
        if known is None or part == 0 or known[0] != count:
            known = self.parts[section] = (count, {})
        known[1][part] = dict(values)
        self.is_changed = True
        return True

    def sections(self) -> dict[str, dict[str, Any]]:
        """The whole ones, each with all its values."""
        return {
            name: {key: value for part in sorted(parts) for key, value in parts[part].items()}
            for name, (count, parts) in self.parts.items()
            if len(parts) == count
        }


class MetadataFiles:
    """Takes ``metadata`` and ``attempt_start`` events; ``flush`` writes. Nothing raises: ``left_out`` counts, ``flush`` tells."""

    def __init__(self, run_dir: str, run: str) -> None:
        self._directory = Path(run_dir) / METADATA_DIR
        self._run = run
        self._documents: dict[int, _Document] = {}  # 0: of the attempt to come
        #: Parts that were no metadata, or for which there was no room.
        self.left_out = 0

    def take(self, event: Event) -> None:
        """One event of the run, in the order in which they were read."""
        if event.kind == "metadata":
            self._take_part(event)
        elif event.kind == "attempt_start" and event.attempt is not None and event.attempt > 0:
            self._begin(event.attempt, event.data)

    def _take_part(self, event: Event) -> None:
        data = event.data
        section, values, part, count = data.get("section"), data.get("values"), data.get("part", 0), data.get("parts", 1)
        if isinstance(section, str) and isinstance(values, Mapping) and _is_part(part, count):
            self.left_out += not self._document(event.attempt or 0).put(section[:100], part, count, values)
        else:
            self.left_out += 1

    def _begin(self, attempt: int, start: Mapping[str, Any]) -> None:
        document, waiting = self._document(attempt), self._document(0)
        if document.start != start:
            document.start, document.is_changed = dict(start), True
        for section, (count, parts) in waiting.parts.items():
            for part in sorted(parts):
                self.left_out += not document.put(section, part, count, parts[part])
        if waiting.parts:
            self._documents[0] = _Document(is_changed=True)
        if len(self._documents) > MAX_WAITING:
            self.flush()  # history holds many starts between two commits; what cannot be written is said by the next flush
        others = sorted(number for number in self._documents if number not in (0, attempt))
        for number in others:
            if not self._documents[number].is_changed or len(self._documents) > MAX_WAITING:
                self.left_out += self._documents[number].is_changed
                del self._documents[number]

    def _document(self, attempt: int) -> _Document:
        if attempt not in self._documents:
            self._documents[attempt] = self._read(attempt)
        return self._documents[attempt]

    def flush(self) -> str:
        """Write what changed. Returns a sentence when that is impossible now (it is tried again), else an empty text."""
        trouble = ""
        # The waiting ones last: what moved into an attempt's file must be there before it goes.
        for attempt, document in sorted(self._documents.items(), reverse=True):
            if not document.is_changed:
                continue
            try:
                self._write(attempt, document)
                document.is_changed = False
            except OSError as error:
                trouble = f"Cannot write {self._path(attempt)}: {error.strerror or error}."
                break
        return trouble

    def _path(self, attempt: int) -> Path:
        return self._directory / (f"attempt-{attempt:05d}.json" if attempt else NEXT_FILE)

    def _write(self, attempt: int, document: _Document) -> None:
        path = self._path(attempt)
        if not attempt and not document.parts:
            path.unlink(missing_ok=True)
            return
        self._make_directory()
        is_new = not path.exists()
        sections = document.sections()
        content = {
            "schema": SCHEMA, "run": self._run, "attempt": attempt or None, "start": document.start, "sections": sections,
            "part_sizes": {
                name: [len(document.parts[name][1][part]) for part in sorted(document.parts[name][1])] for name in sections
            },
            "incomplete": {
                name: {"parts": count, "there": {str(part): values for part, values in parts.items()}}
                for name, (count, parts) in document.parts.items() if name not in sections
            },
        }  # fmt: skip
        text = json.dumps(content, ensure_ascii=True, indent=1, default=str).encode()
        if len(text) > MAX_FILE_BYTES:
            self.left_out += 1
            largest = max(document.parts, key=lambda name: len(json.dumps(document.parts[name][1], default=str)))
            del document.parts[largest]
            self._write(attempt, document)
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if is_new and attempt:
            self._prune()

    def _make_directory(self) -> None:
        if not self._directory.exists():
            self._directory.mkdir(mode=0o770, parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a group that may not be set is no reason to fail
                self._directory.chmod(_DIRECTORY_MODE)
        if stat.S_ISLNK(self._directory.lstat().st_mode):
            raise OSError(f"{self._directory} is a symbolic link; it is not written through")

    def _prune(self) -> None:
        """A trainer that dies at every start leaves a file each time: the oldest go."""
        names = [path.name for path in self._directory.iterdir() if _FILE_NAME.fullmatch(path.name)]
        for name in sorted(names, key=lambda name: int(name[len("attempt-") : -len(".json")]))[:-MAX_FILES]:
            (self._directory / name).unlink(missing_ok=True)

    def _read(self, attempt: int) -> _Document:
        try:
            return _document_of(read_file(self._path(attempt)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return _Document()  # none, or damaged: written anew with what comes next


def _document_of(content: Mapping[str, Any]) -> _Document:
    document = _Document(start=dict(content.get("start") or {}))
    for name, values in content["sections"].items():
        sizes = content.get("part_sizes", {}).get(name)
        if not isinstance(sizes, list) or sum(sizes) != len(values):
            sizes = [len(values)]
        items = iter(values.items())
        document.parts[name] = (len(sizes), {part: dict(itertools.islice(items, size)) for part, size in enumerate(sizes)})
    for name, found in content.get("incomplete", {}).items():
        parts = {int(part): dict(values) for part, values in found["there"].items()}
        document.parts[name] = (int(found["parts"]), parts)
    return document


def read_file(path: Path) -> dict[str, Any]:
    """The content of one of the files. Raises ``OSError`` when it cannot be read and ``ValueError`` when it is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no regular file.")
        content: dict[str, Any] = json.loads(file.read(MAX_FILE_BYTES + 1))
    is_ours = isinstance(content, dict) and content.get("schema") == SCHEMA and isinstance(content.get("sections"), dict)
    if not is_ours:
        raise ValueError(f"{path} is no metadata file of schema {SCHEMA}.")
    return content


def _is_part(part: Any, count: Any) -> bool:
    return type(part) is int and type(count) is int and 0 <= part < count <= MAX_PARTS
