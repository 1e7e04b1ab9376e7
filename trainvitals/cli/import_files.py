"""Which files an import reads, and in which order: names, globs, rotations of one log, directories of event files."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from trainvitals.cli.parse import reading, text_chunks
from trainvitals.errors import InputError
from trainvitals.logs.grammars.tensorboard_records import lines_of_directory
from trainvitals.logs.parser import Parser
from trainvitals.records import Step
from trainvitals.watch.importer import ImportLog, LogPart

#: Chunks that are looked at for a first step, to know where a log stands in time.
PEEK_CHUNKS = 8
HEAD_BYTES = 65_536
_ROTATED = re.compile(
    r"(?P<base>.{1,250}?)(?:\.(?P<number>\d{1,4})|[.-](?P<date>\d{4}-?\d\d-?\d\d(?:[._-]?\d\d[-:]?\d\d(?:[-:]?\d\d)?)?))",
    re.ASCII,
)
TRAINER_STATE = "trainer_state.json"

#: Told after every chunk: the file, and how many of its bytes were read.
Tell = Callable[[str, int], None]


@dataclass(frozen=True)
class _Peeked:
    """A file and what its beginning tells. number, date: of a rotated one."""

    path: Path
    base: str
    number: int | None
    date: str
    first_ns: int | None
    first_step: int | None
    written_ns: int
    size: int


@dataclass(frozen=True)
class Inputs:
    """logs: oldest first. sizes: bytes to read by file name, twice where no step tells its time. notes: what a person should know."""

    logs: tuple[ImportLog, ...]
    sizes: Mapping[str, int]
    notes: tuple[str, ...]


def find_inputs(names: Sequence[str], format: str, timezone: str, custom: Mapping[str, type[Any]], tell: Tell) -> Inputs:
    """The files behind the names. Raises ``InputError`` for what is not there or cannot be read."""
    notes: list[str] = []
    paths = _unique(_expanded(names), notes)
    paths = _without_prefixes(paths, format, timezone, custom, notes)
    peeked = [_peek(path, format, timezone, custom) for path in paths]
    groups: dict[str, list[_Peeked]] = {}
    for one in peeked:
        groups.setdefault(one.base, []).append(one)
    ordered = sorted((_in_order(group) for group in groups.values()), key=_begins)
    logs = tuple(ImportLog(tuple(_part(one, tell) for one in group)) for group in ordered)
    sizes = {str(one.path): one.size * (2 if one.first_ns is None else 1) for one in peeked}
    return Inputs(logs, sizes, tuple(notes))


def _expanded(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        if name == "-":
            raise InputError(
                "Standard input cannot be imported: an import that was interrupted reads its files again. Name a file."
            )
        if Path(name).exists():
            yield Path(name)
            continue
        found = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else []  # noqa: PTH207 (the pattern may be absolute)
        if not found:
            raise InputError(f"There is no file {name}. Check the path, or quote a pattern such as 'logs/*.out'.")
        yield from map(Path, found)


def _unique(paths: Iterable[Path], notes: list[str]) -> list[Path]:
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        with reading(str(path)):
            status = path.stat()
        first = found.setdefault((status.st_dev, status.st_ino), path)
        if first is not path and str(first) != str(path):
            notes.append(f"{path} is the same file as {first}; it is read once.")
    return list(found.values())


def _without_prefixes(
    paths: Sequence[Path], format: str, timezone: str, custom: Mapping[str, type[Any]], notes: list[str]
) -> list[Path]:
    """Each checkpoint of a Hugging Face run holds the whole history up to it: of several only those are read that hold more."""
    states = [path for path in paths if path.name == TRAINER_STATE]
    if len(states) < 2:
        return list(paths)
    rows: dict[Path, list[tuple[int, Mapping[str, float]]]] = {}
    for path in states:
        parser = Parser(format, timezone, custom=custom)
        records = [record for chunk in _chunks(path, _silent) for record in parser.feed(chunk)] + parser.finish()
        rows[path] = [(record.step, dict(record.values)) for record in records if isinstance(record, Step)]
    kept: list[Path] = []
    for path in sorted(states, key=lambda one: len(rows[one]), reverse=True):
        whole = next((other for other in kept if rows[other][: len(rows[path])] == rows[path]), None)
        if whole is None:
            kept.append(path)
        else:
            notes.append(f"{path} holds nothing that {whole} does not hold; it is left out.")
    return [path for path in paths if path.name != TRAINER_STATE or path in kept]


def _peek(path: Path, format: str, timezone: str, custom: Mapping[str, type[Any]]) -> _Peeked:
    name = path.name.removesuffix(".gz")
    rotated = None if path.is_dir() else _ROTATED.fullmatch(name)
    base = str(path.parent / (rotated["base"] if rotated else name))
    number = int(rotated["number"]) if rotated and rotated["number"] else None
    date = re.sub(r"\D", "", rotated["date"] or "") if rotated else ""
    files = _files(path)
    with reading(str(path)):
        written_ns = max(one.stat().st_mtime_ns for one in files)
        size = sum(one.stat().st_size for one in files)
    first = _first_step(path, format, timezone, custom)
    return _Peeked(
        path, base, number, date, first.time_ns if first else None, first.step if first else None, written_ns, size
    )  # fmt: skip


def _first_step(path: Path, format: str, timezone: str, custom: Mapping[str, type[Any]]) -> Step | None:
    parser = _parser(path, format, timezone, custom)
    for chunk in islice(_chunks(path, _silent), PEEK_CHUNKS):
        for record in parser.feed(chunk):
            if isinstance(record, Step):
                return record
    return next((record for record in parser.finish() if isinstance(record, Step)), None)


def _parser(path: Path, format: str, timezone: str, custom: Mapping[str, type[Any]]) -> Parser:
    with reading(str(path)):
        return Parser(format, timezone, path.stat().st_mtime_ns, custom=custom)


def _in_order(group: list[_Peeked]) -> list[_Peeked]:
    """Rotations of one log, oldest first: by their times; else by their numbers (the highest is the oldest) or dates."""
    if all(one.first_ns is not None for one in group):
        return sorted(group, key=lambda one: one.first_ns or 0)
    if any(one.number is None and not one.date for one in group):
        return sorted(group, key=lambda one: (one.number is None and not one.date, -(one.number or 0), one.date))
    return sorted(group, key=lambda one: (one.date, one.first_step or 0, one.written_ns))


def _begins(group: list[_Peeked]) -> tuple[int, int]:
    first = group[0]
    return (first.first_ns if first.first_ns is not None else first.written_ns, first.first_step or 0)


def _part(one: _Peeked, tell: Tell) -> LogPart:
    return LogPart(str(one.path), lambda: _chunks(one.path, tell), one.written_ns, _identity(one))


def _identity(one: _Peeked) -> str:
    digest = hashlib.sha256(f"{one.size} {one.written_ns}".encode())
    for path in _files(one.path):
        with reading(str(path)), path.open("rb") as file:
            digest.update(file.read(HEAD_BYTES))
            file.seek(max(0, path.stat().st_size - HEAD_BYTES))
            digest.update(file.read(HEAD_BYTES))
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*tfevents*") if file.is_file())
    if not found:
        raise InputError(f"{path} is a directory without event files; name log files in it.")
    return found


def _chunks(path: Path, tell: Tell) -> Iterator[bytes]:
    """The text of a file in pieces, or of the event files of a directory."""
    name = str(path)
    with reading(name), ExitStack() as stack:
        if path.is_dir():
            for lines in lines_of_directory(path):
                tell(name, -1)
                yield lines
            return
        if not path.is_file():
            raise InputError(f"{name} is no regular file and may have no end; name a log file.")
        file = stack.enter_context(path.open("rb"))
        for chunk in text_chunks(file, stack, name):
            tell(name, file.tell())
            yield chunk


def _silent(_name: str, _position: int) -> None:
    """Nobody is told of a first look."""


def text_size(count: float) -> str:
    """``1.4 GB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
